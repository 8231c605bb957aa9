//! The HTTP side of the service: its table of routes, documents, errors, and what requests are asked with.

pub mod error;
pub mod filter;
pub mod input;
pub mod large;
pub mod openapi;
pub mod query;
pub mod reply;
pub mod route;
#[cfg(test)]
mod tests;

pub use error::ApiError;
pub use filter::{Filter, Order, Term, compare, orders};
pub use input::{Form, Input, Json};
pub use large::Large;
pub use query::{Fields, Page, Query};
pub use reply::{Accepted, Answer, Created, Done, Events, Lines, Metrics, Page as HtmlPage, Place, Reply, Switching};
pub use route::{Access, Anyone, Call, Knock, PathParams, Route, Rule, router};
