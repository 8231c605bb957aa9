//! Passwords that a user keeps in a netrc file.

use super::target::Password;

/// Login and password for `host` (and `user`, if given) in the text of a netrc file.
pub fn entry(text: &str, host: &str, user: Option<&str>) -> Option<(String, Password)> {
    let mut words = text.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(str::split_whitespace);
    let (mut here, mut login, mut found) = (false, None::<String>, None);
    while let Some(word) = words.next() {
        match word {
            "machine" | "default" => {
                here = word == "default" || words.next() == Some(host);
                login = None;
            }
            "login" => login = words.next().map(str::to_owned),
            "password" => {
                let password = words.next()?.to_owned();
                let fits = here && login.is_some() && user.is_none_or(|user| login.as_deref() == Some(user));
                if fits && found.is_none() {
                    found = login.clone().map(|login| (login, Password(password)));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# mine\nmachine a login anna password one\nmachine b\n  login bob\n  password two\ndefault login x password y\n";

    fn found(host: &str, user: Option<&str>) -> Option<(String, String)> {
        entry(TEXT, host, user).map(|(user, password)| (user, password.0))
    }

    #[test]
    fn the_first_fitting_entry_is_used() {
        assert_eq!(found("a", None), Some(("anna".to_owned(), "one".to_owned())));
        assert_eq!(found("b", Some("bob")), Some(("bob".to_owned(), "two".to_owned())));
        assert_eq!(found("b", Some("eve")), None);
        assert_eq!(found("c", None), Some(("x".to_owned(), "y".to_owned())));
    }
}
