//! Certificates and the files around them, read without a crypto library: what a certificate says, never whether it is true.
//!
//! Signatures are checked elsewhere. Nothing here recurses on input, and everything is bounded by the input's size.

pub mod certificate;
pub mod der;
pub mod extensions;
pub mod gridmap;
pub mod name;
pub mod oid;
pub mod policy;
pub mod voms;

pub use certificate::{Certificate, Form, Kind, NoKind, Policy};
pub use der::DerError;
pub use name::Name;
