//! Some CPUs run the space and do small jobs for the first one; the others sleep, so that they cost no instruction.

use core::{
    hint::spin_loop,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};

use x86_64::instructions::interrupts;

use super::ADDRESS;
use crate::{MAX_CPUS, apic, arena::PAGE, probe, smp};

/// Wakes sleepers.
const WAKE: u8 = 0xd1;

/// Commands to members: which page to read, and this, which counts.
const NUMBER: u64 = 1 << 32;
const END: u64 = u64::MAX;

static COMMAND: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
static ASLEEP: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicBool = AtomicBool::new(false);
/// What the page read on each CPU.
static SEEN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// Prepares to wake CPUs.
pub fn init() {
    crate::traps::set_handler(WAKE, || {});
}

/// The CPUs that take part.
#[derive(Debug)]
pub struct Crew {
    cpus: usize,
}

/// Runs `lead` on the first of `cpus` CPUs, while all of them are between `enter` and `leave` and the machine's others
/// sleep.
pub fn run(
    cpus: usize,
    enter: &(dyn Fn() + Sync),
    leave: &(dyn Fn() + Sync),
    lead: &(dyn Fn(&Crew) + Sync),
) {
    COMMAND.store(0, Relaxed);
    DONE.store(0, Relaxed);
    ASLEEP.store(0, Relaxed);
    OVER.store(false, Relaxed);
    smp::run_on_all(&|cpu| {
        if cpu >= cpus {
            sleep();
            return;
        }
        enter();
        if cpu == 0 {
            let crew = Crew { cpus };
            crew.wait_for(&DONE, cpus - 1);
            crew.wait_for(&ASLEEP, smp::cpus() - cpus);
            lead(&crew);
            crew.end();
        } else {
            serve(cpu);
        }
        leave();
    });
}

fn sleep() {
    interrupts::disable();
    ASLEEP.fetch_add(1, SeqCst);
    while !OVER.load(Acquire) {
        interrupts::enable_and_hlt();
        interrupts::disable();
    }
    interrupts::enable();
}

fn serve(cpu: usize) {
    DONE.fetch_add(1, SeqCst);
    let mut last = 0;
    loop {
        let command = next(last);
        if command == END {
            return;
        }
        SEEN[cpu].store(read(command & (NUMBER - 1)), Relaxed);
        last = command;
        DONE.fetch_add(1, Release);
    }
}

/// This is where members are while others are timed.
#[inline(never)]
fn next(last: u64) -> u64 {
    loop {
        let command = COMMAND.load(Acquire);
        if command != last {
            return command;
        }
        spin_loop();
    }
}

/// The first word of a page.
fn read(page: u64) -> u64 {
    // SAFETY: a data frame is mapped there, which is read as whole words.
    unsafe { probe::read(ADDRESS + page * PAGE) }.expect("the page is mapped")
}

impl Crew {
    /// How many CPUs take part.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// A mask of the CPUs but the first.
    pub fn others(&self) -> u64 {
        (1 << self.cpus) - 2
    }

    fn wait_for(&self, counter: &AtomicU64, value: usize) {
        while counter.load(Acquire) != value as u64 {
            spin_loop();
        }
    }

    /// Has every CPU read a page, and gives whether all of them saw `value`.
    pub fn all_see(&self, page: u64, value: u64) -> bool {
        DONE.store(0, Relaxed);
        let number = COMMAND.load(Relaxed) / NUMBER + 1;
        COMMAND.store(number * NUMBER + page, Release);
        SEEN[0].store(read(page), Relaxed);
        self.wait_for(&DONE, self.cpus - 1);
        let seen = &SEEN[..self.cpus];
        seen.iter().all(|seen| seen.load(Relaxed) == value)
    }

    fn end(&self) {
        COMMAND.store(END, Release);
        OVER.store(true, Release);
        let sleepers = (1 << smp::cpus()) - (1u64 << self.cpus);
        if sleepers != 0 {
            interrupts::without_interrupts(|| apic::send_to_mask(WAKE, sleepers));
        }
    }
}
