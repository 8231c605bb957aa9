//! The administrator's files.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use whimbrel_dtn::front::access::{Access, Guest};
use whimbrel_dtn::front::config::{DtnConfig, GsiConfig, ProofKind};
use whimbrel_dtn::front::users::parse_users;
use whimbrel_dtn::mover::codec::{Decoder, encode};
use whimbrel_dtn::mover::message::Framed;
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

pub(super) fn check_config(config: &DtnConfig) {
    assert!(!config.listen_addresses().is_empty() && config.max_connections() > 0);
    assert!(config.chunking.iter().all(|rule| rule.policy().rule.is_valid()), "clients can be told every rule");
    assert!(config.accounts.program_timeout() <= Duration::from_secs(60));
    for issuer in config.tokens.iter().filter_map(|tokens| tokens.issuers().ok()).flatten() {
        assert!(issuer.any_audience || !issuer.audiences.is_empty(), "some token is good");
        let base = issuer.base;
        assert!(base.is_empty() || (base.starts_with(b"/") && !base.ends_with(b"/")), "{base:?}");
    }
    check_access(config);
    check_logins(config);
    check_peers(config);
    check_time(config.idle_timeout());
    check_time(config.login_timeout());
    check_without_ports(config);
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

/// How anybody may log in can be found out, and what is wrong with it is told.
fn check_logins(config: &DtnConfig) {
    assert!(config.names_logins() || (config.users.is_none() && config.gsi.is_none() && !config.anonymous));
    for kind in [ProofKind::Certificate, ProofKind::Token, ProofKind::Principal] {
        assert!(config.mapping.iter().all(|one| one.is_for(kind) == (one.of.is_empty() || one.of.contains(&kind))));
    }
    if let Some(tokens) = &config.tokens {
        assert!(tokens.issuers().is_ok_and(|all| all.len() == tokens.issuer.len()) || tokens.issuers().is_err());
    }
    if let Some(join) = &config.join {
        match join.place() {
            Ok(place) => assert!(!place.host().is_empty() && join.service.starts_with("https://")),
            Err(fault) => assert!(!fault.detail.is_empty()),
        }
    }
    match config.outbound() {
        Ok(Some(_)) => assert!(config.listen.is_empty() && config.node_listen.is_none()),
        Ok(None) => assert!(config.join.as_ref().is_none_or(|join| !join.outbound)),
        Err(fault) => assert!(fault.detail.contains("outbound")),
    }
    let clear = config.takes_clear_text_passwords();
    assert!(clear.is_ok() || (config.users.is_some() && config.tls.is_none()));
    if let Some(gsi) = &config.gsi {
        check_places(gsi);
    }
}

/// What is named counts before what the environment says, and nothing is missing where that says all.
fn check_places(gsi: &GsiConfig) {
    let environment = |name: &str| {
        let place = match name {
            // A file and a directory that every host has.
            "X509_USER_CERT" | "X509_USER_KEY" => "/proc/self/stat",
            "X509_CERT_DIR" => "/",
            "GRIDMAP" => "/map",
            _ => return None,
        };
        Some(place.into())
    };
    let places = gsi.places(&environment, 0).expect("all of it is said");
    assert!(gsi.certificate.as_ref().is_none_or(|named| places.certificate == *named));
    assert!(gsi.key.as_ref().is_none_or(|named| places.key == *named));
    assert_eq!(places.gridmap, gsi.gridmap.clone().unwrap_or_else(|| "/map".into()));
    assert_eq!(places.authorities, gsi.authorities.clone().unwrap_or_else(|| "/".into()));
    let nothing = gsi.places(&|_| None, 0);
    assert!(nothing.is_ok() || nothing.is_err_and(|fault| !fault.detail.is_empty()));
}

/// Nobody is let in whom no line names.
fn check_peers(config: &DtnConfig) {
    let (here, there) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([198, 51, 100, 1]));
    let peers = config.data_peers();
    assert!(peers.admits(here, Some(here)));
    let admitted = peers.admits(there, Some(here));
    let named = config.allow_third_party.as_ref().map(|networks| networks.contains(there));
    assert_eq!(admitted, named.unwrap_or(config.anonymous));
    let paths = config.log_paths();
    assert_eq!((&paths.classic, &paths.json), (&config.transfer_log, &config.transfer_log_json));
}

/// Without ports in the environment those of the file count, or none.
fn check_without_ports(config: &DtnConfig) {
    if let Ok(overrides) = config.overrides(None) {
        assert_eq!(overrides.data_ports.is_some(), config.data_ports.is_some());
    }
}

/// Rules and limits as one message.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Told(Access);

impl Framed for Told {}

/// Rules and limits can be told to the front and asked about anybody.
fn check_access(config: &DtnConfig) {
    let access = config.access();
    let mut told = Vec::new();
    encode(&Told(access.clone()), &mut told).expect("it can be told");
    assert!(told.len() < 100 << 10, "{} bytes do not fit one message", told.len());
    let mut decoder = Decoder::<Told>::default();
    decoder.push(&told);
    assert_eq!(decoder.next().expect("what was told is understood"), Some(Told(access.clone())));
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
