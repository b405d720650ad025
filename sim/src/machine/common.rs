//! arm64: CPUs that may use each other's TLB entries (FEAT_TTCNP; Arm ARM, "Common not Private translations").
//!
//! A CPU with CnP set in a TTBR lets the others of its cluster use what it has cached through that TTBR, if theirs has CnP
//! set too. Software promises that an ASID means the same space on all of them.
//!
//! An invalidation that is not broadcast "affects only the TLBs for the PE" that executes it. Here that is taken at its
//! weakest: what another CPU of the cluster has cached stays there, and can be used.

use super::{
    Machine, Mode, layout,
    tlb::{Entry, Kind, oldest},
};

/// CnP in a TTBR.
pub(crate) const COMMON: u64 = 1 << 0;
/// So many CPUs are a cluster.
const CLUSTER: usize = 2;

impl Machine {
    /// Whether `cpu` shares what it caches of `address`.
    pub(crate) fn is_common(&self, cpu: usize, address: u64) -> bool {
        let it = &self.cpus[cpu];
        let ttbr = if address >> 63 != 0 {
            it.ttbr1
        } else {
            it.root
        };
        self.mode == Mode::Arm && ttbr & COMMON != 0
    }

    /// What others of its cluster have cached and `cpu` may use.
    fn borrowed(&self, cpu: usize) -> impl Iterator<Item = &Entry> {
        let first = cpu - cpu % CLUSTER;
        let last = (first + CLUSTER).min(self.cpus.len());
        let shares =
            self.is_common(cpu, 0) || self.is_common(cpu, layout::address(layout::USER_PAGES));
        let others = if shares { first..last } else { 0..0 };
        others
            .filter(move |other| *other != cpu && self.cpus[*other].listens)
            .flat_map(|other| &self.cpus[other].tlb.entries)
            .filter(move |entry| entry.common && self.is_common(cpu, entry.base))
    }

    /// All that `cpu` may use: what it has cached itself, and what others have for it.
    pub(crate) fn cached(&self, cpu: usize) -> impl Iterator<Item = &Entry> {
        let own = &self.cpus[cpu].tlb.entries;
        own.iter().chain(self.borrowed(cpu))
    }

    /// The translation of `address` that `cpu` has with `tag`; the oldest, if there are several.
    pub(crate) fn translation(&self, cpu: usize, tag: u16, address: u64) -> Option<Entry> {
        let hits = self
            .cached(cpu)
            .filter(|entry| entry.kind.is_leaf() && entry.serves(tag) && entry.covers(address));
        oldest(hits)
    }

    /// The table of `kind` for `address` that `cpu` has with `tag`.
    pub(crate) fn table(&self, cpu: usize, kind: Kind, tag: u16, address: u64) -> Option<Entry> {
        let hits = self
            .cached(cpu)
            .filter(|entry| entry.kind == kind && entry.serves(tag) && entry.covers(address));
        oldest(hits)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use shootdown::aarch64::{Instructions, Tlbi};

    use super::*;
    use crate::{
        chooser::Chooser,
        machine::{
            arm::Arm,
            current::Calls,
            part::{Part, set_part},
            physical::{self, LEAF},
            scheduler::run,
        },
    };

    /// Four CPUs have one space loaded, with CnP as the bits of `common` say. CPU 0 caches the page, then CPU `who` does `act`.
    /// Gives the CPUs that can use the translation.
    fn users(common: u64, who: usize, act: fn()) -> Vec<usize> {
        set_part(Part {
            common: true,
            ..Part::default()
        });
        let chooser = Chooser::replay(Default::default());
        let mut machine = Machine::new(Mode::Arm, &[0, 1, 2, 3], chooser, false);
        set_part(Part::default());
        let memory = &mut machine.memory;
        let (root, middle, table) = (memory.take_root(), memory.take(), memory.take());
        let frame = memory.take();
        memory.initialize(root, 0, physical::entry(middle, 0));
        memory.initialize(middle, 0, physical::entry(table, 0));
        memory.initialize(table, 0, physical::entry(frame, LEAF));
        for (number, cpu) in machine.cpus.iter_mut().enumerate() {
            cpu.listens = true;
            cpu.root = physical::physical_address(root) | 7 << 48 | common >> number & COMMON;
        }
        machine.fill(0, 0);
        let body = |cpu: usize| -> Box<dyn FnOnce()> {
            if cpu == who {
                Box::new(act)
            } else {
                Box::new(|| ())
            }
        };
        let calls = Calls {
            interrupt: Rc::new(|| ()),
            user_access_ok: Rc::new(|| false),
        };
        let machine = run(machine, calls, (0..4).map(body).collect());
        assert_eq!(machine.failure, None);
        (0..4)
            .filter(|cpu| machine.translation(*cpu, 7, 0).is_some())
            .collect()
    }

    #[test]
    fn entries_are_shared_in_the_cluster_by_cpus_that_both_say_so() {
        assert_eq!(users(0b1111, 0, || ()), [0, 1]);
        for only_one in [0b1110, 0b1101, 0b0000] {
            assert_eq!(users(only_one, 0, || ()), [0]);
        }
    }

    #[test]
    fn an_invalidation_that_is_not_broadcast_leaves_what_others_have_cached() {
        fn own() {
            Arm::tlbi(Tlbi::Aside1, 7 << 48);
            Arm::dsb_nsh();
        }
        assert_eq!(users(0b1111, 0, own), []);
        assert_eq!(users(0b1111, 1, own), [0, 1]);
        let everywhere = || {
            Arm::tlbi(Tlbi::Aside1Is, 7 << 48);
            Arm::dsb_ish();
        };
        assert_eq!(users(0b1111, 1, everywhere), []);
    }
}
