//! The CPUs of a test and the flusher under test.

use shootdown_examples_aarch64::cpu;
use shootdown_examples_aarch64::crew::Crew;
use shootdown_examples_aarch64::lock::Lock;
use shootdown_examples_aarch64::platform;

use crate::backend::Backend;

/// CPUs that are online and do one thing after the other.
#[derive(Debug)]
pub struct Rig {
    crew: Crew,
}

/// Initializes the flusher and brings CPU 0 online, alone.
///
/// # Panics
/// When the flusher refuses the machine.
pub fn start_alone<B: Backend>() {
    B::prepare_cpu();
    B::TLB
        .init(platform::config())
        .expect("QEMU's CPUs are served");
    B::TLB.online().expect("CPU 0 was offline");
}

impl Rig {
    /// Initializes the flusher and brings all CPUs of the machine online.
    ///
    /// # Panics
    /// When the flusher refuses the machine, or there is one CPU only.
    #[must_use]
    pub fn start<B: Backend>() -> Self {
        start_alone::<B>();
        let rig = Self::join::<B>();
        assert!(rig.cpus() > 1, "these tests need more CPUs: -smp 4");
        rig
    }

    /// Starts the other CPUs and brings them online, after [`start_alone`].
    ///
    /// # Panics
    /// When one does not start.
    #[must_use]
    pub fn join<B: Backend>() -> Self {
        let crew = Crew::start(cpu::present(), |_| {
            B::prepare_cpu();
            B::TLB.online().expect("the CPU was offline")
        });
        Self {
            crew: crew.expect("all CPUs that are present start"),
        }
    }

    /// How many CPUs there are.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.crew.cpus()
    }

    /// The CPUs, for those who need nothing else of the rig.
    #[must_use]
    pub fn into_crew(self) -> Crew {
        self.crew
    }

    /// Runs `work` on one CPU while the others wait.
    ///
    /// # Panics
    /// When there is no such CPU.
    pub fn on<R: Send>(&self, cpu: usize, work: impl FnOnce() -> R + Send) -> R {
        let work = Lock::new(Some(work));
        let result = Lock::new(None);
        self.crew.run(&|id| {
            if id == cpu {
                let work = work.lock().take();
                *result.lock() = work.map(|work| work());
            }
        });
        result.into_inner().expect("the rig has that CPU")
    }

    /// Runs `work(cpu)` on all CPUs at the same time.
    pub fn on_all(&self, work: &(dyn Fn(usize) + Sync)) {
        self.crew.run(work);
    }
}
