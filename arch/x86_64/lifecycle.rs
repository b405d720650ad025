//! CPUs come and go.

use super::{Courier, Instructions, Tlb, config::ROOT_MASK, control, pcid::PcidSlots, trim_mail};
use crate::{
    atomic::Ordering::{Acquire, Relaxed, Release, SeqCst},
    coverage::{Branch, took},
    cpus::{CpuOutOfRange, CpuSet},
    error::OnlineError,
    flusher::{address, assert_cpu, claim_slots},
    platform::{IpiPlatform, IrqsOff},
    slot::{CpuSlot, Loaded},
    variant::{Broken, broken},
};

/// Marks the recorded features as present, so that no features at all are not taken for none recorded.
const RECORDED: u64 = 1 << 63;

impl<P: IpiPlatform, C: Courier, I: Instructions, const W: usize> Tlb<P, C, I, W> {
    pub(super) fn bring_online(&self) -> Result<(), OnlineError> {
        if !self.settings.mode().is_initialized() {
            return Err(OnlineError::NotInitialized);
        }
        let me = P::current_cpu();
        if me >= P::CPUS {
            return Err(OnlineError::OutOfRange(CpuOutOfRange {
                cpu: me,
                limit: P::CPUS,
            }));
        }
        if !claim_slots::<P, _>(self) {
            return Err(OnlineError::OtherFlusher);
        }
        let _irqs = IrqsOff::<P>::new();
        let my = P::slot(me);
        if my.seen.loaded.load(Relaxed) != Loaded::OFFLINE.0 {
            return Err(OnlineError::AlreadyOnline { cpu: me });
        }
        let root = I::read_cr3() & ROOT_MASK;
        if root != self.settings.kernel_root() {
            return Err(OnlineError::NotKernelRoot { loaded: root });
        }
        if self.settings.mode().kernel_global() && I::read_cr4() & control::CR4_PGE == 0 {
            return Err(OnlineError::NoGlobalPages { cpu: me });
        }
        if self.settings.mode().pcid() {
            control::enable_pcid::<I>();
        }
        self.compare_features(me)?;
        my.seen.flusher.set(address(self));
        my.seen.bit.set(1 << (me % 64));
        PcidSlots(&my.own).reset();
        my.mail.pending.store(0, Relaxed);
        self.answer_trim(my);
        took(Branch::Online);
        if broken(Broken::OnlineFlushFirst) {
            let now = self.kernel.generation();
            self.flush_everything();
            my.seen.kernel_generation.store(now, Release);
            my.seen.loaded.store(Loaded::KERNEL.0, Release);
            self.online.insert(me);
            return Ok(());
        }
        // Visible first, then flushed. An initiator that does not see this CPU has made its change before the flush;
        // one that does waits until a generation is published that was read after that.
        //
        // initiator                       this CPU
        // clear the entry                 loaded := KERNEL, online bit set
        // generation := g                 full barrier
        // full barrier                    read the generation
        // read the online bits            flush everything
        my.seen.loaded.store(Loaded::KERNEL.0, Release);
        self.online.insert(me);
        I::barrier_after_rmw();
        let now = self.kernel.generation();
        if !broken(Broken::OnlineNoFlush) {
            self.flush_everything();
        }
        my.seen.kernel_generation.store(now, Release);
        Ok(())
    }

    /// The first CPU records its features, the others must have the same.
    fn compare_features(&self, me: usize) -> Result<(), OnlineError> {
        let has = control::features::<I>() | RECORDED;
        let expected = self.features.get_or_set(has);
        if has == expected {
            Ok(())
        } else {
            Err(OnlineError::UnequalFeatures {
                cpu: me,
                has: has & !RECORDED,
                expected: expected & !RECORDED,
            })
        }
    }

    /// Whether INVLPG and INVLPGB keep cached upper-level entries that do not lead to their address (EFER.TCE, AMD APM volume
    /// 2, "Extended Feature Enable Register"), so that they can't be relied on to drop those of a freed table.
    #[inline]
    pub(super) fn keeps_unrelated_tables(&self) -> bool {
        control::keeps_unrelated_tables(self.features.get())
    }

    pub(super) fn take_offline(&self) {
        let _irqs = IrqsOff::<P>::new();
        let (my, me) = (self.my_slot("offline"), P::current_cpu());
        let loaded = Loaded(my.seen.loaded.load(Relaxed));
        if loaded != Loaded::KERNEL {
            // SAFETY: kernel code runs, which the kernel's own root maps as well: promised with `switch`.
            unsafe { self.load_kernel_root(my) };
        }
        took(Branch::Offline);
        // No longer a target of kernel flushes; then serve those that saw the bit. Whoever waits after that sees
        // OFFLINE.
        self.online.remove(me);
        my.mail.pending.swap(0, SeqCst);
        I::barrier_after_rmw();
        self.serve_all(my);
        my.seen.flusher.set(0);
        my.seen.loaded.store(Loaded::OFFLINE.0, Release);
    }

    /// Interrupts every CPU with a request pending: the dead one may have posted it and stopped before it sent the
    /// interrupt, on which others rely.
    fn repeat_interrupts(&self) {
        let _irqs = IrqsOff::<P>::new();
        let me = P::current_cpu();
        let mut targets = CpuSet::<W>::EMPTY;
        self.online.for_each(|cpu| {
            if cpu != me && P::slot(cpu).mail.pending.load(Acquire) != 0 {
                targets.add(cpu);
            }
        });
        if !targets.is_empty() {
            I::publish_before_ipi();
            P::send_flush_ipi(targets.view());
        }
    }

    pub(super) fn bury(&self, cpu: usize) {
        assert_cpu::<P>(cpu);
        let slot: &CpuSlot = P::slot(cpu);
        slot.seen.flusher.set(0);
        slot.seen.loaded.store(Loaded::OFFLINE.0, SeqCst);
        self.online.remove(cpu);
        trim_mail::take::<W>(slot, |space| space.cpus.remove(cpu));
        self.repeat_interrupts();
    }
}
