//! Flat JSON objects of strangers, read strictly: no name twice, bounded, nothing nested is looked at.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Most names in one object.
const MAX_NAMES: usize = 128;
/// Most texts in one list.
const MAX_TEXTS: usize = 1024;

/// A value as far as anybody here cares.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    /// A whole or broken number; broken ones are cut down, too large ones to the largest.
    Number(i64),
    Flag(bool),
    Texts(Vec<String>),
    /// `null`, an object, or a list with anything but texts.
    Other,
}

/// An object whose names are all different.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Object(pub BTreeMap<String, Value>);

impl Object {
    pub fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut names = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    // Readers disagree which of two counts (RFC 7519 §4).
                    if names.insert(name, value).is_some() {
                        return Err(A::Error::custom("a name is there twice"));
                    }
                    if names.len() > MAX_NAMES {
                        return Err(A::Error::custom("too many names"));
                    }
                }
                Ok(Object(names))
            }
        }
        deserializer.deserialize_map(Names)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        // The cast keeps to the bounds of `i64`; JSON has no NaN.
        Ok(Value::Number(number.floor() as i64))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut texts = Some(Vec::new());
        while let Some(item) = list.next_element::<Item>()? {
            match (&mut texts, item) {
                (Some(found), Item::Text(text)) if found.len() < MAX_TEXTS => found.push(text),
                _ => texts = None,
            }
        }
        Ok(texts.map_or(Value::Other, Value::Texts))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }
}

/// One of a list: a list in a list is passed over, not entered.
enum Item {
    Text(String),
    Other,
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One;
        impl<'de> Visitor<'de> for One {
            type Value = Item;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Text(text.to_owned()))
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Item, E> {
                Ok(Item::Other)
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Item, E> {
                Ok(Item::Other)
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<Item, E> {
                Ok(Item::Other)
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<Item, E> {
                Ok(Item::Other)
            }

            fn visit_unit<E: Error>(self) -> Result<Item, E> {
                Ok(Item::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Item, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Item::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Item::Other)
            }
        }
        deserializer.deserialize_any(One)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &str) -> Value {
        Object::parse(format!("{{\"a\":{json}}}").as_bytes()).unwrap().0.remove("a").unwrap()
    }

    #[test]
    fn values_are_told_apart_and_nesting_is_passed_over() {
        assert_eq!(value("\"x\\u00e9\""), Value::Text("x\u{e9}".into()));
        assert_eq!(value("17"), Value::Number(17));
        assert_eq!(value("-17.5"), Value::Number(-18));
        assert_eq!(value("18446744073709551615"), Value::Number(i64::MAX));
        assert_eq!(value("1e300"), Value::Number(i64::MAX));
        assert_eq!(value("true"), Value::Flag(true));
        assert_eq!(value("[\"x\",\"y\"]"), Value::Texts(vec!["x".into(), "y".into()]));
        assert_eq!(value("[]"), Value::Texts(vec![]));
        for other in [
            "null",
            "{\"b\":{\"b\":[1]}}",
            "[1]",
            "[-1]",
            "[true]",
            "[null]",
            "[0.5]",
            "[\"x\",[\"y\"]]",
            "[{\"y\":1}]",
        ] {
            assert_eq!(value(other), Value::Other, "{other}");
        }
        let many = vec!["\"x\""; MAX_TEXTS + 1].join(",");
        assert_eq!(value(&format!("[{many}]")), Value::Other);
    }

    #[test]
    fn no_name_may_be_there_twice_and_names_are_counted() {
        assert!(Object::parse(b"{\"a\":1,\"b\":2}").is_some());
        assert!(Object::parse(b"{\"a\":1,\"a\":1}").is_none());
        assert!(Object::parse(b"{\"a\":1,\"\\u0061\":1}").is_none());
        let names = |count: usize| (0..count).map(|i| format!("\"n{i}\":0")).collect::<Vec<_>>().join(",");
        assert!(Object::parse(format!("{{{}}}", names(MAX_NAMES)).as_bytes()).is_some());
        assert!(Object::parse(format!("{{{}}}", names(MAX_NAMES + 1)).as_bytes()).is_none());
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for bad in ["", "{", "[]", "1", "{}x", "{\"a\":1e999}", "{\"a\":\"\n\"}", "{\"a\"}", "{a:1}"] {
            assert_eq!(Object::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Object::parse(b"{\"a\":\"\xff\"}"), None);
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let _ = Object::parse(deep.as_bytes());
        let deep = format!("{{\"a\":{}1{}}}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        let _ = Object::parse(deep.as_bytes());
    }
}
