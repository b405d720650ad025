//! CPUs come and go, and so do spaces.

use super::{
    Features, Instructions, Tlb,
    policy::{self, Policy},
    regime,
};
use crate::{
    atomic::{
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        fence,
    },
    coverage::{Branch, took},
    cpus::{CpuOutOfRange, CpuSet},
    error::{OnlineError, RetireError},
    flusher::{address, assert_cpu, claim_slots},
    platform::{IrqsOff, Patience, Pin, Platform},
    slot::Loaded,
    space::Space,
    variant::{Broken, broken},
};

/// TTBR.CnP: this CPU's entries may be shared with other CPUs (FEAT_TTCNP).
pub(super) const COMMON_NOT_PRIVATE: u64 = 1 << 0;

/// Marks the recorded features as present.
const RECORDED: u64 = 1 << 63;

impl<P: Platform, M: Policy, I: Instructions, const W: usize, const A: usize> Tlb<P, M, I, W, A> {
    pub(super) fn bring_online(&self) -> Result<(), OnlineError> {
        if !self.settings.is_initialized() {
            return Err(OnlineError::NotInitialized);
        }
        let me = P::current_cpu();
        if me >= P::CPUS {
            return Err(OnlineError::OutOfRange(CpuOutOfRange {
                cpu: me,
                limit: P::CPUS,
            }));
        }
        if let Some(level) = regime::unserved_level::<I>() {
            return Err(OnlineError::WrongRegime { level });
        }
        if !claim_slots::<P, _>(self) {
            return Err(OnlineError::OtherFlusher);
        }
        let _irqs = IrqsOff::<P>::new();
        let my = P::slot(me);
        if my.seen.loaded.load(Relaxed) != Loaded::OFFLINE.0 {
            return Err(OnlineError::AlreadyOnline { cpu: me });
        }
        if I::read_ttbr1() & COMMON_NOT_PRIVATE != 0 && !broken(Broken::CnpIgnored) {
            return Err(OnlineError::SharedTlb { cpu: me });
        }
        let has = regime::features::<I>() | RECORDED;
        let expected = self.features.get_or_set(has);
        if has != expected {
            return Err(OnlineError::UnequalFeatures {
                cpu: me,
                has: has & !RECORDED,
                expected: expected & !RECORDED,
            });
        }
        let (features, used) = (Features::detect::<I>(), self.features());
        if !features.has_all_of(&used) {
            return Err(OnlineError::UnequalFeatures {
                cpu: me,
                has: features.bits(),
                expected: used.bits(),
            });
        }
        // An invalidation is repeated by all if one CPU needs it, since it may be that CPU whose accesses it is for.
        if features.repeat {
            self.settings.must_repeat();
        }
        my.seen.flusher.set(address(self));
        took(Branch::Online);
        // Broadcasts reach this CPU from now on; what it cached before goes.
        if !broken(Broken::OnlineNoFlush) {
            self.flush_cpu();
        }
        my.seen.loaded.store(Loaded::KERNEL.0, Release);
        Ok(())
    }

    pub(super) fn take_offline(&self) {
        let _irqs = IrqsOff::<P>::new();
        let (my, me, loaded) = self.my_slot("offline");
        if loaded != Loaded::KERNEL {
            // SAFETY: kernel code runs, which the reserved root suits: the kernel said so with `Config`.
            unsafe { self.load_reserved(my) };
        }
        self.asids.forget::<P>(me);
        my.seen.flusher.set(0);
        took(Branch::Offline);
        my.seen.loaded.store(Loaded::OFFLINE.0, Release);
    }

    pub(super) fn bury(&self, cpu: usize) {
        assert_cpu::<P>(cpu);
        P::slot(cpu).seen.flusher.set(0);
        P::slot(cpu).seen.loaded.store(Loaded::OFFLINE.0, SeqCst);
    }

    pub(super) fn retire_space(&self, space: &Space<W>) -> Result<(), RetireError<W>> {
        let _pin = Pin::<P>::new();
        let _ = self.my_slot("retire");
        if !space.domain.retire() {
            return Err(RetireError::AlreadyRetired);
        }
        // Retirement is published before CPUs are looked at; pairs with the barrier in `switch_to`.
        if !broken(Broken::NoRetireBarrier) {
            fence(SeqCst);
        }
        let mut running = CpuSet::EMPTY;
        // All CPUs: with `Local` a CPU that runs the space may have lost its bit.
        for cpu in 0..P::CPUS {
            let mut patience = Patience::default();
            let loaded = loop {
                let loaded = Loaded(P::slot(cpu).seen.loaded.load(Acquire));
                if loaded != Loaded::SWITCHING {
                    break loaded;
                }
                patience.turn::<P>(cpu);
            };
            if loaded == Loaded::used(space.id) {
                running.add(cpu);
            }
        }
        if !running.is_empty() {
            took(Branch::RetireRefused);
            space.domain.revive();
            return Err(RetireError::Running(running));
        }
        let tag = space.tag();
        if tag != 0 {
            self.flush_retired(tag);
            let _irqs = IrqsOff::<P>::new();
            self.asids.unpin::<P>(space);
        }
        policy::retire(space);
        Ok(())
    }
}
