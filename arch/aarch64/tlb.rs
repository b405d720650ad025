//! [`Tlb`]: the arm64 flusher.

use core::marker::PhantomData;

use super::{
    Config, InitError, Instructions,
    config::{ROOT_MASK, Settings},
    entry::needs_flush,
    features::Features,
    flush::Reach,
    policy::{AlwaysBroadcast, NeverLoaded, NotRunning, Policy},
    regime,
};
use crate::{
    asid::{Asids, TooManyPins},
    atomic::{Ordering::Relaxed, const_unless_loom},
    error::{OnlineError, RetireError, SpaceError},
    flusher::{Needed, Outer, Scope, TlbFlusher, address, not_online},
    paging::Paging,
    platform::{IrqsOff, Platform},
    private::Private,
    range::Range,
    request::Request,
    slot::{CpuSlot, Loaded},
    space::Space,
    variant::{Broken, broken},
};

/// The real machine's instructions.
#[derive(Debug)]
pub struct Hardware;

/// The types that a flusher is made for, without owning any.
type Types<P, M, I> = fn() -> (P, M, I);

/// The arm64 flusher with a policy `M`.
///
/// `P` is the kernel's side, `I` the machine's instructions, `W` the number of 64-CPU words, `A` the number of 64-ASID
/// words: 1024 (two bitmaps of 8 KiB) for 16-bit ASIDs, 4 (32 bytes each) for 8-bit ones.
#[derive(Debug)]
pub struct Tlb<P, M, I = Hardware, const W: usize = 1, const A: usize = 1024> {
    pub(super) settings: Settings,
    /// The translation features of the first CPU that came online, 0 before.
    pub(super) features: Private,
    pub(super) asids: Asids<W, A>,
    _types: PhantomData<Types<P, M, I>>,
}

/// Broadcasts each invalidation.
///
/// See [`Tlb`] and [`TlbFlusher`].
pub type Broadcast<P, I = Hardware, const W: usize = 1, const A: usize = 1024> =
    Tlb<P, AlwaysBroadcast, I, W, A>;

/// Keeps flushes on this CPU while no other has ever loaded the space.
///
/// See [`policy`](super::policy), [`Tlb`] and [`TlbFlusher`].
pub type ActiveCpu<P, I = Hardware, const W: usize = 1, const A: usize = 1024> =
    Tlb<P, NeverLoaded, I, W, A>;

/// Keeps flushes on this CPU while no other runs the space.
///
/// See [`policy`](super::policy), [`Tlb`] and [`TlbFlusher`].
pub type Local<P, I = Hardware, const W: usize = 1, const A: usize = 1024> =
    Tlb<P, NotRunning, I, W, A>;

impl<P: Platform, M: Policy, I: Instructions, const W: usize, const A: usize> Tlb<P, M, I, W, A> {
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
                asids: Asids::new(),
                _types: PhantomData,
            }
        }
    }

    /// Configures the flusher, before any CPU is online. Reads what this CPU offers.
    ///
    /// # Errors
    ///
    /// See [`InitError`].
    pub fn init(&self, config: Config) -> Result<(), InitError> {
        if let Some(level) = regime::unserved_level::<I>() {
            return Err(InitError::WrongRegime { level });
        }
        if !regime::has_granule::<I>(config.paging.granule()) {
            return Err(InitError::WrongGranule);
        }
        let mut features = Features::detect::<I>();
        features.range &= config.ranges;
        features.level_hint &= config.level_hints;
        let asids = config.asids(&features).min(64 * A as u64);
        // After a rollover every CPU may keep one, and the space that caused it needs another.
        if P::CPUS as u64 + 1 >= asids {
            return Err(InitError::TooFewAsids { asids });
        }
        let asid_in_ttbr1 = regime::asid_in_ttbr1::<I>();
        self.settings.set(&config, &features, asid_in_ttbr1)?;
        #[cfg(any(loom, feature = "_sim"))]
        self.asids.leave_generations(config.generations_left);
        Ok(())
    }

    /// What was found by `init`.
    #[inline]
    pub fn features(&self) -> Features {
        self.settings.features()
    }

    /// This CPU's slot, which must be online.
    #[inline(always)]
    pub(super) fn my_slot(&self, call: &str) -> (&'static CpuSlot, usize, Loaded) {
        let me = P::current_cpu();
        let my = P::slot(me);
        let loaded = Loaded(my.seen.loaded.load(Relaxed));
        if my.seen.flusher.get() != address(self) {
            not_online(call, me);
        }
        (my, me, loaded)
    }
}

#[cold]
#[inline(never)]
pub(super) fn retired(id: u64) -> ! {
    panic!("shootdown: space {id} is used after it has retired");
}

impl<P: Platform, M: Policy, I: Instructions, const W: usize, const A: usize> TlbFlusher<W>
    for Tlb<P, M, I, W, A>
{
    type Platform = P;
    type Reach = Reach;

    fn paging(&self) -> Paging {
        self.settings.paging()
    }

    fn space(&self, root: u64) -> Result<Space<W>, SpaceError> {
        if !self.settings.is_initialized() {
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

    /// Loads the reserved root: a CPU that is not using its space has nothing of it loaded, so there is nobody to skip
    /// or to unload later.
    #[inline]
    fn lazy_enter(&self) -> Outer {
        self.enter_lazy()
    }

    #[inline]
    unsafe fn lazy_leave(&self, outer: Outer, space: &Space<W>) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.leave_lazy(outer, space) }
    }

    fn flush_local(&self, addr: u64) {
        self.flush_own(addr);
    }

    #[inline]
    fn mapped(&self, _range: &Range) {
        // The walkers see the entries, and this CPU fetches and accesses through them from here on.
        I::dsb_ishst();
        I::isb();
    }

    fn needs_flush(old: u64, new: u64) -> Needed {
        needs_flush(old, new)
    }

    #[inline(always)]
    fn poll(&self) {
        // Hardware serves.
    }

    #[inline]
    fn user_access_ok(&self) -> bool {
        Loaded(P::slot(P::current_cpu()).seen.loaded.load(Relaxed)).is_used()
    }

    fn retire(&self, space: &Space<W>) -> Result<(), RetireError<W>> {
        self.retire_space(space)
    }

    fn share_with_device(&self, space: &Space<W>) -> Result<(), SpaceError> {
        if space.is_retired() {
            retired(space.id());
        }
        let limit = self.settings.asids();
        let _irqs = IrqsOff::<P>::new();
        self.asids
            .pin::<P>(space, limit)
            .map_err(|TooManyPins| SpaceError::TagsExhausted { limit })?;
        // Visible before the caller starts the device, which walks the tables from then on: else a flush on another CPU,
        // which comes later, would find the space unshared and leave out the device.
        if !broken(Broken::NoShareBarrier) {
            I::dsb_ish();
        }
        Ok(())
    }

    unsafe fn declare_dead(&self, cpu: usize) {
        self.bury(cpu);
    }

    #[inline]
    fn announce(&self, scope: Scope<'_, W>, request: &Request, reach: &mut Reach) -> u64 {
        self.issue(scope, request, reach);
        0
    }

    #[inline(always)]
    fn dispatch(&self, _reach: &mut Reach) {
        // The invalidations are on their way already.
    }

    #[inline]
    fn complete(&self, _scope: Scope<'_, W>, _generation: u64, reach: &Reach) {
        self.synchronize(reach);
    }
}
