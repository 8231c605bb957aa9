//! How the servers of a site are reached.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
use rustix::io::DupFlags;
use uuid::Uuid;
use whimbrel_engine::dispatch::{Credential, Server, Site};
use whimbrel_engine::listing::trimmed;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::url::{self, Location, Remote, Scheme};
use whimbrel_trust::pins::Fingerprint;

use super::hold::Line;
use crate::client::Token;
use crate::client::meeting::{Meeting, MeetingPlace};
use crate::client::options::Place;
use crate::client::security::{Security, Trust};
use crate::client::target::{Address, CredentialFiles, IN_MEMORY, Password, SessionOptions, Target};

const OP: &str = "reach the collection";

/// A site as a target, with what has to live as long as it is used.
#[derive(Debug)]
pub(super) struct Reach {
    pub(super) target: Target,
    /// The collection's root there.
    pub(super) base: String,
    token: Option<Token>,
    proxy: Option<ProxyFile>,
}

impl Reach {
    /// Reads a site.
    ///
    /// # Errors
    /// Servers that cannot be named so; a credential that they cannot be shown.
    pub(super) fn new(site: &Site, line: &Line) -> Result<Self, Fault> {
        let Servers { scheme, met, addresses } = addresses(&site.servers)?;
        let place = || Arc::new(line.clone()) as Arc<dyn MeetingPlace>;
        let meeting = (!met.is_empty()).then(|| Meeting::new(met, place()));
        let mut addresses = addresses.into_iter();
        let (host, port) = addresses.next().ok_or_else(|| wrong("the collection has no servers"))?;
        let security = match scheme {
            Scheme::Whimbrel => Security::Tls,
            Scheme::Ftps => Security::ImplicitTls,
            Scheme::GsiFtp => Security::Gsi,
            Scheme::Ftp => Security::Clear,
            Scheme::SshFtp => return Err(wrong("servers behind ssh are not reached by a service")),
        };
        let target = Target {
            others: addresses.collect(),
            user: site.local_user.clone(),
            security,
            keys: keys(&site.servers)?,
            meeting,
            ..Target::anonymous(host, port)
        };
        let mut reach = Self { target, base: site.base.clone(), token: None, proxy: None };
        reach.show(&site.credential)?;
        Ok(reach)
    }

    fn show(&mut self, credential: &Credential) -> Result<(), Fault> {
        let is_tls = matches!(self.target.security, Security::Tls | Security::ImplicitTls);
        match credential {
            // What lies about on this host is not the user's.
            Credential::None | Credential::Token { .. } | Credential::Password { .. }
                if self.target.security == Security::Gsi =>
            {
                let fault = Fault::new(FaultCode::CredentialMissing, OP).side(Side::Us).subject(&self.target.host);
                return Err(fault.detail("a grid server wants a proxy certificate, and none is registered"));
            }
            Credential::None => {}
            Credential::Token { .. } if !is_tls => {
                return Err(wrong("a token is shown over TLS only: the servers' URLs must begin with whimbrel://"));
            }
            Credential::Token { token } => {
                let token = Token::new(token)?;
                self.target.token = Some(token.clone());
                self.token = Some(token);
            }
            Credential::Proxy { pem } => {
                let file = ProxyFile::new(pem)?;
                let path = file.path.clone();
                self.target.credential = Some(Box::new(CredentialFiles { certificate: path.clone(), key: path }));
                self.proxy = Some(file);
            }
            Credential::Password { user, password } => {
                self.target.user = Some(user.clone());
                self.target.password = Some(Password(password.clone()));
            }
        }
        Ok(())
    }

    /// Whether none of its servers takes connections.
    pub(super) fn is_outbound(&self) -> bool {
        let is_met = |address| self.target.meeting.as_ref().is_some_and(|meeting| meeting.is_for(&address));
        self.target.addresses().all(is_met)
    }

    /// Whether its servers are of another make, as far as their names tell.
    pub(super) fn is_stock(&self) -> bool {
        self.target.security == Security::Gsi
    }

    /// Shows a renewed credential in new sessions. Servers that came or went are heeded by the next run of the task.
    ///
    /// # Errors
    /// It cannot be used; the former is shown then.
    pub(super) fn renew(&self, site: &Site) -> Result<(), Fault> {
        match (&site.credential, &self.token, &self.proxy) {
            (Credential::Token { token }, Some(shown), _) => shown.renew(token),
            (Credential::Proxy { pem }, _, Some(file)) => file.write(pem),
            _ => Ok(()),
        }
    }

    /// A path there.
    pub(super) fn place(&self, path: &[u8]) -> Place {
        Place { target: Some(self.target.clone()), path: trimmed(path).to_vec() }
    }

    /// Whether a path is that of the collection's root.
    pub(super) fn is_root(&self, path: &[u8]) -> bool {
        parts(path).eq(parts(self.base.as_bytes()))
    }

    /// Whether a path here and one there are one place, or one lies in the other, as far as the names of servers tell.
    pub(super) fn overlaps(&self, path: &[u8], other: &Self, there: &[u8]) -> bool {
        let is_same = |one: &Address, other: &Address| one.1 == other.1 && one.0.eq_ignore_ascii_case(&other.0);
        let mut addresses = self.target.addresses();
        let shared = addresses.any(|one| other.target.addresses().any(|other| is_same(&one, &other)));
        // Equal as far as the shorter goes.
        shared && parts(path).zip(parts(there)).all(|(one, other)| one == other)
    }
}

/// Servers that join data connections of others, as far as they can be used.
pub(super) fn relays(sites: &[Site], line: &Line) -> Vec<Target> {
    let reached = sites.iter().map(|site| Reach::new(site, line));
    let told = reached.inspect(|reach| {
        if let Err(fault) = reach {
            tracing::warn!(%fault, "a relay cannot be used");
        }
    });
    told.flatten().map(|reach| reach.target).collect()
}

/// The components of a path.
fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

/// Sessions show what the service gave, and nothing that lies about on this host.
pub(super) fn session(label: &str) -> SessionOptions {
    let label = label.replace(|c: char| c.is_control(), " ");
    let label = label.trim();
    let label = (!label.is_empty()).then(|| label.chars().take(128).collect());
    SessionOptions { label, trust: Trust::default().named_only(), ..SessionOptions::default() }
}

/// The servers of a site.
struct Servers {
    scheme: Scheme,
    /// Those that are met.
    met: BTreeMap<Address, Uuid>,
    /// All of them.
    addresses: Vec<Address>,
}

fn addresses(servers: &[Server]) -> Result<Servers, Fault> {
    let mut known = None;
    let mut met = BTreeMap::new();
    let mut addresses = Vec::new();
    for server in servers {
        let remote = match url::parse(server.url.as_bytes()) {
            Ok(Location::Remote(remote)) => remote,
            Ok(Location::Local(_)) => return Err(wrong(&format!("{:?} names no server", server.url))),
            Err(error) => return Err(wrong(&format!("{:?}: {error}", server.url))),
        };
        let Remote { scheme: Some(scheme), hosts, .. } = remote else {
            return Err(wrong(&format!("{:?} has no scheme", server.url)));
        };
        if *known.get_or_insert(scheme) != scheme {
            return Err(wrong("its servers are reached in different ways"));
        }
        for host in hosts {
            let port = if server.rendezvous.is_some() { 0 } else { host.port.unwrap_or(scheme.default_port()) };
            let address = (host.name, port);
            met.extend(server.rendezvous.map(|id| (address.clone(), id)));
            addresses.push(address);
        }
    }
    Ok(Servers { scheme: known.ok_or_else(|| wrong("the collection has no servers"))?, met, addresses })
}

/// Any of a site's servers may have any of its keys: they serve the same storage.
fn keys(servers: &[Server]) -> Result<Vec<Fingerprint>, Fault> {
    let pins = servers.iter().filter_map(|server| server.pin.as_deref());
    let read = |pin: &str| {
        let pin = pin.strip_prefix("sha256:").unwrap_or(pin);
        Fingerprint::parse(&format!("sha256:{pin}")).ok_or_else(|| wrong("a server's key is no SHA-256 digest"))
    };
    pins.map(read).collect()
}

fn wrong(detail: &str) -> Fault {
    Fault::new(FaultCode::InvalidArgument, OP).side(Side::Service).detail(detail)
}

/// A proxy certificate as a file in memory while it is used: the grid's machinery reads files, and it belongs on no disk.
#[derive(Debug)]
struct ProxyFile {
    file: Mutex<OwnedFd>,
    path: PathBuf,
}

impl ProxyFile {
    fn new(pem: &str) -> Result<Self, Fault> {
        let file = in_memory(pem).map_err(not_kept)?;
        let path = PathBuf::from(format!("{IN_MEMORY}{}", file.as_raw_fd()));
        Ok(Self { file: Mutex::new(file), path })
    }

    /// Another proxy takes the place of the former, at one moment for all who read.
    fn write(&self, pem: &str) -> Result<(), Fault> {
        let fresh = in_memory(pem).map_err(not_kept)?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::io::dup3(&fresh, &mut file, DupFlags::CLOEXEC).map_err(|error| not_kept(error.into()))
    }
}

fn not_kept(error: std::io::Error) -> Fault {
    Fault::from_io(error, "keep a proxy certificate").side(Side::Us)
}

fn in_memory(pem: &str) -> std::io::Result<OwnedFd> {
    let file = memfd_create("proxy", MemfdFlags::CLOEXEC)?;
    // Readers of credentials insist on that.
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    let mut file = File::from(file);
    file.write_all(pem.as_bytes())?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn site(urls: &[&str], credential: Credential) -> Site {
        let servers = urls.iter().map(|url| Server::at(*url, Some("ab".repeat(32)))).collect();
        Site { collection: Uuid::nil(), servers, credential, base: "/data/x".into(), local_user: None }
    }

    fn reached(site: &Site) -> Result<Reach, Fault> {
        let (asks, _) = tokio::sync::mpsc::unbounded_channel();
        Reach::new(site, &Line::new(asks, std::time::Duration::ZERO))
    }

    #[test]
    fn servers_that_take_no_connections_are_met() {
        let mut site = site(&["whimbrel://laptop-1", "whimbrel://a:1"], Credential::None);
        site.servers[0].rendezvous = Some(Uuid::from_u128(5));
        let mixed = reached(&site).unwrap();
        let meeting = mixed.target.meeting.as_ref().unwrap();
        assert!(meeting.is_for(&("laptop-1".into(), 0)) && !meeting.is_for(&("a".into(), 1)));
        assert!(!mixed.is_outbound() && mixed.target.to_string() == "laptop-1,a:1");
        site.servers.pop();
        assert!(reached(&site).unwrap().is_outbound());
    }

    #[test]
    fn several_servers_are_one_target_with_the_keys_of_all() {
        let token = Credential::Token { token: "abc".into() };
        let reach = reached(&site(&["whimbrel://a:1", "whimbrel://[::1]:2"], token)).unwrap();
        let target = &reach.target;
        assert_eq!((target.to_string(), target.security, target.keys.len()), ("a:1,[::1]:2".into(), Security::Tls, 2));
        assert!(reach.is_root(b"/data//x/./") && !reach.is_root(b"/data") && !reach.is_root(b"/data/x/y"));
        let other = reached(&site(&["whimbrel://B:2", "whimbrel://A:1"], Credential::None)).unwrap();
        assert!(reach.overlaps(b"/x/y", &other, b"/x//y/z") && reach.overlaps(b"/x/y/", &other, b"/x"));
        assert!(!reach.overlaps(b"/x/y", &other, b"/x/yz"));
        let third = reached(&site(&["whimbrel://a:2"], Credential::None)).unwrap();
        assert!(!reach.overlaps(b"/x", &third, b"/x"));
        for urls in [&["ftp://a", "gsiftp://b"][..], &["/a"], &["a:/b"], &[]] {
            assert!(reached(&site(urls, Credential::None)).is_err(), "{urls:?}");
        }
    }

    #[test]
    fn a_token_is_not_shown_in_clear() {
        let fault = reached(&site(&["ftp://a"], Credential::Token { token: "secret".into() })).unwrap_err();
        assert!(!fault.to_string().contains("secret") && fault.to_string().contains("whimbrel://"), "{fault}");
    }

    #[test]
    fn a_grid_server_gets_the_users_proxy_or_nothing() {
        for credential in [Credential::None, Credential::Token { token: "t".into() }] {
            let fault = reached(&site(&["gsiftp://a"], credential)).unwrap_err();
            assert_eq!(fault.code, FaultCode::CredentialMissing);
        }
    }

    #[test]
    fn a_proxy_is_in_memory_as_long_as_it_is_used() {
        let reach = reached(&site(&["gsiftp://a"], Credential::Proxy { pem: "one".into() })).unwrap();
        let path = reach.target.credential.as_ref().unwrap().certificate.clone();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_link(&path).unwrap().starts_with("/memfd:proxy (deleted)"), "it has a name");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        reach.renew(&site(&["gsiftp://a"], Credential::Proxy { pem: "two".into() })).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        drop(reach);
        assert!(!fs::read_link(&path).is_ok_and(|place| place.starts_with("/memfd:proxy (deleted)")));
    }
}
