//! What a file holds, for people and programs.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use whimbrel_engine::summary::exit;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_trust::clock::now;
use whimbrel_trust::explain::{CertificatePart, Explained, Part, Verdict, explain};
use whimbrel_trust::gsi::Anchors;
use whimbrel_trust::places::Places;

use super::super::{for_each_code, ls};
use super::{environment, uid};
use crate::output::Output;

const OP: &str = "read a file";

/// Longest file, bytes.
const MOST_BYTES: u64 = 64 << 20;

pub(super) fn run(files: &[impl AsRef<Path>], authorities: Option<&Path>, output: &mut Output) -> Result<u8, Fault> {
    let (anchors, trusted) = anchors(authorities)?;
    let mut codes = Vec::new();
    for file in files {
        codes.push(match read(file.as_ref()) {
            Ok(pem) => show(file.as_ref(), &explain(&pem, anchors.clone(), now()), &trusted, output),
            Err(fault) => output.fault(&fault),
        });
    }
    Ok(for_each_code(&codes))
}

/// Whom this account trusts, and where that stands.
fn anchors(named: Option<&Path>) -> Result<(Arc<Anchors>, String), Fault> {
    let places = Places::new(&environment, uid());
    match named.map(Path::to_owned).or_else(|| places.anchor_directory()) {
        Some(directory) => {
            let anchors = Anchors::load(&directory).map_err(|fault| fault.into_fault("read authorities", Side::Us))?;
            Ok((Arc::new(anchors), directory.display().to_string()))
        }
        None => {
            let looked: Vec<String> = places.anchors().iter().map(ToString::to_string).collect();
            Ok((Arc::default(), format!("nobody: there is no {}", looked.join(", "))))
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let told = |error| Fault::from_io(error, OP).subject(path.display().to_string()).side(Side::Source);
    let size = std::fs::metadata(path).map_err(told)?.len();
    if size > MOST_BYTES {
        let fault = Fault::new(FaultCode::FileTooLarge, OP).subject(path.display().to_string());
        return Err(fault.side(Side::Source).detail("it is too long to hold certificates"));
    }
    std::fs::read(path).map_err(told)
}

/// Tells of one file; the exit code says whether it is believed, or holds nothing that could be.
fn show(path: &Path, explained: &Explained, trusted: &str, output: &mut Output) -> u8 {
    let (verdict, code) = verdict(&explained.verdict, trusted);
    let mut text = path.display().to_string();
    for part in &explained.parts {
        text += &format!("\n  {}", part_text(part).replace('\n', "\n    "));
    }
    if explained.parts.is_empty() {
        text += "\n  nothing in PEM form";
    }
    text += &format!("\n  {verdict}");
    let json = json!({
        "event": "certificate", "file": path.display().to_string(), "believed": code == exit::OK,
        "verdict": verdict, "parts": explained.parts.iter().map(part_json).collect::<Vec<_>>(),
    });
    output.result(&json, &text);
    code
}

fn verdict(verdict: &Verdict, trusted: &str) -> (String, u8) {
    match verdict {
        Verdict::Believed { subject, until } => {
            (format!("believed: it speaks for {subject} until {} (authorities: {trusted})", time(*until)), exit::OK)
        }
        Verdict::Authority => (format!("believed: it is one of the authorities of {trusted}"), exit::OK),
        Verdict::Refused(fault) => (format!("not believed: {fault} (authorities: {trusted})"), exit::CREDENTIALS),
        Verdict::Nothing => ("there is no certificate that could be believed".to_owned(), exit::CREDENTIALS),
    }
}

fn part_text(part: &Part) -> String {
    match part {
        Part::Certificate(certificate) => certificate_text(certificate),
        Part::Key { kind: None, .. } => "private key, locked by a passphrase".to_owned(),
        Part::Key { kind: Some(kind), fits } => {
            let fits = match fits {
                Some(true) => ", that of the first certificate",
                Some(false) => ", NOT that of the first certificate",
                None => "",
            };
            format!("private key: {kind}{fits}")
        }
        Part::Request { subject, key } => format!("request for a certificate: {subject}\nkey      {key}"),
        Part::RevocationList { authority, next, revoked } => {
            let next = next.as_ref().map(|next| format!("\nnext     {next}")).unwrap_or_default();
            format!("revocation list of {authority}\nrevoked  {revoked}{next}")
        }
        Part::Other(label) => format!("{label}: not for certificates"),
        Part::Unreadable { label, reason } => format!("{label}: {reason}"),
    }
}

fn certificate_text(part: &CertificatePart) -> String {
    let outside = if part.outside { "  NOT NOW" } else { "" };
    let names = if part.names.is_empty() { String::new() } else { format!("\nnames    {}", part.names.join(", ")) };
    format!(
        "{}\nissuer   {}\nkind     {}\nlife     {} to {}{outside}{names}\nkey      {}\nserial   {}\nhash     {}",
        part.subject,
        part.issuer,
        part.kind,
        time(part.from),
        time(part.until),
        part.key,
        part.serial,
        part.hash
    )
}

fn part_json(part: &Part) -> Value {
    match part {
        Part::Certificate(part) => json!({
            "part": "certificate", "subject": part.subject, "issuer": part.issuer, "kind": part.kind,
            "from": time(part.from), "until": time(part.until), "now": !part.outside, "names": part.names,
            "key": part.key, "serial": part.serial, "hash": part.hash,
        }),
        Part::Key { kind, fits } => json!({ "part": "key", "kind": kind, "locked": kind.is_none(), "fits": fits }),
        Part::Request { subject, key } => json!({ "part": "request", "subject": subject, "key": key }),
        Part::RevocationList { authority, next, revoked } => {
            json!({ "part": "revocations", "authority": authority, "next": next, "revoked": revoked })
        }
        Part::Other(label) => json!({ "part": "other", "label": label }),
        Part::Unreadable { label, reason } => json!({ "part": "unreadable", "label": label, "reason": reason }),
    }
}

fn time(at: Timestamp) -> String {
    ls::time_text(whimbrel_engine::listing::Timestamp { secs: at.secs, nanos: 0 })
}
