//! arm64: a local flush against a CPU that comes back to the space, with entries of its earlier visit.

use std::mem::ManuallyDrop;

use shootdown::{
    Granule, Paging, Range, Request, Space, Stride, TlbFlusher, aarch64::policy::NotRunning,
    variant::Broken,
};

use crate::{
    arm_cpu::{Flusher, access, boot, change, flusher, reuse, switch, unload},
    explore::{STALE, Scenario},
    machine::{on, start},
};

struct Machine {
    tlb: Flusher<NotRunning>,
    space: ManuallyDrop<Space>,
}

loom::lazy_static! {
    static ref LOCAL: Machine = {
        let tlb = flusher();
        let space = ManuallyDrop::new(tlb.space(0x20_0000).unwrap());
        Machine { tlb, space }
    };
}

fn unmap() {
    let page = Range::new(Paging::arm64(Granule::Size4K), 0x4000, 1, Stride::Size4K).unwrap();
    change();
    LOCAL.tlb.flush(&LOCAL.space, Request::range(page)).wait();
    reuse();
}

/// CPU 1 has run the space and left it.
fn visit() {
    boot(&LOCAL.tlb, 2);
    on(1, || {
        switch(&LOCAL.tlb, &LOCAL.space);
        access();
        unload(&LOCAL.tlb);
    });
}

fn come_back() {
    switch(&LOCAL.tlb, &LOCAL.space);
    access();
}

/// CPU 0 runs the space and flushes it, while CPU 1 comes back.
fn flush_where_it_runs() {
    visit();
    switch(&LOCAL.tlb, &LOCAL.space);
    let cpu1 = start(1, come_back);
    unmap();
    cpu1.join().unwrap();
}

/// CPU 0 flushes a space that nobody runs, as reclaim does, while CPU 1 comes back.
fn flush_from_elsewhere() {
    visit();
    let cpu1 = start(1, come_back);
    unmap();
    cpu1.join().unwrap();
}

const RUNNING: Scenario = Scenario::full(flush_where_it_runs);
const ELSEWHERE: Scenario = Scenario::full(flush_from_elsewhere);

#[test]
fn running() {
    RUNNING.is_clean();
}

#[test]
fn running_without_the_barrier_of_the_switch() {
    RUNNING.catches(Broken::NoActiveBarrier, STALE);
}

#[test]
fn running_without_the_barrier_of_the_flush() {
    RUNNING.catches(Broken::NoStaleBarrier, STALE);
}

#[test]
fn running_without_marks() {
    RUNNING.catches(Broken::StaleNotMarked, STALE);
}

#[test]
fn running_with_the_mark_tested_early() {
    RUNNING.catches(Broken::StaleTestedEarly, STALE);
}

#[test]
fn elsewhere() {
    ELSEWHERE.is_clean();
}

#[test]
fn elsewhere_without_the_barrier_of_the_switch() {
    ELSEWHERE.catches(Broken::NoActiveBarrier, STALE);
}

#[test]
fn elsewhere_without_the_barrier_of_the_flush() {
    ELSEWHERE.catches(Broken::NoStaleBarrier, STALE);
}
