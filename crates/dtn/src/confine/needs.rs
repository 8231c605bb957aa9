//! What each kind of process needs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Calls, Needs};
use crate::monitor::message::FrontSettings;
use crate::mover::message::DataSettings;

/// Names of accounts and groups, from files and from services; what the C library loads for that.
const NAMES: &[&str] = &[
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/var/lib/sss",
    "/var/lib/extrausers",
    "/run/nscd",
    "/run/systemd/userdb",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// Which services tell names.
const SWITCH: &str = "/etc/nsswitch.conf";

/// Where sssd is asked for names.
const SSSD: &str = "/var/lib/sss/pipes/nss";

/// What the host is like, for `whimbrel probe`; the process itself, through whose descriptors unnamed files get names.
const HOST: &[&str] = &[
    "/proc/self",
    "/proc/sys",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/cpuinfo",
    "/proc/net",
    "/proc/mounts",
    "/proc/filesystems",
    "/sys/class/net",
    "/sys/devices",
    "/sys/fs/cgroup",
];

/// Devices that hold nothing.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random"];

/// Where systems have the authorities of the web, and the files that their links lead to.
const AUTHORITIES: &[&str] = &[
    "/etc/ssl",
    "/usr/lib/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/share/pki",
];

/// What the library of Kerberos reads at each login: the realms, which are no secret.
fn kerberos() -> Vec<PathBuf> {
    let named = std::env::var_os("KRB5_CONFIG").unwrap_or_default();
    let named = std::env::split_paths(&named).filter(|path| path.is_absolute());
    named.chain(["/etc/krb5.conf", "/etc/krb5.conf.d"].map(PathBuf::from)).collect()
}

impl Needs {
    /// Of the front: settings of the kernel's network, and of the crypto library; trusted authorities, which are public and change.
    /// It changes nothing.
    pub fn front(settings: &FrontSettings) -> Self {
        let read = [
            "/proc/sys/net",
            "/proc/sys/kernel/random/boot_id",
            "/proc/self",
            "/etc/ssl",
            "/usr/lib/ssl",
            "/etc/localtime",
            "/dev/urandom",
        ];
        let trusted = settings.gsi.iter().flat_map(|gsi| [&gsi.authorities, &gsi.vomsdir]);
        let trusted = trusted.flat_map(|path| authorities(Path::new(OsStr::from_bytes(path))));
        let realms = settings.kerberos.iter().flat_map(|_| kerberos());
        Self {
            read: read.map(PathBuf::from).into_iter().chain(trusted).chain(realms).collect(),
            write: Vec::new(),
            calls: Calls::Front,
        }
    }

    /// Of the process that fetches keys: names of hosts, and the authorities of the system.
    pub fn fetch() -> Self {
        let read = NAMES.iter().chain(AUTHORITIES).chain(&["/proc/self", "/dev/urandom"]);
        Self { read: read.map(PathBuf::from).collect(), write: Vec::new(), calls: Calls::Fetch }
    }

    /// Of the process that joins data connections: the sockets that it has.
    pub fn relay() -> Self {
        Self { read: vec![PathBuf::from("/etc/localtime")], write: Vec::new(), calls: Calls::Front }
    }

    /// Of a data process: the tree that it serves.
    pub fn data(settings: &DataSettings) -> Self {
        let root = Path::new(OsStr::from_bytes(&settings.root)).to_owned();
        let mut read: Vec<PathBuf> = NAMES.iter().chain(HOST).map(PathBuf::from).collect();
        read.extend(["/etc/ssl", "/usr/lib/ssl"].map(PathBuf::from));
        if let Some(directory) = settings.authorities.as_deref() {
            read.extend(authorities(Path::new(OsStr::from_bytes(directory))));
        }
        let mut write: Vec<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
        if settings.read_only {
            read.push(root)
        } else {
            write.push(root)
        }
        let services = std::fs::read_to_string(SWITCH).is_ok_and(|switch| asks_services(&switch));
        Self { read, write, calls: if services { Calls::DataWithServices } else { Calls::Data } }
    }
}

/// Whether names of accounts and groups come from services that are asked over local sockets, by this file (nsswitch.conf(5)). What only
/// systemd knows, such as users of its services, is not worth that: it is shown by number.
fn asks_services(switch: &str) -> bool {
    let of = |line: &'_ str| -> Option<String> {
        let (database, sources) = line.split('#').next()?.split_once(':')?;
        matches!(database.trim(), "passwd" | "group").then(|| sources.to_owned())
    };
    switch.lines().filter_map(of).any(|sources| {
        // What is to be done with an answer stands in brackets.
        let sources = sources.split('[').flat_map(|part| part.rsplit(']').next()).collect::<Vec<_>>().join(" ");
        sources.split_whitespace().any(|source| match source {
            "files" | "compat" | "extrausers" | "altfiles" | "db" | "systemd" => false,
            // Red Hat's default, whether there is such a service or not.
            "sss" => Path::new(SSSD).exists(),
            _ => true,
        })
    })
}

/// A directory of trusted authorities, and the files outside of it that links in it lead to: as they are now, because a later
/// link may lead anywhere.
fn authorities(directory: &Path) -> Vec<PathBuf> {
    let inside = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let linked = std::fs::read_dir(directory).into_iter().flatten().flatten().filter_map(|entry| {
        let target = entry.file_type().ok()?.is_symlink().then(|| entry.path().canonicalize().ok())??;
        (target.is_file() && !target.starts_with(&inside)).then_some(target)
    });
    std::iter::once(directory.to_owned()).chain(linked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_asked_for_names_where_the_host_says_so() {
        for files in [
            "",
            "passwd: files systemd\ngroup: files [SUCCESS=merge] systemd\nhosts: files mdns dns\n",
            "passwd:\tfiles # ldap\n# group: ldap\nshadow: ldap",
            "passwd : compat",
        ] {
            assert!(!asks_services(files), "{files}");
        }
        for services in
            ["passwd: files ldap", "group:files [ NOTFOUND=return ] winbind", "passwd: [!UNAVAIL=return] nis"]
        {
            assert!(asks_services(services), "{services}");
        }
        assert_eq!(asks_services("passwd: sss files"), Path::new(SSSD).exists());
    }
}
