//! Which start of this host it is.

use std::fs;

use whimbrel_transport::digest::Algorithm;

/// 16 hexadecimal digits that no other start of this host, nor one of another host, has; `None` where the kernel does not say.
///
/// A digest, because others may use the kernel's number as a secret name of the host.
pub fn of_this_host() -> Option<String> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let digest = Algorithm::Sha256.digest(&[b"start of a whimbrel host ", &boot[..]].concat());
    Some(digest.to_string()[..16].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_as_long_as_the_host_runs() {
        let start = of_this_host().expect("Linux says it");
        assert!(start.len() == 16 && start.bytes().all(|byte| byte.is_ascii_hexdigit()), "{start}");
        assert_eq!(of_this_host(), Some(start));
    }
}
