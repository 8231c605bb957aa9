//! The closed list of fault codes: name, meaning, likely cause, cure.
//!
//! The table is the single source: `docs/reference/faults.md` is generated from it, and a name,
//! once published, never changes its meaning.

use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Retry;

/// What a person needs to know about a code.
#[derive(Debug, Clone, Copy)]
pub struct Explanation {
    /// What happened, as a lower-case clause.
    pub meaning: &'static str,
    /// The usual reason.
    pub cause: &'static str,
    /// What to do.
    pub cure: &'static str,
}

macro_rules! fault_codes {
    ($($name:ident, $class:ident: $meaning:literal, $cause:literal, $cure:literal;)*) => {
        /// What went wrong. Stable: programs may match on the name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum FaultCode {
            $(#[doc = $meaning] $name,)*
        }

        impl FaultCode {
            /// Every code, in the order of the catalogue.
            pub const ALL: &'static [FaultCode] = &[$(FaultCode::$name,)*];

            /// The stable name, as it appears in JSON.
            pub fn name(self) -> &'static str {
                match self { $(FaultCode::$name => stringify!($name),)* }
            }

            /// Meaning, likely cause and cure.
            pub fn explain(self) -> Explanation {
                match self {
                    $(FaultCode::$name => Explanation { meaning: $meaning, cause: $cause, cure: $cure },)*
                }
            }

            /// The retry class unless the reporter knows better.
            pub fn default_retry(self) -> Retry {
                match self { $(FaultCode::$name => fault_codes!(@class $class),)* }
            }
        }
    };
    (@class permanent) => { Retry::Permanent };
    (@class temporary) => { Retry::Temporary { after: Duration::ZERO } };
}

fault_codes! {
    NotFound, permanent: "no such file or directory",
        "the path is misspelt, or the file was moved or deleted",
        "list the parent directory and correct the path";
    PermissionDenied, permanent: "permission denied",
        "the account the server uses for you may not do this here",
        "ask the owner for access, or use another account or collection";
    AlreadyExists, permanent: "already exists",
        "something with this name is there",
        "choose another name, or remove or replace what is there";
    NotADirectory, permanent: "not a directory",
        "a part of the path is a file",
        "correct the path";
    IsADirectory, permanent: "is a directory",
        "a file was expected",
        "copy directories with -r, or name a file";
    NotASymlink, permanent: "not a symbolic link",
        "a link was to be made again, and the source is a file or a directory",
        "name it as an ordinary item, or correct the path";
    DirectoryNotEmpty, permanent: "directory not empty",
        "only empty directories can be removed this way",
        "remove its contents first, or remove it recursively";
    InvalidPath, permanent: "the path cannot be used",
        "it leaves the served root, is too long, or holds a character the protocol cannot carry",
        "rename the file, or use a path inside the root";
    NoSpace, permanent: "no space left",
        "the destination file system is full",
        "free some space and run the same command again; verified data is kept";
    QuotaExceeded, permanent: "quota exceeded",
        "your account's quota at the destination is used up",
        "free some space or ask for more, then run the same command again";
    FileTooLarge, permanent: "file too large",
        "the destination file system or a limit does not allow this size",
        "use another destination";
    ReadOnly, permanent: "read-only",
        "the file system or the collection accepts no writes",
        "choose a writable destination";
    NotSupported, permanent: "not supported",
        "the server or the storage has no such function",
        "leave the option out, or use another server";
    InvalidArgument, permanent: "invalid argument",
        "a value is out of its range or does not fit the others",
        "correct the value named in the message";
    SourceChanged, temporary: "the source changed while it was read",
        "another program writes to the file",
        "wait until it is complete and run the command again";
    ChecksumMismatch, temporary: "the checksum does not match",
        "data were damaged on the way or in storage, or the source changed",
        "run the command again; if it persists, check memory and disks at both ends";
    NotAsExpected, permanent: "the file is not the one that was expected",
        "the source holds another version of it, or the expected checksum is mistyped or another file's",
        "compare with `whimbrel cksum` at the source, and correct the expected checksum or ask the owner of the source for the right file";
    StorageIo, temporary: "the storage reported an input/output error",
        "a failing disk or an unreachable file server",
        "look at the system log of the side named in the message";
    StorageBusy, temporary: "the file is busy",
        "another program holds it",
        "try again later";
    TooManyOpen, temporary: "too many open files or connections",
        "a limit of the host or the server is reached",
        "lower the concurrency, or raise the limit";
    OutOfMemory, temporary: "out of memory",
        "the host or the configured pool has none left",
        "lower the concurrency";
    HostNotFound, permanent: "the host name is unknown",
        "the name is misspelt, or name service does not work here",
        "check the name and the name service";
    ConnectionRefused, temporary: "connection refused",
        "no server listens on this port, or a firewall refuses it",
        "check host and port, and that the server runs";
    HostUnreachable, temporary: "the host cannot be reached",
        "no route, or a firewall in between",
        "run `whimbrel check` on the URL";
    ConnectionLost, temporary: "the connection was lost",
        "the other side closed it, crashed, or the network was cut",
        "run the same command again; it resumes";
    TimedOut, temporary: "no answer in time",
        "the network or the other side is overloaded or filtered by a firewall",
        "run `whimbrel check` on the URL";
    Stalled, temporary: "too little progress",
        "a network path or a storage system delivers almost nothing",
        "look for the bottleneck the message names";
    DataPeerRejected, permanent: "a data connection came from somebody else",
        "a port scan, or an address that the server does not accept",
        "name the permitted addresses, or use servers that prove their data connections";
    PortRangeExhausted, temporary: "no free port in the configured range",
        "the range is smaller than the number of data channels",
        "widen the range or lower the parallelism";
    AddressUnavailable, permanent: "this address cannot be listened at",
        "another program listens there, or the address is not one of this host's",
        "choose another port or address, or stop the other program (`ss -ltnp` names it)";
    LoginFailed, permanent: "login failed",
        "wrong user name or password, or anonymous access is off",
        "check the credentials";
    CredentialExpired, permanent: "the credential has expired",
        "certificates, proxies and tokens have an end",
        "renew it and run the same command again";
    NotLoggedIn, permanent: "not logged in",
        "a command needs a login first",
        "log in first";
    TooManyAttempts, temporary: "too many attempts",
        "the server limits logins or connections from one address",
        "wait and try again";
    PeerMisbehaved, permanent: "the peer broke the protocol",
        "a bug or an attack at the other side",
        "report it with the transcript to the maintainer of that program";
    PeerIncompatible, permanent: "the peer lacks a needed function",
        "an older or different program",
        "leave the option out, or upgrade that program";
    PeerRefused, permanent: "the server refused the command",
        "its reply says why",
        "see the reply";
    ServerBusy, temporary: "the server is busy or going down",
        "it is being drained or limits its load",
        "try again later";
    NodeLost, temporary: "a data node was lost",
        "the host or its process died",
        "nothing: the transfer goes on with the others";
    HostRestarted, permanent: "the host was started anew while files were copied to it",
        "it lost its power, crashed or was rebooted; what it had not written to its disks is gone",
        "run the same command again: what is missing or damaged is copied anew";
    Cancelled, permanent: "cancelled",
        "the user or the administrator stopped it",
        "run the same command again to resume";
    Unverified, permanent: "the copy could not be verified",
        "the peer offers no checksum, or the list of expected checksums does not name the file",
        "accept it without --verify=require, use a server with checksums, or complete the list";
    Internal, permanent: "internal error",
        "a bug in this program",
        "please report it with the log";
    ListingUnclear, permanent: "the listing of a directory cannot be read completely",
        "the server tells of an entry in a form that this program does not know, or by a name that is no file name or has a line break in it; or it shows nothing at all of a directory that it perhaps cannot read",
        "look at the line; copy that file by its name, or rename it; see that the account may read the directory; if the server could list in another way (MLSD), turn that on";
    HeldBack, permanent: "held back, because not everything else was copied",
        "a file or directory that this one would have vouched for failed",
        "look at the other failures, cure them and run the same command again";
    CredentialMissing, permanent: "a credential is needed and none was found",
        "no certificate, proxy, token or password is in its usual place, or none was named",
        "make or name one; the message says where it was looked for";
    CredentialRejected, permanent: "the credential is not accepted",
        "its issuer is not trusted here, it was revoked, or it breaks a rule that the message names",
        "use a credential of a trusted issuer, or have the issuer's certificate installed";
    PeerIdentity, permanent: "the other side is not who it should be",
        "its certificate or key names another host or person than expected, or changed since the last visit",
        "check the host name; ask the host's administrator before you accept a changed key";
    EncryptionFailed, permanent: "the protected connection could not be made",
        "the two sides share no protocol version or cipher, or something in between altered the bytes",
        "run `whimbrel check` on the URL, and upgrade the older side";
    NotAuthorized, permanent: "you are known, but not allowed to do this",
        "no account here is mapped to your identity, or a rule of the collection or the token forbids it",
        "ask the administrator of that server; the message names your identity as it was seen";
    LoginInClear, permanent: "the server takes no password over a connection in clear",
        "everybody on the way could read it",
        "log in inside TLS: whimbrel://USER@HOST/, with the port if it is not 2811";
}

impl FaultCode {
    /// Classifies an operating-system error by its number, then by its kind.
    pub fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::PermissionDenied => Self::PermissionDenied,
            ErrorKind::AlreadyExists => Self::AlreadyExists,
            ErrorKind::NotADirectory => Self::NotADirectory,
            ErrorKind::IsADirectory => Self::IsADirectory,
            ErrorKind::DirectoryNotEmpty => Self::DirectoryNotEmpty,
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            ErrorKind::StorageFull => Self::NoSpace,
            ErrorKind::QuotaExceeded => Self::QuotaExceeded,
            ErrorKind::FileTooLarge => Self::FileTooLarge,
            ErrorKind::InvalidFilename | ErrorKind::CrossesDevices => Self::InvalidPath,
            ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => Self::StorageBusy,
            ErrorKind::OutOfMemory => Self::OutOfMemory,
            ErrorKind::Unsupported => Self::NotSupported,
            ErrorKind::InvalidInput => Self::InvalidArgument,
            ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable => Self::AddressUnavailable,
            ErrorKind::ConnectionRefused => Self::ConnectionRefused,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Self::HostUnreachable,
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
            | ErrorKind::NotConnected => Self::ConnectionLost,
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Self::TimedOut,
            _ => Self::from_errno(error.raw_os_error()),
        }
    }

    fn from_errno(errno: Option<i32>) -> Self {
        // Linux numbers; `std` has no stable kind for these.
        match errno {
            Some(40) => Self::InvalidPath,      // ELOOP
            Some(23 | 24) => Self::TooManyOpen, // ENFILE, EMFILE
            _ => Self::StorageIo,
        }
    }
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.explain().meaning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_meaning_cause_and_cure() {
        for code in FaultCode::ALL {
            let Explanation { meaning, cause, cure } = code.explain();
            assert!(!meaning.is_empty() && !cause.is_empty() && !cure.is_empty(), "{}", code.name());
        }
    }

    #[test]
    fn a_full_disk_is_told_from_an_exceeded_quota() {
        let full = io::Error::from_raw_os_error(28);
        let quota = io::Error::from_raw_os_error(122);
        assert_eq!(FaultCode::from_io(&full), FaultCode::NoSpace);
        assert_eq!(FaultCode::from_io(&quota), FaultCode::QuotaExceeded);
    }
}
