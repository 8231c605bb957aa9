//! The process that knows who may become whom: it starts the front and the data processes, and answers the front's questions.
//!
//! One thread, no runtime. Of what strangers send it sees only names, as bounded and typed messages; it binds the
//! listening sockets, reads the administrator's files, and passes on descriptors. The front gets no way to an account
//! but through [`keeper::Keeper`].

pub mod children;
mod front;
pub mod jobs;
pub mod keeper;
pub mod listeners;
pub mod message;
mod serve;

pub use front::front_settings;
pub use serve::{run, run_for};
