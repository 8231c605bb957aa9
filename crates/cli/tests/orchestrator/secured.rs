//! Sites as a service hands them out: servers known by their keys, tokens in memory, several servers.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use uuid::Uuid;
use whimbrel_engine::FaultCode;
use whimbrel_engine::dispatch::{
    Assignment, Credential, End, Lease, OperationKind, OperationResult, Server as SiteServer, Site, Work,
};
use whimbrel_engine::task::TransferOptions;
use whimbrel_testkit::issuer::{Issuer, SigningKey};
use whimbrel_testkit::peers::public_dir;
use whimbrel_testkit::pki::{Member, Pki};
use whimbrel_trust::pins::Fingerprint;

use crate::bench::{Bench, item};
use crate::open_up;
use crate::support::dtn::Dtn;
use crate::support::{Field, account, assert_same};

const AUDIENCE: &str = "https://dtn.example.org";

/// Servers that take an issuer's tokens.
struct Grid {
    pki: Pki,
    issuer: Issuer,
    key: SigningKey,
    host: Member,
    secrets: TempDir,
}

impl Grid {
    fn new() -> Self {
        let pki = Pki::new().expect("a grid");
        let key = SigningKey::es256("ec").expect("a key");
        let issuer = Issuer::start(&pki, &[&key]).expect("an issuer");
        let host = pki.host(&["nobody.example.org"]).expect("a certificate");
        Self { pki, issuer, key, host, secrets: public_dir().expect("a directory") }
    }

    fn config(&self) -> PathBuf {
        let (authority, url, account) = (self.issuer.authority(), self.issuer.url(), account());
        let config = self.secrets.path().join("dtn.toml");
        let tokens = format!("[tokens]\naudience = [{AUDIENCE:?}]\nauthorities = {authority:?}\n");
        let issuer = format!("[[tokens.issuer]]\nurl = {url:?}\nwithout_scopes = true\naccounts = [{account:?}]\n");
        let tls = format!("[tls]\ncertificate = {0:?}\nkey = {0:?}\n", self.host.file);
        fs::write(&config, tokens + &issuer + &tls).expect("written");
        config
    }

    fn server(&self) -> Dtn {
        Dtn::builder().arg("--root").arg("/").arg("--config").arg(self.config()).start()
    }

    fn token(&self) -> String {
        self.key.sign(&self.issuer.claims(AUDIENCE, "openid"))
    }

    fn pin(&self) -> String {
        Fingerprint::of(&self.host.own.certificate).expect("a key").to_string()
    }

    fn site(&self, servers: &[&Dtn]) -> Site {
        let known = |server: &&Dtn| SiteServer::at(format!("whimbrel://{}", server.addr()), Some(self.pin()));
        Site {
            collection: Uuid::nil(),
            servers: servers.iter().map(known).collect(),
            credential: Credential::Token { token: self.token() },
            base: "/".into(),
            local_user: None,
        }
    }
}

fn list(path: &str) -> OperationKind {
    OperationKind::List { path: path.as_bytes().to_vec(), most: 100_000 }
}

#[test]
fn a_token_opens_a_server_that_has_the_key_it_is_known_by_and_no_other() {
    let grid = Grid::new();
    let server = grid.server();
    let bench = Bench::new();
    let site = grid.site(&[&server]);
    // No authority vouches for this name; its key is enough.
    let listed = bench.operate(&site, list("/"));
    assert!(matches!(listed, Ok(OperationResult::Listing { .. })), "{listed:?}");
    let mut other = site.clone();
    other.servers[0].pin = Some(format!("sha256:{}", "00".repeat(32)));
    let fault = bench.operate(&other, list("/")).unwrap_err();
    assert_eq!(fault.code, FaultCode::PeerIdentity, "{fault}");
    let mut clear = site.clone();
    clear.servers[0].url = format!("ftp://{}", server.addr());
    let fault = bench.operate(&clear, list("/")).unwrap_err();
    assert_eq!(fault.code, FaultCode::InvalidArgument, "{fault}");
    let Credential::Token { token } = &site.credential else { unreachable!() };
    assert!(!server.log().contains(token.as_str()), "no token in the log");
    bench.finish();
}

#[test]
fn a_transfer_between_servers_of_a_service_is_encrypted_and_spread_over_all_of_them() {
    let grid = Grid::new();
    let servers = [grid.server(), grid.server(), grid.server()];
    let field = Field::new();
    open_up(&field.path(""));
    let bench = Bench::new();
    let task = Uuid::from_u128(77);
    let options = TransferOptions { verify: true, encrypt: true, ..TransferOptions::default() };
    let assignment = Assignment {
        lease: Lease { task, epoch: 0 },
        work: Work::Transfer(Box::new(options)),
        source: grid.site(&[&servers[0], &servers[1]]),
        destination: Some(grid.site(&[&servers[2]])),
        relays: Vec::new(),
        label: "a label".into(),
        max_concurrency: Some(4),
        max_rate: None,
    };
    bench.service.submit(assignment, vec![item(1, &field.path("from"), &field.path("to/copy"))]);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert_same(&field.path("from/deep"), &field.path("to/copy/deep"));
    for server in &servers {
        assert!(server.metric("logins_total") > 0, "{}", server.log());
    }
    bench.finish();
}

#[test]
fn a_token_that_nobody_takes_ends_the_task_and_an_expired_one_waits_for_another() {
    let grid = Grid::new();
    let server = grid.server();
    let field = Field::new();
    let bench = Bench::new();
    let end = |token: String, number: u128| {
        let task = Uuid::from_u128(number);
        let site = Site { credential: Credential::Token { token }, ..grid.site(&[&server]) };
        let assignment = Assignment {
            lease: Lease { task, epoch: 0 },
            work: Work::Transfer(Box::default()),
            source: site.clone(),
            destination: Some(site),
            relays: Vec::new(),
            label: String::new(),
            max_concurrency: None,
            max_rate: None,
        };
        bench.service.submit(assignment, vec![item(1, &field.path("from"), &field.path("to/copy"))]);
        let end = bench.wait(task);
        bench.service.see(task, |task| assert!(task.records.values().all(|record| record.fault.is_none())));
        end
    };
    let mut claims = grid.issuer.claims("https://other.example.org", "openid");
    let End::Impossible { fault } = end(grid.key.sign(&claims), 1) else { panic!("another audience") };
    assert!(matches!(fault.code, FaultCode::LoginFailed | FaultCode::NotAuthorized), "{fault}");
    claims = grid.issuer.claims(AUDIENCE, "openid");
    claims["exp"] = serde_json::json!(1_700_000_000);
    let End::Again { fault, .. } = end(grid.key.sign(&claims), 2) else { panic!("an expired token") };
    assert_eq!(fault.code, FaultCode::CredentialExpired, "{fault}");
    assert!(grid.pki.authority().certificate.subject_name().entries().count() > 0);
    bench.finish();
}
