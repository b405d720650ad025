//! KVM's side of steal time: CPUs that are stopped, and the byte `preempted`.

use core::{
    hint::spin_loop,
    ptr::with_exposed_provenance_mut,
    sync::atomic::{
        AtomicBool, AtomicU8, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};

use super::{Interface, is_emulated, tlb};
use crate::{MAX_CPUS, apic, percpu};

const STEAL_TIME: u32 = 0x4b56_4d03;
const ENABLED: u64 = 1;
const RESERVED: u64 = 0x3e;
/// Of the byte `preempted` in the structure.
const OFFSET: usize = 16;
const PREEMPTED: u8 = 1 << 0;
const FLUSH_TLB: u8 = 1 << 1;

/// What each CPU wrote to the MSR.
static PAGES: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
/// Whether the CPU is to stop.
static ASKED: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];
static STOPS: AtomicU64 = AtomicU64::new(0);
/// Set while stopped CPUs must stay so.
static HELD: AtomicBool = AtomicBool::new(false);

/// # Panics
/// Where the CPU would raise #GP.
pub(super) fn write_msr(register: u32, value: u64) {
    assert!(
        register == STEAL_TIME && value & RESERVED == 0,
        "WRMSR {register:#x} with {value:#x} raises #GP"
    );
    PAGES[percpu::current()].store(value, Release);
}

fn preempted(cpu: usize) -> Option<&'static AtomicU8> {
    let value = PAGES[cpu].load(Acquire);
    let address = (value & !(ENABLED | RESERVED)) as usize + OFFSET;
    // SAFETY: the guest gave the address of its structure, which is identity mapped and stays; both sides access the byte
    // by atomics only.
    (value & ENABLED != 0)
        .then(|| unsafe { AtomicU8::from_ptr(with_exposed_provenance_mut(address)) })
}

/// Turns of a waiting loop between two stops that a CPU asks for.
const EVERY: u64 = 48;
/// How many turns a CPU is stopped for.
const STOPPED: u32 = 400;

/// To be called on each turn of a waiting loop: now and then the host takes the processor away from some CPU.
pub fn disturb() {
    static TURNS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
    if !is_emulated(Interface::Kvm) {
        return;
    }
    let me = percpu::current();
    let turn = TURNS[me].fetch_add(1, Relaxed);
    if turn.is_multiple_of(EVERY) {
        // Any number that looks random will do.
        let random = (turn ^ me as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let cpu = random as usize % crate::smp::cpus();
        if cpu != me {
            stop_soon(cpu);
        }
    }
}

fn stop_soon(cpu: usize) {
    if preempted(cpu).is_some() && !ASKED[cpu].swap(true, SeqCst) {
        apic::send_nmi(core::iter::once(cpu));
    }
}

/// Takes the processors away from `cpus`, which have come online, while `work` runs.
///
/// # Panics
/// When KVM is not stood in for, or the caller's CPU is among them.
pub fn stop(cpus: impl Iterator<Item = usize> + Clone, work: impl FnOnce()) {
    assert!(is_emulated(Interface::Kvm), "there is no stand-in for KVM");
    HELD.store(true, SeqCst);
    for cpu in cpus.clone() {
        assert!(cpu != percpu::current(), "who would wake it?");
        stop_soon(cpu);
    }
    for cpu in cpus.clone() {
        let byte = preempted(cpu).expect("it came online");
        while byte.load(Acquire) & PREEMPTED == 0 {
            spin_loop();
        }
    }
    work();
    HELD.store(false, SeqCst);
    for cpu in cpus {
        let byte = preempted(cpu).expect("it came online");
        while byte.load(Acquire) & PREEMPTED != 0 {
            spin_loop();
        }
    }
}

/// How often a CPU was stopped.
#[must_use]
pub fn stops() -> u64 {
    STOPS.load(Relaxed)
}

/// Stops this CPU if it is to be, between two instructions of the guest.
pub(super) fn stop_if_asked(me: usize) {
    if !ASKED[me].swap(false, SeqCst) {
        return;
    }
    let Some(byte) = preempted(me) else { return };
    STOPS.fetch_add(1, Relaxed);
    // The guest does not run from here on: a request made now is seen below.
    byte.store(PREEMPTED, SeqCst);
    for _ in 0..STOPPED {
        spin_loop();
    }
    while HELD.load(Acquire) {
        spin_loop();
    }
    // One exchange: a request is either taken here, or its maker finds the CPU running.
    if byte.swap(0, SeqCst) & FLUSH_TLB != 0 {
        tlb::drop_everything();
    }
}
