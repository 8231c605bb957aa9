//! Checks of certificates, proxies and what is handed on: each is taken out, and a test must notice.

use super::mutations::{Mutation, Suite, mutation, suite};

const CHAINS: Suite = suite(&["test", "-p", "whimbrel-trust", "--test", "chains"], &[]);
const GSI: Suite = suite(&["test", "-p", "whimbrel-trust", "--test", "gsi"], &[]);
const VOMS: Suite = suite(&["test", "-p", "whimbrel-trust", "--test", "voms"], &[]);
const UNITS: Suite = suite(&["test", "-p", "whimbrel-trust", "--lib"], &[]);
const READER: Suite = suite(&["test", "-p", "whimbrel-proto", "--lib"], &["x509::"]);

const JUDGE_RS: &str = "crates/trust/src/gsi/judge.rs";
const PEERS_RS: &str = "crates/trust/src/gsi/peers.rs";
const ANCHORS_RS: &str = "crates/trust/src/gsi/anchors.rs";
const CRL_RS: &str = "crates/trust/src/gsi/crl.rs";
const HOST_RS: &str = "crates/trust/src/gsi/host.rs";
const DELEGATE_RS: &str = "crates/trust/src/gsi/delegate.rs";
const ACCEPTOR_RS: &str = "crates/trust/src/gsi/acceptor.rs";
const VOMS_RS: &str = "crates/trust/src/gsi/voms.rs";
const CREDENTIAL_RS: &str = "crates/trust/src/credential.rs";
const NAME_RS: &str = "crates/proto/src/x509/name.rs";
const CERTIFICATE_RS: &str = "crates/proto/src/x509/certificate.rs";
const ATTRIBUTES_RS: &str = "crates/proto/src/x509/voms.rs";
const POLICY_RS: &str = "crates/proto/src/x509/policy.rs";

/// Every check, in the order of a verdict.
pub const CERTIFICATES: &[Mutation] = &[
    mutation(
        "chain-proxy-signature",
        "forged proxies of kinds that OpenSSL does not know",
        JUDGE_RS,
        "proxy.x509.is_signed_by(&key)",
        "(proxy.x509.is_signed_by(&key) || true)",
        CHAINS,
    ),
    mutation(
        "chain-proxy-name",
        "proxies of somebody else's name",
        JUDGE_RS,
        "        Some(_) => Ok(*signer),\n        None =>",
        "        _ => Ok(*signer),\n        #[allow(unreachable_patterns)]\n        None =>",
        CHAINS,
    ),
    mutation(
        "chain-depth",
        "endless chains",
        JUDGE_RS,
        "if path.len() > usize::from(self.most_proxies)",
        "if path.len() > 10 * usize::from(self.most_proxies)",
        CHAINS,
    ),
    mutation(
        "chain-mixed",
        "proxies of one kind signed by those of another",
        JUDGE_RS,
        "if *first.get_or_insert(form) != form {",
        "if *first.get_or_insert(form) != form && path.is_empty() {",
        CHAINS,
    ),
    mutation(
        "chain-policy-body",
        "rights that a policy takes away",
        JUDGE_RS,
        "policy == Policy::Restricted || body",
        "policy == Policy::Restricted && body",
        CHAINS,
    ),
    mutation(
        "chain-life",
        "proxies of kinds that OpenSSL does not know, when they have expired",
        JUDGE_RS,
        "if now > read.not_after {",
        "if now > read.not_after && path.is_empty() {",
        CHAINS,
    ),
    mutation(
        "chain-path-length",
        "more proxies than one of them allows",
        JUDGE_RS,
        "(most as usize) < below",
        "(most as usize) + 1 < below",
        CHAINS,
    ),
    mutation(
        "chain-limited",
        "full rights from a limited proxy",
        JUDGE_RS,
        "return Err(refused(pair[0], \"a full proxy",
        "let _: Result<(), _> = Err(refused(pair[0], \"a full proxy",
        CHAINS,
    ),
    mutation(
        "chain-strength",
        "weak keys and digests of proxies",
        JUDGE_RS,
        "            check_strength(link)?;\n",
        "            let _unchecked = check_strength(link);\n",
        CHAINS,
    ),
    mutation(
        "chain-independent-identity",
        "an independent proxy taken for its issuer",
        JUDGE_RS,
        "let identity = independent.unwrap_or(&end);",
        "let identity = &end;",
        CHAINS,
    ),
    mutation(
        "chain-consent",
        "authorities without a signing policy",
        ANCHORS_RS,
        "            None => Err(format!(\"there is no {} in {}\", file(), self.place())),",
        "            None => Ok(()),",
        CHAINS,
    ),
    mutation(
        "chain-broken-list",
        "a damaged revocation list taken for none",
        JUDGE_RS,
        "if lists.is_empty() && broken.is_none() {",
        "if lists.is_empty() {",
        CHAINS,
    ),
    mutation(
        "crl-signature",
        "forged revocation lists",
        CRL_RS,
        "if !self.is_signed_by(key) {",
        "if !self.is_signed_by(key) && self.authority.is_empty() {",
        CHAINS,
    ),
    mutation(
        "crl-outdated",
        "revocation lists out of date",
        CRL_RS,
        "if self.until.is_some_and(|until| now > until) {",
        "if self.until.is_some_and(|until| now > until && now < until) {",
        CHAINS,
    ),
    mutation(
        "policy-denials",
        "rights that a signing policy denies",
        POLICY_RS,
        "subject)) => return false,",
        "subject)) => {}",
        READER,
    ),
    mutation(
        "host-common-name",
        "a common name where alternative names say otherwise",
        HOST_RS,
        "names == Names::Common && !named",
        "names == Names::Common && (!named || named)",
        UNITS,
    ),
    mutation(
        "host-independent",
        "an independent proxy that passes for a host",
        PEERS_RS,
        "Self::Host(..) if judged.independent =>",
        "Self::Host(..) if judged.independent && subject.is_empty() =>",
        GSI,
    ),
    mutation(
        "delegate-rights",
        "rights that grow by handing them on",
        DELEGATE_RS,
        "if limited || delegate == Delegate::Limited",
        "if delegate == Delegate::Limited",
        UNITS,
    ),
    mutation(
        "delegate-request",
        "requests for keys that nobody has proven to hold",
        DELEGATE_RS,
        "if !request.is_signed_by(&key) {",
        "if !request.is_signed_by(&key) && false {",
        UNITS,
    ),
    mutation(
        "delegate-signature",
        "a delegated proxy that the peer has not signed",
        DELEGATE_RS,
        "if !certificate.is_signed_by(&signing) {",
        "if !certificate.is_signed_by(&signing) && false {",
        UNITS,
    ),
    mutation(
        "token-rest",
        "bytes behind the last token",
        ACCEPTOR_RS,
        "if self.tls.unread() > 0 {",
        "if self.tls.unread() > 1 << 20 {",
        GSI,
    ),
    mutation(
        "voms-holder",
        "attributes of somebody else",
        VOMS_RS,
        "if !named || claim.holder_serial != end.serial {",
        "if !named {",
        VOMS,
    ),
    mutation(
        "voms-signature",
        "attributes that were changed",
        VOMS_RS,
        "|| !is_signed(claim, signer).unwrap_or(false) {",
        "|| is_signed(claim, signer).is_err() {",
        VOMS,
    ),
    mutation(
        "voms-server",
        "attributes of a server that is not the organization's",
        VOMS_RS,
        "let known = chains.iter().any(|chain| names.starts_with(chain));",
        "let known = chains.iter().any(|chain| names.starts_with(chain) || !names.is_empty());",
        VOMS,
    ),
    mutation(
        "voms-own",
        "a server that speaks for another organization",
        ATTRIBUTES_RS,
        "if !belongs(fqan, vo) {",
        "if !belongs(fqan, vo) && vo.is_empty() {",
        READER,
    ),
    mutation(
        "credential-mode",
        "keys that others may read",
        CREDENTIAL_RS,
        "if meta.mode() & forbidden != 0 {",
        "if meta.mode() & forbidden & 0o7000 != 0 {",
        UNITS,
    ),
    mutation(
        "credential-owner",
        "keys that somebody else put there",
        CREDENTIAL_RS,
        "if meta.uid() != uid && meta.uid() != 0 {",
        "if meta.uid() != uid && meta.uid() != 0 && meta.len() == 0 {",
        UNITS,
    ),
    mutation(
        "name-nul",
        "names that end early for whoever reads them as C does",
        NAME_RS,
        "if character? == '\\0' { Err(nul()) } else { Ok(()) }",
        "character.map(|_| ())",
        READER,
    ),
    mutation(
        "name-separator",
        "a value that prints as another name's parts",
        NAME_RS,
        "b'/' | b'+' if begins_part(&bytes[at + 1..]) => {",
        "b'/' | b'+' if begins_part(&bytes[at + 1..]) && bytes.is_empty() => {",
        READER,
    ),
    mutation(
        "proxy-critical",
        "proxies that others take for end entities",
        CERTIFICATE_RS,
        "if !info.critical {",
        "if !info.critical && authority {",
        READER,
    ),
];
