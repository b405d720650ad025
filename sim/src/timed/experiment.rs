//! What is measured in virtual time.

pub mod processes;
pub mod scale;
pub mod shootdown;
pub mod storm;
