//! arm64 CPUs with TLBs that keep ASIDs apart: for the allocator and for local flushes.
//!
//! A walk and a broadcast invalidation of the same CPU follow each other: one that comes later sees the page-table stores
//! before the other's barrier. The barriers are fences, of which DSB ISHST is the weaker one.

use std::sync::atomic::{AtomicU64 as Private, Ordering::Relaxed};

use loom::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Release, SeqCst},
    fence,
};
use shootdown::{
    Granule, Paging, Space,
    aarch64::{Config, Instructions, Tlb, Tlbi, policy::Policy},
};

use crate::{
    explore::STALE,
    machine::{current_cpu, on},
    platform::{CPUS, Kernel},
};

/// Two CPUs run two spaces by the same ASID.
pub const ALIAS: &str = "an ASID has entries of two spaces";

/// The root without user mappings.
const RESERVED: u64 = 0x1000;
/// ASIDs: one reserved, one for each CPU, and one to spare.
const ASIDS: usize = CPUS + 2;
/// An entry that maps the first frame.
const OLD: u64 = 1;
/// An entry that does not map it any more.
const NEW: u64 = 2;

/// A flusher of the policy `M`.
pub type Flusher<M> = Tlb<Kernel, M, Model, 1, 1>;

/// A flusher with as few ASIDs as there may be.
pub fn flusher<M: Policy>() -> Flusher<M> {
    set_up(config())
}

/// As [`flusher`], with so many rollovers until the last ASID generation.
pub fn flusher_near_the_end<M: Policy>(left: u64) -> Flusher<M> {
    set_up(config().generations_left(left))
}

fn config() -> Config {
    Config::new(Paging::arm64(Granule::Size4K), RESERVED).asid_limit(ASIDS as u64)
}

fn set_up<M: Policy>(config: Config) -> Flusher<M> {
    let flusher = Flusher::new();
    flusher.init(config).unwrap();
    flusher
}

/// A CPU. All but the count of invalidations is private to it and to what hardware does to it.
struct Cpu {
    ttbr0: Private,
    /// The root that each ASID's entries are of; 0 where there are none.
    owners: [Private; ASIDS],
    /// The page's translation by each ASID, 0 if there is none.
    cached: [Private; ASIDS],
    invalidations: AtomicU64,
}

struct Machine {
    cpus: [Cpu; CPUS],
    /// The page of the space that is flushed.
    entry: AtomicU64,
    /// Not 0 once its first frame is reused.
    frame: AtomicU64,
}

loom::lazy_static! {
    static ref MACHINE: Machine = Machine {
        cpus: std::array::from_fn(|_| Cpu {
            ttbr0: Private::new(RESERVED),
            owners: Default::default(),
            cached: Default::default(),
            invalidations: AtomicU64::new(0),
        }),
        entry: AtomicU64::new(OLD),
        frame: AtomicU64::new(0),
    };
}

impl Cpu {
    fn asid(&self) -> usize {
        (self.ttbr0.load(Relaxed) >> 48) as usize
    }

    fn root(&self) -> u64 {
        self.ttbr0.load(Relaxed) & 0xffff_ffff_ffff
    }

    fn drop_asid(&self, asid: usize) {
        self.owners[asid].store(0, Relaxed);
        self.cached[asid].store(0, Relaxed);
    }

    fn drop_all(&self) {
        (0..ASIDS).for_each(|asid| self.drop_asid(asid));
    }
}

fn me() -> &'static Cpu {
    &MACHINE.cpus[current_cpu()]
}

/// Uses the space that this CPU has loaded: nothing of another one may stand under its ASID.
pub fn run() {
    let cpu = me();
    let owner = &cpu.owners[cpu.asid()];
    let before = owner.swap(cpu.root(), Relaxed);
    assert!(
        before == 0 || before == cpu.root(),
        "{ALIAS}: {} on CPU {}",
        cpu.asid(),
        current_cpu()
    );
}

/// No two CPUs have different spaces loaded by one ASID, nor one space by two.
pub fn compare(first: usize, second: usize) {
    let (first, second) = (&MACHINE.cpus[first], &MACHINE.cpus[second]);
    assert!(
        (first.root() == second.root()) == (first.asid() == second.asid()),
        "{ALIAS}: {}",
        first.asid()
    );
}

/// Reads through the page.
pub fn access() {
    let cpu = me();
    let cached = &cpu.cached[cpu.asid()];
    while cached.load(Relaxed) == 0 {
        let before = cpu.invalidations.fetch_add(0, AcqRel);
        let entry = MACHINE.entry.load(Relaxed);
        // A walk that an invalidation overtakes leaves nothing.
        if cpu.invalidations.fetch_add(0, AcqRel) == before {
            cached.store(entry, Relaxed);
        }
    }
    if cached.load(Relaxed) == OLD {
        let reused = MACHINE.frame.load(Relaxed) != 0;
        // An invalidation waits for accesses under way: one that came meanwhile came after this access.
        let overtaken = cached.load(Relaxed) == 0;
        assert!(!reused || overtaken, "{STALE} on CPU {}", current_cpu());
    }
}

/// Clears the page's entry.
pub fn change() {
    MACHINE.entry.store(NEW, Relaxed);
}

/// Reuses the page's first frame: its flush is complete.
pub fn reuse() {
    MACHINE.frame.store(1, Relaxed);
}

/// Loads `space` on this CPU.
pub fn switch<M: Policy>(flusher: &Flusher<M>, space: &Space) {
    use shootdown::TlbFlusher;
    // SAFETY: no tables translate anything here, and the space lives as long as the execution.
    unsafe { flusher.switch(space) }
}

/// Unloads what this CPU has loaded.
pub fn unload<M: Policy>(flusher: &Flusher<M>) {
    use shootdown::TlbFlusher;
    // SAFETY: no tables translate anything here.
    unsafe { flusher.unload() }
}

/// Brings the first `cpus` CPUs online.
pub fn boot<M: Policy>(flusher: &Flusher<M>, cpus: usize) {
    use shootdown::TlbFlusher;
    for cpu in 0..cpus {
        on(cpu, || flusher.online().unwrap());
    }
}

/// The instructions.
#[derive(Debug)]
pub struct Model;

// SAFETY: each does to the model's TLBs at least what its name says.
unsafe impl Instructions for Model {
    fn tlbi(operation: Tlbi, operand: u64) {
        let asid = (operand >> 48) as usize;
        let drop = |cpu: &Cpu| match operation {
            Tlbi::Vmalle1 | Tlbi::Vmalle1Is => cpu.drop_all(),
            _ => cpu.drop_asid(asid),
        };
        if !operation.is_broadcast() {
            return drop(me());
        }
        for cpu in &MACHINE.cpus {
            cpu.invalidations.fetch_add(1, AcqRel);
            drop(cpu);
        }
    }

    fn dsb_ishst() {
        fence(Release);
    }

    fn dsb_ish() {
        fence(SeqCst);
    }

    fn dsb_nsh() {}

    fn isb() {}

    unsafe fn write_ttbr0(value: u64) {
        me().ttbr0.store(value, Relaxed);
    }

    fn regime() -> (u8, u64) {
        (1, 0)
    }

    fn id_aa64mmfr0() -> u64 {
        0
    }

    fn id_aa64mmfr2() -> u64 {
        0
    }

    fn id_aa64isar0() -> u64 {
        0
    }

    fn midr() -> u64 {
        0
    }

    fn read_ttbr1() -> u64 {
        0
    }

    unsafe fn write_ttbr1(_: u64) {}

    fn tcr() -> u64 {
        // TG1: 4 KiB.
        0b10 << 30
    }
}
