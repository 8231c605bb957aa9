//! Configurations of the Globus server, and what ours becomes of them.

use std::net::IpAddr;

use whimbrel_dtn::front::access::Guest;
use whimbrel_dtn::front::config::DtnConfig;
use whimbrel_dtn::front::import::{Imported, Remark, Setting, Weight, is_read, parse, take_over};
use whimbrel_proto::rules::Operations;

use super::users::check_config;

/// Whatever their server starts with becomes a configuration that ours starts with, and nothing is open that was not, unless that is said.
pub fn gridftp_conf(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let settings = match parse(&text) {
        Ok(settings) => settings,
        Err(fault) => {
            let before: Vec<&str> = text.lines().take(fault.line - 1).collect();
            assert!(fault.line <= text.lines().count() && parse(&before.join("\n")).is_ok(), "the first wrong line");
            return;
        }
    };
    check_settings(&text, &settings);
    let imported = take_over(&[("gridftp.conf".to_owned(), settings.clone())]);
    let config = DtnConfig::parse(&imported.toml).unwrap_or_else(|fault| panic!("{fault}\n{}", imported.toml));
    check_config(&config);
    check_remarks(&imported, &settings);
    check_paths(&config, &imported, &settings);
    check_networks(&config, &imported, &settings);
    let twice = [("a".to_owned(), settings.clone()), ("b".to_owned(), settings)];
    assert_eq!(take_over(&twice).toml, imported.toml, "a later file that says the same changes nothing");
    let _any_name = is_read(text.lines().next().unwrap_or_default());
}

fn check_settings(text: &str, settings: &[Setting]) {
    assert!(settings.is_sorted_by_key(|setting| setting.line));
    for setting in settings {
        let line = text.lines().nth(setting.line - 1).expect("a line of the text");
        assert!(line.contains(&setting.name) && line.contains(&setting.value) && !setting.name.is_empty());
        assert_eq!(setting.variable, line.trim_start().starts_with('$'));
    }
    assert_eq!(parse(&format!("{text}\n  # a comment\n\n")).as_deref(), Ok(settings));
}

/// The last word about an option, which counts.
fn last<'a>(settings: &'a [Setting], name: &str) -> Option<&'a str> {
    let of_name = |setting: &&Setting| !setting.variable && setting.name.replace('-', "_") == name;
    settings.iter().rfind(of_name).map(|setting| setting.value.as_str())
}

/// The worst comes first, and each is about something that was said or that holds without a word.
fn check_remarks(imported: &Imported, settings: &[Setting]) {
    assert!(imported.remarks.is_sorted_by(|one, next| one.weight >= next.weight));
    assert_eq!(imported.is_complete(), !imported.remarks.iter().any(|remark| remark.weight >= Weight::Missing));
    for remark in &imported.remarks {
        assert!(!remark.text.is_empty() && !remark.weight.word().is_empty());
        // In quotation marks an option may begin with the sign of variables.
        let is_of = |setting: &Setting| match setting.variable {
            true => remark.option.strip_prefix('$') == Some(&setting.name),
            false => remark.option == setting.name,
        };
        assert!(remark.place.is_empty() || settings.iter().any(is_of), "{remark:?}");
    }
}

fn is_open(imported: &Imported, option: &str) -> bool {
    imported.remarks.iter().any(|remark| remark.option.replace('-', "_") == option && remark.weight == Weight::Open)
}

/// Below restrict_paths only what it names can be used at all; an entry without letters that came first opens its path.
fn check_paths(config: &DtnConfig, imported: &Imported, settings: &[Setting]) {
    let Some(value) = last(settings, "restrict_paths") else { return };
    let guest = Guest { user: "ada", groups: &[], address: None, shared: false };
    let rules = config.access().of(guest).paths;
    let places: Vec<&str> = value.split(',').filter_map(|entry| entry.find('/').map(|at| &entry[at..])).collect();
    let names_root = places.iter().any(|place| place.trim_matches(['/', '.']).is_empty());
    if !names_root && !is_open(imported, "restrict_paths") {
        assert_eq!(rules.at(b"/\x01 named by nobody"), Operations::NONE, "{value}");
    }
    let mut entries = value.split(',').filter(|entry| !entry.is_empty());
    let of_paths = |remark: &&Remark| remark.option.replace('-', "_") == "restrict_paths";
    let whole = imported.remarks.iter().filter(of_paths).all(|remark| remark.weight < Weight::Missing);
    let first = entries.next().filter(|first| whole && first.starts_with('/') && !first.contains(['*', '.']));
    if let Some(first) = first {
        assert_eq!(rules.at(first.as_bytes()), Operations::ALL, "{value}");
    }
}

/// An address that is denied, or not among those that are allowed, has no login.
fn check_networks(config: &DtnConfig, imported: &Imported, settings: &[Setting]) {
    let most = |address: IpAddr| {
        config.access().of(Guest { user: "ada", groups: &[], address: Some(address), shared: false }).connections
    };
    let named = |option: &str| {
        let fragments = last(settings, option).filter(|_| !is_open(imported, option)).unwrap_or_default();
        fragments.split(',').filter_map(|fragment| fragment.trim().parse::<IpAddr>().ok()).collect::<Vec<_>>()
    };
    let (allowed, denied) = (named("allow_from"), named("deny_from"));
    denied.iter().for_each(|address| assert_eq!(most(*address), Some(0), "{address} is denied"));
    for address in allowed.iter().filter(|_| last(settings, "deny_from").is_none()) {
        assert_ne!(most(*address), Some(0), "{address} is allowed");
    }
    let limited = last(settings, "allow_from").is_some() && !is_open(imported, "allow_from");
    // Of the range for examples (RFC 5737 §3), which no input names in all its parts.
    let stranger = IpAddr::from([198, 51, 100, 77]);
    let fits = last(settings, "allow_from").is_some_and(|value| {
        value.split(',').map(str::trim).any(|fragment| {
            // IPv4 addresses may stand in IPv6 clothes.
            ("198.51.100.77".starts_with(fragment) && !fragment.is_empty()) || fragment.contains(':')
        })
    });
    if limited && !fits {
        assert_eq!(most(stranger), Some(0));
    }
}
