//! Lines of `gridftp.conf`: `option value`, `$VARIABLE value`, `# comment`; values with blanks in quotation marks.

/// One line that says something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// From 1 on.
    pub line: usize,
    /// The option, or the variable without its `$`.
    pub name: String,
    /// It is a variable of the environment.
    pub variable: bool,
    /// Its value, without quotation marks.
    pub value: String,
}

/// A line that the real server does not take either.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LineFault {
    /// From 1 on.
    pub line: usize,
    /// What is wrong.
    pub reason: &'static str,
}

/// Reads a file.
///
/// # Errors
/// The first line that the real server would refuse.
pub fn parse(text: &str) -> Result<Vec<Setting>, LineFault> {
    // Carriage returns belong to the end of a line, also to that of a last one without a line feed.
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_start().trim_end_matches('\r')));
    let said = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    said.map(|(at, line)| {
        setting(line).map(|found| Setting { line: at, ..found }).map_err(|reason| LineFault { line: at, reason })
    })
    .collect()
}

fn setting(line: &str) -> Result<Setting, &'static str> {
    let (variable, line) = match line.strip_prefix('$') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (name, rest) = word(line).ok_or("there is no option")?;
    let (value, rest) = word(rest.trim_start()).ok_or("the option has no value")?;
    match rest.trim().is_empty() {
        true => Ok(Setting { line: 0, name: name.to_owned(), variable, value: value.to_owned() }),
        false => Err("something stands behind the value: a value with blanks needs quotation marks"),
    }
}

/// A word or a text in quotation marks, which knows no escapes; and the rest.
fn word(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('"') {
        Some(quoted) => {
            // The real one takes a text that is not closed.
            let end = quoted.find('"').unwrap_or(quoted.len());
            Some((&quoted[..end], quoted[end..].strip_prefix('"').unwrap_or("")))
        }
        None => {
            let end = text.find(char::is_whitespace).unwrap_or(text.len());
            Some(text.split_at(end))
        }
    }
    .filter(|(word, _)| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(usize, bool, String, String)> {
        parse(text).unwrap().into_iter().map(|one| (one.line, one.variable, one.name, one.value)).collect()
    }

    #[test]
    fn lines_are_read_as_the_real_server_reads_them() {
        let text = "# a comment\n\n  port   2811  \n$GLOBUS_TCP_PORT_RANGE 50000,51000\nbanner \"hello # you\"\n\"log_level\" ERROR\n";
        let of = |line, variable, name: &str, value: &str| (line, variable, name.to_owned(), value.to_owned());
        assert_eq!(
            read(text),
            [
                of(3, false, "port", "2811"),
                of(4, true, "GLOBUS_TCP_PORT_RANGE", "50000,51000"),
                of(5, false, "banner", "hello # you"),
                of(6, false, "log_level", "ERROR"),
            ]
        );
    }

    #[test]
    fn ends_of_lines_are_no_part_of_a_value_that_is_not_closed() {
        for text in ["banner \"hello", "banner \"hello\r", "banner \"hello\r\r\n", "banner \"hello\r\r"] {
            assert_eq!(read(text), [(1, false, "banner".to_owned(), "hello".to_owned())], "{text:?}");
        }
    }

    #[test]
    fn what_the_real_server_refuses_is_refused_with_its_line() {
        for text in ["port", "port 1 2", "banner \"\"", "$X", "\nport # 1 2", "\"port"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("port 1\nbanner a b").unwrap_err().line, 2);
    }
}
