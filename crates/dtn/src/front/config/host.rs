//! What a configuration asks of this host, found out before anybody is served: later every transfer would fail of it.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use socket2::{Domain, Socket, Type};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::DtnConfig;
use crate::congestion;

/// The first port that needs no right of its own, where the kernel does not say (`net.ipv4.ip_unprivileged_port_start`).
const FIRST_FREE_PORT: u16 = 1024;

impl DtnConfig {
    /// The directory that is served, without links.
    ///
    /// # Errors
    /// It is not there, or no directory.
    pub fn directory(&self) -> Result<PathBuf, Fault> {
        let root = self.root.as_deref().unwrap_or(Path::new("/"));
        let failed = |error| Fault::from_io(error, "open root").side(Side::Us).subject(root.display().to_string());
        let root = root.canonicalize().map_err(failed)?;
        match root.metadata().map_err(failed)?.is_dir() {
            true => Ok(root),
            false => Err(failed(ErrorKind::NotADirectory.into())),
        }
    }

    /// Whether data processes can have the congestion control and the ports that are wished.
    ///
    /// # Errors
    /// `InvalidArgument` for what this host does not let them have.
    pub(super) fn fits_host(&self, ports: Option<(u16, u16)>) -> Result<(), Fault> {
        self.congestion.as_deref().map(usable).transpose()?;
        let (Some((lowest, _)), first) = (ports, first_free_port()) else { return Ok(()) };
        if lowest >= first {
            return Ok(());
        }
        let why = format!("data processes may not listen at ports below {first}: choose higher data_ports");
        Err(bad(&lowest.to_string(), why))
    }
}

/// Whether a process without rights can choose a congestion control. Who has the rights loads its module by asking.
fn usable(name: &str) -> Result<(), Fault> {
    let failed = |error: io::Error| Fault::from_io(error, "set congestion control").side(Side::Us).subject(name);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).map_err(failed)?;
    let allowed = congestion::allowed();
    match whimbrel_sys::socket::set_congestion(&socket, name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(bad(
            name,
            format!(
                "this kernel has no such congestion control, only {}; `modprobe tcp_{name}` may bring it",
                congestion::available().join(", ")
            ),
        )),
        Err(error) if error.kind() != ErrorKind::PermissionDenied => Err(failed(error)),
        Ok(()) | Err(_) if allowed.iter().any(|known| known == name) => Ok(()),
        Ok(()) | Err(_) => Err(bad(
            name,
            format!(
                "data processes may only use {}: `sysctl net.ipv4.tcp_allowed_congestion_control=\"{} {name}\"` allows it",
                allowed.join(", "),
                allowed.join(" ")
            ),
        )),
    }
}

fn first_free_port() -> u16 {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    told.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(FIRST_FREE_PORT)
}

/// The first directory on the way to `directory`, or that itself, which an account may not enter, as far as permission bits tell.
pub fn closed_to(directory: &Path, uid: u32, groups: &[u32]) -> Option<PathBuf> {
    let mut way: Vec<&Path> = directory.ancestors().collect();
    way.reverse();
    let is_closed = |path: &&Path| {
        path.metadata().is_ok_and(|facts| {
            let shift = match (facts.uid() == uid, groups.contains(&facts.gid())) {
                (true, _) => 6,
                (false, true) => 3,
                (false, false) => 0,
            };
            facts.mode() >> shift & 1 == 0
        })
    };
    way.into_iter().find(is_closed).filter(|_| uid != 0).map(Path::to_owned)
}

fn bad(subject: &str, detail: String) -> Fault {
    Fault::new(FaultCode::InvalidArgument, "configure").side(Side::Us).subject(subject).detail(detail)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_no_directory_is_not_served() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let code = |root: &Path| DtnConfig { root: Some(root.to_owned()), ..DtnConfig::default() }.directory();
        assert_eq!(code(dir.path()).unwrap(), dir.path().canonicalize().unwrap());
        assert_eq!(code(&file).unwrap_err().code, FaultCode::NotADirectory);
        assert_eq!(code(&dir.path().join("none")).unwrap_err().code, FaultCode::NotFound);
    }

    #[test]
    fn a_congestion_control_that_is_not_to_be_had_is_named_with_those_that_are() {
        let of = |name: &str| DtnConfig { congestion: Some(name.to_owned()), ..DtnConfig::default() }.fits_host(None);
        let default = congestion::default().unwrap();
        of(&default).unwrap();
        let fault = of("nosuch").unwrap_err();
        assert_eq!((fault.code, fault.subject.as_str()), (FaultCode::InvalidArgument, "nosuch"));
        assert!(fault.to_string().contains(&default), "{fault}");
    }

    #[test]
    fn ports_that_need_a_right_are_refused() {
        let of = |ports| DtnConfig::default().fits_host(Some(ports)).map_err(|fault| fault.code);
        let first = first_free_port();
        assert_eq!(of((first, first)), Ok(()));
        assert_eq!(of((first.saturating_sub(1).max(1), first)).is_err(), first > 1);
    }

    #[test]
    fn the_directory_that_an_account_may_not_enter_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (home, data) = (dir.path().join("home"), dir.path().join("home/data"));
        fs::create_dir_all(&data).unwrap();
        let mode = |mode| fs::set_permissions(&home, Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let facts = home.metadata().unwrap();
        let (owner, group) = (facts.uid(), facts.gid());
        let stranger = owner + 1;
        mode(0o700);
        assert_eq!(closed_to(&data, stranger, &[group + 1]), Some(home.clone()));
        assert_eq!(closed_to(&data, stranger, &[group]), Some(home.clone()));
        mode(0o710);
        assert_eq!(closed_to(&data, stranger, &[group]), None);
        mode(0o711);
        assert_eq!(closed_to(&data, stranger, &[]), None);
        mode(0o000);
        assert_eq!(closed_to(&data, 0, &[]), None);
    }
}
