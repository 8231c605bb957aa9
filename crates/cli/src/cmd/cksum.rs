//! `whimbrel cksum`: computes checksums where the files are.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use whimbrel_dtn::client::checksum::{common_checksum, known};
use whimbrel_dtn::client::options::Place;
use whimbrel_engine::plan::quote_path;
use whimbrel_engine::units::ByteCount;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Op, Outcome};

use super::{block_on, finish, for_each_code, log_in, open};
use crate::args::{Global, HELP_END};
use crate::managed::refusal::Trouble;
use crate::output::{Output, path_value};
use crate::place;

/// Compute checksums of files where they are
///
/// Prints the digest and the path of each file, two blanks between them; no data move.
#[derive(Debug, Args)]
#[command(after_help = HELP_END)]
pub struct CksumArgs {
    /// Files
    #[arg(required = true, value_name = "PLACE", value_parser = place::parser())]
    places: Vec<Place>,
    /// Algorithm, such as md5, sha256, adler32, crc32c
    #[arg(short = 'a', long, value_name = "ALG", default_value = "md5")]
    checksum: String,
    /// First byte
    #[arg(long, value_name = "BYTES", default_value = "0")]
    offset: ByteCount,
    /// Number of bytes [default: to the end]
    #[arg(long, value_name = "BYTES")]
    length: Option<ByteCount>,
}

/// Runs the command.
pub fn run(mut args: CksumArgs, global: &Global) -> ExitCode {
    let result = log_in(&mut args.places, global).and_then(|()| block_on(sum_all(args, global)));
    finish(global, result)
}

async fn sum_all(args: CksumArgs, global: &Global) -> Result<u8, Fault> {
    let mut output = Output::new(global);
    let mut codes = Vec::new();
    for place in &args.places {
        codes.push(match sum(&args, place, global).await {
            Ok(digest) => {
                let path = quote_path(&place.path);
                let json =
                    json!({ "event": "checksum", "path": path_value(&place.path), "algorithm": args.checksum, "checksum": digest });
                output.result(&json, &format!("{digest}  {path}"));
                0
            }
            Err(Trouble::Fault(fault)) => output.fault(&fault.side_if_unknown(Side::Source)),
            Err(trouble) => output.trouble(&trouble),
        });
    }
    Ok(for_each_code(&codes))
}

async fn sum(args: &CksumArgs, place: &Place, global: &Global) -> Result<String, Trouble> {
    let mut end = open(place, global).await?;
    let offered = end.checksums();
    let spelled = common_checksum(&offered, &offered, Some(&args.checksum));
    // A server of another kind may have algorithms that nobody here knows, and then it says so.
    if spelled.is_none()
        && !offered.is_empty()
        && let Err(unknown) = known(&args.checksum)
    {
        let there = offered.join(", ").to_ascii_lowercase();
        return Err(Trouble::Usage(format!("--checksum: {unknown}; offered there: {there}")));
    }
    // A server that lists none may still compute it.
    let algorithm = spelled.map_or_else(|| args.checksum.to_ascii_uppercase(), |shared| shared.source);
    let op = Op::Checksum {
        algorithm,
        offset: args.offset.0,
        length: args.length.map(|length| length.0),
        path: place.path.clone(),
        marker_interval: Some(std::time::Duration::from_secs(10)),
    };
    match end.run_long(op).await? {
        Outcome::Checksum(digest) => Ok(digest),
        _ => Err(Fault::new(FaultCode::PeerMisbehaved, "checksum").on_path(&place.path).side(Side::Peer).into()),
    }
}
