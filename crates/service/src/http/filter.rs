//! `filter=` and `orderby=` as the Transfer API has them, for tasks, events and files alike.
//!
//! `key:value,value/key2:value`: terms between slashes have to hold all; a repeated parameter is another way to fit. In a text
//! value `=` in front means exactly this, `~` a pattern with `*`, `?` and `[]`, `!` not, `!~` not like. Two values of a time are
//! from and to, either of them may be empty; numbers may have `>`, `>=`, `<`, `<=` or `=` in front.

use std::cmp::Ordering;

use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::pattern::{self, Syntax};

use super::{ApiError, Query};
use crate::clock;

/// Longest filter, bytes; requests have room for more parameters than anybody needs.
const LONGEST: usize = 16 << 10;

/// A filter: fits if one of its alternatives does; without any, everything fits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter(pub Vec<Vec<Term>>);

/// A key with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// What is looked at.
    pub key: String,
    /// What it may be, as written.
    pub values: Vec<String>,
}

impl Filter {
    /// All parameters `filter` of a request; empty ones ask for nothing.
    ///
    /// # Errors
    /// 400 for a term without a key, or with one that is not among `keys`.
    pub fn of(query: &Query, keys: &[&str]) -> Result<Self, ApiError> {
        let texts = query.all("filter").filter(|text| !text.is_empty());
        texts.map(|text| alternative(text, keys)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether something fits, by what `fits` says of a term.
    pub fn fits(&self, mut fits: impl FnMut(&Term) -> bool) -> bool {
        self.0.is_empty() || self.0.iter().any(|terms| terms.iter().all(&mut fits))
    }
}

fn alternative(text: &str, keys: &[&str]) -> Result<Vec<Term>, ApiError> {
    if text.len() > LONGEST {
        return Err(ApiError::bad_request(format!("a filter has at most {LONGEST} bytes")));
    }
    text.split('/').filter(|term| !term.is_empty()).map(|term| Term::parse(term, keys)).collect()
}

impl Term {
    fn parse(text: &str, keys: &[&str]) -> Result<Self, ApiError> {
        let (key, values) = text
            .split_once(':')
            .ok_or_else(|| ApiError::bad_request(format!("`filter`: {text:?} should be a key, a colon and values")))?;
        if !keys.contains(&key) {
            let keys = keys.join(", ");
            return Err(ApiError::bad_request(format!("`filter`: {key:?} is none of the keys here, which are {keys}")));
        }
        Ok(Self { key: key.to_owned(), values: values.split(',').map(str::to_owned).collect() })
    }

    /// Whether one of the values is this word, in any case.
    pub fn names(&self, word: &str) -> bool {
        self.values.iter().any(|value| value.trim_start_matches('=').eq_ignore_ascii_case(word))
    }

    /// Whether a text fits: no value with `!` speaks against it, and one of the others, if there are any, for it.
    pub fn fits_text(&self, text: &str) -> bool {
        let (mut wanted, mut found) = (false, false);
        for value in &self.values {
            match Operator::of(value) {
                (Operator::Not, word) if text == word => return false,
                (Operator::Unlike, pattern) if is_like(pattern, text) => return false,
                (Operator::Not | Operator::Unlike, _) => {}
                (Operator::Is, word) => (wanted, found) = (true, found || text == word),
                (Operator::Like, pattern) => {
                    (wanted, found) = (true, found || is_like(pattern, text));
                }
            }
        }
        found || !wanted
    }

    /// From and to, both inclusive, either of them open; one value alone is from.
    ///
    /// # Errors
    /// 400 for what are no times.
    pub fn span(&self) -> Result<(Option<Timestamp>, Option<Timestamp>), ApiError> {
        let wrong = || ApiError::bad_request(format!("`filter`: {} needs times, from,to", self.key));
        let time = |text: Option<&String>| match text.filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(text) => clock::parse(text).map(Some).ok_or_else(wrong),
        };
        if self.values.len() > 2 {
            return Err(wrong());
        }
        Ok((time(self.values.first())?, time(self.values.get(1))?))
    }

    /// Whether a number fits one of the values.
    ///
    /// # Errors
    /// 400 for what are no numbers.
    pub fn fits_number(&self, number: i64) -> Result<bool, ApiError> {
        let mut fits = false;
        for value in &self.values {
            let (operator, digits) = comparison(value);
            let wrong = |_| ApiError::bad_request(format!("`filter`: {} needs numbers, not {value:?}", self.key));
            let order = number.cmp(&digits.parse().map_err(wrong)?);
            fits |= match operator {
                ">" => order == Ordering::Greater,
                ">=" => order != Ordering::Less,
                "<" => order == Ordering::Less,
                "<=" => order != Ordering::Greater,
                "!" => order != Ordering::Equal,
                _ => order == Ordering::Equal,
            };
        }
        Ok(fits)
    }
}

fn is_like(pattern: &str, text: &str) -> bool {
    pattern::fits(pattern.as_bytes(), text.as_bytes(), Syntax::Plain)
}

enum Operator {
    Is,
    Like,
    Not,
    Unlike,
}

impl Operator {
    fn of(value: &str) -> (Self, &str) {
        for (sign, operator) in [("!~", Self::Unlike), ("!", Self::Not), ("~", Self::Like), ("=", Self::Is)] {
            if let Some(rest) = value.strip_prefix(sign) {
                return (operator, rest);
            }
        }
        (Self::Is, value)
    }
}

fn comparison(value: &str) -> (&str, &str) {
    let length =
        [">=", "<=", ">", "<", "!", "="].iter().find(|sign| value.starts_with(**sign)).map_or(0, |sign| sign.len());
    value.split_at(length)
}

/// One key to sort by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// What is compared.
    pub key: String,
    /// Largest first.
    pub descending: bool,
}

/// `orderby` of a request: `type,name DESC`.
///
/// # Errors
/// 400 for a key that is not among `keys`, or a direction other than ASC and DESC.
pub fn orders(query: &Query, keys: &[&str]) -> Result<Vec<Order>, ApiError> {
    query.list("orderby").map(|text| order(text, keys)).collect()
}

fn order(text: &str, keys: &[&str]) -> Result<Order, ApiError> {
    let mut words = text.split_ascii_whitespace();
    let (key, direction, more) = (words.next().unwrap_or_default(), words.next(), words.next());
    let descending = match direction.map(str::to_ascii_uppercase).as_deref() {
        None | Some("ASC") => false,
        Some("DESC") => true,
        Some(_) => return Err(ApiError::bad_request(format!("`orderby`: {text:?} goes neither ASC nor DESC"))),
    };
    if more.is_some() || !keys.contains(&key) {
        let keys = keys.join(", ");
        return Err(ApiError::bad_request(format!("`orderby`: {text:?} is none of the keys here, which are {keys}")));
    }
    Ok(Order { key: key.to_owned(), descending })
}

/// The first difference that the keys find, in their directions.
pub fn compare<'a>(orders: &'a [Order], mut by: impl FnMut(&'a str) -> Ordering) -> Ordering {
    let differences = orders.iter().map(|order| {
        let ordering = by(&order.key);
        if order.descending { ordering.reverse() } else { ordering }
    });
    differences.into_iter().find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEYS: &[&str] = &["type", "status", "label", "request_time", "size", "name"];

    fn filter(texts: &[&str]) -> Result<Filter, ApiError> {
        let query: String = texts.iter().map(|text| format!("filter={}&", encode(text))).collect();
        Filter::of(&Query::parse(query.as_bytes()), KEYS)
    }

    fn encode(text: &str) -> String {
        form_urlencoded::byte_serialize(text.as_bytes()).collect()
    }

    fn term(text: &str) -> Term {
        Term::parse(text, KEYS).unwrap()
    }

    #[test]
    fn terms_have_to_hold_all_and_a_repeated_filter_is_another_way() {
        let both = filter(&["type:TRANSFER,DELETE/status:ACTIVE"]).unwrap();
        let fits = |filter: &Filter, kind: &str, status: &str| {
            filter.fits(|term| if term.key == "type" { term.names(kind) } else { term.names(status) })
        };
        assert!(fits(&both, "DELETE", "ACTIVE") && !fits(&both, "DELETE", "FAILED") && !fits(&both, "OTHER", "ACTIVE"));
        let either = filter(&["type:DELETE", "status:FAILED"]).unwrap();
        assert!(fits(&either, "DELETE", "ACTIVE") && fits(&either, "TRANSFER", "FAILED"));
        assert!(!fits(&either, "TRANSFER", "ACTIVE"));
        // The command line sends it empty for events.
        assert!(fits(&filter(&[""]).unwrap(), "x", "y") && fits(&filter(&[]).unwrap(), "x", "y"));
    }

    #[test]
    fn texts_fit_as_their_operators_say() {
        for (text, fitting, other) in [
            ("label:run", "run", "runs"),
            ("label:=~run", "~run", "run"),
            ("label:~run*", "run 7", "my run"),
            ("label:!run", "runs", "run"),
            ("label:!~run*", "my run", "run 7"),
            ("label:~foo*,!~*bar", "foo", "foobar"),
            ("label:a,b", "b", "c"),
            ("name:~*.tx[tz]", "a.txz", "a.tx"),
        ] {
            assert!(term(text).fits_text(fitting) && !term(text).fits_text(other), "{text}");
        }
    }

    #[test]
    fn spans_and_numbers_are_read() {
        let at = |secs| Some(Timestamp::from_secs(secs));
        assert_eq!(term("request_time:1970-01-02,1970-01-03").span(), Ok((at(86_400), at(172_800))));
        assert_eq!(term("request_time:,1970-01-03").span(), Ok((None, at(172_800))));
        assert_eq!(term("request_time:1970-01-02 00:00:01,").span(), Ok((at(86_401), None)));
        assert!(term("request_time:yesterday").span().is_err() && term("request_time:,,").span().is_err());
        for (text, fitting, other) in
            [("size:>100", 101, 100), ("size:<=5", 5, 6), ("size:1,2", 2, 3), ("size:!7", 8, 7), ("size:=7", 7, 8)]
        {
            let term = term(text);
            assert_eq!((term.fits_number(fitting), term.fits_number(other)), (Ok(true), Ok(false)), "{text}");
        }
        assert!(term("size:big").fits_number(1).is_err());
    }

    #[test]
    fn keys_that_are_not_there_are_told() {
        let error = filter(&["colour:red"]).unwrap_err();
        assert!(error.message.contains("colour") && error.message.contains("status"), "{error}");
        assert!(filter(&["type"]).is_err());
        let orders = |text: &str| super::orders(&Query::parse(format!("orderby={}", encode(text)).as_bytes()), KEYS);
        let type_then_name = orders("type,name DESC").unwrap();
        assert_eq!((type_then_name[0].descending, type_then_name[1].descending), (false, true));
        assert!(orders("name sideways").is_err() && orders("colour").is_err() && orders("name DESC x").is_err());
    }

    #[test]
    fn things_are_compared_key_by_key() {
        let orders =
            [Order { key: "a".to_owned(), descending: false }, Order { key: "b".to_owned(), descending: true }];
        let by = |(a1, b1): (u8, u8), (a2, b2): (u8, u8)| {
            compare(&orders, |key| if key == "a" { a1.cmp(&a2) } else { b1.cmp(&b2) })
        };
        assert_eq!(
            (by((1, 1), (1, 2)), by((1, 2), (2, 1)), by((1, 1), (1, 1))),
            (Ordering::Greater, Ordering::Less, Ordering::Equal)
        );
    }

    proptest! {
        #[test]
        fn what_strangers_send_is_a_filter_or_an_error(text in ".{0,200}", name in ".{0,20}") {
            if let Ok(filter) = filter(&[&text]) {
                for term in filter.0.iter().flatten() {
                    let _fits = (term.fits_text(&name), term.span(), term.fits_number(7));
                }
            }
            let _orders = super::orders(&Query::parse(text.as_bytes()), KEYS);
        }

        #[test]
        fn an_exact_text_fits_itself_only(text in "[a-z~!=]{1,8}", other in "[a-z~!=]{1,8}") {
            let term = Term { key: "label".to_owned(), values: vec![format!("={text}")] };
            prop_assert_eq!(term.fits_text(&other), text == other);
            let not = Term { key: "label".to_owned(), values: vec![format!("!{text}")] };
            if !text.starts_with('~') {
                prop_assert_eq!(not.fits_text(&other), text != other);
            }
        }
    }
}
