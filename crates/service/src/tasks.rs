//! Tasks as users submit and see them: the documents of the Transfer API.

pub mod submission;

#[cfg(test)]
mod submission_tests;
