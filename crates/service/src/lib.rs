//! The managed transfer service: fire and forget, in the vocabulary of the Globus Transfer API.
//!
//! Its purpose: a user submits a task and walks away; the service keeps it in a store (SQLite by
//! default, PostgreSQL for fleets), leases its items to orchestrators on data transfer nodes through
//! `engine`'s dispatch messages, survives every crash, and tells the truth about progress. It knows
//! `engine` only: storage and protocol code stay with the nodes. The code comes with its own issue.
