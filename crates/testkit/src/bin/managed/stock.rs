//! Four stock servers, two at each end: a task of the service, and the grid's own client between one pair of them.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use whimbrel_testkit::dataset;
use whimbrel_testkit::measure::Outcome;
use whimbrel_testkit::peers::{self, GridftpServer, Tool, url_path};
use whimbrel_testkit::pki::{Member, Pki};
use whimbrel_trust::clock::now;
use whimbrel_trust::gsi::{Delegate, deposit};
use whimbrel_trust::make::Life;

use crate::field::{Field, SetUp, text};
use crate::tasks;

/// Bytes of the file.
const BYTES: u64 = 2 << 30;
/// Longest time for one copy.
const LIMIT: Duration = Duration::from_secs(600);

/// Seconds of copies of one file, by how it was copied.
#[derive(Debug)]
pub struct Stock {
    pub bytes: u64,
    pub verified: Vec<f64>,
    pub plain: Vec<f64>,
    pub url_copy_verified: Vec<f64>,
    pub url_copy: Vec<f64>,
}

/// The servers of both ends, and Alice who may log in there.
struct Grid {
    pki: Pki,
    alice: Member,
    proxy: Member,
    servers: [[GridftpServer; 2]; 2],
}

impl Grid {
    fn start() -> Outcome<Self> {
        let pki = Pki::new()?;
        let host = pki.host(&["localhost", "127.0.0.1"])?;
        let alice = pki.person("alice")?;
        let proxy = pki.usual_proxy(&alice, "proxy")?;
        let gridmap = pki.gridmap(&[("alice", "nobody")])?;
        let server = || -> Outcome<GridftpServer> {
            let builder = GridftpServer::builder().ok_or("globus-gridftp-server is not installed")?;
            Ok(builder.gsi(&pki, &host, &gridmap).start()?)
        };
        let servers = [[server()?, server()?], [server()?, server()?]];
        Ok(Self { pki, alice, proxy, servers })
    }

    fn url(&self, end: usize, host: usize) -> String {
        format!("gsiftp://localhost:{}", self.servers[end][host].addr().port())
    }

    /// A collection of one end, with a proxy of Alice's registered for it.
    fn site(&self, setup: &SetUp<'_>, name: &str, root: &Path, token: &str) -> Outcome<String> {
        let end = usize::from(name != "from");
        let collection = setup.stock_site(name, root, &[self.url(end, 0), self.url(end, 1)], token)?;
        let path = format!("/v2/whimbrel/endpoints/{collection}/credential");
        let asked = setup.tell("POST", token, &format!("{path}/request"), &json!({}))?;
        let life = Life::of(now(), 12 * 3600);
        let chain = deposit::answer(&text(&asked, "request")?, &self.alice.own, Delegate::Limited, life);
        let chain = chain.map_err(|fault| fault.detail)?;
        text(&setup.tell("PUT", token, &path, &json!({"chain": chain}))?, "subject")?;
        Ok(collection)
    }

    /// From the first host of one end to the first of the other; seconds.
    fn url_copy(&self, field: &Field, name: &str, verify: bool) -> Outcome<f64> {
        let program = peers::find("globus-url-copy").ok_or("globus-url-copy is not installed")?;
        let from = format!("{}{}", self.url(0, 0), url_path(field.from(name)));
        let to = format!("{}{}", self.url(1, 0), url_path(field.to(name)));
        let proof = verify.then_some("-verify-checksum");
        let copy = Tool::new(program).limit(LIMIT).arg("-fast").args(proof).args([&from, &to]);
        let copy = copy.as_member(&self.pki, &self.proxy).run()?;
        if !copy.success() {
            return Err(copy.to_string().into());
        }
        Ok(copy.wall.as_secs_f64())
    }
}

/// Copies of one file, in turn by a task and by the grid's own client, each verified and not.
pub fn one_file(rounds: u32) -> Outcome<Stock> {
    let grid = Grid::start()?;
    let certificates = grid.pki.certificates();
    let field = Field::with(&[("X509_CERT_DIR", &certificates)], |setup, name, root, token| {
        grid.site(setup, name, root, token).map(|collection| (collection, None))
    })?;
    dataset::random_file(&field.from("file"), BYTES, 1)?;
    let mut stock = Stock {
        bytes: BYTES,
        verified: Vec::new(),
        plain: Vec::new(),
        url_copy_verified: Vec::new(),
        url_copy: Vec::new(),
    };
    for round in 0..=rounds {
        let by_client = |verify| by_client(&grid, &field, verify);
        let seconds = [by_task(&field, true)?, by_client(true)?, by_task(&field, false)?, by_client(false)?];
        if round > 0 {
            let Stock { verified, plain, url_copy_verified, url_copy, .. } = &mut stock;
            for (all, one) in [verified, url_copy_verified, plain, url_copy].into_iter().zip(seconds) {
                all.push(one);
            }
        }
    }
    Ok(stock)
}

fn by_task(field: &Field, verify: bool) -> Outcome<f64> {
    let mut document = field.transfer("file", false)?;
    document["verify_checksum"] = json!(verify);
    let begun = Instant::now();
    let task = field.submit(&document)?;
    let seconds = tasks::ended(field, begun, &task)?;
    let shown = field.task(&task)?;
    if verify && shown["bytes_checksummed"] != BYTES {
        return Err(format!("it is not proven: {shown}").into());
    }
    gone(field)?;
    Ok(seconds)
}

fn by_client(grid: &Grid, field: &Field, verify: bool) -> Outcome<f64> {
    let seconds = grid.url_copy(field, "file", verify)?;
    gone(field)?;
    Ok(seconds)
}

/// Removes the copy, which must be whole.
fn gone(field: &Field) -> Outcome<()> {
    let copy = field.to("file");
    let bytes = std::fs::metadata(&copy)?.len();
    if bytes != BYTES {
        return Err(format!("{bytes} bytes were copied").into());
    }
    Ok(std::fs::remove_file(copy)?)
}
