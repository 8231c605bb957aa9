//! The options of `whimbrel cp` about checksums of whole files.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use clap::Args;
use whimbrel_dtn::client::expect::{self, Algorithm, Expect, Expected, List};
use whimbrel_dtn::client::options::Sums;

/// Digests of whole files: told, and checked.
#[derive(Debug, Args)]
#[command(next_help_heading = "Checksums of whole files")]
pub struct SumArgs {
    /// Print the checksum and the name of every copy, as md5sum does: md5, sha1, sha256, sha512, crc32c, xxh3, blake3 or
    /// adler32. Costs nothing for files of up to 16 MiB, for crc32c and, between our own ends, for blake3; otherwise one more
    /// reading at the destination
    #[arg(long, value_name = "ALG", value_parser = parse_algorithm, conflicts_with_all = ["offset", "length", "stripe"])]
    print_checksum: Option<Algorithm>,
    /// The one file that is copied must have this checksum, as in sha256:ba78...15ad; any other gets no name
    #[arg(long, value_name = "ALG:HEX", conflicts_with_all = ["offset", "length", "list", "follow", "expect_from", "stripe"])]
    expect: Option<Expected>,
    /// Files must have the checksums of FILE, which md5sum, sha256sum or the like wrote in the source directory; others get
    /// no name. ALG:FILE names the algorithm where the number of digits does not tell it; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["offset", "length", "follow", "stripe"])]
    expect_from: Option<OsString>,
}

fn parse_algorithm(text: &str) -> Result<Algorithm, String> {
    expect::algorithm(text).map_err(|error| error.to_string())
}

impl SumArgs {
    /// Whether checksums are printed.
    pub fn prints(&self) -> bool {
        self.print_checksum.is_some()
    }

    /// What the one file has to be.
    pub fn expected(&self) -> Option<&Expected> {
        self.expect.as_ref()
    }

    /// The options; `places` are sources and destination, `never`: copies are not verified.
    pub fn read(&self, places: usize, recursive: bool, never: bool) -> Result<Sums, String> {
        let wanted = self.print_checksum.is_some() || self.expect.is_some() || self.expect_from.is_some();
        if never && wanted {
            return Err(
                "a checksum of the whole file belongs to a copy that is verified: leave --verify=never out".to_owned()
            );
        }
        if self.expect.is_some() && (places > 2 || recursive) {
            return Err("--expect is about one file; --expect-from FILE is for many".to_owned());
        }
        let expect = match (&self.expect, &self.expect_from) {
            (Some(expected), _) => Expect::One(expected.clone()),
            (_, Some(file)) => Expect::Listed(read_list(file)?),
            _ => Expect::Nothing,
        };
        Ok(Sums { print: self.print_checksum, expect })
    }
}

/// `FILE` or `ALG:FILE`.
fn read_list(argument: &OsStr) -> Result<List, String> {
    let bytes = argument.as_bytes();
    let named = bytes.iter().position(|&byte| byte == b':').and_then(|colon| {
        let algorithm = std::str::from_utf8(&bytes[..colon]).ok().and_then(|name| expect::algorithm(name).ok())?;
        Some((algorithm, OsString::from_vec(bytes[colon + 1..].to_vec())))
    });
    let (algorithm, file) = match named {
        Some((algorithm, file)) => (Some(algorithm), file),
        None => (None, argument.to_owned()),
    };
    let name = file.to_string_lossy().into_owned();
    let text = if file == "-" {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text).map(|_| text)
    } else {
        std::fs::read(&file)
    };
    let text = text.map_err(|error| format!("--expect-from {name}: {error}"))?;
    List::parse(&text, algorithm).map_err(|error| format!("--expect-from {name}: {error}"))
}
