//! All CPUs doing one job: the secondary CPUs wait here for work between the phases of a run.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::cpu::{self, StartError};
use crate::lock::{Lock, relax};

#[derive(Clone, Copy)]
struct Job {
    work: *const (dyn Fn(usize) + Sync),
    cpus: usize,
}

// SAFETY: `work` points to something `Sync`, and is followed only while `run` keeps it borrowed.
unsafe impl Send for Job {}

static JOB: Lock<Option<Job>> = Lock::new(None);
/// Counts jobs; a member that sees it change takes the job.
static ROUND: AtomicU64 = AtomicU64::new(0);
/// Members that are done with the job of this round.
static DONE: AtomicUsize = AtomicUsize::new(0);
static ARRIVED: AtomicUsize = AtomicUsize::new(0);
static ON_ARRIVAL: Lock<Option<fn(usize)>> = Lock::new(None);

/// CPUs that do jobs together. The CPU that made it, number 0, is one of them.
#[derive(Debug)]
pub struct Crew {
    cpus: usize,
}

impl Crew {
    /// Starts CPUs 1 to `cpus - 1`, each calling `on_arrival(id)` first, and waits until all have arrived.
    /// Called on CPU 0, once.
    ///
    /// # Errors
    /// [`StartError`] when there are fewer CPUs.
    pub fn start(cpus: usize, on_arrival: fn(usize)) -> Result<Self, StartError> {
        *ON_ARRIVAL.lock() = Some(on_arrival);
        for id in 1..cpus {
            cpu::start(id, member)?;
        }
        while ARRIVED.load(Ordering::Acquire) + 1 < cpus {
            relax();
        }
        Ok(Self { cpus })
    }

    /// How many CPUs belong to the crew.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Runs `work(cpu)` on all CPUs of the crew at the same time and returns when all have returned.
    ///
    /// # Panics
    /// When called on another CPU than 0.
    pub fn run(&self, work: &(dyn Fn(usize) + Sync)) {
        assert_eq!(cpu::id(), 0, "the crew takes its jobs from CPU 0");
        DONE.store(0, Ordering::Relaxed);
        let borrowed: *const (dyn Fn(usize) + Sync + '_) = work;
        // SAFETY: only the lifetime changes, and this function does not return before all members are done with it.
        let work_for_members: *const (dyn Fn(usize) + Sync) =
            unsafe { core::mem::transmute(borrowed) };
        *JOB.lock() = Some(Job {
            work: work_for_members,
            cpus: self.cpus,
        });
        ROUND.fetch_add(1, Ordering::Release);
        work(0);
        while DONE.load(Ordering::Acquire) + 1 < self.cpus {
            relax();
        }
        *JOB.lock() = None;
    }
}

fn member(id: usize) {
    let on_arrival = *ON_ARRIVAL.lock();
    if let Some(on_arrival) = on_arrival {
        on_arrival(id);
    }
    let mut seen = ROUND.load(Ordering::Acquire);
    ARRIVED.fetch_add(1, Ordering::Release);
    loop {
        let round = ROUND.load(Ordering::Acquire);
        if round == seen {
            relax();
            continue;
        }
        seen = round;
        let job = *JOB.lock();
        if let Some(job) = job.filter(|job| id < job.cpus) {
            // SAFETY: `Crew::run` keeps the closure borrowed until DONE counted this member.
            unsafe { (*job.work)(id) };
            DONE.fetch_add(1, Ordering::Release);
        }
    }
}
