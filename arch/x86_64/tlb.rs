//! [`Tlb`]: the x86_64 flusher.

use core::marker::PhantomData;

use super::{
    Any, Broadcasting, Concurrent, Config, Courier, CourierKind, Errand, InitError, Instructions,
    Serial,
    config::{ROOT_MASK, Settings},
    entry::needs_flush,
};
use crate::{
    atomic::{Ordering::Relaxed, const_unless_loom},
    counters::Architecture,
    cpus::CpuMask,
    domain::Domain,
    error::{OnlineError, RetireError, SpaceError},
    flusher::{Needed, Outer, Scope, TlbFlusher, Waiting, address, not_online},
    paging::Paging,
    platform::{IpiPlatform, IrqsOff},
    private::Private,
    range::Range,
    request::Request,
    slot::{CpuSlot, Loaded},
    space::Space,
    variant::{Broken, broken},
    x86_64::wait::Reach,
};

/// The real machine's instructions.
#[derive(Debug)]
pub struct Hardware;

/// The x86_64 flusher: the shared protocol with a courier `C`.
///
/// `P` is the kernel's side, `I` the machine's instructions, `W` the number of 64-CPU words.
#[derive(Debug)]
pub struct Tlb<P, C, I = Hardware, const W: usize = 1> {
    pub(super) settings: Settings,
    /// The translation features of the first CPU that came online, 0 before.
    pub(super) features: Private,
    pub(super) courier: C,
    /// The kernel's mappings: a scope of their own, since every online CPU has them.
    pub(super) kernel: Domain,
    pub(super) online: CpuMask<W>,
    _types: PhantomData<fn() -> (P, I)>,
}

/// Interrupts, one step after the other.
///
/// See [`Tlb`] and [`TlbFlusher`].
pub type Ipi<P, I = Hardware, const W: usize = 1> = Tlb<P, Serial, I, W>;

/// Interrupts, with the own TLB flushed while the others work.
///
/// See [`Tlb`] and [`TlbFlusher`].
pub type ConcurrentIpi<P, I = Hardware, const W: usize = 1> = Tlb<P, Concurrent, I, W>;

/// Broadcast invalidation (INVLPGB) for the kernel and for spaces that many CPUs run, concurrent interrupts for the others.
///
/// See [`Tlb`] and [`TlbFlusher`].
pub type InvlpgbIpi<P, I = Hardware, const W: usize = 1> = Tlb<P, Broadcasting<Concurrent>, I, W>;

/// The courier is chosen at start-up, by what the CPU offers unless said otherwise: INVLPGB, or concurrent interrupts.
pub type Auto<P, I = Hardware, const W: usize = 1> = Tlb<P, Any, I, W>;

impl<P: IpiPlatform, I: Instructions, const W: usize> Auto<P, I, W> {
    /// Chooses the courier by hand, before `init`. The two that interrupt may also be exchanged for each other
    /// later.
    ///
    /// # Panics
    ///
    /// If the choice comes after `init` and either the old or the new courier broadcasts: spaces might have global
    /// PCIDs, or CPUs their own.
    pub fn choose(&self, kind: CourierKind) {
        self.courier.choose(kind);
    }

    /// Which courier is in use.
    pub fn courier(&self) -> CourierKind {
        self.courier.kind()
    }
}

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    const_unless_loom! {
        /// A flusher that is not initialized. For a `static`.
        #[allow(clippy::new_without_default)]
        pub fn new() -> Self {
            const {
                assert!(
                    P::CPUS >= 1 && P::CPUS <= 64 * W,
                    "Platform::CPUS must be 1 to 64 * W: choose a larger W"
                );
            }
            Self {
                settings: Settings::new(),
                features: Private::new(0),
                courier: C::INITIAL,
                kernel: Domain::new(),
                online: CpuMask::new(),
                _types: PhantomData,
            }
        }
    }

    /// Configures the flusher, before any CPU is online.
    ///
    /// # Errors
    ///
    /// See [`InitError`]; nothing was configured then.
    pub fn init(&self, config: Config) -> Result<(), InitError> {
        self.courier.check(&config)?;
        self.settings
            .set(&config, || self.courier.configure(&config))
    }

    /// The courier, to set it up.
    pub const fn courier_ref(&self) -> &C {
        &self.courier
    }

    /// The handler of the flush interrupt. Call it with interrupts off, as interrupt gates leave them; acknowledge the
    /// interrupt before or after. Spurious calls are harmless.
    #[inline]
    pub fn handle_interrupt(&self) {
        self.serve(P::own_slot());
    }

    /// This CPU's slot, which must be online.
    #[inline(always)]
    pub(super) fn my_slot(&self, call: &str) -> &'static CpuSlot {
        let my = P::own_slot();
        if my.seen.flusher.get() != address(self) {
            not_online(call, P::current_cpu());
        }
        my
    }
}

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> TlbFlusher<W>
    for Tlb<P, C, I, W>
{
    type Platform = P;
    type Reach = Reach<W>;

    const ARCHITECTURE: Architecture = Architecture::X86;

    fn paging(&self) -> Paging {
        self.settings.mode().paging()
    }

    fn space(&self, root: u64) -> Result<Space<W>, SpaceError> {
        if !self.settings.mode().is_initialized() {
            return Err(SpaceError::NotInitialized);
        }
        if root & !ROOT_MASK != 0 {
            return Err(SpaceError::BadRoot { root });
        }
        Ok(Space::new(root))
    }

    fn online(&self) -> Result<(), OnlineError> {
        self.bring_online()
    }

    fn offline(&self) {
        self.take_offline();
    }

    #[inline]
    unsafe fn switch(&self, space: &Space<W>) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.switch_to(space) }
    }

    unsafe fn unload(&self) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.unload_any() }
    }

    #[inline]
    fn lazy_enter(&self) -> Outer {
        self.enter_lazy()
    }

    #[inline]
    unsafe fn lazy_leave(&self, outer: Outer, space: &Space<W>) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.leave_lazy(outer, space) }
    }

    #[inline]
    fn wait_enter(&self) -> Waiting {
        self.enter_wait()
    }

    #[inline]
    unsafe fn wait_leave(&self, waiting: Waiting) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.leave_wait(waiting) }
    }

    fn flush_local(&self, addr: u64) {
        I::invlpg(addr);
    }

    #[inline(always)]
    fn mapped(&self, _range: &Range) {
        // Entries that are not present are not cached, and stores reach the walker in order.
    }

    fn needs_flush(old: u64, new: u64) -> Needed {
        needs_flush(old, new)
    }

    #[inline]
    fn poll(&self) {
        self.serve_pending();
    }

    #[inline]
    fn user_access_ok(&self) -> bool {
        let loaded = Loaded(P::own_slot().seen.loaded.load(Relaxed));
        loaded.is_used() || (broken(Broken::NmiDuringSwitch) && loaded == Loaded::SWITCHING)
    }

    fn retire(&self, space: &Space<W>) -> Result<(), RetireError<W>> {
        self.retire_space(space)
    }

    fn share_with_device(&self, _space: &Space<W>) -> Result<(), SpaceError> {
        // No device listens to what x86 CPUs flush: each has an IOMMU, which is the caller's.
        Ok(())
    }

    unsafe fn declare_dead(&self, cpu: usize) {
        self.bury(cpu);
    }

    #[inline(always)]
    fn start(&self, scope: Scope<'_, W>, request: &Request, reach: &mut Reach<W>) -> u64 {
        let _irqs = IrqsOff::<P>::new();
        let my = self.my_slot("flush");
        self.start_from(my, scope, request, reach)
    }

    #[inline]
    fn announce(&self, scope: Scope<'_, W>, request: &Request, reach: &mut Reach<W>) -> u64 {
        let _irqs = IrqsOff::<P>::new();
        let my = self.my_slot("flush");
        self.announce_to(my, scope, request, reach)
    }

    #[inline]
    fn dispatch(&self, reach: &mut Reach<W>) {
        let _irqs = IrqsOff::<P>::new();
        let my = self.my_slot("flush");
        self.dispatch_to(my, reach, |reach| {
            Errand::of_many(reach.kernel, reach.everyone)
        });
    }

    #[inline(always)]
    fn complete(&self, scope: Scope<'_, W>, generation: u64, reach: &Reach<W>) {
        self.wait_for(scope, generation, reach);
        if let Some(broadcast) = self.courier.broadcast() {
            self.complete_broadcast(broadcast, scope, reach);
        }
    }
}
