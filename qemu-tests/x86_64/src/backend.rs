//! The flushers under test, and a machine that runs one of them.

use shootdown::{
    TlbFlusher,
    x86_64::{ConcurrentIpi, Config, InitError, Ipi},
};
use x86_kernel::{
    demo::config,
    platform::{FLUSH_VECTOR, Kernel},
    smp, traps,
};

/// A courier with its static flusher.
pub trait Backend: TlbFlusher<Platform = Kernel> + 'static {
    /// The flusher.
    const TLB: &'static Self;

    /// As the flusher's own.
    ///
    /// # Errors
    /// See [`InitError`].
    fn init(&self, config: Config) -> Result<(), InitError>;

    /// Serves the flush interrupt.
    fn handle_interrupt(&self);
}

static IPI: Ipi<Kernel> = Ipi::new();
static CONCURRENT_IPI: ConcurrentIpi<Kernel> = ConcurrentIpi::new();

impl Backend for Ipi<Kernel> {
    const TLB: &'static Self = &IPI;

    fn init(&self, config: Config) -> Result<(), InitError> {
        self.init(config)
    }

    fn handle_interrupt(&self) {
        self.handle_interrupt();
    }
}

impl Backend for ConcurrentIpi<Kernel> {
    const TLB: &'static Self = &CONCURRENT_IPI;

    fn init(&self, config: Config) -> Result<(), InitError> {
        self.init(config)
    }

    fn handle_interrupt(&self) {
        self.handle_interrupt();
    }
}

/// Initializes the flusher, with only the boot CPU online.
///
/// # Panics
/// When the flusher refuses.
pub fn bring_up_first<B: Backend>() -> &'static B {
    B::TLB
        .init(config())
        .expect("the configuration suits this machine");
    traps::set_handler(FLUSH_VECTOR, || B::TLB.handle_interrupt());
    B::TLB.online().expect("the boot CPU comes online");
    B::TLB
}

/// Initializes the flusher and brings all CPUs online.
///
/// # Panics
/// When the flusher refuses, or there is only one CPU.
pub fn bring_up<B: Backend>() -> &'static B {
    let tlb = bring_up_first::<B>();
    assert!(
        smp::start(None) > 1,
        "these tests need CPUs to shoot at: run QEMU with -smp 2 or more"
    );
    smp::run_on_all(&|cpu| {
        if cpu != 0 {
            tlb.online().expect("all CPUs are alike");
        }
    });
    tlb
}
