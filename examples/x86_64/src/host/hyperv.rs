//! Hyper-V's side of its flush hypercalls.

use core::{
    hint::spin_loop,
    ptr::{copy_nonoverlapping, with_exposed_provenance, with_exposed_provenance_mut},
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};

use hypervisor_emulation::{
    Flush, Status,
    hypercall::pages,
    instruction::{LENGTH, PAGE_CODE},
    is_hypercall,
};

use super::{Interface, is_emulated, tlb};
use crate::{MAX_CPUS, apic, percpu, smp, traps::TrapFrame};

const GUEST_OS_ID: u32 = 0x4000_0000;
const HYPERCALL: u32 = 0x4000_0001;
const VP_INDEX: u32 = 0x4000_0002;
const ENABLED: u64 = 1;
const PAGE: u64 = !0xfff;

static GUEST: AtomicU64 = AtomicU64::new(0);
static HYPERCALLS: AtomicU64 = AtomicU64::new(0);

/// # Panics
/// Where the CPU would raise #GP.
pub(super) fn read_msr(register: u32) -> u64 {
    match register {
        GUEST_OS_ID => GUEST.load(Acquire),
        HYPERCALL => HYPERCALLS.load(Acquire),
        VP_INDEX => u64::from(vp_index(percpu::current())),
        _ => panic!("RDMSR {register:#x} raises #GP"),
    }
}

/// # Panics
/// Where the CPU would raise #GP.
pub(super) fn write_msr(register: u32, value: u64) {
    match register {
        GUEST_OS_ID => {
            GUEST.store(value, Release);
            if value == 0 {
                HYPERCALLS.fetch_and(!ENABLED, Release);
            }
        }
        HYPERCALL if value & ENABLED != 0 && GUEST.load(Acquire) != 0 => {
            let page = (value & PAGE) as usize;
            // SAFETY: the guest says that the page is for this, and low memory is identity mapped.
            unsafe {
                let code = with_exposed_provenance_mut(page);
                copy_nonoverlapping(PAGE_CODE.as_ptr(), code, PAGE_CODE.len());
            }
            HYPERCALLS.store(value, Release);
        }
        // Without a guest's id the page can't be enabled.
        HYPERCALL => HYPERCALLS.store(value & !ENABLED, Release),
        _ => panic!("WRMSR {register:#x} with {value:#x} raises #GP"),
    }
}

/// The VP index of a CPU. Neither its number nor its APIC id; from the third CPU on too large for a mask of 64.
#[must_use]
pub fn vp_index(cpu: usize) -> u32 {
    match cpu as u32 {
        cpu @ 0..2 => 5 - cpu,
        cpu => 64 * (cpu - 1) + cpu + 4,
    }
}

static REFUSE_EVERY: AtomicU64 = AtomicU64::new(0);

/// Has the host refuse each `nth` flush for want of memory; 0: none.
pub fn refuse_every(nth: u64) {
    REFUSE_EVERY.store(nth, SeqCst);
}

fn refuses() -> bool {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let nth = REFUSE_EVERY.load(Relaxed);
    nth != 0 && CALLS.fetch_add(1, Relaxed) % nth == nth - 1
}

/// Entries of a list that are done before the call returns to the guest, which has to go on with the rest.
const ENTRIES: usize = 4;
const ALL_SPACES: u64 = u64::MAX;

/// What a CPU has others drop, one thing at a time.
struct Request {
    /// The CPUs that have not done it yet.
    pending: AtomicU64,
    space: AtomicU64,
    what: AtomicU64,
    count: AtomicUsize,
    entries: [AtomicU64; ENTRIES],
}

const EVERYTHING: u64 = 0;
const NON_GLOBAL: u64 = 1;
const PAGES: u64 = 2;

static REQUESTS: [Request; MAX_CPUS] = [const {
    Request {
        pending: AtomicU64::new(0),
        space: AtomicU64::new(0),
        what: AtomicU64::new(0),
        count: AtomicUsize::new(0),
        entries: [const { AtomicU64::new(0) }; ENTRIES],
    }
}; MAX_CPUS];

impl Request {
    /// Drops it on this CPU. Without PCIDs a TLB has nothing of a space that is not loaded.
    fn perform(&self) {
        let space = self.space.load(Relaxed);
        if space != ALL_SPACES && space != tlb::loaded_root() {
            return;
        }
        match self.what.load(Relaxed) {
            EVERYTHING => tlb::drop_everything(),
            NON_GLOBAL => tlb::drop_non_global(),
            _ => {
                for entry in &self.entries[..self.count.load(Relaxed)] {
                    pages(entry.load(Relaxed)).for_each(tlb::drop_page);
                }
            }
        }
    }
}

/// Does on this CPU what others have asked for. One interrupt does for any number of requests that came before it.
pub(super) fn serve(me: usize) {
    for request in &REQUESTS {
        if request.pending.load(Acquire) & 1 << me != 0 {
            request.perform();
            request.pending.fetch_and(!(1 << me), Release);
        }
    }
}

/// Makes the hypercall whose instruction raised #UD, if it is one and there is a stand-in for its host.
pub(crate) fn emulate_hypercall(frame: &mut TrapFrame) -> bool {
    if !is_emulated(Interface::HyperV) || HYPERCALLS.load(Acquire) & ENABLED == 0 {
        return false;
    }
    // SAFETY: the CPU has just fetched an instruction from there, and what follows it is mapped.
    let bytes = unsafe { with_exposed_provenance::<[u8; LENGTH]>(frame.rip as usize).read() };
    if !is_hypercall(bytes) {
        return false;
    }
    frame.rax = hypercall(frame.rcx, frame.rdx);
    frame.rip += LENGTH as u64;
    true
}

fn hypercall(control: u64, input: u64) -> u64 {
    let read = |index: usize| {
        let word = with_exposed_provenance_mut::<u64>(input as usize + 8 * index);
        // SAFETY: aligned and in one page, as was checked before the first read; the page is the guest's operands, which
        // it accesses by atomics.
        unsafe { AtomicU64::from_ptr(word) }.load(Relaxed)
    };
    let flush = match Flush::decode(control, input, read) {
        Ok(_) if refuses() => return Status::InsufficientMemory.result(0),
        Ok(flush) => flush,
        Err(status) => return status.result(0),
    };
    let me = percpu::current();
    let my = &REQUESTS[me];
    my.space.store(flush.space.unwrap_or(ALL_SPACES), Relaxed);
    let (what, done) = match flush.list {
        None if flush.non_global_only => (NON_GLOBAL, 0),
        None => (EVERYTHING, 0),
        Some(list) => {
            let count = (list.end - list.first).min(ENTRIES);
            for (index, entry) in my.entries.iter().enumerate().take(count) {
                entry.store(read(list.word + index), Relaxed);
            }
            my.count.store(count, Relaxed);
            (PAGES, list.first + count)
        }
    };
    my.what.store(what, Relaxed);
    let named = |cpu: &usize| flush.processors.contains(vp_index(*cpu));
    let mut others = 0_u64;
    for cpu in (0..smp::cpus()).filter(named) {
        if cpu == me {
            my.perform();
        } else {
            others |= 1 << cpu;
        }
    }
    // The operands come before, and so do the guest's changes of page tables.
    my.pending.store(others, SeqCst);
    apic::send_nmi((0..smp::cpus()).filter(|cpu| others & 1 << cpu != 0));
    // Acquire: what others have dropped is dropped. They answer NMIs, as this CPU does.
    while my.pending.load(Acquire) != 0 {
        spin_loop();
    }
    Status::Success.result(done)
}
