//! The administrator's files.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use whimbrel_dtn::front::access::{Access, Guest};
use whimbrel_dtn::front::config::DtnConfig;
use whimbrel_dtn::front::users::parse_users;
use whimbrel_dtn::mover::codec::{Decoder, encode};
use whimbrel_proto::rules::PathRules;

/// Ports from the environment.
const PORTS: &str = "50000,50010";

/// Users file and configuration: no text is half understood, and what is understood can be used.
pub fn users_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    check_users(&text);
    match DtnConfig::parse(&text) {
        Ok(config) => check_config(&config),
        Err(fault) => assert!(!fault.detail.is_empty()),
    }
}

fn check_users(text: &str) {
    match parse_users(text) {
        Ok(users) => {
            let entries = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            assert_eq!(users.len(), entries.clone().count(), "every entry is one user");
            for (user, entry) in users.iter().zip(entries) {
                assert!(!user.name.is_empty() && !user.name.contains(':') && entry.starts_with(&user.name));
                assert_ne!(user.account.as_deref(), Some(""));
            }
            let names: BTreeSet<_> = users.iter().map(|user| &user.name).collect();
            assert_eq!(names.len(), users.len(), "nobody has two passwords");
        }
        Err(fault) => assert!(fault.to_string().len() < 1000),
    }
}

fn check_config(config: &DtnConfig) {
    assert!(!config.listen_addresses().is_empty() && config.max_connections() > 0);
    assert!(config.chunking.iter().all(|rule| rule.policy().rule.is_valid()), "clients can be told every rule");
    assert!(config.accounts.program_timeout() <= Duration::from_secs(60));
    for issuer in config.tokens.iter().filter_map(|tokens| tokens.issuers().ok()).flatten() {
        assert!(issuer.any_audience || !issuer.audiences.is_empty(), "some token is good");
        let base = issuer.base;
        assert!(base.is_empty() || (base.starts_with(b"/") && !base.ends_with(b"/")), "{base:?}");
    }
    check_access(config);
    check_time(config.idle_timeout());
    check_time(config.login_timeout());
    let read = (config.settings_below(Path::new("/"), Some(PORTS)), config.overrides(Some(PORTS)));
    let (settings, overrides) = match read {
        (Ok(settings), Ok(overrides)) => (settings, overrides),
        (Err(_), Err(_)) => return assert!(config.data_ports.is_some(), "only ports may be wrong"),
        (settings, overrides) => panic!("{settings:?}, but {overrides:?}"),
    };
    let (first, last) = overrides.data_ports.expect("ports were given");
    assert!(0 < first && first <= last);
    check_time(settings.stall_timeout);
    check_time(settings.connect_timeout);
    assert!(settings.pool_bytes >= 4 << 20);
    let node = settings.clone().overridden(overrides.clone());
    assert_eq!((node.data_ports, node.data_address), (settings.data_ports, settings.data_address));
    assert_eq!(node.root, overrides.root.unwrap_or(settings.root));
}

/// Rules and limits can be told to the front and asked about anybody.
fn check_access(config: &DtnConfig) {
    let access = config.access();
    let mut told = Vec::new();
    encode(&access, &mut told).expect("it can be told");
    assert!(told.len() < 100 << 10, "{} bytes do not fit one message", told.len());
    let mut decoder = Decoder::<Access>::default();
    decoder.push(&told);
    assert_eq!(decoder.next().expect("what was told is understood"), Some(access.clone()));
    let groups: Vec<String> = access.rules.iter().flat_map(|(who, _)| who.groups.first().cloned()).collect();
    let user = access.rules.iter().find_map(|(who, _)| who.users.first()).map_or("ada", String::as_str);
    for address in [None, Some(IpAddr::from([192, 0, 2, 1]))] {
        let rules = access.of(Guest { user, groups: &groups, address, shared: false });
        let shared = access.of(Guest { user, groups: &groups, address, shared: true }).paths;
        for (_, rule) in &access.rules {
            let (owner, guest) = (rules.paths.at(&rule.path), shared.at(&rule.path));
            assert_eq!(owner & guest, guest, "nobody shares more than they may do themselves");
        }
        assert!(rules.bandwidth != Some(0) && rules.quota != Some(0), "a limit of nothing is a mistake");
        let all = PathRules::everything();
        let said = access.rules.iter().filter(|(_, rule)| rules.paths.at(&rule.path) != all.at(&rule.path)).count();
        assert!(
            said <= access.rules.len() && (said == 0 || rules.paths != all),
            "rules that say something restrict something"
        );
    }
    let doors = config.limits.doors(config.max_connections());
    assert!(0 < doors.per_network && doors.waiting_start <= doors.waiting_full && doors.waiting_full > 0);
    check_time(config.limits.lines().grace);
}

/// Clocks can be set to the end of a time.
fn check_time(time: Duration) {
    assert!(Instant::now().checked_add(time).is_some());
}
