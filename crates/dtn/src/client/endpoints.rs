//! Endpoints that the user named: `NAME:PATH` is then at the servers of a URL.

use std::collections::BTreeMap;

use whimbrel_proto::url::{self, Location, Remote};

/// Endpoints by their names, none without the file.
#[derive(Debug, Default)]
pub struct Endpoints(BTreeMap<String, Remote>);

impl Endpoints {
    /// Reads the lines `NAME = "URL"` of TOML.
    ///
    /// # Errors
    /// The name that is wrong, and why; what TOML cannot be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines: BTreeMap<String, String> = toml::from_str(text).map_err(|error| error.to_string())?;
        let endpoints = lines.into_iter().map(|(name, url)| match endpoint(&name, &url) {
            Ok(remote) => Ok((name, remote)),
            Err(why) => Err(format!("{name}: {why}")),
        });
        endpoints.collect::<Result<_, _>>().map(Self)
    }

    /// What was meant by a place: the servers of the endpoint of that name, if there is one.
    ///
    /// Only `NAME:PATH` and `USER@NAME:PATH` can mean an endpoint, and a user named there outdoes the URL's. A path that does not
    /// begin with `/` is relative to the URL's.
    pub fn resolved(&self, remote: Remote) -> Remote {
        let ([host], None) = (remote.hosts.as_slice(), remote.scheme) else { return remote };
        match self.0.get(&host.name) {
            Some(endpoint) if host.port.is_none() => Remote {
                user: remote.user.or_else(|| endpoint.user.clone()),
                path: joined(&endpoint.path, remote.path),
                ..endpoint.clone()
            },
            _ => remote,
        }
    }
}

fn endpoint(name: &str, url: &str) -> Result<Remote, String> {
    let plain = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    if name.is_empty() || !name.chars().all(plain) {
        return Err("a name has letters, digits, '-', '_' and '.'".to_owned());
    }
    match url::parse(url.as_bytes()) {
        Ok(Location::Remote(Remote { password: Some(_), .. })) => {
            Err("a password is not kept here: put it into ~/.netrc, or be asked".to_owned())
        }
        Ok(Location::Remote(remote)) if remote.scheme.is_some() => Ok(remote),
        Ok(_) => Err("an endpoint is a URL, as in ftp://dtn1.example.org:2811,dtn2.example.org:2811/data".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A path seen from the endpoint's; a URL without one leaves it to the login where relative paths begin.
fn joined(base: &[u8], path: Vec<u8>) -> Vec<u8> {
    match (base, path.as_slice()) {
        (b"" | b"/", _) | (_, [b'/', ..]) => path,
        (_, []) => base.to_vec(),
        _ => [base.strip_suffix(b"/").unwrap_or(base), path.as_slice()].join(&b'/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        # Our two DTNs.
        lab = "whimbrel://anna@dtn1.example.org,dtn2.example.org:3000/data/"
        home = "sshftp://login.example.org/~/runs"
        bare = "ftp://127.0.0.1:2811"
    "#;

    fn meant(text: &str) -> String {
        let Ok(Location::Remote(remote)) = url::parse(text.as_bytes()) else { panic!("{text} is no server's") };
        Endpoints::parse(FILE).expect("read").resolved(remote).to_string()
    }

    #[test]
    fn a_name_is_its_servers_and_where_paths_begin() {
        let lab = "whimbrel://anna@dtn1.example.org,dtn2.example.org:3000";
        assert_eq!(meant("lab:run7/a"), format!("{lab}/data/run7/a"));
        assert_eq!(meant("lab:"), format!("{lab}/data/"));
        assert_eq!(meant("lab:/scratch"), format!("{lab}/scratch"));
        assert_eq!(meant("ben@lab:x"), "whimbrel://ben@dtn1.example.org,dtn2.example.org:3000/data/x");
        assert_eq!(meant("home:7"), "sshftp://login.example.org/~/runs/7");
        assert_eq!(meant("bare:7"), "ftp://127.0.0.1:2811/~/7");
    }

    #[test]
    fn whatever_else_is_written_means_what_it_says() {
        for text in ["dtn:/a", "ftp://lab/a", "ftp://lab:2811/a", "ftp://lab,home/a", "labs:a"] {
            let Ok(Location::Remote(remote)) = url::parse(text.as_bytes()) else { panic!("{text} is no server's") };
            assert_eq!(meant(text), remote.to_string());
        }
    }

    #[test]
    fn what_names_no_servers_is_refused_with_the_name() {
        for (line, why) in [
            (r#"a = "dtn:/x""#, "an endpoint is a URL"),
            (r#"a = "/x""#, "an endpoint is a URL"),
            (r#"a = "ftp://anna:secret@h/""#, "password"),
            (r#"a = "http://h/""#, "a: "),
            (r#"a = "ftp://h:port/""#, "a: "),
            (r#"a = 7"#, "string"),
            (r#""a b" = "ftp://h/""#, "a name has"),
            (r#""a:b" = "ftp://h/""#, "a name has"),
            (
                r#"a = "ftp://h/"
                a = "ftp://i/""#,
                "duplicate",
            ),
        ] {
            let refusal = Endpoints::parse(line).expect_err(line);
            assert!(refusal.contains(why) && !refusal.contains("secret"), "{line}: {refusal}");
        }
    }
}
