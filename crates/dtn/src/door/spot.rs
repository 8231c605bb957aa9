//! Which file of which collection a URL names: `/COLLECTION/PATH`, percent-encoded.

use uuid::Uuid;

/// A file of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Its identifier.
    pub collection: Uuid,
    /// Absolute in the collection.
    pub path: String,
}

impl Spot {
    /// Reads the path of a URL; `None`: it names no collection, or no text.
    pub fn of(url_path: &str) -> Option<Self> {
        let rest = url_path.strip_prefix('/')?;
        let (collection, path) = rest.split_once('/').unwrap_or((rest, ""));
        Some(Self { collection: Uuid::try_parse(collection).ok()?, path: format!("/{}", decoded(path)?) })
    }

    /// The last name of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Undoes percent-encoding (RFC 3986 §2.1); `None` for what is none, or no UTF-8.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        (rest, _) = match (first, behind) {
            (b'%', [high, low, behind @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                let byte = digit(high)? * 16 + digit(low)?;
                (behind, bytes.push(u8::try_from(byte).ok()?))
            }
            (b'%', _) => return None,
            (other, behind) => (behind, bytes.push(*other)),
        };
    }
    String::from_utf8(bytes).ok()
}

/// A name for a field of a head (RFC 8187): what could end it is percent-encoded.
pub fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_collection_and_a_path_in_it() {
        let id = "aaaaaaaa-0000-4000-8000-00000000000a";
        let path = |url: &str| Spot::of(&format!("/{id}{url}")).map(|spot| spot.path);
        assert_eq!(path("/a/b%20c%2F%c3%a9+%25").as_deref(), Some("/a/b c/é+%"));
        assert_eq!((path("").as_deref(), path("/").as_deref()), (Some("/"), Some("/")));
        assert_eq!((path("/%"), path("/%4"), path("/%zz"), path("/%ff")), (None, None, None, None));
        assert_eq!(Spot::of("/nothing/a"), None);
        assert_eq!(Spot::of(&format!("/{id}/a/b.txt")).unwrap().name(), "b.txt");
        assert_eq!(encoded("a\"b\r\nü.txt"), "a%22b%0D%0A%C3%BC.txt");
    }
}
