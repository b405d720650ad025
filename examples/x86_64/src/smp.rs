//! Starts the other CPUs and gives them work.

use core::{
    arch::x86_64::_rdtsc,
    hint::spin_loop,
    ptr::{copy_nonoverlapping, with_exposed_provenance_mut},
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Acquire, Release},
    },
};

use spin::Mutex;
use x86_64::instructions::{interrupts, port::Port};

use crate::{MAX_CPUS, apic, fw_cfg, invlpgb, percpu, traps};

/// Where the trampoline runs; the start-up interrupt names the page.
const TRAMPOLINE: usize = 0x8000;

/// Some seconds on any machine of this century: how long a CPU may take to come up.
const START_LIMIT_CYCLES: u64 = 20_000_000_000;

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
}

/// CPUs that arrived in Rust, the boot CPU included.
static ARRIVED: AtomicUsize = AtomicUsize::new(1);
/// CPUs that take part: the others park.
static TAKING_PART: AtomicUsize = AtomicUsize::new(1);

/// How many CPUs run. 1 until [`start`] returned.
#[must_use]
pub fn cpus() -> usize {
    TAKING_PART.load(Acquire)
}

/// How many CPUs the machine has, and this kernel could use.
#[must_use]
pub fn available() -> usize {
    fw_cfg::cpu_count().unwrap_or(1).min(MAX_CPUS)
}

/// Starts the other CPUs, so that `limit` take part in all (all there are, without a limit), and returns how many do.
/// They wait for [`run_on_all`] with interrupts on. CPUs beyond the limit sleep with interrupts off.
///
/// # Panics
/// When called twice, or a CPU does not come up.
pub fn start(limit: Option<usize>) -> usize {
    let available = available();
    let wanted = limit.unwrap_or(available).clamp(1, available);
    assert_eq!(ARRIVED.load(Acquire), 1, "CPUs were started before");
    if available > 1 {
        let length = (&raw const trampoline_end).addr() - (&raw const trampoline_start).addr();
        // SAFETY: conventional memory at 32 KiB is free on a PC, and the linker gives the trampoline's bounds.
        unsafe {
            copy_nonoverlapping(
                &raw const trampoline_start,
                with_exposed_provenance_mut(TRAMPOLINE),
                length,
            );
        }
        TAKING_PART.store(wanted, Release);
        apic::send_init_to_others();
        delay(10_000);
        for _ in 0..2 {
            apic::send_startup_to_others((TRAMPOLINE >> 12) as u8);
            delay(200);
        }
        let begin = cycles();
        while ARRIVED.load(Acquire) < available {
            let arrived = ARRIVED.load(Acquire);
            assert!(
                cycles() - begin < START_LIMIT_CYCLES,
                "{arrived} of {available} CPUs came up"
            );
            spin_loop();
        }
    }
    wanted
}

/// Called by the trampoline on each other CPU, once.
#[unsafe(no_mangle)]
extern "C" fn application_cpu_main(index: usize) -> ! {
    percpu::init(index);
    traps::load();
    apic::enable();
    invlpgb::join();
    let takes_part = index < TAKING_PART.load(Acquire);
    ARRIVED.fetch_add(1, Release);
    if !takes_part {
        loop {
            interrupts::disable();
            x86_64::instructions::hlt();
        }
    }
    interrupts::enable();
    let mut seen = 0;
    loop {
        while JOB_NUMBER.load(Acquire) == seen {
            spin_loop();
        }
        seen += 1;
        let job = JOB.lock().expect("a job number is published after its job");
        // SAFETY: `run_on_all` keeps the closure alive until this CPU has counted itself as done.
        unsafe { (*job.0)(index) };
        JOBS_RUNNING.fetch_sub(1, Release);
    }
}

#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(usize) + Sync));

// SAFETY: what it points to is `Sync`, and `run_on_all` outlives every use.
unsafe impl Send for Job {}

static JOB: Mutex<Option<Job>> = Mutex::new(None);
static JOB_NUMBER: AtomicU64 = AtomicU64::new(0);
static JOBS_RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Runs `work(cpu)` on all CPUs at the same time and returns when all have returned.
///
/// # Panics
/// When not called on the boot CPU, or from inside `work`.
pub fn run_on_all(work: &(dyn Fn(usize) + Sync)) {
    assert_eq!(percpu::current(), 0, "work is given out by CPU 0");
    assert_eq!(JOBS_RUNNING.load(Acquire), 0, "work is not nested");
    // SAFETY: only the lifetime changes; this function does not return before all CPUs are done with the closure.
    let job = unsafe {
        core::mem::transmute::<*const (dyn Fn(usize) + Sync), *const (dyn Fn(usize) + Sync + 'static)>(
            work,
        )
    };
    *JOB.lock() = Some(Job(job));
    JOBS_RUNNING.store(cpus() - 1, Release);
    JOB_NUMBER.fetch_add(1, Release);
    work(0);
    while JOBS_RUNNING.load(Acquire) != 0 {
        spin_loop();
    }
}

/// Waits about this many microseconds: a write to the POST port takes about one.
fn delay(microseconds: u32) {
    for _ in 0..microseconds {
        // SAFETY: nothing listens to the POST port.
        unsafe { Port::<u8>::new(0x80).write(0) };
    }
}

/// The time-stamp counter.
#[must_use]
pub fn cycles() -> u64 {
    // SAFETY: every x86_64 CPU has the counter, and nothing here restricts it.
    unsafe { _rdtsc() }
}
