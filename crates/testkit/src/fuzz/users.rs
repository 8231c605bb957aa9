//! The administrator's files.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use whimbrel_dtn::front::config::DtnConfig;
use whimbrel_dtn::front::users::parse_users;

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

/// Clocks can be set to the end of a time.
fn check_time(time: Duration) {
    assert!(Instant::now().checked_add(time).is_some());
}
