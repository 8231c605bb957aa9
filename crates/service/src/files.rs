//! What file managers do: listings and single changes of files.

pub mod document;
pub mod routes;
