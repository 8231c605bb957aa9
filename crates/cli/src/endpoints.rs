//! The file of the endpoints that the user named.

use std::io::ErrorKind;
use std::sync::OnceLock;

use whimbrel_dtn::client::endpoints::Endpoints;
use whimbrel_dtn::client::security;

/// The file's name, in the directory of the user's settings.
const FILE: &str = "endpoints.toml";

/// Those of the user who runs this, read once; an error names the file and what is wrong with it.
pub fn of_user() -> Result<&'static Endpoints, String> {
    static ENDPOINTS: OnceLock<Result<Endpoints, String>> = OnceLock::new();
    ENDPOINTS.get_or_init(read).as_ref().map_err(Clone::clone)
}

fn read() -> Result<Endpoints, String> {
    let Some(path) = security::settings().map(|directory| directory.join(FILE)) else {
        return Ok(Endpoints::default());
    };
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Endpoints::default()),
        read => read.map_err(|error| format!("{}: {error}", path.display()))?,
    };
    Endpoints::parse(&text).map_err(|why| format!("{}: {}", path.display(), why.trim_end()))
}
