//! Their restrictions of paths and addresses in our words: `restrict_paths`, `allow_from`, `deny_from`.
//!
//! What the values mean was tried with the real server 13.24: of two entries for one path the first counts, letters in front may be
//! small, `*` stands for anything, `..` is followed in the file system, and whoever is both allowed and denied is denied.

use std::net::{IpAddr, Ipv6Addr};

use whimbrel_proto::rules::{Cidr, MAX_PATH};

use super::Weight;

/// Most networks of one option.
const MOST_NETWORKS: usize = 200;

/// Most networks of both: the configuration takes 256 selectors.
pub(super) const MOST_SELECTORS: usize = 256;

/// Most entries of `restrict_paths`, and most bytes of their paths: the configuration takes 256 rules and 32 KiB of names, and an entry
/// may be two rules.
const MOST_ENTRIES: usize = 256;
const MOST_TEXT: usize = 16 << 10;

/// An entry of `restrict_paths`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restricted {
    /// Absolute and normal.
    pub path: String,
    /// May be read.
    pub reads: bool,
    /// May be written.
    pub writes: bool,
}

impl Restricted {
    /// The lines of our rule.
    pub fn rule(&self) -> String {
        let all = ["read", "list", "create", "modify", "delete"];
        // Whatever may be used at all may be listed there.
        let may = |operation: &str| match operation {
            "read" => self.reads,
            "list" => self.reads || self.writes,
            _ => self.writes,
        };
        let (allow, deny): (Vec<&str>, Vec<&str>) = all.into_iter().partition(|operation| may(operation));
        let line = |key: &str, words: &[&str]| match words.len() {
            0 => String::new(),
            5 => format!("{key} = \"all\"\n"),
            _ => format!("{key} = {words:?}\n"),
        };
        let path = toml::Value::String(self.path.clone());
        format!("\n[[rules]]\npath = {path}\n{}{}", line("allow", &allow), line("deny", &deny))
    }
}

/// Paths of `restrict_paths`, the root among them, and what of it cannot be taken over.
pub fn paths(value: &str) -> (Vec<Restricted>, Option<(Weight, String)>) {
    let mut entries: Vec<Restricted> = Vec::new();
    let mut lost: Vec<(Weight, String)> = Vec::new();
    for text in value.split(',').filter(|text| !text.is_empty()) {
        match entry(text) {
            // The first word about a path counts.
            Ok(entry) if entries.iter().any(|known| known.path == entry.path) => {}
            Ok(entry) => entries.push(entry),
            Err(fault) => lost.push(fault),
        }
    }
    if !entries.iter().any(|entry| entry.path == "/") {
        entries.insert(0, Restricted { path: "/".to_owned(), reads: false, writes: false });
    }
    if entries.len() > MOST_ENTRIES || entries.iter().map(|entry| entry.path.len()).sum::<usize>() > MOST_TEXT {
        entries.retain(|entry| entry.path == "/");
        entries.iter_mut().for_each(|root| (root.reads, root.writes) = (false, false));
        let text = format!(
            "{MOST_ENTRIES} directories with {MOST_TEXT} bytes of names can be written down: nobody may do anything until [[rules]] say what"
        );
        lost.push((Weight::Missing, text));
    }
    let weight = lost.iter().map(|(weight, _)| *weight).max();
    let told = weight.map(|weight| (weight, lost.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("; ")));
    (entries, told)
}

fn entry(text: &str) -> Result<Restricted, (Weight, String)> {
    let at = text.find(['/', '~']).unwrap_or(text.len());
    let (letters, path) = (text[..at].to_ascii_uppercase(), &text[at..]);
    let denies = letters == "N";
    // What was denied and is not any more is more than before; what was allowed and is not is less.
    let weight = if denies { Weight::Open } else { Weight::Missing };
    if !matches!(letters.as_str(), "" | "R" | "W" | "RW" | "WR" | "N") || path.is_empty() {
        return Err((weight, format!("`{text}` is not R, W or N and a path; the real server does not take it either")));
    }
    if path.starts_with('~') {
        let cure = "write a [[rules]] entry for each user (users = [\"ada\"], path = \"/home/ada\")";
        return Err((weight, format!("`{text}`: rules have no word for everybody's own home directory: {cure}")));
    }
    if path.contains('*') {
        return Err((weight, format!("`{text}`: paths of rules have no `*`: write an entry for each directory")));
    }
    if path.split('/').any(|name| name == "..") {
        return Err((weight, format!("`{text}`: write the place that it leads to, without `..`")));
    }
    if path.len() > MAX_PATH || path.contains('\0') {
        return Err((
            weight,
            format!("a path of {} bytes: rules have none with NUL or of more than {MAX_PATH}", path.len()),
        ));
    }
    let (reads, writes) = match letters.as_str() {
        "" => (true, true),
        letters => (letters.contains('R'), letters.contains('W')),
    };
    Ok(Restricted { path: normal(path), reads, writes })
}

fn normal(path: &str) -> String {
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    format!("/{}", names.join("/"))
}

/// The networks of a list of beginnings of addresses, such as `192.168.1.`; exactly those addresses.
pub fn networks(value: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for fragment in value.split(',').map(str::trim).filter(|fragment| !fragment.is_empty()) {
        let found = beginning(fragment).ok_or_else(|| format!("`{fragment}` is no beginning of an address"))?;
        all.extend(found.into_iter().map(|network| network.to_string()));
    }
    all.dedup();
    match all.len() {
        0 => Err("it names no address".to_owned()),
        1..=MOST_NETWORKS => Ok(all),
        many => Err(format!("these are {many} networks, and {MOST_NETWORKS} can be written down")),
    }
}

fn beginning(fragment: &str) -> Option<Vec<Cidr>> {
    if fragment.contains(':') { six(fragment).map(|network| vec![network]) } else { four(fragment) }
}

/// Whole numbers in front, and all that begin like the last one.
fn four(fragment: &str) -> Option<Vec<Cidr>> {
    let parts: Vec<&str> = fragment.split('.').collect();
    let (last, whole) = parts.split_last()?;
    let mut bytes = [0; 4];
    if whole.len() > 3 {
        return None;
    }
    for (byte, part) in bytes.iter_mut().zip(whole) {
        *byte = part.parse().ok()?;
    }
    if last.is_empty() {
        return Some(vec![Cidr::around(IpAddr::from(bytes), whole.len() as u8 * 8)?]);
    }
    let numbers = (0..=255_u8).filter(|number| number.to_string().starts_with(last));
    let networks = numbers.filter_map(|number| {
        bytes[whole.len()] = number;
        Cidr::around(IpAddr::from(bytes), (whole.len() as u8 + 1) * 8)
    });
    Some(networks.collect::<Vec<_>>()).filter(|networks| !networks.is_empty())
}

/// A whole address, or whole groups in front of its end.
fn six(fragment: &str) -> Option<Cidr> {
    if let Ok(address) = fragment.parse::<IpAddr>() {
        return Cidr::around(address, 128);
    }
    let groups: Vec<&str> = fragment.strip_suffix(':')?.split(':').collect();
    let mut segments = [0; 8];
    if groups.len() > 7 {
        return None;
    }
    for (segment, group) in segments.iter_mut().zip(&groups) {
        *segment = u16::from_str_radix(group, 16).ok()?;
    }
    Cidr::around(IpAddr::V6(Ipv6Addr::from(segments)), groups.len() as u8 * 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_addresses_are_the_networks_of_exactly_those() {
        let of = |text: &str| networks(text).unwrap();
        assert_eq!(of("192.168.1."), ["192.168.1.0/24"]);
        assert_eq!(of("10., 172.16.5"), [&["10.0.0.0/8".to_owned()][..], &fives()].concat());
        assert_eq!(
            of("192.0.2.25"),
            ["192.0.2.25", "192.0.2.250", "192.0.2.251", "192.0.2.252", "192.0.2.253", "192.0.2.254", "192.0.2.255"]
                .map(one)
        );
        assert_eq!(of("192.0.2.100"), [one("192.0.2.100")]);
        assert_eq!(
            of("2001:db8:,::1"),
            ["2001:db8::/32", "::1/128"].map(|net| net.parse::<Cidr>().unwrap().to_string())
        );
        for wrong in ["", ",", "host.example.org", "1.2.3.4.5", "300.", "1.2.3.4.", "2001:db8", "x:", "192.168.999"] {
            assert!(networks(wrong).is_err(), "{wrong}: {:?}", networks(wrong));
        }
        assert!(networks("1,2,3,4,5").unwrap_err().contains("networks"));
    }

    fn one(address: &str) -> String {
        address.parse::<Cidr>().unwrap().to_string()
    }

    /// 172.16.5 and all that begin so: 5 and 50 to 59.
    fn fives() -> Vec<String> {
        [5].into_iter().chain(50..=59).map(|last| format!("172.16.{last}.0/24")).collect()
    }

    #[test]
    fn entries_are_read_as_the_real_server_reads_them() {
        let entry = |path: &str, reads, writes| Restricted { path: path.to_owned(), reads, writes };
        let (entries, lost) = paths("R/data/,W/inbox,rw/./both,/full,N/data/secret,W/data");
        assert_eq!(lost, None);
        assert_eq!(
            entries,
            [
                entry("/", false, false),
                entry("/data", true, false),
                entry("/inbox", false, true),
                entry("/both", true, true),
                entry("/full", true, true),
                entry("/data/secret", false, false),
            ]
        );
        assert_eq!(paths("R/").0, [entry("/", true, false)]);
    }

    #[test]
    fn more_than_can_be_written_down_leaves_nothing_open() {
        let many = |count: usize| (0..count).map(|number| format!("R/d{number}")).collect::<Vec<_>>().join(",");
        let (entries, lost) = paths(&many(255));
        assert_eq!((entries.len(), lost), (256, None));
        for value in
            [many(256), format!("/,{}", many(256)), (0..6).map(|n| format!("R/{n}{},", "a".repeat(3000))).collect()]
        {
            let (entries, lost) = paths(&value);
            assert_eq!(entries, [Restricted { path: "/".to_owned(), reads: false, writes: false }]);
            assert!(lost.is_some_and(|(weight, text)| weight == Weight::Missing && text.contains("nobody may")));
        }
        for path in ["a".repeat(MAX_PATH), "a\0b".to_owned()] {
            assert!(paths(&format!("N/{path}")).1.is_some_and(|(weight, _)| weight == Weight::Open));
        }
    }

    #[test]
    fn what_rules_have_no_word_for_is_named_and_a_lost_denial_weighs_most() {
        for (value, weight, part) in [
            ("~,R/data", Weight::Missing, "`~`"),
            ("R/data/*", Weight::Missing, "`*`"),
            ("/,N/data/s*", Weight::Open, "`N/data/s*`"),
            ("N/data/../secret", Weight::Open, "without `..`"),
            ("Rdata", Weight::Missing, "`Rdata`"),
            ("X/data", Weight::Missing, "`X/data`"),
        ] {
            let (entries, lost) = paths(value);
            let (told, text) = lost.unwrap();
            assert!(told == weight && text.contains(part), "{value}: {text}");
            assert_eq!(entries[0].path, "/");
        }
    }
}
