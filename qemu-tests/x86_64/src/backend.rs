//! The flushers under test, and a machine that runs one of them.

use shootdown::{
    Space, TlbFlusher,
    x86_64::{
        Broadcasting, ConcurrentIpi, Config, InitError, InvlpgbIpi, Ipi, Serial, Tlb,
        hyperv::HyperV, kvm::Kvm,
    },
};
use spin::Once;
use x86_kernel::{
    demo::{config, config_of},
    hyperv_guest::{self, HyperVGuest},
    invlpgb::{self, BroadcastCpu},
    kvm_guest::{self, KvmGuest},
    platform::{FLUSH_VECTOR, Kernel},
    smp, traps,
};

/// A courier with its static flusher.
pub trait Backend: TlbFlusher<Platform = Kernel> + 'static {
    /// The flusher.
    const TLB: &'static Self;

    /// Whether flushes of the spaces under test, and of the kernel, are broadcast.
    const BROADCASTS: bool = false;

    /// Its configuration.
    fn config() -> Config {
        config()
    }

    /// Makes a space one of those under test.
    fn prepare(&self, space: &Space) {
        let _ = space;
    }

    /// As the flusher's own.
    ///
    /// # Errors
    /// See [`InitError`].
    fn init(&self, config: Config) -> Result<(), InitError>;

    /// Serves the flush interrupt.
    fn handle_interrupt(&self);

    /// On each CPU, before it comes online; on the boot CPU first.
    fn prepare_cpu(&self) {}
}

/// Interrupts, and what the host does for CPUs that are stopped.
pub type KvmPv = Tlb<Kernel, Kvm<KvmGuest>>;
/// Hypercalls, and interrupts where they are refused.
pub type HyperVPv = Tlb<Kernel, HyperV<HyperVGuest>>;

static KVM: KvmPv = Tlb::new();
static HYPERV: HyperVPv = Tlb::new();

impl Backend for KvmPv {
    const TLB: &'static Self = &KVM;

    fn init(&self, config: Config) -> Result<(), InitError> {
        self.init(config)
    }

    fn handle_interrupt(&self) {
        self.handle_interrupt();
    }

    fn prepare_cpu(&self) {
        static FEATURES: Once<shootdown::x86_64::kvm::KvmFeatures> = Once::new();
        let features = FEATURES.call_once(|| {
            let (features, _) = kvm_guest::features();
            self.courier_ref()
                .enable(&features, smp::available())
                .expect("the host has all that is needed");
            features
        });
        kvm_guest::prepare_cpu(features);
    }
}

impl Backend for HyperVPv {
    const TLB: &'static Self = &HYPERV;

    fn init(&self, config: Config) -> Result<(), InitError> {
        self.init(config)
    }

    fn handle_interrupt(&self) {
        self.handle_interrupt();
    }

    fn prepare_cpu(&self) {
        static FEATURES: Once<shootdown::x86_64::hyperv::HyperVFeatures> = Once::new();
        let features = FEATURES.call_once(|| {
            let (features, _) = hyperv_guest::features();
            self.courier_ref()
                .enable(&features, smp::available())
                .expect("the host has all that is needed");
            features
        });
        hyperv_guest::prepare_cpu(features);
    }
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

/// INVLPGB, and every space under test has a global PCID from the start.
pub type Global = InvlpgbIpi<Kernel, BroadcastCpu>;

/// INVLPGB, and a space gets a global PCID once all CPUs run it.
pub type Policy = Tlb<Kernel, Broadcasting<Serial>, BroadcastCpu>;

static GLOBAL: Global = Global::new();
static POLICY: Policy = Policy::new();

impl Backend for Global {
    const TLB: &'static Self = &GLOBAL;

    const BROADCASTS: bool = true;

    fn config() -> Config {
        invlpgb::start();
        config_of(invlpgb::features())
    }

    fn prepare(&self, space: &Space) {
        assert_eq!(self.make_global(space), Ok(()));
    }

    fn init(&self, config: Config) -> Result<(), InitError> {
        self.init(config)
    }

    fn handle_interrupt(&self) {
        self.handle_interrupt();
    }
}

impl Backend for Policy {
    const TLB: &'static Self = &POLICY;

    /// Two global PCIDs, so that they run out.
    fn config() -> Config {
        invlpgb::start();
        config_of(invlpgb::features())
            .broadcast_above(smp::available().saturating_sub(1).max(1) as u16)
            .global_pcids(2)
    }

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
        .init(B::config())
        .expect("the configuration suits this machine");
    traps::set_handler(FLUSH_VECTOR, || B::TLB.handle_interrupt());
    B::TLB.prepare_cpu();
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
            tlb.prepare_cpu();
            tlb.online().expect("all CPUs are alike");
        }
    });
    tlb
}
