//! A CPU that catches up with the retirement of its space and only then becomes lazy must still leave it, or `retire`
//! waits for ever. One thread plays both CPUs, so that it happens at exactly that moment.

use std::cell::Cell;

use shootdown::{
    CpuSlot, Cpus, IpiPlatform, Platform, Space, TlbFlusher,
    x86_64::{Config, Features, Instructions, Invlpgb, InvpcidKind, Ipi},
};

use crate::platform::{LogX86, become_cpu, current_cpu, on_cpu, take_log};

struct Kernel;

static TLB: Ipi<Kernel, Meddling> = Ipi::new();

thread_local! {
    /// What CPU 1 does just after CPU 0 has announced something.
    static MEANWHILE: Cell<Option<fn()>> = const { Cell::new(None) };
}

fn on_cpu_1(f: impl FnOnce()) {
    on_cpu(1, f);
}

// SAFETY: one thread plays two CPUs, one after the other; each has a slot.
unsafe impl Platform for Kernel {
    const CPUS: usize = 2;
    fn current_cpu() -> usize {
        current_cpu()
    }
    fn pin() {}
    fn unpin() {}
    fn irq_save() -> usize {
        0
    }
    fn irq_restore(_: usize) {}
    fn slot(cpu: usize) -> &'static CpuSlot {
        static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];
        &SLOTS[cpu]
    }
    fn relax() {}
    fn stuck(cpu: usize, _: u64) {
        panic!("CPU {cpu} was waited for, but it has served");
    }
}

// SAFETY: the target serves at once.
unsafe impl IpiPlatform for Kernel {
    fn send_flush_ipi(targets: Cpus<'_>) {
        assert!(targets.iter().eq([1]));
        on_cpu_1(|| TLB.handle_interrupt());
    }
}

/// Lets CPU 1 act just after a locked instruction of CPU 0.
#[derive(Debug)]
struct Meddling;

// SAFETY: there is no TLB; all but the meddling is as in `LogX86`.
unsafe impl Instructions for Meddling {
    fn invlpg(addr: u64) {
        LogX86::invlpg(addr);
    }
    fn invpcid(kind: InvpcidKind, pcid: u16, addr: u64) {
        LogX86::invpcid(kind, pcid, addr);
    }
    fn read_cr3() -> u64 {
        LogX86::read_cr3()
    }
    unsafe fn write_cr3(value: u64) {
        // SAFETY: it is logged.
        unsafe { LogX86::write_cr3(value) };
    }
    fn read_cr4() -> u64 {
        LogX86::read_cr4()
    }
    unsafe fn write_cr4(value: u64) {
        // SAFETY: it is logged.
        unsafe { LogX86::write_cr4(value) };
    }
    fn read_efer() -> u64 {
        LogX86::read_efer()
    }
    fn publish_before_ipi() {}
    fn barrier_after_rmw() {
        if let Some(meanwhile) = MEANWHILE.take() {
            meanwhile();
        }
    }
    fn publish_before_invlpgb() {
        LogX86::publish_before_invlpgb();
    }
    fn invlpgb(operands: Invlpgb) {
        LogX86::invlpgb(operands);
    }
    fn tlbsync() {
        LogX86::tlbsync();
    }
}

#[test]
fn a_cpu_that_becomes_lazy_late_is_unloaded() {
    TLB.init(Config::new(Features::default(), 0x1000)).unwrap();
    for cpu in 0..2 {
        become_cpu(cpu);
        TLB.online().unwrap();
    }
    let space: Space = TLB.space(0xa000).unwrap();
    // SAFETY: nothing is translated on the host.
    on_cpu_1(|| unsafe { TLB.switch(&space) });
    become_cpu(0);
    take_log();
    MEANWHILE.set(Some(|| {
        on_cpu_1(|| {
            // A spurious interrupt: CPU 1 catches up with the retirement.
            TLB.handle_interrupt();
            let _ = TLB.lazy_enter();
        });
    }));
    TLB.retire(&space).unwrap();
    assert!(MEANWHILE.take().is_none(), "CPU 1 had its turn");
    assert_eq!(take_log().last().unwrap(), "cr3 0x1000");
}
