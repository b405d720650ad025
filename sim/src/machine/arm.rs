//! arm64's instructions on the simulated machine (Arm ARM, "TLB maintenance" and "Synchronization and memory
//! barriers").
//!
//! What is issued takes effect at any step until the barrier that orders it: page-table stores until DSB ISHST, TLBIs
//! on each CPU until the issuer's DSB of their domain, TTBR0 until ISB.

use shootdown::aarch64::{Instructions, Tlbi};

use super::{
    Machine, Mode,
    current::with,
    scheduler::point,
    stores::EntryStore,
    tlb::{Entry, Kind},
};

/// TTBR0's root address.
pub(crate) const ROOT_MASK: u64 = 0x0000_ffff_ffff_f000;

/// The simulated arm64 CPU.
#[derive(Debug)]
pub struct Arm;

/// Something that was issued and has not taken effect.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Issued {
    /// A page-table store that table walkers do not see.
    Store(EntryStore),
    /// An invalidation that one CPU has not done.
    Tlbi {
        operation: Tlbi,
        operand: u64,
        target: usize,
    },
}

impl Issued {
    pub(crate) fn as_store(&self) -> Option<&EntryStore> {
        match self {
            Self::Store(store) => Some(store),
            Self::Tlbi { .. } => None,
        }
    }
}

/// What a TLBI names.
#[derive(Clone, Copy, Debug)]
struct Named {
    address: u64,
    asid: u16,
    /// The level that the leaf entry is at, if the operand tells.
    leaf: Option<Kind>,
}

fn decode(operand: u64) -> Result<Named, String> {
    let page = operand & 0xfff_ffff_ffff;
    // Address bits 55:12; bit 55 tells the half.
    let address = ((page << 20) as i64 >> 8) as u64;
    let leaf = match operand >> 44 & 0xf {
        0..=3 => None,
        0b0111 => Some(Kind::Page),
        0b0110 => Some(Kind::Large),
        other => {
            return Err(format!(
                "TLBI with level hint {other:#06b}, which no entry of a 4 KiB granule here has"
            ));
        }
    };
    Ok(Named {
        address,
        asid: (operand >> 48) as u16,
        leaf,
    })
}

/// Whether a TLBI drops `entry`.
fn drops(operation: Tlbi, named: &Named, entry: &Entry) -> bool {
    let last_level_only = matches!(operation, Tlbi::Vale1Is | Tlbi::Vaale1Is);
    let any_asid = matches!(operation, Tlbi::Vaae1Is | Tlbi::Vaale1Is | Tlbi::Vaae1);
    match operation {
        Tlbi::Vmalle1Is | Tlbi::Vmalle1 => true,
        Tlbi::Aside1Is => !entry.global && entry.tag == named.asid,
        _ if !entry.covers(named.address) => false,
        _ if entry.kind.is_leaf() => {
            (any_asid || entry.serves(named.asid))
                && named.leaf.is_none_or(|leaf| leaf == entry.kind)
        }
        _ => !last_level_only && (any_asid || !entry.global && entry.tag == named.asid),
    }
}

impl Machine {
    fn tlbi(&mut self, operation: Tlbi, operand: u64) {
        let cpu = self.current;
        self.note(|_| format!("tlbi {operation:?} {operand:#x}"));
        if let Err(message) = decode(operand) {
            return self.fail(message);
        }
        let targets = if operation.is_broadcast() {
            0..self.cpus.len()
        } else {
            cpu..cpu + 1
        };
        for target in targets {
            self.cpus[cpu].issued.push(Issued::Tlbi {
                operation,
                operand,
                target,
            });
        }
    }

    /// Something that `cpu` has issued takes effect.
    pub(crate) fn take_effect(&mut self, cpu: usize, which: usize) {
        self.tally.effects += 1;
        let count = self.cpus[cpu].issued.len();
        let which = which % (count + usize::from(self.cpus[cpu].next_root.is_some())).max(1);
        if which < count {
            let issued = self.cpus[cpu].issued.remove(which);
            self.complete(cpu, issued);
        } else {
            self.load_next_root(cpu);
        }
    }

    fn complete(&mut self, cpu: usize, issued: Issued) {
        match issued {
            Issued::Store(store) => self.walkers_see(cpu, &store),
            Issued::Tlbi {
                operation,
                operand,
                target,
            } => {
                let Ok(named) = decode(operand) else { return };
                let own = target == cpu;
                if !own && !self.cpus[target].listens {
                    return;
                }
                self.note_for(target, |_| {
                    format!("  tlbi {operation:?} {operand:#x} is done")
                });
                let tlb = &mut self.cpus[target].tlb;
                if own {
                    let fetched = tlb.entries.iter().filter(|entry| {
                        entry.scope == 0 && entry.kind.is_leaf() && drops(operation, &named, entry)
                    });
                    tlb.fetched.extend(fetched.copied());
                } else {
                    tlb.fetched.retain(|entry| !drops(operation, &named, entry));
                }
                tlb.drop_where(|entry| drops(operation, &named, entry));
            }
        }
    }

    /// Everything that `cpu` has issued and for which `done` holds takes effect.
    fn complete_where(&mut self, cpu: usize, done: impl Fn(&Issued) -> bool) {
        let (now, later) = core::mem::take(&mut self.cpus[cpu].issued)
            .into_iter()
            .partition(done);
        self.cpus[cpu].issued = later;
        let now: Vec<Issued> = now;
        for issued in now {
            self.complete(cpu, issued);
        }
    }

    /// A page-table store that is under way is overtaken by another one to the same place: it takes effect first.
    pub(crate) fn settle_entry(&mut self, table: u16, index: usize) {
        for cpu in 0..self.cpus.len() {
            self.complete_where(cpu, |issued| {
                issued
                    .as_store()
                    .is_some_and(|store| (store.table, store.index) == (table, index))
            });
        }
    }

    /// The running CPU reads a page-table entry, perhaps one that table walkers do not see yet.
    pub(crate) fn observe_entry(&mut self, table: u16, index: usize) {
        let bit = 1 << self.current;
        for issued in self.cpus.iter_mut().flat_map(|cpu| &mut cpu.issued) {
            if let Issued::Store(store) = issued
                && (store.table, store.index) == (table, index)
            {
                store.observers |= bit;
            }
        }
    }

    /// The page-table stores that a DSB of the running CPU orders take effect: its own, and those that it has read
    /// (Arm ARM, "Data Synchronization Barrier": accesses that the PE has observed).
    fn complete_stores(&mut self) {
        let current = self.current;
        for cpu in 0..self.cpus.len() {
            self.complete_where(cpu, |issued| {
                issued
                    .as_store()
                    .is_some_and(|store| cpu == current || store.observers >> current & 1 != 0)
            });
        }
    }

    fn load_next_root(&mut self, cpu: usize) {
        if let Some(root) = self.cpus[cpu].next_root.take() {
            self.note_for(cpu, |_| format!("  ttbr0 = {root:#x} takes effect"));
            self.cpus[cpu].root = root;
            self.oracle_judges_presence(cpu);
        }
    }

    /// A context synchronization event: ISB, exception entry and return.
    pub(crate) fn synchronize_context(&mut self, cpu: usize) {
        if self.mode == Mode::Arm {
            self.load_next_root(cpu);
            self.cpus[cpu].tlb.fetched.clear();
        }
    }
}

// SAFETY: each function does on the simulated CPU what its name says; the machine acts on nothing of the host's.
unsafe impl Instructions for Arm {
    fn tlbi(operation: Tlbi, operand: u64) {
        point();
        with(|m| m.tlbi(operation, operand));
    }

    fn dsb_ishst() {
        point();
        with(|m| {
            let cpu = m.current;
            m.note(|_| String::from("dsb ishst"));
            m.drain_all(cpu);
            m.complete_stores();
        });
    }

    fn dsb_ish() {
        point();
        with(|m| {
            let cpu = m.current;
            m.note(|_| String::from("dsb ish"));
            m.drain_all(cpu);
            m.complete_stores();
            m.complete_where(cpu, |_| true);
        });
    }

    fn dsb_nsh() {
        point();
        with(|m| {
            let cpu = m.current;
            m.note(|_| String::from("dsb nsh"));
            m.drain_all(cpu);
            m.complete_where(
                cpu,
                |issued| matches!(issued, Issued::Tlbi { target, .. } if *target == cpu),
            );
        });
    }

    fn isb() {
        point();
        with(|m| {
            let cpu = m.current;
            m.note(|_| String::from("isb"));
            m.synchronize_context(cpu);
        });
    }

    unsafe fn write_ttbr0(value: u64) {
        point();
        with(|m| {
            let cpu = m.current;
            m.load_next_root(cpu);
            m.note(|_| format!("msr ttbr0 = {value:#x}"));
            m.cpus[cpu].next_root = Some(value);
        });
    }

    fn regime() -> (u8, u64) {
        (1, 0)
    }

    fn id_aa64mmfr0() -> u64 {
        // 8-bit ASIDs.
        0
    }

    fn tcr() -> u64 {
        // 48-bit halves of 4 KiB granules, 8-bit ASIDs taken from TTBR0: T0SZ = T1SZ = 16, TG1 = 0b10.
        16 | 16 << 16 | 0b10 << 30
    }
}
