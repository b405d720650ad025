//! [`CpuSlot`]: the flusher's memory for one CPU.
//!
//! ```text
//! line 0  seen      written by the owner, read by initiators: loaded space, its generation, the kernel's
//! line 1  mail      written by initiators, taken by the owner: a request is pending, trim request
//! line 2+ own       private to the owner: hardware tags, a pointer to the loaded space
//! line 4+ counters  private to the owner
//! ```

use crate::{
    atomic::{AtomicU64, const_unless_loom},
    counters::CpuCounters,
    private::{Private, PrivatePtr},
};

/// What a CPU has loaded: one word that others read.
///
/// A space is named by its id, never by its address, so that a waiter that looks at a CPU late can't take a new space
/// for an old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loaded(pub(crate) u64);

impl Loaded {
    /// Not online. Zero, so that a CPU that never called `online` is found out.
    pub(crate) const OFFLINE: Self = Self(0);
    /// Between two spaces: counts as a target of any flush (invariant 7).
    pub(crate) const SWITCHING: Self = Self(1);
    /// No space; kernel mappings only.
    pub(crate) const KERNEL: Self = Self(2);
    /// Ids of spaces begin here: a space in use is named by its id as it is.
    pub(crate) const FIRST_ID: u64 = 3;
    /// The sign, so that one comparison finds a space in use.
    const LAZY: u64 = 1 << 63;

    #[inline(always)]
    pub(crate) const fn used(id: u64) -> Self {
        Self(id)
    }

    /// The space is loaded but not used: its entries are skipped until the CPU leaves lazy mode.
    pub(crate) const fn lazy(id: u64) -> Self {
        Self(id | Self::LAZY)
    }

    #[inline(always)]
    pub(crate) const fn is_space(self) -> bool {
        self.0 & !Self::LAZY >= Self::FIRST_ID
    }

    #[inline(always)]
    pub(crate) const fn is_used(self) -> bool {
        self.0 as i64 >= Self::FIRST_ID as i64
    }

    #[inline(always)]
    pub(crate) const fn as_lazy(self) -> Self {
        Self(self.0 | Self::LAZY)
    }

    /// The id of the loaded space, 0 if there is none.
    #[inline(always)]
    pub(crate) const fn id(self) -> u64 {
        self.0 & !Self::LAZY
    }
}

/// Written by the owner only, read by initiators.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Seen {
    /// A [`Loaded`].
    pub(crate) loaded: AtomicU64,
    /// The generation of the loaded space that this CPU's TLB has caught up with.
    pub(crate) generation: AtomicU64,
    /// The kernel's generation that this CPU's TLB has caught up with.
    pub(crate) kernel_generation: AtomicU64,
    /// The address of the flusher that this CPU is online in, 0 if it is not. A second flusher on the same platform would
    /// take the first one's state for its own.
    pub(crate) flusher: Private,
    /// The owner's bit in its word of a mask.
    pub(crate) bit: Private,
    /// In CPU 0's slot: the address of the only flusher that CPUs may come online in.
    pub(crate) claim: Private,
}

/// Bits of [`Mail::pending`], from a request until the owner begins to serve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked;

impl Asked {
    /// An interrupt is on its way, or is about to be sent: whoever finds this need not interrupt.
    pub(crate) const INTERRUPT: u64 = 1 << 0;
    /// There is more to look after than the loaded space: the kernel's mappings, or a trim request.
    pub(crate) const MORE: u64 = 1 << 1;
}

/// Written by initiators, taken by the owner.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Mail {
    /// What the owner is asked to look after, see [`Asked`].
    pub(crate) pending: AtomicU64,
    /// The address of a space whose mask bit the owner is asked to clear, or 0.
    pub(crate) trim: AtomicU64,
    /// arm64: the tag (generation and ASID) that the owner runs; 0 after a rollover.
    pub(crate) active_asid: AtomicU64,
    /// arm64: the tag that the owner ran at the last rollover. Used under the allocator's lock.
    pub(crate) reserved_asid: AtomicU64,
    /// A counter of the owner's, so rare that it may stand on this line: see
    /// [`Counters::host_refusals`](crate::Counters::host_refusals).
    pub(crate) host_refusals: Private,
}

/// How many words a backend has for itself in each slot.
pub(crate) const OWN_WORDS: usize = 15;

/// The flusher's memory for one CPU, at most 384 bytes, counters included. The platform places it: best in the
/// CPU's own memory.
///
/// ```
/// use shootdown::CpuSlot;
///
/// static SLOTS: [CpuSlot; 4] = [const { CpuSlot::new() }; 4];
/// # assert!(size_of_val(&SLOTS[0]) <= 384);
/// ```
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CpuSlot {
    pub(crate) seen: Seen,
    pub(crate) mail: Mail,
    pub(crate) own: [Private; OWN_WORDS],
    /// The loaded space; valid while `seen.loaded` names one.
    pub(crate) space: PrivatePtr,
    pub(crate) counters: CpuCounters,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<CpuSlot>() <= 384, "at most 384 bytes a CPU");

impl CpuSlot {
    const_unless_loom! {
        /// A slot of a CPU that is not online.
        #[allow(clippy::new_without_default)]
        pub fn new() -> Self {
            Self {
                seen: Seen {
                    loaded: AtomicU64::new(Loaded::OFFLINE.0),
                    generation: AtomicU64::new(0),
                    kernel_generation: AtomicU64::new(0),
                    flusher: Private::new(0),
                    bit: Private::new(0),
                    claim: Private::new(0),
                },
                mail: Mail {
                    pending: AtomicU64::new(0),
                    trim: AtomicU64::new(0),
                    active_asid: AtomicU64::new(0),
                    reserved_asid: AtomicU64::new(0),
                    host_refusals: Private::new(0),
                },
                own: [const { Private::new(0) }; OWN_WORDS],
                space: PrivatePtr::null(),
                counters: CpuCounters::new(),
            }
        }
    }
}
