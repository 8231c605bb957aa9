//! Servers that join data connections of others, for tasks neither of whose ends takes any.

use uuid::Uuid;
use whimbrel_engine::Fault;
use whimbrel_engine::dispatch::{self, Credential, Site};

use super::{TOKEN_LIFE, lost, unavailable};
use crate::Service;
use crate::auth::keys::RELAY_SCOPE;
use crate::servers::Server;

/// Most that a task is told of.
const MOST: usize = 4;

impl Service {
    /// The relays that a task of somebody may use: those that are there, the least loaded first, then those that may come back. Each
    /// is shown a token with which nothing can be done but to have connections joined.
    pub(super) async fn relays(&self, owner: Uuid) -> Result<Vec<Site>, Fault> {
        let now = self.clock.now();
        let mut known = self.relay_servers().await.map_err(unavailable)?;
        let load = |server: &Server| server.load.unwrap_or(0.0);
        known.sort_by(|a, b| {
            b.is_ready(now).cmp(&a.is_ready(now)).then(load(a).total_cmp(&load(b))).then(a.id.cmp(&b.id))
        });
        let mut sites = Vec::new();
        for server in known.into_iter().take(MOST) {
            let Some(url) = server.url() else { continue };
            let token = match self.site_tokens.get(&token_of(server.endpoint, owner), now) {
                Some(token) => token,
                None => {
                    let made = self.dtn_token(server.endpoint, owner, RELAY_SCOPE, None, TOKEN_LIFE).await;
                    let token = made.map_err(|error| lost(error, &server.name))?;
                    self.site_tokens.keep(token_of(server.endpoint, owner), token.clone(), now);
                    token
                }
            };
            sites.push(Site {
                collection: server.endpoint,
                servers: vec![dispatch::Server::at(url, server.pin)],
                credential: Credential::Token { token },
                base: String::new(),
                local_user: None,
            });
        }
        Ok(sites)
    }
}

fn token_of(endpoint: Uuid, owner: Uuid) -> super::TokenOf {
    (endpoint, owner, RELAY_SCOPE.to_owned(), None)
}
