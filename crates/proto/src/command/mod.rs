//! FTP and GridFTP commands as typed values, read from a line on the server and written to one by the client.
//!
//! Arguments are split as the reference server does it: single spaces separate them, the last one keeps the rest of
//! the line, so paths need no quoting. Unlike that server a path is taken from **exactly one** separator onwards
//! (RFC 959 §5.3.1 `<SP> <pathname>`), so a name that starts with a space can be reached.

mod args;
mod chunk;
mod encode;
mod opts;
mod parse;
mod probe;
mod site;
mod v2;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use args::CommandError;
pub use chunk::Chunk;
pub use encode::EncodeError;
pub use opts::{LayoutKind, MlsVerb, MlsrOptions, OnError, Opts, Parallelism, PassiveVerb, RetrOptions};
pub use probe::SiteProbe;
pub(crate) use site::octal_mode;
pub use site::{BufferSide, BufferVerb, Site, quote_pairs, split_pairs};
pub use v2::{V2Data, V2Transfer};

use crate::op::{Bounds, Family, PackedFile};
use crate::timeval::Timestamp;

/// A path as it stands on the wire: bytes, not text.
pub type WirePath = Vec<u8>;

/// Bytes that must not reach a log; `Debug` hides them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// TYPE: how a data connection represents a file (RFC 959 §3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TransferType {
    /// `A`: lines end CRLF on the wire.
    Ascii,
    /// `I` (also `L 8`): bytes as they are.
    Image,
}

/// MODE: how a data connection is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TransferMode {
    /// `S`: payload only, end of file is the close (RFC 959 §3.4.1).
    Stream,
    /// `E`: blocks with offsets (GFD.20 §3.2).
    ExtendedBlock,
}

/// Argument of EPSV (RFC 2428 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Epsv {
    /// No argument: the family of the control connection.
    Default,
    /// `1` or `2`.
    Family(Family),
    /// `ALL`: only EPSV will be used from now on.
    All,
}

/// Argument of REST.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restart {
    /// `REST n`: skip the first n bytes (RFC 3659 §5).
    Offset(u64),
    /// `REST a-b,c-d`: ranges already received, end exclusive (GFD.20 §3.2.5).
    Ranges(Vec<Range<u64>>),
}

/// ERET: retrieve through a server-side function (GFD.20 §3.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Eret {
    /// `P offset length path`: part of a file; block offsets on the wire start at 0.
    Partial {
        /// First byte wanted.
        offset: u64,
        /// Number of bytes wanted.
        length: u64,
        /// The file.
        path: WirePath,
    },
    /// `M bytes,milliseconds path` or `D bytes,milliseconds path`: bytes to measure with (our own).
    Probe {
        /// `D`: from storage; `M`: made up.
        storage: bool,
        /// Where it ends.
        bounds: Bounds,
        /// Directory, or a file to read.
        path: WirePath,
    },
    /// `PACK size,modify,mode,path ...`: small files as one transfer (our own).
    Pack(Vec<PackedFile>),
    /// `name="args" path`: through a named storage module.
    Module {
        /// Module name.
        name: Vec<u8>,
        /// Text between the quotes.
        args: Vec<u8>,
        /// The file.
        path: WirePath,
    },
}

/// ESTO: store through a server-side function (GFD.20 §3.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Esto {
    /// `A offset path`: `offset` is added to every block's offset.
    Adjusted {
        /// Added to each block's offset.
        offset: u64,
        /// The file.
        path: WirePath,
    },
    /// `C session,offset path`: as `A`, into the unfinished file of a session (our own).
    Chunk {
        /// As the reply to SITE CHUNK OPEN gave it.
        session: Vec<u8>,
        /// Added to each block's offset.
        offset: u64,
        /// Final name.
        path: WirePath,
    },
    /// `M bytes,milliseconds path` or `D bytes,milliseconds path`: for measuring; nothing is kept (our own).
    Probe {
        /// `D`: through storage; `M`: nowhere.
        storage: bool,
        /// Where it ends.
        bounds: Bounds,
        /// Directory.
        path: WirePath,
    },
    /// `PACK size,modify,mode,path ...`: small files as one transfer (our own).
    Pack(Vec<PackedFile>),
    /// `name="args" path`: through a named storage module.
    Module {
        /// Module name.
        name: Vec<u8>,
        /// Text between the quotes.
        args: Vec<u8>,
        /// The file.
        path: WirePath,
    },
}

/// Event whose interval TREV sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrevEvent {
    /// `PERF`: 112 performance markers.
    Perf,
    /// `RESTART`: 111 restart markers.
    Restart,
}

/// DCAU: who must be at the other end of a data connection (GFD.20 §3.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dcau {
    /// `N`: no authentication (and no TLS at all).
    None,
    /// `A`: the user of the control connection.
    Myself,
    /// `S subject`: this subject.
    Subject(Vec<u8>),
}

/// PROT: protection of data connections (RFC 2228 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protection {
    /// `C`: clear.
    Clear,
    /// `S`: integrity.
    Safe,
    /// `E`: confidentiality without integrity; servers answer 536.
    Confidential,
    /// `P`: integrity and confidentiality.
    Private,
}

/// DCSC: which credential data connections use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dcsc {
    /// `D`: the delegated one.
    Default,
    /// `P blob`: base64 of PEM text, key included.
    Pem(Secret),
}

/// Arguments of LIST and NLST: `ls`-style flags, which servers skip, and a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListArgs {
    /// Letters after `-` of all flag words, joined, without the dashes.
    pub flags: Vec<u8>,
    /// What to list; the working directory if absent. A path starting with `-` or a space is written as `./…`.
    pub path: Option<WirePath>,
}

/// One command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "variants are the verbs; RFC 959, 2228, 2389, 2428, 2640, 3659, GFD.20 and GFD.47 define them"
)]
pub enum Command {
    User(Vec<u8>),
    Pass(Secret),
    Acct(Secret),
    Rein,
    Quit,
    Feat,
    Help(Option<Vec<u8>>),
    Noop,
    Syst,
    Stat(Option<WirePath>),
    Pwd,
    Cwd(WirePath),
    Cdup,
    Mkd(WirePath),
    Rmd(WirePath),
    Dele(WirePath),
    Rnfr(WirePath),
    Rnto(WirePath),
    Size(WirePath),
    Mdtm(WirePath),
    Mfmt {
        time: Timestamp,
        path: WirePath,
    },
    Type(TransferType),
    Mode(TransferMode),
    /// STRU F; the other structures are refused when parsed.
    StruFile,
    Pasv,
    Epsv(Epsv),
    Port(SocketAddr),
    Eprt(SocketAddr),
    Spas(Option<Family>),
    Spor(Vec<SocketAddr>),
    Opts(Opts),
    Retr(WirePath),
    Stor(WirePath),
    Appe(WirePath),
    Stou(Option<WirePath>),
    Eret(Eret),
    Esto(Esto),
    Rest(Restart),
    Allo {
        size: u64,
        record: Option<u64>,
    },
    Abor,
    Sbuf(u64),
    /// ABUF: automatic buffer sizing, arguments as sent.
    Abuf(Vec<u8>),
    Trev {
        event: TrevEvent,
        seconds: u32,
    },
    /// Checksum of part of a file; `length` absent (`-1` on the wire) means to the end. The name is as sent.
    Cksm {
        algorithm: String,
        offset: u64,
        length: Option<u64>,
        path: WirePath,
    },
    /// Expected checksum of the next STOR, text as sent.
    Scks {
        algorithm: String,
        checksum: String,
    },
    Mlst(Option<WirePath>),
    Mlsd(Option<WirePath>),
    Mlsc(Option<WirePath>),
    Mlsr(Option<WirePath>),
    List(ListArgs),
    Nlst(ListArgs),
    Lang(Option<Vec<u8>>),
    Dcau(Dcau),
    Pbsz(u64),
    Prot(Protection),
    Dcsc(Dcsc),
    Auth(Vec<u8>),
    /// ADAT: base64 text as sent.
    Adat(Secret),
    Ccc,
    Get(V2Transfer),
    Put(V2Transfer),
    Site(Site),
    /// A line sent as it is; the parser never makes one.
    Raw(Vec<u8>),
}

impl Command {
    /// Parses one line without its line end.
    ///
    /// # Errors
    /// [`CommandError`], whose [`CommandError::code`] is the reply code (RFC 959 §4.2.1).
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        parse::parse(line)
    }

    /// Appends the command line with its CRLF.
    ///
    /// # Errors
    /// [`EncodeError`] if an argument holds CR, LF or NUL, or a character its position cannot carry; `out` is then unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::encode(self, out)
    }
}
