//! Distinguished names: how they print, how they compare, and how a proxy's grows out of its issuer's.

use super::der::{DerError, Item, Reader, tag};
use super::oid::{self, Oid};

/// Most attributes of a name; proxies add one for each delegation.
const MOST_ATTRIBUTES: usize = 64;

/// A name in its DER form, with its attributes in order.
#[derive(Debug, Clone)]
pub struct Name<'a> {
    der: &'a [u8],
    attributes: Vec<Attribute<'a>>,
}

/// One part of a name: its type and its value.
#[derive(Debug, Clone, Copy)]
pub struct Attribute<'a> {
    /// Which relative distinguished name it belongs to, from 0; nearly all have one attribute.
    pub rdn: usize,
    /// The type.
    pub oid: Oid<'a>,
    /// The value with its string type.
    pub value: Item<'a>,
}

impl<'a> Name<'a> {
    /// Reads a Name (RFC 5280 §4.1.2.4); strings must be what their types say and hold no NUL.
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, DerError> {
        let whole = reader.expect(tag::SEQUENCE)?;
        let mut rdns = whole.inside();
        let mut attributes = Vec::new();
        let mut rdn = 0;
        while !rdns.is_empty() {
            let mut set = rdns.expect(tag::SET)?.inside();
            if set.is_empty() {
                return Err(DerError::Value("name"));
            }
            while !set.is_empty() {
                let mut pair = set.sequence()?;
                let (oid, value) = (pair.oid()?, pair.item()?);
                pair.end()?;
                checked(&value)?;
                if attributes.len() == MOST_ATTRIBUTES {
                    return Err(DerError::TooMany("parts of a name"));
                }
                attributes.push(Attribute { rdn, oid, value });
            }
            rdn += 1;
        }
        Ok(Self { der: whole.whole, attributes })
    }

    /// The name's DER form.
    pub fn der(&self) -> &'a [u8] {
        self.der
    }

    /// Its attributes, the most general first.
    pub fn attributes(&self) -> &[Attribute<'a>] {
        &self.attributes
    }

    /// True for the name without any part.
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// The name on one line, `/O=Grid/CN=alice`, as OpenSSL's `X509_NAME_oneline` has printed it for ever: bytes beyond printable
    /// ASCII are `\xHH`, parts of one place have a `+` between them.
    ///
    /// Unlike OpenSSL before 3.0, a `/` or `+` in a value that could be taken for the beginning of another part has a `\` before it;
    /// unlike 3.0, others have none, so that `CN=host/name` reads as in all the files there are. A `\` is `\x5C`. Hence different
    /// names print differently, but for those that [`Self::is_ambiguous`] tells, and [`normal_form`] sees through all three ways.
    pub fn one_line(&self) -> String {
        let mut text = String::new();
        let mut rdn = None;
        for attribute in &self.attributes {
            text.push(if rdn == Some(attribute.rdn) { '+' } else { '/' });
            rdn = Some(attribute.rdn);
            match short_name(attribute.oid) {
                Some(name) => text.push_str(name),
                None => text.push_str(&attribute.oid.to_string()),
            }
            text.push('=');
            print_value(&attribute.value, &mut text);
        }
        text
    }

    /// True if [`Self::one_line`] may be another name's as well: it shows the bytes of values, which are other characters in other types.
    /// Of a BMPString of U+616C and U+6963 it shows `alic`.
    ///
    /// Nobody may be known by such a line. Values of the types that certificates have today are never ambiguous, nor is a BMPString of
    /// ASCII.
    pub fn is_ambiguous(&self) -> bool {
        self.attributes.iter().any(|attribute| is_ambiguous(&attribute.value))
    }

    /// True if both are the same name by RFC 5280 §7.1: string types, letter case of ASCII and runs of spaces aside.
    pub fn matches(&self, other: &Name<'_>) -> bool {
        self.der == other.der || alike(&self.attributes, &other.attributes)
    }

    /// Bytes that are equal for names that [`Self::matches`], and for no others: a key to find names by.
    pub fn canonical(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.der.len());
        for attribute in &self.attributes {
            let (kind, text) = folded(&attribute.value);
            key.extend_from_slice(&(attribute.rdn as u32).to_be_bytes());
            key.push(attribute.oid.bytes().len() as u8);
            key.extend_from_slice(attribute.oid.bytes());
            key.push(kind.unwrap_or(0));
            key.extend_from_slice(&(text.len() as u32).to_be_bytes());
            key.extend_from_slice(&text);
        }
        key
    }

    /// The last attribute if this name is `parent` and one commonName more (RFC 3820 §3.4).
    pub fn below(&self, parent: &Name<'_>) -> Option<&Attribute<'a>> {
        let (last, rest) = self.attributes.split_last()?;
        let alone = rest.last().is_none_or(|before| before.rdn != last.rdn);
        (alone && last.oid == oid::COMMON_NAME && alike(rest, &parent.attributes)).then_some(last)
    }

    /// The last attribute if it is a commonName that shares its place with no other.
    pub fn last_common_name(&self) -> Option<&'a [u8]> {
        let (last, rest) = self.attributes.split_last()?;
        let alone = rest.last().is_none_or(|before| before.rdn != last.rdn);
        (alone && last.oid == oid::COMMON_NAME).then_some(last.value.value)
    }

    /// All commonNames, in order.
    pub fn common_names(&self) -> impl Iterator<Item = &'a [u8]> {
        self.attributes.iter().filter(|attribute| attribute.oid == oid::COMMON_NAME).map(|part| part.value.value)
    }
}

fn alike(one: &[Attribute<'_>], other: &[Attribute<'_>]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| {
            let same = one.value.whole == other.value.whole || folded(&one.value) == folded(&other.value);
            one.rdn == other.rdn && one.oid == other.oid && same
        })
}

/// The characters of a value of a string type that names compare by; `None` for other types.
fn characters<'a>(value: &Item<'a>) -> Option<Box<dyn Iterator<Item = Result<char, DerError>> + 'a>> {
    const BAD: DerError = DerError::Value("name");
    let bytes = value.value;
    Some(match value.tag {
        tag::UTF8_STRING => match std::str::from_utf8(bytes) {
            Ok(text) => Box::new(text.chars().map(Ok)),
            Err(_) => Box::new(std::iter::once(Err(BAD))),
        },
        tag::PRINTABLE_STRING | tag::IA5_STRING | tag::VISIBLE_STRING => {
            Box::new(bytes.iter().map(|&byte| if byte.is_ascii() { Ok(char::from(byte)) } else { Err(BAD) }))
        }
        // Nobody means T.61: everybody reads Latin-1.
        tag::T61_STRING => Box::new(bytes.iter().map(|&byte| Ok(char::from(byte)))),
        tag::BMP_STRING => Box::new(bytes.chunks(2).map(|unit| match unit {
            &[high, low] => char::from_u32(u32::from(high) << 8 | u32::from(low)).ok_or(BAD),
            _ => Err(BAD),
        })),
        tag::UNIVERSAL_STRING => Box::new(bytes.chunks(4).map(|unit| match unit.try_into() {
            Ok(unit) => char::from_u32(u32::from_be_bytes(unit)).ok_or(BAD),
            Err(_) => Err(BAD),
        })),
        _ => return None,
    })
}

/// Checks a value: its string is one, and no NUL ends it early for whoever reads it as a C string.
fn checked(value: &Item<'_>) -> Result<(), DerError> {
    let nul = || DerError::Value("name (there is a NUL in it)");
    match characters(value) {
        Some(mut characters) => {
            characters.try_for_each(|character| if character? == '\0' { Err(nul()) } else { Ok(()) })
        }
        None if value.tag == tag::GENERAL_STRING && value.value.contains(&0) => Err(nul()),
        None => Ok(()),
    }
}

/// A value as names compare: small letters, single spaces, none at the ends (RFC 4518 as OpenSSL does it).
fn folded(value: &Item<'_>) -> (Option<u8>, Vec<u8>) {
    let Some(characters) = characters(value) else { return (Some(value.tag), value.value.to_vec()) };
    let text: String = characters.flatten().map(|character| character.to_ascii_lowercase()).collect();
    let words: Vec<&str> = text.split([' ', '\t', '\n', '\x0b', '\x0c', '\r']).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    (None, words.join(" ").into_bytes())
}

/// The bytes of a value that a one-line name shows: of a BIT STRING the bits, not how many of them do not count (as OpenSSL).
fn shown<'a>(value: &Item<'a>) -> &'a [u8] {
    if value.tag == tag::BIT_STRING { value.value.get(1..).unwrap_or_default() } else { value.value }
}

/// True if what is shown of a value is shown of one with other characters as well, which is not ambiguous itself.
fn is_ambiguous(value: &Item<'_>) -> bool {
    let bytes = shown(value);
    match value.tag {
        _ if bytes.is_empty() => false,
        tag::UTF8_STRING | tag::PRINTABLE_STRING | tag::IA5_STRING | tag::VISIBLE_STRING => false,
        tag::NUMERIC_STRING | tag::GENERAL_STRING => !bytes.is_ascii() || bytes.contains(&0),
        tag::T61_STRING => !bytes.is_ascii() && std::str::from_utf8(bytes).is_ok(),
        // No character is NUL: a zero says that there are two bytes for each, two zeros that there are four.
        tag::BMP_STRING => !bytes.contains(&0),
        tag::UNIVERSAL_STRING => !bytes.chunks(4).any(|unit| unit.starts_with(&[0, 0])),
        _ => true,
    }
}

/// Appends the value of an attribute as a one-line name shows it.
fn print_value(value: &Item<'_>, text: &mut String) {
    let bytes = shown(value);
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'\\' => text.push_str("\\x5C"),
            b'/' | b'+' if begins_part(&bytes[at + 1..]) => {
                text.push('\\');
                text.push(char::from(byte));
            }
            _ => print(&[byte], text),
        }
    }
}

/// True if what follows a separator is the type of an attribute and `=`.
fn begins_part(text: &[u8]) -> bool {
    let kind = text.iter().take(LONGEST_TYPE).take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'.').count();
    kind > 0 && text.get(kind) == Some(&b'=')
}

/// More letters than any type of an attribute has, identifiers included; keeps long values from being searched at each `/`.
const LONGEST_TYPE: usize = 256;

/// Appends bytes of a line: those beyond printable ASCII as `\xHH`.
pub(super) fn print(bytes: &[u8], text: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if matches!(byte, b' '..=b'~') {
            text.push(char::from(byte));
        } else {
            text.push_str("\\x");
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

/// A one-line name as grid-mapfiles and signing policies compare: `UID` is `USERID`, `E` and `Email` are `emailAddress`, the case of
/// letters does not matter, and neither does a `\` before a `/` or `+` that begins no part (OpenSSL 3.0 puts one before each).
pub fn normal_form(one_line: &str) -> String {
    let mut normal = Vec::with_capacity(one_line.len());
    let mut rest = one_line.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (first, behind) {
            (b'\\', [separator @ (b'/' | b'+'), after @ ..]) => {
                if begins_part(after) {
                    normal.push(b'\\');
                }
                normal.push(*separator);
                rest = after;
            }
            (b'\\', [b'x' | b'X', high, low, ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                normal.push(b'\\')
            }
            (b'\\', _) => normal.extend_from_slice(b"\\x5c"),
            (b'/' | b'+', _) => {
                normal.push(*first);
                rest = renamed(behind, &mut normal);
            }
            _ => normal.push(first.to_ascii_lowercase()),
        }
    }
    String::from_utf8(normal).expect("only ASCII is inserted, and nothing between the bytes of a character")
}

/// Writes today's name of an attribute type that has an old one; what follows it.
fn renamed<'a>(part: &'a [u8], normal: &mut Vec<u8>) -> &'a [u8] {
    for (old, new) in [(&b"uid="[..], &b"userid="[..]), (b"email=", b"emailaddress="), (b"e=", b"emailaddress=")] {
        if part.get(..old.len()).is_some_and(|start| start.eq_ignore_ascii_case(old)) {
            normal.extend_from_slice(new);
            return &part[old.len()..];
        }
    }
    part
}

/// OpenSSL's short name of an attribute type that stands in names.
fn short_name(oid: Oid<'_>) -> Option<&'static str> {
    const PILOT: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01];
    const PKCS9: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09];
    const JURISDICTION: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x3c, 0x02, 0x01];
    let (&last, arc) = oid.bytes().split_last()?;
    let table: &[(u8, &str)] = match arc {
        [0x55, 0x04] => X500,
        PILOT => &[(1, "UID"), (3, "mail"), (4, "info"), (8, "userClass"), (9, "host"), (25, "DC"), (44, "uid")],
        PKCS9 => &[(1, "emailAddress"), (2, "unstructuredName"), (8, "unstructuredAddress")],
        JURISDICTION => &[(1, "jurisdictionL"), (2, "jurisdictionST"), (3, "jurisdictionC")],
        _ => return None,
    };
    table.iter().find(|(number, _)| *number == last).map(|(_, name)| *name)
}

/// Attributes of X.520, 2.5.4.
const X500: &[(u8, &str)] = &[
    (3, "CN"),
    (4, "SN"),
    (5, "serialNumber"),
    (6, "C"),
    (7, "L"),
    (8, "ST"),
    (9, "street"),
    (10, "O"),
    (11, "OU"),
    (12, "title"),
    (13, "description"),
    (15, "businessCategory"),
    (16, "postalAddress"),
    (17, "postalCode"),
    (18, "postOfficeBox"),
    (19, "physicalDeliveryOfficeName"),
    (20, "telephoneNumber"),
    (31, "member"),
    (32, "owner"),
    (41, "name"),
    (42, "GN"),
    (43, "initials"),
    (44, "generationQualifier"),
    (45, "x500UniqueIdentifier"),
    (46, "dnQualifier"),
    (54, "dmdName"),
    (65, "pseudonym"),
    (72, "role"),
    (97, "organizationIdentifier"),
    (98, "c3"),
    (99, "n3"),
    (100, "dnsName"),
];

#[cfg(test)]
pub(super) mod tests {
    use super::super::der::encode;
    use super::*;

    /// A name of RDNs with one attribute each.
    pub(in super::super) fn name(parts: &[(Oid<'_>, u8, &[u8])]) -> Vec<u8> {
        let rdns: Vec<Vec<u8>> = parts.iter().map(|part| encode(tag::SET, &[&attribute(*part)])).collect();
        encode(tag::SEQUENCE, &rdns.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    fn attribute((oid, tag, value): (Oid<'_>, u8, &[u8])) -> Vec<u8> {
        encode(tag::SEQUENCE, &[&encode(tag::OID, &[oid.bytes()]), &encode(tag, &[value])])
    }

    fn oid(content: &[u8]) -> Oid<'_> {
        Oid::new(content).unwrap()
    }

    const O: &[u8] = &[0x55, 0x04, 0x0a];
    const UID: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01];
    const EMAIL: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01];

    fn parse(der: &[u8]) -> Result<Name<'_>, DerError> {
        Name::parse(&mut Reader::new(der))
    }

    #[test]
    fn names_print_on_one_line() {
        let der = name(&[
            (oid(O), tag::UTF8_STRING, b"Grid"),
            (oid(UID), tag::UTF8_STRING, b"a1"),
            (oid(EMAIL), tag::IA5_STRING, b"a@b"),
            (oid(&[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x3c, 0x02, 0x01, 0x03]), tag::PRINTABLE_STRING, b"CH"),
            (oid(&[0x2a, 0x03]), tag::BIT_STRING, &[0]),
            (oid(&[0x55, 0x04, 0x7f]), tag::PRINTABLE_STRING, b"x"),
            (oid::COMMON_NAME, tag::UTF8_STRING, "J\u{fc}rg / M".as_bytes()),
            (oid::COMMON_NAME, tag::BMP_STRING, &[0x00, b'a']),
        ]);
        let name = parse(&der).unwrap();
        let text = r"/O=Grid/UID=a1/emailAddress=a@b/jurisdictionC=CH/1.2.3=/2.5.4.127=x/CN=J\xC3\xBCrg / M/CN=\x00a";
        assert_eq!(name.one_line(), text);
        assert_eq!((name.attributes().len(), name.der(), name.is_empty()), (8, der.as_slice(), false));
        assert_eq!(name.common_names().count(), 2);
        assert_eq!(name.last_common_name(), Some(&[0, b'a'][..]));
        assert_eq!(
            (parse(&[0x30, 0]).unwrap().one_line(), parse(&[0x30, 0]).unwrap().is_empty()),
            (String::new(), true)
        );
    }

    #[test]
    fn string_types_case_and_spaces_do_not_tell_names_apart() {
        let one = name(&[(oid(O), tag::PRINTABLE_STRING, b"Grid  Lab "), (oid::COMMON_NAME, tag::T61_STRING, b"\xfc")]);
        let same =
            name(&[(oid(O), tag::UTF8_STRING, b"grid lab"), (oid::COMMON_NAME, tag::UTF8_STRING, "\u{fc}".as_bytes())]);
        let wide = name(&[(oid(O), tag::IA5_STRING, b"gRid lab"), (oid::COMMON_NAME, tag::BMP_STRING, &[0, 0xfc])]);
        let wider = name(&[
            (oid(O), tag::VISIBLE_STRING, b"Grid Lab"),
            (oid::COMMON_NAME, tag::UNIVERSAL_STRING, &[0, 0, 0, 0xfc]),
        ]);
        for other in [&one, &same, &wide, &wider] {
            assert!(parse(&one).unwrap().matches(&parse(other).unwrap()));
            assert_eq!(parse(&one).unwrap().canonical(), parse(other).unwrap().canonical());
        }
        let others = [
            name(&[(oid(O), tag::UTF8_STRING, b"gridlab"), (oid::COMMON_NAME, tag::UTF8_STRING, "\u{fc}".as_bytes())]),
            name(&[(oid(O), tag::UTF8_STRING, b"grid lab")]),
            name(&[(oid(O), tag::UTF8_STRING, b"grid lab"), (oid(O), tag::UTF8_STRING, "\u{fc}".as_bytes())]),
            name(&[(oid(O), tag::BIT_STRING, b"\0rid lab"), (oid::COMMON_NAME, tag::UTF8_STRING, "\u{fc}".as_bytes())]),
        ];
        for other in others {
            assert!(!parse(&one).unwrap().matches(&parse(&other).unwrap()));
            assert_ne!(parse(&one).unwrap().canonical(), parse(&other).unwrap().canonical());
        }
    }

    #[test]
    fn a_proxys_name_is_its_issuers_and_one_common_name() {
        let user = name(&[(oid(O), tag::UTF8_STRING, b"Grid"), (oid::COMMON_NAME, tag::UTF8_STRING, b"alice")]);
        let part =
            |text: &'static [u8]| encode(tag::SET, &[&attribute((oid::COMMON_NAME, tag::PRINTABLE_STRING, text))]);
        let grown = |more: &[&[u8]]| encode(tag::SEQUENCE, &[&user[2..], &more.concat()]);
        let (user, proxy) = (parse(&user).unwrap(), grown(&[&part(b"17")]));
        assert_eq!(parse(&proxy).unwrap().below(&user).unwrap().value.value, b"17");
        let two = grown(&[&part(b"17"), &part(b"18")]);
        let pair = [
            attribute((oid::COMMON_NAME, tag::UTF8_STRING, b"1")),
            attribute((oid::COMMON_NAME, tag::UTF8_STRING, b"2")),
        ];
        let together = grown(&[&encode(tag::SET, &[&pair[0], &pair[1]])]);
        let organisation = grown(&[&encode(tag::SET, &[&attribute((oid(O), tag::UTF8_STRING, b"17"))])]);
        for bad in [two, together.clone(), organisation, user.der().to_vec(), vec![0x30, 0]] {
            assert!(parse(&bad).unwrap().below(&user).is_none());
        }
        assert_eq!(parse(&together).unwrap().last_common_name(), None);
        assert_eq!(parse(&[0x30, 0]).unwrap().last_common_name(), None);
    }

    #[test]
    fn values_are_what_their_types_say() {
        for (tag, value) in [
            (tag::UTF8_STRING, &b"a\0b"[..]),
            (tag::UTF8_STRING, b"\xff"),
            (tag::IA5_STRING, b"\xff"),
            (tag::PRINTABLE_STRING, b"alice\0"),
            (tag::BMP_STRING, b"\0"),
            (tag::BMP_STRING, b"\xd8\x00"),
            (tag::BMP_STRING, b"\0\0"),
            (tag::UNIVERSAL_STRING, b"\0\0\0"),
            (tag::UNIVERSAL_STRING, b"\0\x11\0\0"),
            (tag::GENERAL_STRING, b"\0\0\0a"),
        ] {
            let der = name(&[(oid::COMMON_NAME, tag, value)]);
            assert!(matches!(parse(&der), Err(DerError::Value(_))), "{tag:x} {value:x?}");
        }
    }

    #[test]
    fn names_have_bounds_and_parts() {
        assert_eq!(parse(&[0x30, 2, 0x31, 0]).err(), Some(DerError::Value("name")));
        let many = vec![(oid::COMMON_NAME, tag::UTF8_STRING, &b"x"[..]); 65];
        assert_eq!(parse(&name(&many)).err(), Some(DerError::TooMany("parts of a name")));
        assert!(parse(&name(&many[1..])).is_ok());
    }

    #[test]
    fn different_names_print_differently() {
        let line = |parts: &[(Oid<'_>, u8, &[u8])]| parse(&name(parts)).unwrap().one_line();
        let common = |text: &'static [u8]| (oid::COMMON_NAME, tag::UTF8_STRING, text);
        let organisation = |text: &'static [u8]| (oid(O), tag::UTF8_STRING, text);
        for (parts, text) in [
            (vec![common(b"foo"), organisation(b"bar")], r"/CN=foo/O=bar"),
            (vec![common(b"foo/O=bar")], r"/CN=foo\/O=bar"),
            (vec![common(b"foo\\"), organisation(b"bar")], r"/CN=foo\x5C/O=bar"),
            (vec![common(b"foo\\/O=bar")], r"/CN=foo\x5C\/O=bar"),
            (vec![common(b"host/a.b")], r"/CN=host/a.b"),
            (vec![common(b"c++ 1+1=2")], r"/CN=c++ 1\+1=2"),
            (vec![common(b"\\xC3")], r"/CN=\x5CxC3"),
            (vec![common("\u{e9}".as_bytes())], r"/CN=\xC3\xA9"),
        ] {
            assert_eq!(line(&parts), text);
        }
        let pair = [attribute(common(b"a")), attribute(organisation(b"b"))];
        let together = encode(tag::SEQUENCE, &[&encode(tag::SET, &[&pair[0], &pair[1]])]);
        assert_eq!(parse(&together).unwrap().one_line(), "/CN=a+O=b");
    }

    /// Every short value of every type: two that print alike have the same characters, or one of them is ambiguous.
    #[test]
    fn what_prints_alike_is_the_same_or_ambiguous() {
        const ALPHABET: [u8; 8] = [0, 1, b'a', b'\\', 0xc3, 0xa9, 0xfc, 0x10];
        let values = (0..=4).flat_map(|length| {
            (0..8_usize.pow(length)).map(move |number| (0..length).map(|at| ALPHABET[number >> (3 * at) & 7]).collect())
        });
        let values: Vec<Vec<u8>> = values.collect();
        let mut known = std::collections::HashMap::new();
        for kind in [0x02, 0x03, 0x04, 0x0c, 0x12, 0x13, 0x14, 0x16, 0x1a, 0x1b, 0x1c, 0x1e] {
            for value in &values {
                let der = name(&[(oid::COMMON_NAME, kind, value)]);
                let Ok(name) = parse(&der) else { continue };
                let item = &name.attributes()[0].value;
                let text: Vec<char> = match characters(item) {
                    _ if name.is_ambiguous() => continue,
                    Some(characters) => characters.map(Result::unwrap).collect(),
                    None => shown(item).iter().map(|&byte| char::from(byte)).collect(),
                };
                let line = name.one_line();
                assert_eq!(*known.entry(line.clone()).or_insert_with(|| text.clone()), text, "{kind:x} {line}");
            }
        }
        assert!(known.len() > 1000);
    }

    #[test]
    fn usual_names_are_not_ambiguous() {
        let of = |tag, value: &'static [u8]| parse(&name(&[(oid::COMMON_NAME, tag, value)])).unwrap().is_ambiguous();
        for (tag, value) in [
            (tag::UTF8_STRING, "J\u{fc}rg".as_bytes()),
            (tag::PRINTABLE_STRING, b"alice"),
            (tag::T61_STRING, b"alice"),
            (tag::T61_STRING, b"J\xfcrg"),
            (tag::BMP_STRING, b"\0a\0l\0i\0c\0e"),
            (tag::BMP_STRING, b"\x01\x41\0u\0k"),
            (tag::UNIVERSAL_STRING, b"\0\0\0a"),
            (tag::GENERAL_STRING, b"alice"),
            (tag::BMP_STRING, b""),
            (tag::BIT_STRING, b"\0"),
        ] {
            assert!(!of(tag, value), "{tag:x} {value:x?}");
        }
        for (tag, value) in [
            (tag::BMP_STRING, &b"alic"[..]),
            (tag::T61_STRING, b"J\xc3\xbcrg"),
            (tag::BIT_STRING, b"\0alice"),
            (tag::OCTET_STRING, b"alice"),
        ] {
            assert!(of(tag, value), "{tag:x} {value:x?}");
        }
    }

    #[test]
    fn old_names_of_attributes_are_todays() {
        for (text, normal) in [
            ("/O=Grid/UID=A1", "/o=grid/userid=a1"),
            ("/E=a@B/email=x/Email=y/emailAddress=z", "/emailaddress=a@b/emailaddress=x/emailaddress=y/emailaddress=z"),
            ("UID=x", "uid=x"),
            ("/CN=E=x", "/cn=e=x"),
            ("/CN=a+UID=b", "/cn=a+userid=b"),
            (r"/CN=host\/name", "/cn=host/name"),
            ("/CN=HOST/name", "/cn=host/name"),
            (r"/CN=foo\/O=bar", r"/cn=foo\/o=bar"),
            (r"/CN=c\+\+", "/cn=c++"),
            (r"/CN=J\xC3", r"/cn=j\xc3"),
            (r"/CN=a\b\", r"/cn=a\x5cb\x5c"),
            ("/CN=\u{c9}", "/cn=\u{c9}"),
            ("", ""),
        ] {
            assert_eq!(normal_form(text), normal);
            assert_eq!(normal_form(normal), normal);
        }
    }
}
