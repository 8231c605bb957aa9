//! `ls -l` lines of LIST: written as the reference server does, read from servers that have no machine listings.

use crate::timeval::{Civil, Timestamp};

/// One line of a long listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListLine {
    /// First character: `-`, `d`, `l`, `c`, `b`, `p`, `s`.
    pub kind: u8,
    /// Permission bits, `0o7777` at most.
    pub mode: u32,
    /// Links, or 1 if unknown.
    pub links: u64,
    /// Owner's name or number.
    pub owner: Vec<u8>,
    /// Group's name or number.
    pub group: Vec<u8>,
    /// Bytes.
    pub size: u64,
    /// Modification time; from a listing to the minute or day, and taken as UTC.
    pub modify: Option<Timestamp>,
    /// Name.
    pub name: Vec<u8>,
    /// Target of a link.
    pub target: Option<Vec<u8>>,
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Older times than this show the year instead of the time of day, as `ls` does.
const HALF_A_YEAR: i64 = 182 * 86_400;

impl ListLine {
    /// The line without its end; `now` decides between time of day and year.
    pub fn encode(&self, now: Timestamp) -> Vec<u8> {
        let head = format!(
            "{}{} {:3} {:>8} {:>8} {:12} {} ",
            char::from(self.kind),
            mode_text(self.mode),
            self.links,
            String::from_utf8_lossy(&self.owner),
            String::from_utf8_lossy(&self.group),
            self.size,
            date_text(self.modify.unwrap_or(Timestamp::from_secs(0)), now)
        );
        let mut out = head.into_bytes();
        out.extend_from_slice(&self.name);
        if let Some(target) = &self.target {
            out.extend_from_slice(&[b" -> ", target.as_slice()].concat());
        }
        out
    }

    /// Reads one line as everyday Unix-like servers write them; `None` for `total 12` and other texts.
    ///
    /// `now` gives lines without a year theirs: the latest one that does not lie more than a day ahead.
    pub fn parse(line: &[u8], now: Timestamp) -> Option<Self> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut words = Words { text: line, at: 0 };
        let perms = words.next().filter(|w| w.len() >= 10)?;
        let mode = parse_mode(&perms[1..10])?;
        // Some servers leave out links or group: the month tells where the fixed part ends.
        let mut fields: Vec<&[u8]> = Vec::new();
        let month = loop {
            let word = words.next()?;
            let numeric_before = fields.last().is_some_and(|f| f.iter().all(u8::is_ascii_digit));
            match month_number(word) {
                Some(month) if numeric_before && fields.len() >= 2 => break month,
                _ if fields.len() == 6 => return None,
                _ => fields.push(word),
            }
        };
        let day = number(words.next()?)? as u32;
        let modify = parse_date(month, day, words.next()?, now);
        let rest = words.rest();
        let (name, target) = split_target(perms[0], rest);
        let size = number(fields.pop()?)?;
        let links = fields.first().and_then(|f| number(f));
        let owner_at = usize::from(links.is_some() && fields.len() > 1);
        let text = |at: usize| fields.get(at).map_or_else(Vec::new, |f| f.to_vec());
        (!name.is_empty()).then(|| Self {
            kind: perms[0],
            mode,
            links: links.unwrap_or(1),
            owner: text(owner_at),
            group: text(owner_at + 1),
            size,
            modify,
            name: name.to_vec(),
            target: target.map(<[u8]>::to_vec),
        })
    }
}

/// Words between runs of spaces, and what follows the last one taken.
struct Words<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.at + self.text[self.at..].iter().position(|&b| b != b' ')?;
        let length = self.text[start..].iter().position(|&b| b == b' ').unwrap_or(self.text.len() - start);
        self.at = start + length;
        Some(&self.text[start..self.at])
    }

    /// After exactly one space: a name may start with spaces.
    fn rest(&self) -> &'a [u8] {
        let rest = &self.text[self.at..];
        rest.strip_prefix(b" ").unwrap_or(rest)
    }
}

fn split_target(kind: u8, rest: &[u8]) -> (&[u8], Option<&[u8]>) {
    let arrow = if kind == b'l' { rest.windows(4).position(|w| w == b" -> ") } else { None };
    arrow.map_or((rest, None), |at| (&rest[..at], Some(&rest[at + 4..])))
}

fn number(text: &[u8]) -> Option<u64> {
    crate::ranges::parse_u64(text).ok()
}

fn month_number(word: &[u8]) -> Option<u32> {
    MONTHS.iter().position(|m| m.as_bytes().eq_ignore_ascii_case(word)).map(|at| at as u32 + 1)
}

/// `HH:MM` of this or last year, or a year.
fn parse_date(month: u32, day: u32, text: &[u8], now: Timestamp) -> Option<Timestamp> {
    let at = |year: i64, hour: u32, minute: u32| {
        let civil = Civil { year, month, day, hour, minute, second: 0 };
        civil.is_valid().then(|| Timestamp::from_secs(civil.to_unix()))
    };
    let Some(colon) = text.iter().position(|&b| b == b':') else {
        return at(number(text)?.try_into().ok()?, 0, 0);
    };
    let (hour, minute) = (number(&text[..colon])?, number(&text[colon + 1..])?);
    let (hour, minute) = (u32::try_from(hour).ok()?, u32::try_from(minute).ok()?);
    let year = now.to_civil().year;
    let tomorrow = now.secs.saturating_add(86_400);
    // 29 February exists only in one of the candidates.
    [year + 1, year, year - 1].into_iter().filter_map(|y| at(y, hour, minute)).find(|t| t.secs <= tomorrow)
}

fn date_text(time: Timestamp, now: Timestamp) -> String {
    let c = time.to_civil();
    let month = MONTHS[(c.month - 1) as usize];
    let age = now.secs.saturating_sub(time.secs);
    if (-86_400..HALF_A_YEAR).contains(&age) {
        return format!("{month} {:2} {:02}:{:02}", c.day, c.hour, c.minute);
    }
    format!("{month} {:2}  {:04}", c.day, c.year)
}

/// The nine letters of a mode.
pub fn mode_text(mode: u32) -> String {
    let mut text: Vec<u8> = (0..9).map(|i| if mode & (0o400 >> i) != 0 { b"rwx"[i % 3] } else { b'-' }).collect();
    for (bit, at, with, without) in [(0o4000, 2, b's', b'S'), (0o2000, 5, b's', b'S'), (0o1000, 8, b't', b'T')] {
        if mode & bit != 0 {
            text[at] = if text[at] == b'x' { with } else { without };
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn parse_mode(letters: &[u8]) -> Option<u32> {
    let mut mode = 0;
    for (i, &letter) in letters.iter().enumerate() {
        let bit = 0o400 >> i;
        let special = [0o4000, 0o2000, 0o1000][i / 3];
        mode |= match (letter, i % 3) {
            (b'-', _) => 0,
            (b'r', 0) | (b'w', 1) | (b'x', 2) => bit,
            (b's' | b't', 2) => bit | special,
            (b'S' | b'T', 2) => special,
            _ => return None,
        };
    }
    Some(mode)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::parse(b"20261121120000").unwrap()
    }

    fn parse(line: &str) -> Option<ListLine> {
        ListLine::parse(line.as_bytes(), now())
    }

    #[test]
    fn the_real_servers_line_is_read_and_written_back() {
        let line = "drwxr-xr-x   5     gftp     root         4096 Nov 21 01:59 .";
        let got = parse(line).unwrap();
        assert_eq!((got.kind, got.mode, got.links, got.size), (b'd', 0o755, 5, 4096));
        assert_eq!(
            (got.owner.as_slice(), got.group.as_slice(), got.name.as_slice()),
            (&b"gftp"[..], &b"root"[..], &b"."[..])
        );
        assert_eq!(got.modify, Timestamp::parse(b"20261121015900").ok());
        assert_eq!(String::from_utf8(got.encode(now())).unwrap(), line);
    }

    #[test]
    fn old_files_show_their_year() {
        let got = parse("-rw-r--r--   1     gftp     root            6 Feb  3  2020 a b").unwrap();
        assert_eq!(got.modify, Timestamp::parse(b"20200203000000").ok());
        assert_eq!(got.name, b"a b");
        assert!(String::from_utf8(got.encode(now())).unwrap().contains("Feb  3  2020 a b"));
    }

    #[test]
    fn a_month_ahead_belongs_to_last_year() {
        let got = parse("-rw-r--r-- 1 u g 6 Dec 24 10:00 x").unwrap();
        assert_eq!(got.modify, Timestamp::parse(b"20251224100000").ok());
    }

    #[test]
    fn links_and_odd_names_are_kept_apart() {
        let link = parse("lrwxrwxrwx 1 u g 3 Nov 20 10:00 a b -> /c d").unwrap();
        assert_eq!((link.name.as_slice(), link.target.as_deref()), (&b"a b"[..], Some(&b"/c d"[..])));
        assert_eq!(parse("-rw-r--r-- 1 u g 3 Nov 20 10:00 a -> b").unwrap().name, b"a -> b");
        assert_eq!(parse("-rw-r--r-- 1 u g 3 Nov 20 10:00  lead").unwrap().name, b" lead");
    }

    #[test]
    fn servers_that_leave_fields_out_are_understood() {
        let no_group = parse("-rwsr-xr-t 1 owner 1803128 Jul 10 10:18 ls-lR.Z").unwrap();
        assert_eq!(
            (no_group.owner.as_slice(), no_group.group.as_slice(), no_group.size),
            (&b"owner"[..], &b""[..], 1_803_128)
        );
        assert_eq!(no_group.mode, 0o5755);
        let month_owner = parse("-rw-r--r-- 1 may jun 5 Jul 10 2019 x").unwrap();
        assert_eq!((month_owner.owner.as_slice(), month_owner.size), (&b"may"[..], 5));
        assert_eq!(parse("-rw-r--r--+ 1 u g 5 Jul 10 2019 x").unwrap().name, b"x");
    }

    #[test]
    fn other_texts_are_no_entries() {
        for line in [
            "",
            "total 12",
            "-rw-r--r--",
            "-rw-r--r-- 1 u g 5 Jul 10 2019",
            "-rw-r--r-- 1 u g 5 Jul 10 2019 ",
            "hello world this is text",
            "-rwxrwxrwz 1 u g 5 Jul 10 2019 x",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_survives(mode in 0u32..0o10000, links in 0u64..999, size: u64, days in 0i64..20_000, name in "[a-z ]{1,20}") {
            let modify = Some(Timestamp::from_secs(days * 86_400));
            let line = ListLine { kind: b'-', mode, links, owner: b"u".to_vec(), group: b"g".to_vec(), size, modify, name: name.into_bytes(), target: None };
            prop_assert_eq!(ListLine::parse(&line.encode(now()), now()), Some(line));
        }

        #[test]
        fn parsing_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100), tail in "[ -~]{0,60}") {
            let _ = ListLine::parse(&bytes, now());
            let _ = ListLine::parse(format!("-rw-r--r-- {tail}").as_bytes(), now());
        }
    }
}
