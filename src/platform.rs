//! What a kernel tells the crate about itself: [`Platform`], and [`IpiPlatform`] where CPUs are reached by interrupt.

use core::marker::PhantomData;

use crate::{cpus::Cpus, slot::CpuSlot};

/// The kernel's side: which CPU this is, how to stay on it, and where its memory for the flusher is.
///
/// All functions are associated functions, so that a backend generic over the platform compiles to direct calls; the
/// kernel implements the trait on an empty struct.
///
/// # Safety
///
/// Implementations must keep what each function's section "Implementation safety" asks for. The flusher relies on it
/// to find every CPU that may hold a stale translation: a wrong answer is silent memory corruption.
pub unsafe trait Platform: Sized + 'static {
    /// The number of CPUs that may ever be brought online; CPU numbers are `0..CPUS`. At most 64 times the word
    /// count of the flusher, which is checked when the program is compiled.
    const CPUS: usize;

    /// The number of the CPU that executes this.
    ///
    /// # Implementation safety
    ///
    /// Must be less than [`CPUS`](Self::CPUS), different on each CPU, and always the same on one CPU. Called with
    /// the caller pinned or interrupts off, and from NMI.
    fn current_cpu() -> usize;

    /// Keeps the current thread of execution on this CPU until the matching [`unpin`](Self::unpin), and keeps other
    /// threads off it (usually: preemption off). Nests.
    ///
    /// # Implementation safety
    ///
    /// Between `pin` and the matching `unpin` the caller must not move to another CPU.
    fn pin();

    /// Undoes one [`pin`](Self::pin).
    ///
    /// # Implementation safety
    ///
    /// Must not undo more than one `pin`.
    fn unpin();

    /// Turns maskable interrupts off on this CPU and gives what was before, for
    /// [`irq_restore`](Self::irq_restore).
    ///
    /// # Implementation safety
    ///
    /// No maskable interrupt may be taken on this CPU until the matching `irq_restore`. Nests.
    fn irq_save() -> usize;

    /// Restores the interrupt state that [`irq_save`](Self::irq_save) gave.
    ///
    /// # Implementation safety
    ///
    /// Must not turn interrupts on where `state` says that they were off.
    fn irq_restore(state: usize);

    /// The flusher's memory for `cpu`: in the kernel's own per-CPU area, or an element of a static array of
    /// [`CpuSlot::new`].
    ///
    /// # Implementation safety
    ///
    /// Must give the same, distinct slot for each CPU number below [`CPUS`](Self::CPUS), every time, whoever asks.
    fn slot(cpu: usize) -> &'static CpuSlot;

    /// The flusher's memory for the CPU that executes this. Worth writing where the kernel finds it by one
    /// instruction, such as a load relative to GS. Called with the caller pinned or interrupts off, and from NMI.
    ///
    /// # Implementation safety
    ///
    /// Must give `slot(current_cpu())`.
    #[inline]
    fn own_slot() -> &'static CpuSlot {
        Self::slot(Self::current_cpu())
    }

    /// Called on each turn of a loop that waits for another CPU.
    ///
    /// On x86 this is [`core::hint::spin_loop`] (PAUSE). On arm64 use `yield` or `wfe`: there `spin_loop` is an ISB,
    /// which is slow and lets an emulator's other CPUs starve.
    fn relax();

    /// Called again and again while `cpu` does not answer: first after [`STUCK_AFTER`] turns of a waiting loop, then
    /// each time as many more have gone by (`turns` counts them). The flusher never gives up by itself, since
    /// returning early would be memory corruption. A kernel may print `cpu`'s state here, send it an NMI, panic, or,
    /// when it knows the CPU to be stopped, call [`TlbFlusher::declare_dead`](crate::TlbFlusher::declare_dead).
    fn stuck(cpu: usize, turns: u64) {
        let _ = (cpu, turns);
    }
}

/// Turns of a waiting loop before [`Platform::stuck`] is called.
pub const STUCK_AFTER: u64 = 1 << 22;

/// A platform that can interrupt other CPUs. Backends that broadcast in hardware do not ask for it.
///
/// # Safety
///
/// As for [`Platform`].
pub unsafe trait IpiPlatform: Platform {
    /// Sends the flush interrupt to each CPU of `targets`, which is not empty, holds only CPUs that are or were
    /// online, and not the current one. Called with interrupts off. The handler of that interrupt calls the
    /// backend's `handle_interrupt`.
    ///
    /// # Implementation safety
    ///
    /// Each target must take the interrupt as soon as it has interrupts on, with interrupts off in the handler, and
    /// none may be lost. The flusher has ordered its requests before this call
    /// (`publish_before_ipi`), so the implementation needs no fence of its own.
    fn send_flush_ipi(targets: Cpus<'_>);
}

/// Keeps the caller on its CPU while it lives. Not `Send`: it must be dropped where it was made.
#[derive(Debug)]
pub(crate) struct Pin<P: Platform>(PhantomData<(*const (), P)>);

impl<P: Platform> Pin<P> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        P::pin();
        Self(PhantomData)
    }
}

impl<P: Platform> Drop for Pin<P> {
    #[inline(always)]
    fn drop(&mut self) {
        P::unpin();
    }
}

/// Keeps interrupts off while it lives.
#[derive(Debug)]
pub(crate) struct IrqsOff<P: Platform> {
    state: usize,
    _here: PhantomData<(*const (), P)>,
}

impl<P: Platform> IrqsOff<P> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            state: P::irq_save(),
            _here: PhantomData,
        }
    }
}

impl<P: Platform> Drop for IrqsOff<P> {
    #[inline(always)]
    fn drop(&mut self) {
        P::irq_restore(self.state);
    }
}

/// Counts the turns of one waiting loop and reports a CPU that does not answer.
#[derive(Debug, Default)]
pub(crate) struct Patience(u64);

impl Patience {
    #[inline]
    pub(crate) fn turn<P: Platform>(&mut self, cpu: usize) {
        self.0 += 1;
        if self.0.is_multiple_of(STUCK_AFTER) {
            P::stuck(cpu, self.0);
        }
        P::relax();
    }
}
