//! From their settings to our TOML.

use std::net::IpAddr;

use toml::Value;

use super::options::{Fate, Special, find};
use super::rules::{self, MOST_SELECTORS, Restricted};
use super::{Imported, Remark, Setting, Weight};

/// Where their servers listen unless told otherwise.
const PORT: u64 = 2811;

/// What is gathered before it can be written.
#[derive(Debug, Default)]
struct Found {
    /// Keys in the order of their text; a later value replaces an earlier one.
    keys: Vec<(&'static str, Value)>,
    /// Of `[gsi]`.
    gsi: Vec<(&'static str, Value)>,
    port: Option<u64>,
    interface: Option<String>,
    /// Of `restrict_paths`, the root among them.
    paths: Vec<Restricted>,
    /// Networks of `allow_from` and `deny_from`.
    allowed: Vec<String>,
    denied: Vec<String>,
    remarks: Vec<Remark>,
}

/// Takes over the settings of several files, each with its name; the later file wins, as with the real server.
///
/// # Errors
/// None: what cannot be taken over is a remark.
pub fn take_over(files: &[(String, Vec<Setting>)]) -> Imported {
    let mut found = Found::default();
    for (file, settings) in files {
        for setting in settings {
            found.take(setting, &format!("{file}:{}", setting.line));
        }
    }
    found.finish()
}

impl Found {
    fn take(&mut self, setting: &Setting, place: &str) {
        // Only the last word about an option counts.
        let option = if setting.variable { format!("${}", setting.name) } else { setting.name.clone() };
        self.remarks.retain(|remark| remark.option != option);
        let mut told = Remark { weight: Weight::Note, place: place.to_owned(), option, text: String::new() };
        let verdict = if setting.variable { self.variable(setting) } else { self.option(setting) };
        if let Some((weight, text)) = verdict {
            (told.weight, told.text) = (weight, text);
            self.remarks.push(told);
        }
    }

    fn option(&mut self, Setting { name, value, .. }: &Setting) -> Option<(Weight, String)> {
        let Some(row) = find(name) else {
            return Some((Weight::Missing, "the real server has no such option either".to_owned()));
        };
        match row.fate {
            Fate::Flag(key) => match value.as_str() {
                "0" | "1" => self.set(key, Value::Boolean(value == "1")),
                _ => wrong("0 or 1", value),
            },
            Fate::Number(key) => match number(value) {
                Some(number) => self.set(key, Value::Integer(number)),
                None => wrong("a number", value),
            },
            Fate::Text(key) => self.set(key, Value::String(value.clone())),
            Fate::Special(special) => self.special(special, value),
            Fate::Needless(_) => None,
            Fate::Unless(usual, ..) if value == usual => None,
            Fate::Gone(weight, text) | Fate::Unless(_, weight, text) => Some((weight, text.to_owned())),
        }
    }

    fn special(&mut self, special: Special, value: &str) -> Option<(Weight, String)> {
        match special {
            Special::Port => match number(value).and_then(|port| u16::try_from(port).ok()) {
                Some(port) => {
                    self.port = Some(port.into());
                    None
                }
                None => wrong("a port", value),
            },
            Special::ControlInterface => {
                self.interface = Some(value.to_owned());
                None
            }
            Special::DataInterface => self.address("data_interface", value),
            Special::Hostname => {
                self.interface = Some(value.to_owned());
                self.address("data_interface", value)
            }
            Special::PortRange => self.ports(value),
            Special::Anonymous => match value {
                "0" | "1" => self.set("anonymous", Value::Boolean(value == "1")),
                _ => wrong("0 or 1", value),
            },
            Special::Paths => {
                let (paths, lost) = rules::paths(value);
                self.paths = paths;
                let usual = "taken over as [[rules]]; directories above those named can be entered, but not listed";
                Some(lost.unwrap_or_else(|| (Weight::Differs, usual.to_owned())))
            }
            Special::AllowFrom => from(&mut self.allowed, value),
            Special::DenyFrom => from(&mut self.denied, value),
        }
    }

    fn variable(&mut self, Setting { name, value, .. }: &Setting) -> Option<(Weight, String)> {
        let path = Value::String(value.clone());
        match name.as_str() {
            "GLOBUS_TCP_PORT_RANGE" => self.ports(value),
            "GLOBUS_HOSTNAME" => self.address("data_address", value),
            "X509_USER_CERT" => self.set_gsi("certificate", path),
            "X509_USER_KEY" => self.set_gsi("key", path),
            "X509_CERT_DIR" => self.set_gsi("authorities", path),
            "GRIDMAP" => self.set_gsi("gridmap", path),
            "X509_VOMS_DIR" => self.set_gsi("vomsdir", path),
            "GLOBUS_UDP_PORT_RANGE" | "GLOBUS_ERROR_VERBOSE" | "GLOBUS_ERROR_OUTPUT" | "GLOBUS_THREAD_MODEL" => None,
            "GSI_AUTHZ_CONF"
            | "GLOBUS_GSI_AUTHZ_DATA_FILE"
            | "LLGT_LOG_IDENT"
            | "LCMAPS_DB_FILE"
            | "LCMAPS_POLICY_NAME" => Some((
                Weight::Missing,
                "no library decides about logins: the grid-mapfile does, and mapping documents or programs can"
                    .to_owned(),
            )),
            "GRIDMAPDIR" => {
                Some((Weight::Missing, "there are no pool accounts: name an account for each identity".to_owned()))
            }
            _ => Some((Weight::Note, "a variable that nothing here reads".to_owned())),
        }
    }

    fn address(&mut self, key: &'static str, value: &str) -> Option<(Weight, String)> {
        match value.parse::<IpAddr>() {
            Ok(address) => self.set(key, Value::String(address.to_string())),
            Err(_) => {
                Some((Weight::Missing, format!("{key} is an address, not a name: look `{value}` up and put it in")))
            }
        }
    }

    fn ports(&mut self, value: &str) -> Option<(Weight, String)> {
        let ports: Vec<u16> = value.split([',', ' ', '-']).filter_map(|port| port.trim().parse().ok()).collect();
        match ports[..] {
            [low, high] if 0 < low && low <= high => self.set("data_ports", Value::String(format!("{low}-{high}"))),
            _ => wrong("two ports", value),
        }
    }

    fn set(&mut self, key: &'static str, value: Value) -> Option<(Weight, String)> {
        self.keys.retain(|(known, _)| *known != key);
        self.keys.push((key, value));
        None
    }

    fn set_gsi(&mut self, key: &'static str, value: Value) -> Option<(Weight, String)> {
        self.gsi.retain(|(known, _)| *known != key);
        self.gsi.push((key, value));
        None
    }

    fn is_on(&self, flag: &str) -> bool {
        self.keys.iter().any(|(key, value)| *key == flag && *value == Value::Boolean(true))
    }

    fn finish(mut self) -> Imported {
        self.bound_networks();
        let port = self.port.unwrap_or(PORT);
        let listen = match &self.interface {
            Some(interface) if interface.contains(':') => format!("[{interface}]:{port}"),
            Some(interface) => format!("{interface}:{port}"),
            None => format!("[::]:{port}"),
        };
        let mut toml = String::from("# Taken over from globus-gridftp-server by `whimbrel dtn --import`.\n");
        toml += &line("listen", &Value::Array(vec![Value::String(listen)]));
        for (key, value) in &self.keys {
            // Off is what they are without a word.
            if *value != Value::Boolean(false) {
                toml += &line(key, value);
            }
        }
        let anonymous = self.is_on("anonymous");
        if !anonymous || !self.gsi.is_empty() {
            toml += "\n# Logins with grid certificates; what is not named lies below /etc/grid-security.\n[gsi]\n";
            toml.extend(self.gsi.iter().map(|(key, value)| line(key, value)));
        }
        toml += &self.addresses();
        toml.extend(self.paths.iter().map(Restricted::rule));
        self.unwritten(anonymous);
        self.remarks.sort_by_key(|remark| std::cmp::Reverse(remark.weight));
        Imported { toml, remarks: self.remarks }
    }

    /// Takes over both lists of networks or none: one without the other would mean something else.
    fn bound_networks(&mut self) {
        let many = self.allowed.len() + self.denied.len();
        if many <= MOST_SELECTORS {
            return;
        }
        self.allowed.clear();
        self.denied.clear();
        for option in ["allow_from", "deny_from"] {
            for remark in self.remarks.iter_mut().filter(|remark| remark.option.replace('-', "_") == option) {
                remark.weight = Weight::Open;
                remark.text = format!(
                    "these are {many} networks together, and {MOST_SELECTORS} can be written down: let a firewall decide about addresses"
                );
            }
        }
    }

    /// Logins from networks: of several entries the first that is for somebody counts, so denials come first.
    fn addresses(&self) -> String {
        let of = |networks: &[String], most: u32| match networks.is_empty() {
            true => String::new(),
            false => format!("\n[[limits.of]]\naddresses = {networks:?}\nconnections = {most}\n"),
        };
        // Who is allowed has no limit of his own, and all others have none left.
        let others = if self.allowed.is_empty() { "" } else { "\n[limits]\nconnections = 0\n" };
        format!("{others}{}{}", of(&self.denied, 0), of(&self.allowed, u32::MAX))
    }

    /// What holds at the real server without being written.
    fn unwritten(&mut self, anonymous: bool) {
        let mut say = |weight, option: &str, text: &str| {
            self.remarks.push(Remark {
                weight,
                place: String::new(),
                option: option.to_owned(),
                text: text.to_owned(),
            });
        };
        match anonymous {
            true if self.gsi.is_empty() => say(
                Weight::Note,
                "logins with certificates",
                "add [gsi] if this host has a certificate: the real server takes them besides anonymous ones",
            ),
            true => {}
            false => say(
                Weight::Differs,
                "data connections",
                "the real server connects to any address and takes connections from any; here those without proof come from and \
                 go to the client's own address only; `allow_third_party = [\"0.0.0.0/0\", \"::/0\"]` is as before",
            ),
        }
    }
}

fn line(key: &str, value: &Value) -> String {
    format!("{key} = {value}\n")
}

/// Takes networks over, or none of them.
fn from(networks: &mut Vec<String>, value: &str) -> Option<(Weight, String)> {
    match rules::networks(value) {
        Ok(found) => {
            *networks = found;
            Some((
                Weight::Differs,
                "taken over as [limits]: others can connect, and are refused when they log in (421)".to_owned(),
            ))
        }
        Err(why) => {
            networks.clear();
            Some((Weight::Open, format!("{why}: let a firewall decide about addresses")))
        }
    }
}

fn wrong(wanted: &str, value: &str) -> Option<(Weight, String)> {
    Some((Weight::Missing, format!("`{value}` is not {wanted}")))
}

/// Digits, then perhaps `K`, `M`, `G` or `T`.
fn number(text: &str) -> Option<i64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        (at, 't' | 'T') => (&text[..at], 1 << 40),
        _ => (text, 1),
    };
    let number: i64 = digits.parse().ok().filter(|number| *number >= 0)?;
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::super::{OPTIONS, parse};
    use whimbrel_proto::rules::Operation;

    use super::*;
    use crate::front::access::Guest;
    use crate::front::config::{DtnConfig, Limits};

    /// `/etc/gridftp.conf` of Debian's globus-gridftp-server-progs 13.24.
    const DEBIAN: &str = "# globus-gridftp-server configuration file\n\n# this is a comment\n\n\
        # option names beginning with '$' will be set as environment variables, e.g.\n# $GLOBUS_ERROR_VERBOSE 1\n\
        # $GLOBUS_TCP_PORT_RANGE 50000,51000\n\n# port\nport 2811\n";

    fn taken(text: &str) -> (Imported, DtnConfig) {
        let imported = take_over(&[("f".to_owned(), parse(text).unwrap())]);
        let config = DtnConfig::parse(&imported.toml).unwrap_or_else(|fault| panic!("{fault}\n{}", imported.toml));
        (imported, config)
    }

    #[test]
    fn the_file_that_debian_ships_is_taken_over_whole() {
        let (imported, config) = taken(DEBIAN);
        assert!(imported.is_complete(), "{:?}", imported.remarks);
        assert_eq!(config.listen, ["[::]:2811"]);
        assert!(config.gsi.is_some(), "certificates are how one logs in there");
    }

    #[test]
    fn a_site_with_many_settings_keeps_what_there_is_a_word_for() {
        let (imported, config) = taken(
            "$GLOBUS_TCP_PORT_RANGE 50000,51000\n$X509_USER_CERT /grid/host.pem\n$X509_CERT_DIR /grid/certificates\n$GRIDMAP /grid/map\n\
             port 2812\ncontrol_interface 192.0.2.1\ndata_interface 192.0.2.2\nsync_writes 1\nencrypt_data 0\n\
             connections_max 2K\ncontrol_idle_timeout 300\nlog_transfer /var/log/transfer.log\nbanner \"Welcome to \"\nthreads 2\n",
        );
        assert!(imported.is_complete(), "{:?}", imported.remarks);
        assert_eq!(
            (config.data_ports.as_deref(), config.listen),
            (Some("50000-51000"), vec!["192.0.2.1:2812".to_owned()])
        );
        assert_eq!((config.sync_writes, config.encrypt_data, config.max_connections), (true, false, Some(2048)));
        assert_eq!((config.idle_timeout, config.banner.as_deref()), (Some(300), Some("Welcome to ")));
        assert_eq!(config.data_interface, Some("192.0.2.2".parse().unwrap()));
        let gsi = config.gsi.unwrap();
        let path = |text: &str| Some(std::path::PathBuf::from(text));
        assert_eq!((gsi.certificate, gsi.gridmap), (path("/grid/host.pem"), path("/grid/map")));
        assert_eq!((gsi.authorities, gsi.vomsdir), (path("/grid/certificates"), None));
    }

    #[test]
    fn what_would_open_the_server_is_told_first() {
        let (imported, _) =
            taken("perms 0600\nrestrict_paths /,N/data/*\nallow_from a.host\nlog_level ALL\nnonsense 1\n");
        assert!(!imported.is_complete());
        let told: Vec<_> =
            imported.remarks.iter().map(|told| (told.weight, told.option.as_str(), told.place.as_str())).collect();
        assert_eq!(
            told[..4],
            [
                (Weight::Open, "restrict_paths", "f:2"),
                (Weight::Open, "allow_from", "f:3"),
                (Weight::Missing, "perms", "f:1"),
                (Weight::Missing, "nonsense", "f:5"),
            ]
        );
    }

    #[test]
    fn restrictions_of_paths_become_rules_and_those_of_addresses_limits_of_logins() {
        let (imported, config) = taken(
            "restrict_paths R/data,W/inbox,N/data/secret,/free\nallow_from 192.168.,10.1.2.3\ndeny_from 192.168.66.\nconnections_max 9\n",
        );
        assert!(imported.is_complete(), "{:?}", imported.remarks);
        let access = config.access();
        let rules =
            |from: &str| access.of(Guest { user: "ada", groups: &[], address: from.parse().ok(), shared: false });
        let allowed = |path: &str| Vec::<Operation>::from(rules("192.168.1.1").paths.at(path.as_bytes()));
        use Operation::{Create, Delete, List, Modify, Read};
        assert_eq!(allowed("/data/x"), [Read, List]);
        assert_eq!(allowed("/inbox/x"), [List, Create, Modify, Delete]);
        assert_eq!(allowed("/free/x"), Operation::ALL);
        assert_eq!((allowed("/data/secret/x"), allowed("/etc/passwd"), allowed("/")), (vec![], vec![], vec![]));
        let most = |from: &str| rules(from).connections;
        assert_eq!((most("192.168.1.1"), most("10.1.2.3")), (Some(u32::MAX), Some(u32::MAX)));
        assert_eq!((most("192.168.66.1"), most("10.1.2.4"), most("2001:db8::1")), (Some(0), Some(0), Some(0)));
        let (_, denying) = taken("deny_from 192.168.66.\n");
        let access = denying.access();
        let most = |from: &str| {
            access.of(Guest { user: "ada", groups: &[], address: from.parse().ok(), shared: false }).connections
        };
        assert_eq!((most("192.168.66.1"), most("192.168.1.1")), (Some(0), None));
    }

    #[test]
    fn more_networks_than_can_be_written_down_are_left_out_together_and_said() {
        // All that begins with 1, and with 4 to 9: 111 and 66 networks.
        let (imported, config) = taken("allow_from 1,4,5,6,7,8,9\ndeny_from 1\n");
        assert_eq!(config.limits, Limits::default());
        let open = imported.remarks.iter().filter(|told| told.weight == Weight::Open);
        assert_eq!(open.map(|told| told.option.as_str()).collect::<Vec<_>>(), ["allow_from", "deny_from"]);
        assert!(!imported.is_complete() && imported.remarks[0].text.contains("288 networks"));
    }

    #[test]
    fn the_last_word_about_an_option_counts() {
        let first = ("a".to_owned(), parse("port 1\ndata_interface host.example.org\nallow_anonymous 1").unwrap());
        let last = ("b".to_owned(), parse("port 2\ndata_interface 192.0.2.1\n").unwrap());
        let imported = take_over(&[first, last]);
        let config = DtnConfig::parse(&imported.toml).unwrap();
        assert_eq!((&config.listen[0][..], config.anonymous, config.gsi), ("[::]:2", true, None));
        assert!(imported.is_complete(), "{:?}", imported.remarks);
    }

    #[test]
    fn every_option_leads_to_a_configuration_that_can_be_read() {
        for row in OPTIONS {
            for value in [
                "1",
                "0",
                "text",
                "\"two words\"",
                "/a/path",
                "192.0.2.1",
                "2001:db8::1",
                "50000,51000",
                "-7",
                "9999999T",
            ] {
                let (imported, _) = taken(&format!("{} {value}\n", row.names[0]));
                assert!(imported.remarks.iter().all(|told| !told.text.is_empty()), "{row:?}");
            }
        }
    }
}
