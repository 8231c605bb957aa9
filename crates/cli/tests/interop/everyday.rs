pub fn cases(_: &mut Vec<crate::case::Case>) {}
