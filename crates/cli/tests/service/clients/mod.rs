//! Programs of others that are made for Globus, unmodified, as their users run them.

pub mod browser;
mod parsl;
mod sdk;
