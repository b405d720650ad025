//! [`Space`]: one address space as the flusher knows it.

use core::sync::atomic::{AtomicU64 as NativeU64, Ordering::Relaxed as NativeRelaxed};

use crate::{
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Release, SeqCst},
        const_unless_loom, fence,
    },
    cpus::CpuMask,
    domain::Domain,
    private::Private,
    slot::Loaded,
};

/// Ids are never reused: a slot that remembers one can't take a new space for an old one. 63 bits,
/// since the sign says how it is loaded.
static NEXT_ID: NativeU64 = NativeU64::new(Loaded::FIRST_ID);

/// An address space: its id, its root table, its generation, and the set of CPUs that may hold its translations.
///
/// Made by a flusher's `space`, used with that flusher only, and never dropped before the flusher's `retire` has
/// said `Ok`: dropping a space that may still be loaded stops the program.
///
/// `W` is the number of 64-CPU words, as for the flusher.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Space<const W: usize = 1> {
    /// With the three words below it fills the cache line that a serving CPU and a switch read.
    pub(crate) domain: Domain,
    pub(crate) id: u64,
    pub(crate) root: u64,
    /// A hardware tag that is the same on all CPUs: on arm64 the generation and the ASID, on x86_64 the global PCID and
    /// its state; 0 if it has none.
    pub(crate) tag: AtomicU64,
    /// The CPUs that may hold translations of this space: set by each CPU when it loads the space, cleared by
    /// the CPU itself when it is asked to trim.
    pub(crate) cpus: CpuMask<W>,
    /// arm64: who runs the space, see `aarch64::policy`.
    pub(crate) active: AtomicU64,
    /// Open gathers.
    pub(crate) gathers: AtomicU64,
    /// Trim requests in mailboxes, which hold this space's address.
    pub(crate) trims: AtomicU64,
    /// CPUs that flushes of this space found away since the last trim; a hint, so updates may get lost.
    pub(crate) away: Private,
}

/// The bits of `active` that are not 0 while a CPU runs the space.
pub(crate) const ACTIVE_CPUS: u64 = u32::MAX as u64;
/// The bit of `active` that says that a device uses the space: its hardware tag is pinned.
const SHARED: u64 = 1 << 63;

impl<const W: usize> Space<W> {
    const_unless_loom! {
        fn with_id(id: u64, root: u64) -> Self {
            Self {
                domain: Domain::new(),
                id,
                root,
                tag: AtomicU64::new(0),
                cpus: CpuMask::new(),
                active: AtomicU64::new(0),
                gathers: AtomicU64::new(0),
                trims: AtomicU64::new(0),
                away: Private::new(0),
            }
        }
    }

    pub(crate) fn new(root: u64) -> Self {
        Self::with_id(NEXT_ID.fetch_add(1, NativeRelaxed), root)
    }

    /// The id, unique among all spaces of this program for all time.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The physical address of the root table, as given to the flusher's `space`.
    pub const fn root(&self) -> u64 {
        self.root
    }

    /// The hardware tag, where the architecture has one for a space on all CPUs: the ASID on arm64, which changes at
    /// rollovers unless the space is shared with a device; on x86_64 the global PCID, which some CPUs may not use yet.
    /// 0 if the space has none (yet).
    pub fn tag(&self) -> u16 {
        self.tag.load(Acquire) as u16
    }

    /// Whether the space has retired.
    pub fn is_retired(&self) -> bool {
        self.domain.is_retired()
    }

    /// Whether a [`Gather`](crate::Gather) has begun to change this space's tables and has not yet flushed.
    ///
    /// Whoever finds an entry already cleared and relies on its translation being gone asks this, after reading
    /// the entry: if true, the translation may still be in some TLB, and the caller must flush itself
    /// before it relies on it: as [freed tables](crate::Request::tables_freed) if the entry was that of a table, for a
    /// flush of pages need not reach paging-structure caches (`TLBI VALE1IS`, a hypervisor's list of addresses).
    pub fn flush_pending(&self) -> bool {
        // gatherer                     caller
        // gathers += 1                 reads the entry: cleared
        // release fence                acquire fence
        // clears the entry             reads gathers: not 0, unless the flush is complete
        fence(Acquire);
        self.gathers.load(Acquire) != 0
    }

    /// Whether a device uses the space.
    pub(crate) fn is_shared(&self) -> bool {
        self.active.load(Acquire) & SHARED != 0
    }

    /// Notes that a device uses the space.
    pub(crate) fn share(&self) {
        self.active.fetch_or(SHARED, SeqCst);
    }

    /// Marks the space before a gather's first page-table change. Gives how many gathers were open.
    pub(crate) fn open_gather(&self) -> u64 {
        let open = self.gathers.fetch_add(1, SeqCst);
        // A locked instruction on arm64 does not order its own store before a later plain one; pairs with the fence in
        // `flush_pending`.
        fence(Release);
        open
    }

    /// How many gathers are open, the caller's own included.
    pub(crate) fn open_gathers(&self) -> u64 {
        // An entry that this gather found cleared comes before, as in `flush_pending`.
        fence(Acquire);
        self.gathers.load(Acquire)
    }

    /// Takes the mark back once the flush is complete.
    pub(crate) fn close_gather(&self) {
        self.gathers.fetch_sub(1, Release);
    }
}

impl<const W: usize> Drop for Space<W> {
    fn drop(&mut self) {
        // A mask bit may stand for a CPU that has the space loaded, and a trim request holds its address. Both are
        // gone once `retire` has said `Ok`.
        let in_use = self.active.load(Acquire) & ACTIVE_CPUS != 0;
        if in_use || !self.cpus.is_empty() || self.trims.load(Acquire) != 0 {
            let id = self.id;
            let _abort = AbortOnUnwind;
            panic!("shootdown: space {id} was dropped but not retired: call `retire` first");
        }
    }
}

/// Turns a panic into an abort: the space's memory must not be reused, even where panics unwind.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        panic!("shootdown: stopping, since the memory of a loaded space must not be reused");
    }
}
