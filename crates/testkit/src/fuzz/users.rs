//! The administrator's files.

use whimbrel_dtn::front::config::DtnConfig;
use whimbrel_dtn::front::users::parse_users;

/// Users file and configuration: no text is half understood.
pub fn users_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match parse_users(&text) {
        Ok(users) => {
            let entries = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            assert_eq!(users.len(), entries.clone().count(), "every entry is one user");
            for (user, entry) in users.iter().zip(entries) {
                assert!(!user.name.is_empty() && !user.name.contains(':') && entry.starts_with(&user.name));
                assert_ne!(user.account.as_deref(), Some(""));
            }
        }
        Err(fault) => assert!(fault.to_string().len() < 1000),
    }
    if let Ok(config) = DtnConfig::parse(&text) {
        check_config(&config);
    }
}

fn check_config(config: &DtnConfig) {
    assert!(!config.listen_addresses().is_empty());
    let _ = (config.idle_timeout(), config.login_timeout());
    if let (Some(_), Ok(overrides)) = (&config.data_ports, config.node_overrides()) {
        let (first, last) = overrides.data_ports.expect("ports were given");
        assert!(0 < first && first <= last);
    }
}
