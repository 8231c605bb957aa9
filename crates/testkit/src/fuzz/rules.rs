//! Rules for paths, networks, and the limits of a login.

use std::net::IpAddr;

use whimbrel_proto::rules::{
    Cidr, LoginRules, MAX_PATH, Networks, Operation, Operations, PathRule, PathRules, RuleError, Verdict,
};

/// Most paths that are asked about: each is asked about with each other.
const MOST_PATHS: usize = 12;

/// Rules and paths, a line each: what two sets allow is what a plain reading of their lines says, and nothing becomes possible
/// by a detour.
///
/// `+` and `-` begin a rule that allows or denies: letters of operations, `i` for one about the inside alone, a blank, a path. `&` begins
/// the second set, `=` networks and, behind a blank, an address. Every other line is a path that is asked about.
pub fn rules(data: &[u8]) {
    let (mut sets, mut paths) = ([Vec::new(), Vec::new()], Vec::new());
    let mut second = false;
    for line in data.split(|&byte| byte == b'\n') {
        match line {
            [b'+', rest @ ..] => sets[usize::from(second)].extend(rule(rest, Verdict::Allow)),
            [b'-', rest @ ..] => sets[usize::from(second)].extend(rule(rest, Verdict::Deny)),
            [b'&', ..] => second = true,
            [b'=', rest @ ..] => check_networks(&String::from_utf8_lossy(rest)),
            path if paths.len() < MOST_PATHS => paths.push(path.to_vec()),
            _ => {}
        }
    }
    paths.extend(sets.iter().flatten().map(|rule| rule.path.clone()).take(MOST_PATHS));
    let [Some(first), Some(second)] = sets.map(|rules| made(&rules)) else { return };
    for rules in [&first, &second] {
        for path in &paths {
            check_path(rules, path, &paths);
        }
        check_kept(&rules.rules);
    }
    check_both(&first.rules, &second.rules, &paths);
}

/// Letters of operations and a path.
fn rule(text: &[u8], verdict: Verdict) -> Option<PathRule> {
    let blank = text.iter().position(|&byte| byte == b' ')?;
    let operations = text[..blank].iter().filter_map(|letter| match letter {
        b'r' => Some(Operation::Read),
        b'l' => Some(Operation::List),
        b'c' => Some(Operation::Create),
        b'm' => Some(Operation::Modify),
        b'd' => Some(Operation::Delete),
        _ => None,
    });
    let (path, inside) = (text[blank + 1..].to_vec(), text[..blank].contains(&b'i'));
    Some(PathRule { path, verdict, operations: operations.collect(), inside })
}

struct Made {
    rules: PathRules,
    lines: Vec<PathRule>,
}

/// A set that is everything where no rule speaks; `None`: a rule is none.
fn made(lines: &[PathRule]) -> Option<Made> {
    match PathRules::new(Operations::ALL, lines) {
        Ok(rules) => Some(Made { rules, lines: lines.to_vec() }),
        Err(error) => {
            let wrong = |rule: &PathRule| names(&rule.path).is_none() || rule.path.len() > MAX_PATH;
            assert!(lines.iter().any(wrong) && matches!(error, RuleError::Path(_)), "{error}");
            assert!(!error.to_string().chars().any(char::is_control));
            None
        }
    }
}

/// The names of a path; `None`: it allows nothing, and no rule is about it.
fn names(path: &[u8]) -> Option<Vec<&[u8]>> {
    let names: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect();
    let fits = path.starts_with(b"/") && !path.contains(&0) && !names.contains(&&b".."[..]);
    fits.then_some(names)
}

/// What the lines say, read one after the other from the root down.
fn plainly(lines: &[PathRule], path: &[u8]) -> Operations {
    let Some(path) = names(path) else { return Operations::NONE };
    let mut allowed = Operations::ALL;
    for depth in 0..=path.len() {
        let of_here = |rule: &&PathRule| names(&rule.path).as_deref() == Some(&path[..depth]);
        for verdict in [Verdict::Allow, Verdict::Deny] {
            for rule in lines.iter().filter(of_here).filter(|rule| rule.verdict == verdict) {
                let only_listing = rule.inside && depth == path.len();
                let spoken = if only_listing { rule.operations & Operation::List.into() } else { rule.operations };
                allowed = if verdict == Verdict::Allow { allowed | spoken } else { allowed & !spoken };
            }
        }
    }
    allowed
}

fn is_below(path: &[u8], above: &[u8]) -> bool {
    matches!((names(path), names(above)), (Some(path), Some(above)) if path.starts_with(&above))
}

fn check_path(Made { rules, lines }: &Made, path: &[u8], others: &[Vec<u8>]) {
    let at = rules.at(path);
    assert_eq!(at, plainly(lines, path), "{}", String::from_utf8_lossy(path));
    assert!(Operation::ALL.into_iter().all(|operation| rules.allows(path, operation) == at.has(operation)));
    // The words of the configuration, in messages too.
    let shown: Vec<String> = Vec::<Operation>::from(at).iter().map(Operation::to_string).collect();
    assert_eq!(format!("{at:?}").to_lowercase(), format!("{{{}}}", shown.join(", ")));
    assert!(at.is_empty() || rules.allows_stat(path), "what may be used may be seen");
    assert!(!at.has(Operation::Create) || rules.allows_mkdir(path));
    let decides = rules.deciding(path);
    assert!(names(path).is_none() || is_below(path, &decides));
    assert!(rules.names_in(path).iter().all(|name| !name.is_empty() && !name.contains(&b'/')));
    for other in others.iter().filter(|other| is_below(other, path)) {
        let below = rules.at(other);
        assert!(below.is_empty() || rules.allows_stat(path), "the way to what may be used may be seen");
        let whole = |operation: &Operation| rules.allows_tree(path, *operation);
        assert!(Operation::ALL.into_iter().filter(whole).all(|operation| below.has(operation)), "a tree is all of it");
    }
    for other in others {
        check_rename(rules, path, other, others);
    }
}

/// Nothing may be done under a new name that could not be done under the old one.
fn check_rename(rules: &PathRules, from: &[u8], to: &[u8], others: &[Vec<u8>]) {
    for (tree, replaces) in [(false, false), (false, true), (true, false), (true, true)] {
        if !rules.allows_rename(from, to, tree, replaces) {
            continue;
        }
        let needed = if replaces { Operation::Modify } else { Operation::Create };
        assert!(rules.allows(to, needed) && rules.at(from).covers(rules.at(to)));
        let inside = others.iter().filter(|other| tree && is_below(other, from));
        for other in inside {
            let (above, path) = (names(from).unwrap_or_default().len(), names(other).unwrap_or_default());
            let moved = [&names(to).unwrap_or_default()[..], &path[above..]].concat();
            let moved = [b"/", &moved.join(&b'/')[..]].concat();
            assert!(rules.at(other).covers(rules.at(&moved)), "rules are not left behind");
        }
    }
}

/// Rules are read again as they are written, and say less where they should.
fn check_kept(rules: &PathRules) {
    let written = serde_json::to_vec(rules).expect("rules can be written");
    assert_eq!(&serde_json::from_slice::<PathRules>(&written).expect("and read"), rules);
    assert!(!rules.clone().of_guest().is_free() && !rules.clone().read_only().is_free());
}

fn check_both(first: &PathRules, second: &PathRules, paths: &[Vec<u8>]) {
    let both = first.and(second);
    assert_eq!(both, second.and(first));
    assert_eq!(&first.and(first), first);
    for path in paths {
        assert_eq!(both.at(path), first.at(path) & second.at(path));
        assert_eq!(both.clone().read_only().at(path), both.at(path) & Operations::READING);
        assert_eq!(first.and(&PathRules::nothing()).at(path), Operations::NONE);
    }
    let login = |paths: &PathRules, most: Option<u32>| LoginRules {
        paths: paths.clone(),
        connections: most,
        bandwidth: most.map(u64::from),
        quota: None,
        until: most.map(i64::from),
    };
    let (one, other) = (login(first, Some(3)), login(second, None));
    let joined = one.and(&other);
    assert_eq!(joined, login(&both, Some(3)));
    assert!(joined.is_over(3) && !joined.is_over(2) && !other.is_over(i64::MAX));
    assert_eq!(LoginRules::unlimited().and(&joined).paths, joined.paths);
}

/// Networks hold their own first address, in the clothes of IPv6 too, and are written and read as the same.
fn check_networks(text: &str) {
    let (text, address) = text.rsplit_once(' ').unwrap_or((text, ""));
    let Ok(Networks(list)) = text.parse::<Networks>() else {
        assert!(
            text.split(',').any(|network| network.trim().parse::<Cidr>().is_err_and(|e| !e.to_string().is_empty()))
        );
        return;
    };
    for network in &list {
        let shown = network.to_string();
        assert_eq!(shown.parse::<Cidr>().as_ref(), Ok(network));
        assert_eq!(serde_json::from_value::<Cidr>(shown.clone().into()).ok(), Some(*network));
        let first: IpAddr = shown.split('/').next().and_then(|first| first.parse().ok()).expect("its first address");
        assert!(network.contains(first));
        if let IpAddr::V4(first) = first {
            assert!(network.contains(first.to_ipv6_mapped().into()), "clothes change nothing");
        }
    }
    if let Ok(address) = address.parse::<IpAddr>() {
        let networks = Networks(list.clone());
        assert_eq!(networks.contains(address), list.iter().any(|network| network.contains(address)));
        let bits = if address.to_canonical().is_ipv4() { 32 } else { 128 };
        let around = (0..=bits).filter_map(|bits| Cidr::around(address.to_canonical(), bits));
        assert!(around.map(|network| network.contains(address)).eq((0..=bits).map(|_| true)));
    }
}
