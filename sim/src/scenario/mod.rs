//! Scenarios: a simulated kernel whose CPUs map, unmap, switch and retire at random, drawn from a seed.

mod actor;
pub(crate) mod backend;
mod bulk;
mod edit;
mod extra;
mod halting;
#[cfg(test)]
mod historic;
mod home;
mod lock;
mod op;
mod owner;
mod perform;
mod run;
mod virtual_machine;
mod world;

pub use backend::BackendKind;
pub use run::{Failure, Outcome, Spec, run};
