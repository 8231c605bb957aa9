//! Asks servers of others: places that users name, and the provider of identities.

use std::sync::Arc;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::roots::{HostOfAuthorities, SystemRoots};
use whimbrel_trust::tls::ClientTls;
use whimbrel_web::client::Client;

/// The client of a URL's host, which `roots` vouch for, and what it asks there: path and query.
///
/// # Errors
/// `InvalidArgument`: the URL is none that may be asked.
pub fn client(roots: &SystemRoots, url: &str, most: usize, op: &'static str) -> Result<(Client, String), Fault> {
    let bad = |detail: &str| Fault::new(FaultCode::InvalidArgument, op).subject(url).side(Side::Us).detail(detail);
    let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it is no URL"))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if path.contains('#') || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(bad("it is no URL that can be asked"));
    }
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    let judge = Arc::new(HostOfAuthorities::new(roots.clone(), host));
    let tls = ClientTls::new(judge, None).map_err(|fault| fault.into_fault(op, Side::Us))?;
    let client = Client::new(&format!("{scheme}://{authority}"), tls, most)?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((client, path))
}
