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
mod nomads;
mod op;
mod owner;
mod perform;
#[cfg(test)]
mod posted;
mod run;
mod virtual_machine;
mod world;

#[cfg(test)]
pub(crate) use owner::index_of_region;

pub use backend::BackendKind;
pub use run::{Failure, Outcome, Spec, run};
