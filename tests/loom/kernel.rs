//! CPUs that come online, go offline or idle against flushes of the kernel's mappings (invariant 13).

use shootdown::{TlbFlusher, variant::Broken};

use crate::{
    explore::{STALE, Scenario},
    machine::{Machine, boot, config, on, start},
    page::Page,
};

fn unmap_kernel_page(machine: &'static Machine) {
    machine.change(Page::Kernel);
    machine.tlb.flush_kernel(Page::Kernel.request()).wait();
    machine.reuse(Page::Kernel);
}

/// CPU 1 comes online, with an entry of before in its TLB, and goes again.
const ONLINE: Scenario = Scenario::bounded(|| online_and_offline(boot(1, config())), 5);

fn online_and_offline(machine: &'static Machine) {
    on(1, || machine.access(Page::Kernel));
    let cpu1 = start(1, || {
        machine.tlb.online().unwrap();
        machine.access(Page::Kernel);
        machine.tlb.offline();
    });
    unmap_kernel_page(machine);
    cpu1.join().unwrap();
}

#[test]
fn online() {
    ONLINE.is_clean();
}

#[test]
fn online_flushing_before_it_is_visible() {
    ONLINE.catches(Broken::OnlineFlushFirst, STALE);
}

#[test]
fn online_without_flushing() {
    ONLINE.catches(Broken::OnlineNoFlush, STALE);
}

#[test]
fn online_without_the_barrier_of_the_flush() {
    ONLINE.catches(Broken::NoFlushBarrier, STALE);
}

#[test]
fn online_without_the_barrier_after_the_mask() {
    Scenario::full(|| {
        let machine = boot(1, config());
        machine.weaken(1);
        online_and_offline(machine);
    })
    .fails(STALE);
}

/// CPU 1 goes offline and comes back.
const BOUNCE: Scenario = Scenario::bounded(
    || {
        let machine = boot(2, config());
        on(1, || machine.access(Page::Kernel));
        let cpu1 = start(1, || {
            machine.tlb.offline();
            machine.tlb.online().unwrap();
            machine.access(Page::Kernel);
            machine.tlb.offline();
        });
        unmap_kernel_page(machine);
        cpu1.join().unwrap();
    },
    4,
);

#[test]
fn offline_and_online() {
    BOUNCE.is_clean();
}

#[test]
fn offline_and_online_flushing_before_it_is_visible() {
    BOUNCE.catches(Broken::OnlineFlushFirst, STALE);
}

/// CPU 1 idles on the kernel's root.
const IDLE: Scenario = Scenario::full(|| {
    let machine = boot(2, config());
    on(1, || machine.access(Page::Kernel));
    let cpu1 = start(1, || {
        machine.access(Page::Kernel);
        machine.take_interrupt();
        machine.access(Page::Kernel);
        machine.tlb.offline();
    });
    unmap_kernel_page(machine);
    cpu1.join().unwrap();
});

#[test]
fn idle() {
    IDLE.is_clean();
}

#[test]
fn idle_and_skipped() {
    IDLE.catches(Broken::KernelSkipsIdle, STALE);
}

#[test]
fn idle_without_waiting() {
    IDLE.catches(Broken::NoWait, STALE);
}
