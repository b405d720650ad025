//! What the flusher counts. Each CPU counts in its own slot; a total is the sum over all CPUs.

use core::ops::AddAssign;

use crate::private::Private;

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// One CPU's counters.
        #[derive(Debug)]
        pub(crate) struct CpuCounters { $(pub(crate) $name: Private,)* }

        impl CpuCounters {
            pub(crate) const fn new() -> Self {
                Self { $($name: Private::new(0),)* }
            }

            /// The figures as they stand; those of another CPU may change while they are read.
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.get(),)* }
            }
        }

        /// What was counted since boot: of one CPU, or of all.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[non_exhaustive]
        pub struct Counters { $($(#[$meta])* pub $name: u64,)* }

        impl AddAssign for Counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
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
    /// Flushes that needed no instruction: no CPU had the space loaded.
    elided_unused,
    /// Flushes of freed tables or changed attributes that stayed on this CPU.
    local_tables,
    /// Times this CPU dropped single pages for a flush, its own or another's.
    served_partial,
    /// Times this CPU dropped everything of a scope for a flush, its own or another's.
    served_full,
    /// Switches to another space.
    switches,
    /// Switches that had to drop the space's old entries.
    switches_flushed,
}

impl Counters {
    /// Interrupts that were not sent, for whichever reason.
    pub const fn ipis_elided(&self) -> u64 {
        self.elided_lazy + self.elided_away + self.elided_pending
    }
}
