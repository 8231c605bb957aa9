//! Virtual organizations: whose word counts about their members (the vomsdir of grids), and what it says of somebody.
//!
//! A file `<vomsdir>/<organization>/<server>.lsc` has the subject of the server's certificate in its first line and the subjects of
//! the authorities above it in the next ones. Several chains may be parted by a line `------ NEXT CHAIN ------`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use openssl::asn1::Asn1Object;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::sign::Verifier;
use openssl::x509::{X509, X509Ref};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::Certificate;
use whimbrel_proto::x509::der::Reader;
use whimbrel_proto::x509::name::normal_form;
use whimbrel_proto::x509::voms::{self, AttributeCertificate};

use super::judge::Judge;
use crate::fault::TrustFault;
use crate::verified;

/// Largest file that is read, bytes.
const MOST_BYTES: u64 = 1 << 16;

/// The servers of organizations: for each the chains of names that a signer may have, in normal form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Organizations(BTreeMap<String, Vec<Vec<String>>>);

impl Organizations {
    /// Reads a vomsdir; one that is not there knows no organizations.
    pub fn load(directory: &Path) -> Result<Self, TrustFault> {
        read(directory).map_err(|error| {
            let detail = format!("the directory of virtual organizations cannot be read: {error}");
            TrustFault::new(FaultCode::CredentialMissing, detail).about(directory.display().to_string())
        })
    }

    /// Adds the chains of one file.
    pub fn add(&mut self, organization: &str, file: &str) {
        let chains = self.0.entry(organization.to_owned()).or_default();
        for chain in file.split("------ NEXT CHAIN ------") {
            let lines = chain.lines().map(str::trim).filter(|line| line.starts_with('/'));
            let names: Vec<String> = lines.map(normal_form).collect();
            if !names.is_empty() {
                chains.push(names);
            }
        }
    }

    /// True if no organization is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Groups and roles that organizations give the holder of `end`, from the extension of his proxy.
    ///
    /// What is not proven is left out, and the log says why.
    pub fn attributes(&self, extension: &[u8], end: &Certificate<'_>, judge: &Judge, now: Timestamp) -> Vec<String> {
        let claims = match voms::parse(extension) {
            Ok(claims) => claims,
            Err(error) => {
                tracing::info!(holder = end.subject.one_line(), %error, "attributes cannot be read");
                return Vec::new();
            }
        };
        let mut proven = Vec::new();
        for claim in claims {
            match self.check(&claim, end, judge, now) {
                Ok(()) => proven.extend(claim.fqans.iter().map(|fqan| (*fqan).to_owned())),
                Err(reason) => {
                    tracing::info!(
                        holder = end.subject.one_line(),
                        vo = claim.vo,
                        reason,
                        "attributes are not believed"
                    );
                }
            }
        }
        proven
    }

    /// Says why a claim is not believed.
    fn check(
        &self,
        claim: &AttributeCertificate<'_>,
        end: &Certificate<'_>,
        judge: &Judge,
        now: Timestamp,
    ) -> Result<(), String> {
        let chains = self.0.get(claim.vo).ok_or("no server of this organization is known")?;
        if now < claim.not_before || now > claim.not_after {
            return Err("they are not good at this time".into());
        }
        // Servers name the holder by his subject, or as RFC 5755 wants it by his issuer; the serial number says which certificate.
        let named = claim.holder.matches(&end.subject) || claim.holder.matches(&end.issuer);
        if !named || claim.holder_serial != end.serial {
            return Err("they are somebody else's".into());
        }
        if claim.targeted || !claim.unknown_critical.is_empty() {
            return Err("they are meant for others, or have an extension that is not understood here".into());
        }
        self.check_signer(claim, chains, judge, now)
    }

    fn check_signer(
        &self,
        claim: &AttributeCertificate<'_>,
        chains: &[Vec<String>],
        judge: &Judge,
        now: Timestamp,
    ) -> Result<(), String> {
        let sent = claim.certificates.iter().map(|der| X509::from_der(der)).collect::<Result<Vec<_>, _>>();
        let sent = sent.map_err(|error| format!("the server's certificate cannot be read: {error}"))?;
        let (signer, above) = sent.split_first().ok_or("the server's certificate is not among them")?;
        let read = Certificate::parse(claim.certificates[0]).map_err(|error| error.to_string())?;
        if !read.subject.matches(&claim.issuer) || !is_signed(claim, signer).unwrap_or(false) {
            return Err("they are not signed by the server that they name".into());
        }
        let above: Vec<&X509Ref> = above.iter().map(AsRef::as_ref).collect();
        let judged = judge.judge(signer, &above, now).map_err(|refusal| refusal.fault.to_string())?;
        // The names from the server up; the file may leave out what is above its last line.
        let mut names = vec![normal_form(&read.subject.one_line()), normal_form(&read.issuer.one_line())];
        for authority in &judged.peer.chain {
            let der = authority.to_der().map_err(|error| error.to_string())?;
            let issuer = Certificate::parse(&der).map_err(|error| error.to_string())?.issuer.one_line();
            names.push(normal_form(&issuer));
        }
        let known = chains.iter().any(|chain| names.starts_with(chain));
        if known { Ok(()) } else { Err(format!("{} is no server of this organization", read.subject.one_line())) }
    }
}

fn is_signed(claim: &AttributeCertificate<'_>, signer: &X509) -> Result<bool, ErrorStack> {
    let oid = Reader::new(claim.algorithm).sequence().and_then(|mut inside| inside.oid());
    let Ok(oid) = oid else { return Ok(false) };
    let algorithms = Asn1Object::from_str(&oid.to_string())?.nid().signature_algorithms();
    let digest = algorithms.and_then(|algorithms| MessageDigest::from_nid(algorithms.digest));
    // MD5 and SHA-1 prove nothing any more.
    let Some(digest) = digest.filter(|digest| digest.size() >= 28) else { return Ok(false) };
    let key = signer.public_key()?;
    Ok(verified::message(Verifier::new(digest, &key)?, claim.signature, claim.signed))
}

fn read(directory: &Path) -> io::Result<Organizations> {
    let mut found = Organizations::default();
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let organization = entry?;
        let Ok(name) = organization.file_name().into_string() else { continue };
        if !organization.path().is_dir() {
            continue;
        }
        for file in fs::read_dir(organization.path())? {
            let path = file?.path();
            let is_list = path.extension().is_some_and(|extension| extension == "lsc");
            if is_list && fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() <= MOST_BYTES) {
                found.add(&name, &String::from_utf8_lossy(&fs::read(&path)?));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vomsdir_names_the_servers_of_organizations() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("atlas/one.lsc", "/O=Grid/CN=one\n/O=Grid/CN=CA\n\n# a note\n");
        put("atlas/two.lsc", "/O=Grid/CN=two\n------ NEXT CHAIN ------\n/O=Grid/UID=three\n/O=Grid/CN=CA\n");
        put("atlas/old.pem", "ignored");
        put("cms/giant.lsc", &"/".repeat(MOST_BYTES as usize + 1));
        put("README", "ignored");
        let found = Organizations::load(directory.path()).unwrap();
        let mut chains = found.0["atlas"].clone();
        chains.sort();
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected = [
            names(&["/o=grid/cn=one", "/o=grid/cn=ca"]),
            names(&["/o=grid/cn=two"]),
            names(&["/o=grid/userid=three", "/o=grid/cn=ca"]),
        ];
        assert_eq!((chains.as_slice(), found.0.len(), found.is_empty()), (expected.as_slice(), 1, false));
        assert!(Organizations::load(&directory.path().join("none")).unwrap().is_empty());
        let fault = Organizations::load(&directory.path().join("README")).unwrap_err();
        assert_eq!(fault.code, FaultCode::CredentialMissing);
    }
}
