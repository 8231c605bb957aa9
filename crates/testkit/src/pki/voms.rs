//! Virtual organizations: the word of a VOMS server about somebody, in a proxy, and the directory of servers whose word counts.

use std::fs;
use std::path::PathBuf;

use openssl::hash::MessageDigest;
use openssl::sign::Signer;
use whimbrel_proto::x509::Certificate;
use whimbrel_proto::x509::der::{encode, encode_count, tag};
use whimbrel_proto::x509::name::Name;
use whimbrel_proto::x509::oid::{self, Oid};
use whimbrel_trust::OwnChain;
use whimbrel_trust::make::{self, KeyKind, ProxyKind};

use super::{Member, Pki, failed, life, made, put};
use crate::error::{Attempt, Result};

/// sha256WithRSAEncryption, 1.2.840.113549.1.1.11 (RFC 4055 §5), with its NULL.
const ALGORITHM: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00";

/// What a server says of somebody.
#[derive(Clone, Copy, Debug)]
pub struct Membership<'a> {
    /// The organization, `atlas`.
    pub organization: &'a str,
    /// Groups and roles, `/atlas/Role=production`, the main one first.
    pub attributes: &'a [&'a str],
    /// Of whom.
    pub holder: &'a Member,
    /// For how many seconds from now; below zero it is past.
    pub seconds: i64,
}

impl Pki {
    /// A usual proxy of somebody that carries a server's word. The word may be about somebody else, as a thief's would be.
    pub fn voms_proxy(&self, of: &Member, server: &Member, word: &Membership<'_>, file: &str) -> Result<Member> {
        let key = made(make::key(KeyKind::Rsa(2048)))?;
        let kind = ProxyKind::rfc(whimbrel_proto::x509::Policy::InheritAll);
        let draft = made(make::proxy_draft(&of.own, &kind, life(3600)))?;
        let certificates = encode(tag::SEQUENCE, &[&encode(tag::SEQUENCE, &[&attribute_certificate(server, word)?])]);
        let certificate = made(draft.with(oid::VOMS, false, certificates).sign(&key, &of.own.key))?;
        let chain = std::iter::once(&of.own.certificate).chain(&of.own.chain).cloned().collect();
        self.keep(OwnChain { certificate, key, chain }, file)
    }

    /// A directory of organizations in which these servers speak for theirs, for `X509_VOMS_DIR`.
    pub fn vomsdir(&self, servers: &[(&str, &Member)]) -> Result<PathBuf> {
        let directory = self.directory.path().join("vomsdir");
        fs::create_dir_all(&directory).attempt(|| "making the directory of organizations".to_owned())?;
        for (number, (organization, server)) in servers.iter().enumerate() {
            let place = directory.join(organization);
            fs::create_dir_all(&place).attempt(|| format!("making a directory of {organization}"))?;
            let (subject, issuer) = names(server)?;
            put(&place.join(format!("{number}.lsc")), format!("{subject}\n{issuer}\n").as_bytes(), 0o644)?;
        }
        Ok(directory)
    }
}

fn der(member: &Member) -> Result<Vec<u8>> {
    member.own.certificate.to_der().map_err(|error| failed(&error))
}

/// Subject and issuer, as lists of servers have them.
fn names(member: &Member) -> Result<(String, String)> {
    let der = der(member)?;
    let read = Certificate::parse(&der).map_err(|error| failed(&error))?;
    Ok((read.subject.one_line(), read.issuer.one_line()))
}

/// An attribute certificate (RFC 5755 §4.1) as VOMS servers sign them.
fn attribute_certificate(server: &Member, word: &Membership<'_>) -> Result<Vec<u8>> {
    let (holder, signer) = (der(word.holder)?, der(server)?);
    let read = |der| Certificate::parse(der).map_err(|error| failed(&error));
    let signed = said(&read(&holder)?, &read(&signer)?, &signer, word);
    let sign = || {
        let mut hand = Signer::new(MessageDigest::sha256(), &server.own.key)?;
        hand.sign_oneshot_to_vec(&signed)
    };
    let signature = sign().map_err(|error: openssl::error::ErrorStack| failed(&error))?;
    Ok(encode(tag::SEQUENCE, &[&signed, ALGORITHM, &encode(tag::BIT_STRING, &[&[0], &signature])]))
}

/// Its signed part: `holder` is of whom, `signer` says it, which as `der` comes with it.
fn said(holder: &Certificate<'_>, signer: &Certificate<'_>, der: &[u8], word: &Membership<'_>) -> Vec<u8> {
    let sequence = |parts: &[&[u8]]| encode(tag::SEQUENCE, parts);
    let general = |name: &Name<'_>| sequence(&[&encode(tag::context(4), &[name.der()])]);
    let serial = encode(tag::INTEGER, &[holder.serial]);
    let life = life(word.seconds);
    let time = |at: whimbrel_proto::timeval::Timestamp| {
        encode(tag::GENERALIZED_TIME, &[format!("{}Z", at.to_wire()).as_bytes()])
    };
    let origin = format!("{}://voms.example.org:15000", word.organization);
    let origin = encode(tag::context(0), &[&encode(tag::implicit(6), &[origin.as_bytes()])]);
    let attributes = word.attributes.iter().flat_map(|text| encode(tag::OCTET_STRING, &[text.as_bytes()]));
    let syntax = sequence(&[&origin, &sequence(&[&attributes.collect::<Vec<u8>>()])]);
    let attribute = sequence(&[&identifier(oid::VOMS_ATTRIBUTE), &encode(tag::SET, &[&syntax])]);
    let certificates = sequence(&[&sequence(&[der])]);
    let extensions =
        [extension(oid::VOMS_CERTIFICATES, &certificates), extension(oid::NO_REVOCATION, &[5, 0])].concat();
    sequence(&[
        &encode_count(1), // version 2
        &sequence(&[&encode(tag::context(0), &[&general(&holder.issuer), &serial])]),
        &encode(tag::context(0), &[&general(&signer.subject)]),
        ALGORITHM,
        &encode_count(7),
        &sequence(&[&time(life.from), &time(life.until)]),
        &sequence(&[&attribute]),
        &sequence(&[&extensions]),
    ])
}

fn identifier(oid: Oid<'_>) -> Vec<u8> {
    encode(tag::OID, &[oid.bytes()])
}

fn extension(oid: Oid<'_>, value: &[u8]) -> Vec<u8> {
    encode(tag::SEQUENCE, &[&identifier(oid), &encode(tag::OCTET_STRING, &[value])])
}
