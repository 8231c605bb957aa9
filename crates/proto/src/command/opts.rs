//! OPTS: options of later commands (RFC 2389 §4, GFD.20 §3.4).

use serde::{Deserialize, Serialize};

use super::args::{CommandError, syntax, unsigned};

/// Parallelism of OPTS RETR: starting, least and greatest number of data channels; only the first counts for the peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parallelism {
    /// Channels to open.
    pub start: u32,
    /// Least number.
    pub min: u32,
    /// Greatest number.
    pub max: u32,
}

impl Parallelism {
    /// The same number three times, as the reference client sends it.
    pub const fn fixed(n: u32) -> Self {
        Self { start: n, min: n, max: n }
    }
}

/// How a file is dealt to stripes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayoutKind {
    /// Round robin of blocks of `BlockSize`.
    Blocked,
    /// One contiguous piece a stripe.
    Partitioned,
}

/// Options of OPTS RETR; absent ones keep their value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetrOptions {
    /// `Parallelism=n,n,n;`
    pub parallelism: Option<Parallelism>,
    /// `StripeLayout=Blocked;` or `StripeLayout=Partitioned;`
    pub layout: Option<LayoutKind>,
    /// `BlockSize=n;`: bytes of a stripe block.
    pub block_size: Option<u64>,
    /// `Markers=n;`: seconds between 112 markers of a RETR, 0 for none.
    pub markers: Option<u32>,
}

/// Command whose passive listening is delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the verbs themselves")]
pub enum PassiveVerb {
    Pasv,
    Epsv,
    Spas,
}

/// Spelling of the machine-listing options; MLST and MLSD share one set of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the verbs themselves")]
pub enum MlsVerb {
    Mlst,
    Mlsd,
}

/// What MLSR does at a directory it cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the words themselves")]
pub enum OnError {
    Continue,
    Fail,
}

/// Options of OPTS MLSR; absent ones keep their value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MlsrOptions {
    /// `onerror=continue|fail;`
    pub on_error: Option<OnError>,
    /// `traversesymboliclinks=true|false;` (spelled so on the wire).
    pub follow_links: Option<bool>,
    /// Names of wanted facts; empty: unchanged.
    pub facts: Vec<String>,
}

/// An OPTS command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opts {
    /// `OPTS RETR …`
    Retr(RetrOptions),
    /// `OPTS STOR …`: text as sent.
    Stor(Vec<u8>),
    /// `OPTS PASV AllowDelayed=1;` and the same for EPSV and SPAS.
    Passive {
        /// Which command.
        verb: PassiveVerb,
        /// Answer 200 now and tell the address after the transfer command.
        allow_delayed: bool,
    },
    /// `OPTS MLST fact;fact;` (RFC 3659 §7.9); no names means no facts.
    Mls {
        /// Spelling.
        verb: MlsVerb,
        /// Names as sent.
        facts: Vec<String>,
    },
    /// `OPTS MLSR …`
    Mlsr(MlsrOptions),
    /// `OPTS CKSM Markers=n;`: seconds between 113 markers, 0 for none.
    Cksm {
        /// Seconds.
        markers: u32,
    },
    /// `OPTS UTF8 ON|OFF` (drafts; everyday clients send it).
    Utf8(bool),
    /// Any other target.
    Unknown {
        /// Upper-case target.
        target: Vec<u8>,
        /// The rest.
        args: Vec<u8>,
    },
}

const VERB: &str = "OPTS";

/// Parses the arguments of OPTS.
pub(super) fn parse(args: &[u8]) -> Result<Opts, CommandError> {
    let args = args.trim_ascii();
    let at = args.iter().position(|&b| b == b' ').unwrap_or(args.len());
    let (target, rest) = (args[..at].to_ascii_uppercase(), args[at..].trim_ascii());
    match target.as_slice() {
        b"" => Err(syntax(VERB, "a command name is missing")),
        b"RETR" => retr(rest).map(Opts::Retr),
        b"STOR" => Ok(Opts::Stor(rest.to_vec())),
        b"PASV" => passive(PassiveVerb::Pasv, rest),
        b"EPSV" => passive(PassiveVerb::Epsv, rest),
        b"SPAS" => passive(PassiveVerb::Spas, rest),
        b"MLST" => Ok(Opts::Mls { verb: MlsVerb::Mlst, facts: facts(rest) }),
        b"MLSD" => Ok(Opts::Mls { verb: MlsVerb::Mlsd, facts: facts(rest) }),
        b"MLSR" => mlsr(rest).map(Opts::Mlsr),
        b"CKSM" => cksm(rest),
        b"UTF8" | b"UTF-8" => utf8(rest),
        _ => Ok(Opts::Unknown { target, args: rest.to_vec() }),
    }
}

/// Lower-case names and values of `name=value;…`; the reference server refuses a missing last `;` but applies it, we accept it.
fn pairs(text: &[u8]) -> impl Iterator<Item = (Vec<u8>, &[u8])> {
    text.split(|&b| b == b';').map(<[u8]>::trim_ascii).filter(|item| !item.is_empty()).map(|item| {
        let at = item.iter().position(|&b| b == b'=').unwrap_or(item.len());
        (item[..at].trim_ascii().to_ascii_lowercase(), item.get(at + 1..).unwrap_or(b"").trim_ascii())
    })
}

fn unknown_option(name: &[u8]) -> CommandError {
    CommandError::NotImplemented { verb: VERB, what: String::from_utf8_lossy(name).into_owned() }
}

fn number32(value: &[u8]) -> Result<u32, CommandError> {
    u32::try_from(unsigned(VERB, value)?).map_err(|_| syntax(VERB, "a number is too large"))
}

fn retr(text: &[u8]) -> Result<RetrOptions, CommandError> {
    let mut options = RetrOptions::default();
    for (name, value) in pairs(text) {
        match name.as_slice() {
            b"parallelism" => options.parallelism = Some(parallelism(value)?),
            b"stripelayout" if value.eq_ignore_ascii_case(b"blocked") => options.layout = Some(LayoutKind::Blocked),
            b"stripelayout" if value.eq_ignore_ascii_case(b"partitioned") => {
                options.layout = Some(LayoutKind::Partitioned);
            }
            b"stripelayout" => return Err(unknown_option(value)),
            b"blocksize" => match unsigned(VERB, value)? {
                0 => return Err(syntax(VERB, "BlockSize must be above 0")),
                n => options.block_size = Some(n),
            },
            b"markers" => options.markers = Some(number32(value)?),
            _ => return Err(unknown_option(&name)),
        }
    }
    Ok(options)
}

/// `n[,min,max]`, also `n,min,max` with a trailing comma; none may be 0.
fn parallelism(value: &[u8]) -> Result<Parallelism, CommandError> {
    let items = value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|item| !item.is_empty());
    let numbers: Vec<u32> = items.take(4).map(number32).collect::<Result<_, _>>()?;
    match numbers[..] {
        [start] if start > 0 => Ok(Parallelism::fixed(start)),
        [start, min, max] if start > 0 => Ok(Parallelism { start, min, max }),
        _ => Err(syntax(VERB, "Parallelism is n or n,min,max, above 0")),
    }
}

fn passive(verb: PassiveVerb, text: &[u8]) -> Result<Opts, CommandError> {
    let mut delayed = None;
    for (name, value) in pairs(text) {
        match (name.as_slice(), value) {
            (b"allowdelayed", b"1") => delayed = Some(true),
            (b"allowdelayed", b"0") => delayed = Some(false),
            (b"allowdelayed", _) => return Err(syntax(VERB, "AllowDelayed is 0 or 1")),
            _ => return Err(unknown_option(&name)),
        }
    }
    let allow_delayed = delayed.ok_or(syntax(VERB, "AllowDelayed is missing"))?;
    Ok(Opts::Passive { verb, allow_delayed })
}

fn facts(text: &[u8]) -> Vec<String> {
    let names = pairs(text).map(|(name, _)| name).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
}

fn mlsr(text: &[u8]) -> Result<MlsrOptions, CommandError> {
    let mut options = MlsrOptions::default();
    for (name, value) in pairs(text) {
        let value = value.to_ascii_lowercase();
        match (name.as_slice(), value.as_slice()) {
            (b"onerror", b"continue") => options.on_error = Some(OnError::Continue),
            (b"onerror", b"fail") => options.on_error = Some(OnError::Fail),
            (b"traversesymboliclinks" | b"traversesymboliclink", b"true") => options.follow_links = Some(true),
            (b"traversesymboliclinks" | b"traversesymboliclink", b"false") => options.follow_links = Some(false),
            (name, b"") if !name.is_empty() => options.facts.push(String::from_utf8_lossy(name).into_owned()),
            _ => return Err(unknown_option(&name)),
        }
    }
    Ok(options)
}

fn cksm(text: &[u8]) -> Result<Opts, CommandError> {
    match pairs(text).next() {
        Some((name, value)) if name == b"markers" => Ok(Opts::Cksm { markers: number32(value)? }),
        Some((name, _)) => Err(unknown_option(&name)),
        None => Err(syntax(VERB, "Markers is missing")),
    }
}

fn utf8(text: &[u8]) -> Result<Opts, CommandError> {
    match text.to_ascii_uppercase().as_slice() {
        b"ON" | b"" | b"NLST" => Ok(Opts::Utf8(true)),
        b"OFF" => Ok(Opts::Utf8(false)),
        _ => Err(syntax(VERB, "UTF8 is ON or OFF")),
    }
}

/// The text after `OPTS `.
pub(super) fn format(opts: &Opts) -> Vec<u8> {
    match opts {
        Opts::Retr(options) => format_retr(options).into_bytes(),
        Opts::Stor(args) => join(b"STOR", args),
        Opts::Passive { verb, allow_delayed } => {
            let verb = match verb {
                PassiveVerb::Pasv => "PASV",
                PassiveVerb::Epsv => "EPSV",
                PassiveVerb::Spas => "SPAS",
            };
            format!("{verb} AllowDelayed={};", u8::from(*allow_delayed)).into_bytes()
        }
        Opts::Mls { verb, facts } => {
            let verb = if *verb == MlsVerb::Mlst { "MLST" } else { "MLSD" };
            let names: String = facts.iter().map(|f| format!("{f};")).collect();
            join(verb.as_bytes(), names.as_bytes())
        }
        Opts::Mlsr(options) => format_mlsr(options).into_bytes(),
        Opts::Cksm { markers } => format!("CKSM Markers={markers};").into_bytes(),
        Opts::Utf8(on) => format!("UTF8 {}", if *on { "ON" } else { "OFF" }).into_bytes(),
        Opts::Unknown { target, args } => join(target, args),
    }
}

fn join(target: &[u8], args: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if args.is_empty() { b"" } else { b" " };
    [target, separator, args].concat()
}

/// In the order the reference client uses; every item ends with `;`, which its server insists on.
fn format_retr(options: &RetrOptions) -> String {
    let mut text = String::from("RETR ");
    if let Some(layout) = options.layout {
        text += if layout == LayoutKind::Blocked { "StripeLayout=Blocked;" } else { "StripeLayout=Partitioned;" };
    }
    if let Some(size) = options.block_size {
        text += &format!("BlockSize={size};");
    }
    if let Some(p) = options.parallelism {
        text += &format!("Parallelism={},{},{};", p.start, p.min, p.max);
    }
    if let Some(seconds) = options.markers {
        text += &format!("Markers={seconds};");
    }
    text
}

fn format_mlsr(options: &MlsrOptions) -> String {
    let mut text = String::from("MLSR ");
    match options.on_error {
        Some(OnError::Continue) => text += "onerror=continue;",
        Some(OnError::Fail) => text += "onerror=fail;",
        None => {}
    }
    if let Some(follow) = options.follow_links {
        text += &format!("traversesymboliclinks={follow};");
    }
    options.facts.iter().for_each(|fact| text += &format!("{fact};"));
    text
}
