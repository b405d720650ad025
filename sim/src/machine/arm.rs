//! arm64's instructions on the simulated machine (Arm ARM, "TLB maintenance" and "Synchronization and memory
//! barriers").
//!
//! What is issued takes effect at any step until the barrier that orders it: page-table stores until DSB ISHST, TLBIs
//! on each CPU until the issuer's DSB of their domain, TTBR0 until ISB.

use shootdown::aarch64::{Instructions, Tlbi};

use super::{
    Machine, Mode,
    current::with,
    invlpgb::Named,
    part::part,
    scheduler::point,
    stores::EntryStore,
    tlbi::{decode, drops},
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
        /// A barrier has waited for it when its CPU had issued so many broadcasts, which on parts that must repeat does not
        /// suffice.
        awaited: Option<u64>,
    },
    /// x86: an INVLPGB that one CPU has not done.
    Invlpgb { named: Named, target: usize },
}

impl Issued {
    pub(crate) fn as_store(&self) -> Option<&EntryStore> {
        match self {
            Self::Store(store) => Some(store),
            Self::Tlbi { .. } | Self::Invlpgb { .. } => None,
        }
    }
}

impl Machine {
    fn tlbi(&mut self, operation: Tlbi, operand: u64) {
        let cpu = self.current;
        self.note(|_| format!("tlbi {operation:?} {operand:#x}"));
        if let Err(message) = decode(operation, operand, self.part) {
            return self.fail(message);
        }
        self.cpus[cpu].broadcasts += u64::from(operation.is_broadcast());
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
                awaited: None,
            });
        }
    }

    /// Something that `cpu` has issued takes effect.
    pub(crate) fn take_effect(&mut self, cpu: usize, which: usize) {
        self.tally.effects += 1;
        let it = &self.cpus[cpu];
        let (count, roots) = (it.issued.len(), usize::from(it.next_root.is_some()));
        let which = which % (count + roots + usize::from(it.next_ttbr1.is_some())).max(1);
        if which < count {
            let issued = self.cpus[cpu].issued.remove(which);
            self.complete(cpu, issued);
        } else if which < count + roots {
            self.load_next_root(cpu);
        } else {
            self.load_next_ttbr1(cpu);
        }
    }

    pub(crate) fn complete(&mut self, cpu: usize, issued: Issued) {
        match issued {
            Issued::Invlpgb { named, target } => self.complete_invlpgb(cpu, target, &named),
            Issued::Store(store) => self.walkers_see(cpu, &store),
            Issued::Tlbi {
                operation,
                operand,
                target,
                ..
            } => {
                let Ok(named) = decode(operation, operand, self.part) else {
                    return;
                };
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
        let bit = 1_u64 << self.current;
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
            self.judge_loaded(cpu);
            self.oracle_judges_presence(cpu);
        }
    }

    fn load_next_ttbr1(&mut self, cpu: usize) {
        if let Some(value) = self.cpus[cpu].next_ttbr1.take() {
            self.note_for(cpu, |_| format!("  ttbr1 = {value:#x} takes effect"));
            self.cpus[cpu].ttbr1 = value;
            self.judge_loaded(cpu);
            self.oracle_judges_presence(cpu);
        }
    }

    /// A DSB ISH of `cpu`. On parts that must repeat, an invalidation on another CPU is complete only once a later one
    /// was waited for as well.
    fn complete_shareable(&mut self, cpu: usize) {
        let repeat = self.part.repeat;
        let remote =
            |issued: &Issued| matches!(issued, Issued::Tlbi { target, .. } if *target != cpu);
        let now = self.cpus[cpu].broadcasts;
        self.complete_where(cpu, |issued| match issued {
            Issued::Tlbi { awaited, .. } if repeat && remote(issued) => {
                awaited.is_some_and(|then| then < now)
            }
            _ => true,
        });
        for issued in &mut self.cpus[cpu].issued {
            if let Issued::Tlbi { awaited, .. } = issued {
                awaited.get_or_insert(now);
            }
        }
    }

    /// A context synchronization event: ISB, exception entry and return.
    pub(crate) fn synchronize_context(&mut self, cpu: usize) {
        if self.mode == Mode::Arm {
            self.load_next_root(cpu);
            self.load_next_ttbr1(cpu);
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
            m.complete_shareable(cpu);
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

    fn id_aa64mmfr2() -> u64 {
        part().id_aa64mmfr2()
    }

    fn id_aa64isar0() -> u64 {
        part().id_aa64isar0()
    }

    fn midr() -> u64 {
        part().midr()
    }

    fn read_ttbr1() -> u64 {
        with(|m| {
            let it = &m.cpus[m.current];
            // A CPU sees what it has written itself.
            it.next_ttbr1.unwrap_or(it.ttbr1)
        })
    }

    unsafe fn write_ttbr1(value: u64) {
        point();
        with(|m| {
            let cpu = m.current;
            m.load_next_ttbr1(cpu);
            m.note(|_| format!("msr ttbr1 = {value:#x}"));
            if (value ^ m.cpus[cpu].ttbr1) & ROOT_MASK != 0 {
                m.fail(String::from("the root in TTBR1 is changed"));
            }
            m.cpus[cpu].next_ttbr1 = Some(value);
        });
    }

    fn tcr() -> u64 {
        part().tcr()
    }
}
