//! Which start of which host it is.

use std::fs;

use whimbrel_transport::digest::Algorithm;

/// What the kernel calls its start; `None` where it does not say.
pub fn boot() -> Option<Vec<u8>> {
    fs::read("/proc/sys/kernel/random/boot_id").ok()
}

/// `<host>-<start>`: 8 hexadecimal digits that a host keeps as long as its name, since several may answer at one address, and 16 that no other start
/// of it has; `None` where the kernel does not say.
///
/// Digests, because others may use the kernel's number as a secret name of the host.
pub fn of_this_host() -> Option<String> {
    let boot = boot()?;
    let digest = |what: &[u8], bytes: &[u8]| Algorithm::Sha256.digest(&[what, bytes].concat()).to_string();
    let host = digest(b"whimbrel host ", rustix::system::uname().nodename().to_bytes());
    let start = digest(b"whimbrel start of a host ", &boot);
    Some(format!("{}-{}", &host[..8], &start[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_as_long_as_the_host_runs() {
        let told = of_this_host().expect("Linux says it");
        let (host, start) = told.split_once('-').expect("two parts");
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!((host.len(), start.len()) == (8, 16) && is_hex(host) && is_hex(start), "{told}");
        assert_eq!(of_this_host(), Some(told));
    }
}
