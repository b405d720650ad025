//! The kernel as a guest of Hyper-V: what a real kernel would write once.

use core::{
    cell::UnsafeCell,
    ptr::from_ref,
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use shootdown::x86_64::hyperv::{
    FlushCode, HyperVFeatures, HyperVPlatform, Hypercall, InputPage, Outcome, ThroughPage,
    enable_hypercalls, open_source_guest, vp_index,
};

use crate::{
    MAX_CPUS,
    host::{self, HostMsrs, Interface},
    percpu, smp,
};

/// Filled with code by the host. Kernel memory may be executed.
#[repr(C, align(4096))]
struct HypercallPage(UnsafeCell<[u8; 4096]>);

// SAFETY: nothing here accesses it after boot but by calling into it.
unsafe impl Sync for HypercallPage {}

static PAGE: HypercallPage = HypercallPage(UnsafeCell::new([0; 4096]));
static INPUTS: [InputPage; MAX_CPUS] = [const { InputPage::new() }; MAX_CPUS];
const UNKNOWN: u32 = u32::MAX;
static VP_INDICES: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(UNKNOWN) }; MAX_CPUS];
static WRONG_VP: AtomicBool = AtomicBool::new(false);

/// This kernel, as Hyper-V's courier sees it.
#[derive(Debug)]
pub struct HyperVGuest;

// SAFETY: each CPU notes its own index and has its own input page, in identity-mapped ordinary memory. A wrong index is
// given only for a counter-proof.
unsafe impl HyperVPlatform for HyperVGuest {
    type Call = Counted;

    fn vp_index(cpu: usize) -> Option<u32> {
        let cpu = if WRONG_VP.load(Relaxed) {
            (cpu + 1) % smp::cpus()
        } else {
            cpu
        };
        let index = VP_INDICES[cpu].load(Relaxed);
        (index != UNKNOWN).then_some(index)
    }

    fn input(cpu: usize) -> Option<(&'static InputPage, u64)> {
        let page = &INPUTS[cpu];
        Some((page, from_ref(page).expose_provenance() as u64))
    }
}

/// For a counter-proof: from now on flushes go to the CPU after the right one.
pub fn aim_at_wrong_vp(wrong: bool) {
    WRONG_VP.store(wrong, SeqCst);
}

/// Calls through the hypercall page, counted.
#[derive(Debug)]
pub struct Counted;

const CODES: [FlushCode; 4] = [
    FlushCode::Space,
    FlushCode::List,
    FlushCode::SpaceEx,
    FlushCode::ListEx,
];
static CALLS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static FAILED: AtomicU64 = AtomicU64::new(0);

// SAFETY: it is the call through the page.
unsafe impl Hypercall for Counted {
    unsafe fn call(control: u64, input: u64) -> u64 {
        for (code, calls) in CODES.iter().zip(&CALLS) {
            if control as u16 == *code as u16 {
                calls.fetch_add(1, Relaxed);
            }
        }
        // SAFETY: promised by the caller.
        let result = unsafe { ThroughPage::call(control, input) };
        if Outcome(result).status() != 0 {
            FAILED.fetch_add(1, Relaxed);
        }
        result
    }
}

/// How many flushes of each kind were asked of the host, and how many it has refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the calls of the same name")]
pub struct Calls {
    pub space: u64,
    pub list: u64,
    pub space_ex: u64,
    pub list_ex: u64,
    /// Those of them that failed.
    pub failed: u64,
}

/// See [`Calls`].
pub fn calls() -> Calls {
    let [space, list, space_ex, list_ex] =
        [0, 1, 2, 3].map(|index: usize| CALLS[index].load(Relaxed));
    Calls {
        space,
        list,
        space_ex,
        list_ex,
        failed: FAILED.load(Relaxed),
    }
}

/// Finds Hyper-V, or stands in for it, and sets hypercalls up: what it offers, and whether it is real.
///
/// # Panics
/// When somebody else has locked the hypercall page.
pub fn features() -> (HyperVFeatures, bool) {
    /// Neither Linux nor FreeBSD.
    const GUEST: u64 = open_source_guest(0x7f, 1, 0);
    let real = host::start(Interface::HyperV);
    let features = HyperVFeatures::from_cpuid(&host::cpuid);
    if features.hypercalls {
        let page = PAGE.0.get().expose_provenance() as u64;
        // SAFETY: the host offers hypercalls; the page is used for nothing else, and identity mapped, executable, in all
        // spaces.
        unsafe {
            enable_hypercalls::<HostMsrs>(GUEST, page).expect("nobody was here before");
            ThroughPage::set_page(page);
        }
    }
    (features, real)
}

/// Has this CPU take part, before it comes online.
pub fn prepare_cpu(features: &HyperVFeatures) {
    if features.vp_index {
        // SAFETY: the host offers it.
        let index = unsafe { vp_index::<HostMsrs>() };
        VP_INDICES[percpu::current()].store(index, Relaxed);
    }
}
