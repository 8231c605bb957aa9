//! Tasks as users submit and see them: the documents of the Transfer API.

pub mod document;
pub mod log;
pub mod manage;
mod pace;
pub mod plan;
pub mod progress;
pub mod query;
pub mod routes;
pub mod submission;
pub mod submit;

#[cfg(test)]
mod submission_tests;
