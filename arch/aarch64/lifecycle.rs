//! CPUs come and go, and so do spaces.

use super::{Broadcast, Instructions, Tlbi, regime};
use crate::{
    atomic::{
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        fence,
    },
    coverage::{Branch, took},
    cpus::{CpuOutOfRange, CpuSet},
    error::{OnlineError, RetireError},
    flusher::{assert_cpu, claim_slots},
    platform::{IrqsOff, Patience, Pin, Platform},
    slot::Loaded,
    space::Space,
    variant::{Broken, broken},
};

/// Marks the recorded features as present.
const RECORDED: u64 = 1 << 63;

impl<P: Platform, I: Instructions, const W: usize, const A: usize> Broadcast<P, I, W, A> {
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
        let has = regime::features::<I>() | RECORDED;
        let expected = self.features.get_or_set(has);
        if has != expected {
            return Err(OnlineError::UnequalFeatures {
                cpu: me,
                has: has & !RECORDED,
                expected: expected & !RECORDED,
            });
        }
        took(Branch::Online);
        // Broadcasts reach this CPU from now on; what it cached before goes.
        if !broken(Broken::OnlineNoFlush) {
            I::dsb_ishst();
            I::tlbi(Tlbi::Vmalle1, 0);
            I::dsb_nsh();
            I::isb();
        }
        my.seen.loaded.store(Loaded::KERNEL.0, Release);
        Ok(())
    }

    pub(super) fn take_offline(&self) {
        let _irqs = IrqsOff::<P>::new();
        let (my, _, loaded) = self.my_slot("offline");
        if loaded != Loaded::KERNEL {
            // SAFETY: kernel code runs, which the reserved root suits: the kernel said so with `Config`.
            unsafe { self.load_reserved(my) };
        }
        took(Branch::Offline);
        my.seen.loaded.store(Loaded::OFFLINE.0, Release);
    }

    pub(super) fn bury(&self, cpu: usize) {
        assert_cpu::<P>(cpu);
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
        space.cpus.for_each(|cpu| {
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
        });
        if !running.is_empty() {
            took(Branch::RetireRefused);
            space.domain.revive();
            return Err(RetireError::Running(running));
        }
        self.flush_asid(space.tag as u16);
        space.cpus.clear();
        self.asids.give_back(space.tag as u16);
        Ok(())
    }
}
