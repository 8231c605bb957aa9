//! The managed transfer service: fire and forget, in the vocabulary of the Globus Transfer API.
//!
//! A user submits a task and walks away; the service keeps it in a store (SQLite by default, PostgreSQL for
//! fleets), leases it to orchestrators through `engine`'s dispatch messages, survives every crash, and tells the
//! truth about progress. It knows neither storage nor the protocols of servers.

mod audit;
pub mod auth;
pub mod bootstrap;
pub mod clock;
pub mod deploy;
pub mod desk;
mod elsewhere;
pub mod endpoints;
pub mod events;
pub mod files;
pub mod grid;
pub mod groups;
pub mod house;
pub mod http;
pub mod manager;
pub mod matrix;
pub mod metrics;
pub mod notices;
pub mod overview;
pub mod reach;
pub mod replicas;
pub mod servers;
pub mod state;
pub mod store;
pub mod task;
pub mod tasks;
pub mod timers;

#[cfg(test)]
mod testing;

pub use state::{Config, Service};
