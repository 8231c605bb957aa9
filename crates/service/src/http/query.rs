//! What stands behind the question mark: unknown parameters are ignored, known ones have to make sense.

use std::str::FromStr;

use super::ApiError;

/// Parameters of a request, in their order; a name may come more than once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what stands behind the question mark, or the body of a form.
    pub fn parse(text: &[u8]) -> Self {
        Self(form_urlencoded::parse(text).into_owned().collect())
    }

    /// The same as text.
    pub fn to_text(&self) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.0).finish()
    }

    /// The first value of a parameter.
    pub fn get<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next()
    }

    /// The first value of a parameter, if it is not empty.
    pub fn filled<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// A value of some type; empty ones count as not given.
    ///
    /// # Errors
    /// 400 for a value that is none of the type.
    pub fn value<T: FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(text) = self.filled(name) else { return Ok(None) };
        let wrong = |_| ApiError::bad_request(format!("`{name}` cannot be {text:?}"));
        text.parse().map(Some).map_err(wrong)
    }

    /// A yes or a no: `1`, `true`, `yes`, `on`, or `0`, `false`, `no`, `off`, in any case.
    ///
    /// # Errors
    /// 400 for anything else.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        let Some(text) = self.filled(name) else { return Ok(None) };
        match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Ok(Some(true)),
            "0" | "false" | "no" | "off" => Ok(Some(false)),
            _ => Err(ApiError::bad_request(format!("`{name}` is neither true nor false: {text:?}"))),
        }
    }

    /// Values of a parameter that is a list with commas, and may come more than once.
    pub fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.all(name).flat_map(|value| value.split(',')).map(str::trim).filter(|value| !value.is_empty())
    }
}

/// A part of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Entries left out at the beginning.
    pub offset: usize,
    /// Most entries.
    pub limit: usize,
}

impl Page {
    /// `limit` and `offset` of a request; without a limit `default`, and never more than `most`.
    ///
    /// # Errors
    /// 400 for what is no number, and for a limit of 0.
    pub fn of(query: &Query, default: usize, most: usize) -> Result<Self, ApiError> {
        let limit = query.value("limit")?.unwrap_or(default);
        if limit == 0 {
            return Err(ApiError::bad_request("`limit` is at least 1"));
        }
        Ok(Self { offset: query.value("offset")?.unwrap_or(0), limit: limit.min(most) })
    }

    /// The page's entries, and whether others follow.
    pub fn cut<T>(self, all: impl IntoIterator<Item = T>) -> (Vec<T>, bool) {
        let mut rest = all.into_iter().skip(self.offset);
        let page: Vec<T> = rest.by_ref().take(self.limit).collect();
        (page, rest.next().is_some())
    }
}

/// What a request wants of a document's fields (`fields=`); without it all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(Option<Vec<String>>);

impl Fields {
    /// As the request says.
    pub fn of(query: &Query) -> Self {
        let names: Vec<_> = query.list("fields").map(str::to_owned).collect();
        Self((!names.is_empty()).then_some(names))
    }

    /// Leaves only them in a document, or in the entries of a list; `DATA_TYPE` and what a list is paged by stay.
    pub fn apply(&self, document: &mut serde_json::Value) {
        let (Some(names), Some(object)) = (&self.0, document.as_object_mut()) else { return };
        match object.get_mut("DATA") {
            Some(serde_json::Value::Array(entries)) => {
                for entry in entries.iter_mut().filter_map(|entry| entry.as_object_mut()) {
                    entry.retain(|name, _| name == "DATA_TYPE" || names.iter().any(|wanted| wanted == name));
                }
            }
            _ => object.retain(|name, _| name == "DATA_TYPE" || names.iter().any(|wanted| wanted == name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(text.as_bytes())
    }

    #[test]
    fn parameters_are_read_as_browsers_write_them() {
        let query = query("path=%2Fa+b%2F&filter=x&filter=y&empty=&flag=TRUE&n=7&l=a,,b&l=c");
        assert_eq!((query.get("path"), query.get("none"), query.filled("empty")), (Some("/a b/"), None, None));
        assert_eq!(query.all("filter").collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!((query.flag("flag"), query.value("n")), (Ok(Some(true)), Ok(Some(7))));
        assert_eq!(query.list("l").collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(query.flag("n").is_err() && query.value::<u32>("path").is_err());
    }

    #[test]
    fn pages_are_cut_from_what_there_is() {
        let page = |text: &str| Page::of(&query(text), 2, 3);
        assert_eq!(page("").unwrap().cut(0..5), (vec![0, 1], true));
        assert_eq!(page("offset=3").unwrap().cut(0..5), (vec![3, 4], false));
        assert_eq!(page("limit=100&offset=9").unwrap().cut(0..5), (Vec::new(), false));
        assert_eq!(page("limit=100").unwrap().cut(0..5), (vec![0, 1, 2], true));
        assert!(page("limit=0").is_err() && page("limit=-1").is_err() && page("offset=x").is_err());
    }

    #[test]
    fn only_the_fields_wanted_are_told() {
        let fields = Fields::of(&query("fields=a,c"));
        let mut one = json!({"DATA_TYPE": "x", "a": 1, "b": 2});
        fields.apply(&mut one);
        assert_eq!(one, json!({"DATA_TYPE": "x", "a": 1}));
        let mut list = json!({"DATA_TYPE": "l", "total": 2, "DATA": [{"DATA_TYPE": "x", "a": 1, "b": 2}]});
        fields.apply(&mut list);
        assert_eq!(list, json!({"DATA_TYPE": "l", "total": 2, "DATA": [{"DATA_TYPE": "x", "a": 1}]}));
        let mut all = json!({"a": 1});
        Fields::of(&query("fields=")).apply(&mut all);
        assert_eq!(all, json!({"a": 1}));
    }
}
