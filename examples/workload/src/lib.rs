//! What the example kernels run: workloads that map, touch, unmap and reuse pages on all CPUs at once and verify
//! every read, and the report they end with. Nothing here knows an architecture: kernels supply a [`Machine`].
#![no_std]

pub mod barrier;
pub mod canary;
pub mod class;
pub mod crowd;
pub mod machine;
pub mod options;
pub mod phase;
mod place;
mod process;
pub mod report;
mod reuse;
mod run;
mod shadow;
mod tally;
mod thrash;
mod worker;

pub use barrier::Barrier;
pub use class::{Class, Classes};
pub use crowd::{Crowd, Session};
pub use machine::{Fault, Frame, Machine, MapError, PageTables};
pub use options::{Options, Skipped};
pub use phase::{Phase, Phases};
pub use report::Report;
pub use run::{Outcome, run, run_with_processes};
