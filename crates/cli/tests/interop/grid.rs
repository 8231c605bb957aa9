//! The same table over GSI, with `WHIMBREL_INTEROP_OVER=gsi`: servers of both kinds know alice, and all clients are alice.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use whimbrel_testkit::peers::Tool;
use whimbrel_testkit::pki::{Member, Pki};

/// The variable that chooses what connections are protected by.
const VARIABLE: &str = "WHIMBREL_INTEROP_OVER";

static GRID: Mutex<Option<Arc<Grid>>> = Mutex::new(None);

/// Who is certified, and the files that servers need.
pub struct Grid {
    /// The authority.
    pub pki: Pki,
    /// The credential of servers.
    pub host: Member,
    /// Whom servers know.
    pub gridmap: PathBuf,
    /// Configuration of our servers.
    pub config: PathBuf,
    proxy: Member,
}

impl Grid {
    fn new() -> Self {
        let pki = Pki::new().unwrap();
        let (host, alice) = (pki.host(&["localhost", "127.0.0.1", "::1"]).unwrap(), pki.person("alice").unwrap());
        let proxy = pki.usual_proxy(&alice, "proxy").unwrap();
        let account = match rustix::process::geteuid().is_root() {
            true => "nobody".to_owned(),
            false => Tool::new("id").arg("-un").run_ok().stdout_text().trim().to_owned(),
        };
        let gridmap = pki.gridmap(&[("alice", &account)]).unwrap();
        let config = gridmap.with_file_name("dtn.toml");
        let (file, authorities) = (&host.file, pki.certificates());
        let text = format!("[gsi]\ncertificate = {file:?}\nauthorities = {authorities:?}\ngridmap = {gridmap:?}\n");
        fs::write(&config, text).unwrap();
        Self { pki, host, gridmap, config, proxy }
    }
}

/// Makes the grid if it is wanted.
pub fn prepare() {
    let wanted = match std::env::var(VARIABLE) {
        Ok(word) if word == "gsi" => true,
        Ok(word) => panic!("{VARIABLE} is `gsi` or not set, not `{word}`"),
        Err(_) => false,
    };
    *GRID.lock().unwrap_or_else(PoisonError::into_inner) = wanted.then(|| Arc::new(Grid::new()));
}

/// Takes its files away.
pub fn clear_away() {
    drop(GRID.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// The grid, where connections are to be protected by it.
pub fn grid() -> Option<Arc<Grid>> {
    GRID.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A client program, as alice where there is a grid.
pub fn known(tool: Tool) -> Tool {
    match grid() {
        Some(grid) => tool.as_member(&grid.pki, &grid.proxy),
        None => tool,
    }
}
