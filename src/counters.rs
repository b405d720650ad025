//! What the flusher counts. Each CPU counts in its own slot; a total is the sum over all CPUs.

use core::ops::AddAssign;

use crate::{private::Private, slot::CpuSlot};

macro_rules! counters {
    (
        each {
            $($(#[$meta:meta])* $name:ident,)*
        }
        shared {
            $($(#[$arm_meta:meta])* arm64 $arm:ident or $(#[$x86_meta:meta])* x86 $x86:ident at $index:literal,)*
        }
        apart {
            $($(#[$apart_meta:meta])* $apart:ident,)*
        }
    ) => {
        /// One CPU's counters.
        #[derive(Debug)]
        pub(crate) struct CpuCounters {
            $(pub(crate) $name: Private,)*
            /// Each architecture counts something else here.
            shared: [Private; SHARED],
        }

        impl CpuCounters {
            pub(crate) const fn new() -> Self {
                Self {
                    $($name: Private::new(0),)*
                    shared: [const { Private::new(0) }; SHARED],
                }
            }

            $(
                #[inline(always)]
                pub(crate) fn $arm(&self) -> &Private {
                    &self.shared[$index]
                }

                #[inline(always)]
                pub(crate) fn $x86(&self) -> &Private {
                    &self.shared[$index]
                }
            )*

            /// The figures as they stand; those of another CPU may change while they are read.
            fn read(&self, architecture: Architecture) -> Counters {
                let arm = architecture == Architecture::Aarch64;
                Counters {
                    $($name: self.$name.get(),)*
                    $($arm: if arm { self.$arm().get() } else { 0 },)*
                    $($x86: if arm { 0 } else { self.$x86().get() },)*
                    $($apart: 0,)*
                }
            }
        }

        /// What was counted since boot: of one CPU, or of all.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$meta])* pub $name: u64,)*
            $($(#[$arm_meta])* pub $arm: u64, $(#[$x86_meta])* pub $x86: u64,)*
            $($(#[$apart_meta])* pub $apart: u64,)*
        }

        impl AddAssign for Counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
                $(self.$arm += other.$arm; self.$x86 += other.$x86;)*
                $(self.$apart += other.$apart;)*
            }
        }
    };
}

counters! {
    each {
        /// Flushes asked for, of spaces and of the kernel.
        flushes,
        /// Pages named by those of them that had a range.
        pages,
        /// Flushes that dropped everything of their scope.
        full,
        /// Flushes that needed no other CPU.
        local,
        /// Flushes that reached at least one other CPU.
        remote,
        /// Interrupts sent, one a target.
        ipis_sent,
        /// Interrupts not sent since the CPU was lazy.
        elided_lazy,
        /// Interrupts not sent since the CPU had another space loaded.
        elided_away,
        /// Interrupts not sent since the target already had one pending.
        elided_pending,
        /// Invalidations broadcast by hardware, one an instruction.
        broadcasts,
        /// Times this CPU dropped single pages for a flush, its own or another's.
        served_partial,
        /// Times this CPU dropped everything of a scope for a flush, its own or another's.
        served_full,
        /// Switches to another space.
        switches,
        /// Switches that had to drop the space's old entries.
        switches_flushed,
    }
    shared {
        /// arm64: flushes that needed no instruction: no CPU had the space loaded.
        arm64 elided_unused or
        /// x86_64: interrupts not sent since the hypervisor drops the CPU's entries: KVM before the vCPU runs again, Hyper-V
        /// by hypercall.
        x86 elided_by_host at 0,
        /// arm64: flushes of freed tables or changed attributes that stayed on this CPU.
        arm64 local_tables or
        /// x86_64: requests made of the hypervisor. KVM: vCPUs marked that were not marked yet (the byte `preempted` went
        /// from 1 to 3), so never more than [`elided_by_host`](Self::elided_by_host). Hyper-V: hypercalls, one an
        /// errand, whatever became of them.
        x86 host_requests at 1,
    }
    apart {
        /// x86_64: requests that the hypervisor did not take, so that interrupts were sent. KVM: vCPUs that came back just
        /// before they were marked. Hyper-V: hypercalls that failed.
        host_refusals,
    }
}

/// Whose counters stand in the shared words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// arm64's.
    Aarch64,
    /// x86_64's.
    X86,
}

const SHARED: usize = 2;

/// The counters in `slot`.
pub(crate) fn read(slot: &CpuSlot, architecture: Architecture) -> Counters {
    Counters {
        host_refusals: slot.mail.host_refusals.get(),
        ..slot.counters.read(architecture)
    }
}

impl Counters {
    /// Interrupts that were not sent, for whichever reason.
    pub const fn ipis_elided(&self) -> u64 {
        self.elided_lazy + self.elided_away + self.elided_pending + self.elided_by_host
    }
}
