//! [`TlbFlusher`]: what every backend does, so that a kernel's memory code is written once.

use core::{fmt, ptr::NonNull};

use crate::{
    counters::{self, Architecture, Counters},
    error::{OnlineError, RetireError, SpaceError},
    paging::Paging,
    pending::Pending,
    platform::Platform,
    range::Range,
    request::Request,
    space::Space,
};

/// Which flush a change of one leaf entry needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Needed {
    /// None: no CPU can have cached anything that the change takes away.
    No,
    /// This CPU only, and only to spare it a spurious fault: the entry now permits more. Other CPUs that cached the
    /// old entry fault, find the fault spurious, and call [`TlbFlusher::flush_local`].
    Local,
    /// Every CPU: [`TlbFlusher::flush`].
    All,
}

/// What the CPU was doing when it entered lazy mode; given back to leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "give it back to `lazy_leave`, or end lazy mode by the next `switch`"]
pub struct Outer(pub(crate) OuterState);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OuterState {
    /// It used the space with this id.
    Used(u64),
    /// It was lazy already, or had no space.
    Idle,
}

/// What the CPU was doing when it began to wait; given back to end the wait, on the same CPU.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "give it back to `wait_leave`, or end the wait by the next `switch`"]
pub struct Waiting(pub(crate) Option<NonNull<()>>);

impl Waiting {
    /// It used no space, was lazy already, or need not be lazy.
    pub(crate) const NOT_LAZY: Self = Self(None);
}

/// Which scope a request is for.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a, const W: usize> {
    /// One space.
    Space(&'a Space<W>),
    /// The kernel's mappings, on every online CPU.
    Kernel,
}

/// TLB management of one machine: all backends of all architectures look like this.
///
/// # The contract
///
/// A flush *completes* when, from then on, (a) no instruction that retires on any CPU is translated by an entry made
/// before the caller's change to the page table, NMI handlers that asked [`user_access_ok`](Self::user_access_ok)
/// included; and (b) if the request says that tables were freed or attributes changed, or is for the kernel, no CPU
/// can use such an entry or paging-structure entry speculatively either. Frames, tables and virtual ranges may
/// be reused only after completion. Only the TLBs of CPUs are covered: IOMMUs, second-stage translations and
/// instruction caches are the caller's business.
///
/// # Waiting
///
/// The flusher never waits for a CPU without serving the requests addressed to itself, so two flushers never wait
/// for each other. A caller must not hold, across [`Pending::wait`], a lock for which another CPU spins with
/// interrupts off without calling [`poll`](Self::poll).
///
/// From NMI nothing but [`user_access_ok`](Self::user_access_ok) may be called.
pub trait TlbFlusher<const W: usize = 1>: Sized + Sync {
    /// The kernel's side.
    type Platform: Platform;

    /// What a flush must still do to complete. Building block of [`Pending`] and [`Batch`](crate::Batch).
    type Reach: fmt::Debug + Default;

    /// Whose counters it has.
    #[doc(hidden)]
    const ARCHITECTURE: Architecture;

    /// The layout of virtual addresses, for [`Range::new`].
    fn paging(&self) -> Paging;

    /// Makes a space whose root table is at the physical address `root`.
    ///
    /// # Errors
    ///
    /// See [`SpaceError`].
    fn space(&self, root: u64) -> Result<Space<W>, SpaceError>;

    /// Brings the CPU that calls it online: from now on kernel flushes reach it, and it may switch and flush. Drops
    /// everything from its TLB. Its flush interrupt must work once it turns interrupts on. The kernel's own root must
    /// be loaded.
    ///
    /// A platform serves one flusher.
    ///
    /// # Errors
    ///
    /// See [`OnlineError`]; the CPU stays offline then.
    fn online(&self) -> Result<(), OnlineError>;

    /// Takes the CPU that calls it offline: it loads the kernel's root, serves what is pending, and is never
    /// waited for again. Until it comes online again it may touch only kernel mappings that never change.
    ///
    /// # Panics
    ///
    /// If the CPU is not online.
    fn offline(&self);

    /// Loads `space` on this CPU, with the entries that are still valid, and ends lazy mode. Call it with the
    /// caller pinned or interrupts off.
    ///
    /// # Panics
    ///
    /// If the CPU is not online or the space has retired.
    ///
    /// # Safety
    ///
    /// The space's root table must map the code and the stack that run now, and go on to do so while it is
    /// loaded. So must the kernel's own root, which the flusher loads by itself where the space is not in use (in
    /// `lazy_enter`, `offline`, or when a request is served while lazy). `space` must stay where it is, alive, until
    /// [`retire`](Self::retire) has said `Ok`, and must have been made by this flusher.
    unsafe fn switch(&self, space: &Space<W>);

    /// Loads the kernel's own root on this CPU: no space is loaded then.
    ///
    /// # Panics
    ///
    /// If the CPU is not online.
    ///
    /// # Safety
    ///
    /// The kernel's root must map the code and the stack that run now.
    unsafe fn unload(&self);

    /// Says that this CPU will not use its space for now (idle, a kernel thread, halted in a lock). Flushes then skip
    /// it, and if tables are freed the space is unloaded. Nests. Lazy mode ends with
    /// [`lazy_leave`](Self::lazy_leave), or with the next [`switch`](Self::switch).
    fn lazy_enter(&self) -> Outer;

    /// Ends the lazy period that began with the `lazy_enter` that gave `outer`. If that was the outermost, this CPU
    /// uses `space` again, which it used before.
    ///
    /// An interrupt handler that, while the CPU is lazy, wants to touch user memory leaves first and enters again.
    ///
    /// # Panics
    ///
    /// If `space` is not the one that was used before, or has retired.
    ///
    /// # Safety
    ///
    /// As for [`switch`](Self::switch).
    unsafe fn lazy_leave(&self, outer: Outer, space: &Space<W>);

    /// Says that this CPU is about to wait without using its space: halted, mostly with interrupts off, such as in a
    /// paravirtual spin lock or in the idle loop of a process. Flushes then need neither wake it nor wait for it: waiting is
    /// lazy mode, entered and left by the same words, but for who need not have the space at hand. Nests, in itself
    /// and in lazy mode, and does nothing where no space is in use, or where CPUs are reached by broadcast.
    ///
    /// ```
    /// use shootdown::TlbFlusher;
    ///
    /// /// The slow path of a lock. Interrupts are off, or the caller is pinned.
    /// fn wait<F: TlbFlusher>(tlb: &F, is_free: impl Fn() -> bool, halt_until_kicked: impl Fn()) {
    ///     let waiting = tlb.wait_enter();
    ///     while !is_free() {
    ///         tlb.poll();
    ///         halt_until_kicked();
    ///     }
    ///     // SAFETY: the space in use belongs to the current thread, which lives.
    ///     unsafe { tlb.wait_leave(waiting) };
    /// }
    /// ```
    ///
    /// # Who is waited for nevertheless
    ///
    /// A flush of freed tables, of changed attributes, or of the kernel reaches waiting CPUs too: it sends the interrupt
    /// and waits until the CPU has taken it or has [polled](Self::poll). A CPU that waits with interrupts off does
    /// neither while it is halted. So that such flushes end: whoever wakes it for its lock must not first wait for such
    /// a flush, that is, **the holder of a lock for which others halt with interrupts off must not flush that way
    /// while it holds it**; and after each wake-up, wanted or not, the waiter polls. A CPU that waits with
    /// interrupts on, or in MWAIT with interrupts as break events, serves at once.
    ///
    /// # Interrupts and NMIs
    ///
    /// A handler that comes in while the CPU waits must not touch user memory:
    /// [`user_access_ok`](Self::user_access_ok) says no. One that wants to must [`switch`](Self::switch) to the space
    /// first, and may let the CPU wait again afterwards (`let _ = tlb.wait_enter()`); one that switches threads ends
    /// the wait, too.
    fn wait_enter(&self) -> Waiting {
        Waiting::NOT_LAZY
    }

    /// Ends the wait that began with the `wait_enter` that gave `waiting`. If that was the outermost, this CPU uses
    /// its space again, after it has dropped what was flushed meanwhile.
    ///
    /// # Panics
    ///
    /// If the space has retired, where that can still be seen.
    ///
    /// # Safety
    ///
    /// The space that this CPU used at `wait_enter` must still be where it was, alive and not retired, and be the one that
    /// the current thread uses; its root must map the running code and stack. `waiting` must come from this flusher.
    unsafe fn wait_leave(&self, waiting: Waiting) {
        let _ = waiting;
    }

    /// Starts to flush translations of `space`, after the caller changed its page table, and gives the flush that is
    /// under way; it is complete when that is waited for or dropped. It reaches CPUs that have the space loaded:
    /// for mappings that all spaces share there is [`flush_kernel`](Self::flush_kernel).
    ///
    /// A large page that is split is made not present and flushed with its own stride first.
    ///
    /// # Panics
    ///
    /// If the CPU is not online or the space has retired.
    #[inline(always)]
    fn flush<'a>(&'a self, space: &'a Space<W>, request: Request) -> Pending<'a, Self, W> {
        Pending::start(self, Scope::Space(space), request)
    }

    /// Starts to flush kernel translations on every online CPU, idle ones included. The whole contract holds, part (b)
    /// included.
    ///
    /// # Panics
    ///
    /// If the CPU is not online.
    #[inline]
    fn flush_kernel(&self, request: Request) -> Pending<'_, Self, W> {
        Pending::start(self, Scope::Kernel, request)
    }

    /// Drops what this CPU alone has cached for `addr`: after a spurious fault, or a change that only permits more.
    fn flush_local(&self, addr: u64);

    /// Says that entries of `range` went from not present to present. On x86_64 it does nothing; on arm64 it makes the
    /// new entries visible to the table walkers.
    fn mapped(&self, range: &Range);

    /// Which flush is needed when a leaf entry changes from `old` to `new`, both as the hardware reads them.
    fn needs_flush(old: u64, new: u64) -> Needed;

    /// Serves the requests addressed to this CPU, if there are any. For loops that spin with interrupts off, such as
    /// those of spin locks. Cheap where nothing is pending.
    fn poll(&self);

    /// Whether an NMI handler may read user memory now: a space is loaded, in use, and not about to change. The only
    /// call allowed from NMI.
    fn user_access_ok(&self) -> bool;

    /// Ends the life of `space`: unloads it from lazy CPUs and drops what it has in hardware. Afterwards its
    /// tables may be freed and the value dropped.
    ///
    /// Call it once nobody can begin to use the space any more: a switch to it, or a flush of it, that overlaps with this
    /// call may find it retired and panic, even if this call goes on to err.
    ///
    /// # Errors
    ///
    /// If CPUs run it: they are named, and the space lives on. If it has retired already, or another call of this
    /// kind has not yet decided.
    fn retire(&self, space: &Space<W>) -> Result<(), RetireError<W>>;

    /// Says that a device uses the space's page table too (PASID, SVA), so that it must always be flushed by broadcast
    /// where devices listen to that, and keep its hardware tag. The device's own TLB is the caller's. Undone by
    /// [`retire`](Self::retire).
    ///
    /// # Errors
    ///
    /// [`SpaceError::TagsExhausted`] if too many spaces are shared already.
    fn share_with_device(&self, space: &Space<W>) -> Result<(), SpaceError>;

    /// Declares `cpu` dead: it is never waited for again.
    ///
    /// # Panics
    ///
    /// If the platform has no such CPU.
    ///
    /// # Safety
    ///
    /// The CPU must be stopped for good (panic, kexec, machine check): it must never again execute an instruction
    /// that is translated, unless it is reset and comes online anew. A CPU that stopped inside a call of the
    /// flusher may leave spaces behind that can't retire.
    unsafe fn declare_dead(&self, cpu: usize);

    /// The counters, summed over all CPUs.
    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for cpu in 0..Self::Platform::CPUS {
            sum += counters::read(Self::Platform::slot(cpu), Self::ARCHITECTURE);
        }
        sum
    }

    /// The counters of one CPU.
    ///
    /// # Panics
    ///
    /// If the platform has no such CPU.
    fn counters_of(&self, cpu: usize) -> Counters {
        assert_cpu::<Self::Platform>(cpu);
        counters::read(Self::Platform::slot(cpu), Self::ARCHITECTURE)
    }

    /// Makes a change known, so that any CPU that loads the space from now on has it, and adds to `reach` what must be
    /// done for the CPUs that have it loaded. Gives the generation of the change. Called pinned.
    /// Building block of [`flush`](Self::flush) and of batches.
    #[doc(hidden)]
    fn announce(&self, scope: Scope<'_, W>, request: &Request, reach: &mut Self::Reach) -> u64;

    /// Starts what `reach` holds, on this CPU and others, once for all that was announced. Called pinned, on the
    /// CPU that announced.
    #[doc(hidden)]
    fn dispatch(&self, reach: &mut Self::Reach);

    /// Announces and dispatches one request: a flush. Called pinned.
    #[doc(hidden)]
    #[inline]
    fn start(&self, scope: Scope<'_, W>, request: &Request, reach: &mut Self::Reach) -> u64 {
        let generation = self.announce(scope, request, reach);
        self.dispatch(reach);
        generation
    }

    /// Waits until `generation` of `scope` is reached. Called pinned, on the CPU that announced.
    #[doc(hidden)]
    fn complete(&self, scope: Scope<'_, W>, generation: u64, reach: &Self::Reach);
}

/// What stands in a slot for `flusher`.
#[inline(always)]
pub(crate) fn address<F>(flusher: &F) -> u64 {
    core::ptr::from_ref(flusher).addr() as u64
}

/// Claims the platform's slots for `flusher`, and says whether they are its own.
pub(crate) fn claim_slots<P: Platform, F>(flusher: &F) -> bool {
    P::slot(0).seen.claim.get_or_set(address(flusher)) == address(flusher)
}

/// Panics: a call on a CPU that is not online in this flusher.
#[cold]
#[inline(never)]
pub(crate) fn not_online(call: &str, cpu: usize) -> ! {
    panic!("shootdown: {call} on CPU {cpu}, which is not online: call `online` on it first");
}

/// Panics where the platform has no CPU `cpu`.
#[track_caller]
pub(crate) fn assert_cpu<P: Platform>(cpu: usize) {
    let cpus = P::CPUS;
    assert!(
        cpu < cpus,
        "shootdown: CPU {cpu} is out of range: the platform has {cpus}"
    );
}
