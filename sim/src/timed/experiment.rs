//! What is measured in virtual time.

pub mod scale;
pub mod shootdown;
