//! The flush interrupt, which reaches whom nothing else does.

use crate::{
    atomic::Ordering::SeqCst,
    coverage::{Branch, took},
    cpus::CpuSet,
    platform::IpiPlatform,
    slot::CpuSlot,
    variant::{Broken, broken},
    x86_64::Instructions,
};

/// Interrupts each target that has no interrupt on its way already. The requests themselves were announced before.
#[inline(always)]
pub(in crate::x86_64) fn interrupt<P: IpiPlatform, I: Instructions, const W: usize>(
    targets: &CpuSet<W>,
    my: &CpuSlot,
) {
    let mut send = *targets;
    let mut sent = 0;
    targets.for_each(|cpu| {
        // A full barrier on both sides: whoever finds 1 was before the target's own swap to 0, which is before the
        // target reads generations. So the target sees this request without another interrupt.
        if P::slot(cpu).mail.pending.swap(1, SeqCst) == 0 {
            sent += 1;
        } else {
            took(Branch::InterruptMerged);
            my.counters.elided_pending.add(1);
            send.take_out(cpu);
        }
    });
    if sent != 0 {
        my.counters.ipis_sent.add(sent);
        if !broken(Broken::NoPublish) {
            I::publish_before_ipi();
        }
        P::send_flush_ipi(send.view());
    }
}
