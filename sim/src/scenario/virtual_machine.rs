//! How the machine of a run is virtual, if it is, and what its guest does to be so.

use shootdown::x86_64::{
    Any, Broadcasting, Concurrent, Courier, Serial,
    hyperv::{HyperV, HyperVFeatures, enable_hypercalls, open_source_guest, vp_index},
    kvm::{Kvm, KvmFeatures, disable_steal_time, enable_steal_time},
};

use super::backend::{BackendKind, Setup};
use crate::{
    guest::{Guest, SimGuest, guest},
    machine::{
        current::with,
        hypervisor::{Hypervisor, Kind},
    },
    rng::Rng,
};

/// A virtual machine's set-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VirtualMachine {
    pub kind: Kind,
    /// Who is not reached otherwise is interrupted after the own TLB was flushed, not before.
    pub serial: bool,
    /// KVM: freed tables are left to the flush on entry.
    elide_freed: bool,
    /// Hyper-V: in which of a few ways virtual processors are numbered.
    numbering: usize,
}

/// Virtual-processor indices: in order, but not from 0; on both sides of a bank's end, with one CPU's where another's would
/// be without its bank; sparse.
const NUMBERINGS: [[u32; 16]; 3] = [
    [1, 2, 0, 4, 3, 5, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15],
    [64, 0, 63, 127, 1, 65, 62, 66, 2, 126, 3, 67, 4, 68, 5, 69],
    [
        7, 130, 64, 2, 193, 66, 1023, 71, 0, 512, 194, 700, 3, 4, 5, 6,
    ],
];

impl VirtualMachine {
    /// What a run of `backend` has.
    pub(crate) fn draw(backend: BackendKind, rng: &mut Rng) -> Option<Self> {
        let kind = match backend {
            BackendKind::Kvm => Kind::Kvm,
            BackendKind::HyperV => Kind::HyperV {
                banks: rng.chance(2, 3),
            },
            _ => return None,
        };
        Some(Self {
            kind,
            serial: rng.chance(1, 3),
            elide_freed: rng.chance(3, 4),
            numbering: rng.below(NUMBERINGS.len() as u32) as usize,
        })
    }

    /// The hypervisor, which knows the guest's memory.
    pub(crate) fn hypervisor(&self, cpus: usize, guest: &'static Guest) -> Hypervisor {
        let indices = NUMBERINGS[self.numbering][..cpus].to_vec();
        Hypervisor::new(self.kind, indices, &guest.steal, &guest.input)
    }
}

/// What the kernel does for its courier, beside configuring the flusher.
pub(crate) trait Host: Courier {
    /// Before any CPU is online.
    fn enable(&self, _setup: &Setup, _cpus: usize) {}
    /// On CPU `cpu` before it comes online.
    fn before_online(_cpu: usize) {}
    /// On CPU `cpu` after it has gone offline.
    fn after_offline(_cpu: usize) {}
}

impl Host for Serial {}

impl Host for Concurrent {}

impl Host for Broadcasting {}

impl Host for Any {}

impl<C: Courier> Host for Kvm<SimGuest, C> {
    fn enable(&self, setup: &Setup, cpus: usize) {
        let features = KvmFeatures {
            present: true,
            steal_time: true,
            flush_on_entry: true,
            realtime: false,
        };
        // A single CPU is told that it has nobody to mark.
        let _ = Self::enable(self, &features, cpus);
        let elide = setup.machine.is_some_and(|machine| machine.elide_freed);
        self.elide_freed_tables(elide);
    }

    fn before_online(cpu: usize) {
        let page = &guest().steal[cpu];
        // SAFETY: the simulated KVM offers steal time; a page's address is its physical address there.
        unsafe { enable_steal_time::<SimGuest>(page, core::ptr::from_ref(page) as u64) };
    }

    fn after_offline(cpu: usize) {
        // SAFETY: as above.
        unsafe { disable_steal_time::<SimGuest>(&guest().steal[cpu]) };
    }
}

impl<C: Courier> Host for HyperV<SimGuest, C> {
    fn enable(&self, setup: &Setup, cpus: usize) {
        let kind = setup.machine.map(|machine| machine.kind);
        let features = HyperVFeatures {
            present: true,
            hypercalls: true,
            vp_index: true,
            remote_flush: true,
            processor_sets: kind == Some(Kind::HyperV { banks: true }),
        };
        // As for KVM.
        let _ = Self::enable(self, &features, cpus);
    }

    fn before_online(cpu: usize) {
        // Whoever comes first sets the interface up; again is harmless.
        // SAFETY: the simulated Hyper-V offers hypercalls and indices; it writes nothing to its page.
        unsafe {
            if let Err(page) = enable_hypercalls::<SimGuest>(open_source_guest(2, 1, 0), 0x1000) {
                with(|m| m.fail(format!("the hypercall page is locked at {page:#x}")));
            }
            guest().know_index(cpu, vp_index::<SimGuest>());
        }
    }
}
