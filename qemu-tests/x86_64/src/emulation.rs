//! INVLPGB and TLBSYNC as the example kernels emulate them, without a flusher: the instructions themselves.

use core::{arch::asm, hint::spin_loop};

use shootdown::x86_64::Instructions;
use shootdown_workload::Barrier;
use spin::Mutex;
use x86_64::instructions::interrupts;
use x86_kernel::{
    MAX_CPUS,
    frames::Frame,
    invlpgb::{self, BroadcastCpu},
    paging::{KERNEL_WINDOW, KernelWindow, Tables, USER_WINDOW, kernel_root},
    percpu, smp,
};

use crate::{observe::read, pages::frame, room};

const OLD: u64 = 0x0b00;
const NEW: u64 = 0x0c00;

/// Pages next to each other in a space, and one of the kernel's.
const PAGES: usize = 4;
const WATCHED: usize = PAGES + 1;
/// Index of the kernel's page.
const KERNEL: usize = PAGES;

const ADDRESS: u64 = 1 << 0;
const PCID: u64 = 1 << 1;
const ASID: u64 = 1 << 2;
const GLOBAL: u64 = 1 << 3;
const NO_FLUSH: u64 = 1 << 63;
const CR4_PCIDE: u64 = 1 << 17;

/// The PCIDs that CPUs with an even and with an odd number have loaded.
const PCIDS: [u16; 2] = [0x7, 0xabc];

/// Executes INVLPGB.
fn invlpgb(rax: u64, ecx: u32, edx: u32) {
    // SAFETY: it changes no memory and no register.
    unsafe {
        asm!(".byte 0x0f, 0x01, 0xfe", in("rax") rax, in("ecx") ecx, in("edx") edx, options(nostack, preserves_flags));
    }
}

/// Executes TLBSYNC.
fn tlbsync() {
    // SAFETY: it changes no memory and no register.
    unsafe { asm!(".byte 0x0f, 0x01, 0xff", options(nostack, preserves_flags)) };
}

const fn page(index: usize) -> u64 {
    if index == KERNEL {
        KERNEL_WINDOW
    } else {
        USER_WINDOW + index as u64 * 4096
    }
}

fn start() -> usize {
    invlpgb::start();
    assert!(
        invlpgb::is_emulated(),
        "these tests are for CPUs that lack the instructions"
    );
    let cpus = smp::start(None);
    assert!(cpus > 1, "run QEMU with -smp 2 or more");
    smp::run_on_all(&|_| {
        // SAFETY: PCIDs are emulated, and CR3 has PCID 0.
        unsafe { BroadcastCpu::write_cr4(BroadcastCpu::read_cr4() | CR4_PCIDE) };
    });
    cpus
}

fn load(root: u64, pcid: u16) {
    // SAFETY: all tables map the kernel; the others outlive their use.
    unsafe { BroadcastCpu::write_cr3(root | u64::from(pcid)) };
}

/// Maps the pages to frames that say `value` and the page's index, and returns what was mapped there.
fn map_all(tables: &mut Tables, frames: [Frame; WATCHED]) -> [Option<Frame>; WATCHED] {
    let mut index = 0;
    frames.map(|frame| {
        let va = page(index);
        let swap = |mut mapper: x86_kernel::paging::Mapper<'_>| {
            let old = mapper.unmap(va);
            mapper.map(va, frame).expect("it was unmapped");
            old
        };
        let old = if index == KERNEL {
            swap(KernelWindow::lock().mapper())
        } else {
            swap(tables.user())
        };
        index += 1;
        old
    })
}

/// Has all CPUs read the pages, changes the mapping of each, lets all CPUs run `work(cpu, step)` for steps 0 and 1, one
/// step after the other, and asserts that CPU `cpu` then sees page `index` anew where `fresh(cpu, index)`, and as before
/// otherwise.
fn exchange(work: &(dyn Fn(usize, usize) + Sync), fresh: fn(usize, usize) -> bool) {
    let cpus = start();
    let tables = Mutex::new(Tables::new().expect("frames are left"));
    let root = tables.lock().root();
    let frames = |value: u64| core::array::from_fn(|index| frame(value + index as u64));
    map_all(&mut tables.lock(), frames(OLD));
    let new = Mutex::new(Some(frames(NEW)));
    // They live on, so that a stale translation reads what it did.
    let kept = Mutex::new(None);
    let seen = Mutex::new([[None; WATCHED]; MAX_CPUS]);
    let barrier = Barrier::new(cpus);
    smp::run_on_all(&|cpu| {
        room::make();
        load(root, PCIDS[cpu % 2]);
        for index in 0..WATCHED {
            assert_eq!(read(page(index)), Ok(OLD + index as u64));
        }
        barrier.wait(spin_loop);
        if cpu == 0 {
            let new = new.lock().take().expect("one CPU changes the pages");
            *kept.lock() = Some(map_all(&mut tables.lock(), new));
        }
        for step in 0..2 {
            barrier.wait(spin_loop);
            work(cpu, step);
        }
        barrier.wait(spin_loop);
        let values = core::array::from_fn(|index| read(page(index)).ok());
        seen.lock()[cpu] = values;
        load(kernel_root(), 0);
    });
    for (cpu, values) in seen.into_inner().iter().enumerate().take(cpus) {
        for (index, value) in values.iter().enumerate() {
            let expected = if fresh(cpu, index) { NEW } else { OLD };
            assert_eq!(
                *value,
                Some(expected + index as u64),
                "CPU {cpu}, page {index}"
            );
        }
    }
}

/// As [`exchange`]: CPU 0 executes INVLPGB with these registers, and TLBSYNC.
fn broadcast(rax: u64, ecx: u32, edx: u32, fresh: fn(usize, usize) -> bool) {
    exchange(
        &|cpu, step| {
            if (cpu, step) == (0, 0) {
                invlpgb(rax, ecx, edx);
                tlbsync();
            }
        },
        fresh,
    );
}

const fn edx(pcid: u16, asid: u16) -> u32 {
    (pcid as u32) << 16 | asid as u32
}

/// One page of one PCID: that page, on CPUs that have the PCID loaded, and no other.
pub fn one_page() {
    broadcast(
        page(1) | ADDRESS | PCID | ASID,
        0,
        edx(PCIDS[0], 0),
        |cpu, index| cpu % 2 == 0 && index == 1,
    );
}

/// Two pages, whatever the PCID.
pub fn two_pages_of_all_pcids() {
    broadcast(page(1) | ADDRESS | ASID, 1, edx(PCIDS[0], 0), |_, index| {
        index == 1 || index == 2
    });
}

/// All of one PCID. No other page is stale for want of a flush: the counter-test is the other half of the CPUs.
pub fn one_pcid() {
    broadcast(PCID | ASID, 0, edx(PCIDS[1], 0), |cpu, _| cpu % 2 == 1);
}

/// A page of the kernel is global: it stays unless global pages are named.
pub fn kernel_page_without_global() {
    broadcast(page(KERNEL) | ADDRESS | ASID, 0, 0, |_, _| false);
}

/// A page of the kernel, named as it must be.
pub fn kernel_page_with_global() {
    broadcast(page(KERNEL) | ADDRESS | ASID | GLOBAL, 0, 0, |_, index| {
        index == KERNEL
    });
}

/// Everything.
pub fn everything() {
    broadcast(ASID | GLOBAL, 0, 0, |_, _| true);
}

/// Guests' entries are not the host's.
pub fn guest() {
    broadcast(ASID | GLOBAL, 0, edx(0, 1), |_, _| false);
}

/// Without TLBSYNC nothing happens.
pub fn no_tlbsync() {
    exchange(
        &|cpu, step| {
            if (cpu, step) == (0, 0) {
                invlpgb(ASID | GLOBAL, 0, 0);
            }
        },
        |_, _| false,
    );
}

/// TLBSYNC waits for requests of the CPU that executes it.
pub fn tlbsync_elsewhere() {
    exchange(
        &|cpu, step| match (cpu, step) {
            (0, 0) => invlpgb(ASID | GLOBAL, 0, 0),
            (1, 1) => tlbsync(),
            _ => {}
        },
        |_, _| false,
    );
}

/// Without INVLPGB there is nothing to wait for.
pub fn no_invlpgb() {
    exchange(
        &|cpu, step| {
            if (cpu, step) == (0, 0) {
                tlbsync();
            }
        },
        |_, _| false,
    );
}

/// CPUs with interrupts off are reached, and so is one that waits in TLBSYNC itself.
pub fn deaf_cpus() {
    exchange(
        &|cpu, step| {
            if step == 0 {
                interrupts::disable();
            } else {
                if cpu < 2 {
                    invlpgb(page(cpu) | ADDRESS | ASID, 0, 0);
                    tlbsync();
                }
                interrupts::enable();
            }
        },
        |_, index| index < 2,
    );
}

/// More requests than there is room for.
pub fn more_than_fit() {
    exchange(
        &|cpu, step| {
            if (cpu, step) == (0, 0) {
                for round in 0..200 {
                    invlpgb(page(round % PAGES) | ADDRESS | ASID, 0, 0);
                }
                tlbsync();
            }
        },
        |_, index| index != KERNEL,
    );
}

/// A load of CR3 that keeps entries does, if it loads what is loaded.
pub fn reload(no_flush: bool) {
    fn again(keep: u64) {
        // SAFETY: the value that is loaded now.
        unsafe { BroadcastCpu::write_cr3(BroadcastCpu::read_cr3() | keep) };
    }
    if no_flush {
        exchange(
            &|_, step| {
                if step == 0 {
                    again(NO_FLUSH)
                }
            },
            |_, _| false,
        );
    } else {
        // The emulator drops global entries too.
        exchange(
            &|_, step| {
                if step == 0 {
                    again(0)
                }
            },
            |_, _| true,
        );
    }
}

/// Every CPU exchanges a page of its own, again and again, and all look at all pages. Returns how many reads were stale.
fn storm(sync: bool) -> u64 {
    const ROUNDS: u64 = 300;
    use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
    let cpus = start();
    let tables = Mutex::new(Tables::new().expect("frames are left"));
    let root = tables.lock().root();
    let at = |cpu: usize| USER_WINDOW + cpu as u64 * 4096;
    for cpu in 0..cpus {
        tables
            .lock()
            .user()
            .map(at(cpu), frame(0))
            .expect("nothing is mapped");
    }
    let said: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
    let (stale, barrier) = (AtomicU64::new(0), Barrier::new(cpus));
    smp::run_on_all(&|cpu| {
        load(root, PCIDS[0]);
        barrier.wait(spin_loop);
        for round in 1..=ROUNDS {
            let new = frame(round);
            let old = {
                let mut tables = tables.lock();
                let old = tables.user().unmap(at(cpu));
                tables.user().map(at(cpu), new).expect("it was unmapped");
                old
            };
            invlpgb(at(cpu) | ADDRESS | PCID | ASID, 0, edx(PCIDS[0], 0));
            if sync {
                tlbsync();
            }
            said[cpu].store(round, SeqCst);
            for (other, said) in said.iter().enumerate().take(cpus) {
                let least = said.load(SeqCst);
                // A page may be gone for a moment, and a frame that was given back holds something else.
                let fresh = read(at(other)).map_or(true, |seen| (least..=ROUNDS).contains(&seen));
                stale.fetch_add(u64::from(!fresh), SeqCst);
            }
            drop(old);
            spin_loop();
        }
        barrier.wait(spin_loop);
        load(kernel_root(), 0);
    });
    stale.into_inner()
}

/// CPUs that all broadcast at the same time.
///
/// # Panics
/// When a read was stale.
pub fn all_at_once() {
    assert_eq!(storm(true), 0);
}

/// As [`all_at_once`], without TLBSYNC.
///
/// # Panics
/// When no read was stale.
pub fn all_at_once_unsynced() {
    assert!(storm(false) > 0, "nobody noticed");
}

/// Operands that raise #GP: executes INVLPGB with them.
///
/// # Panics
/// Where the emulation refuses them, as it must.
pub fn refused(rax: u64, ecx: u32, edx: u32) {
    start();
    assert_eq!(percpu::current(), 0);
    invlpgb(rax, ecx, edx);
}

/// A PCID while PCIDs are off: as [`refused`].
///
/// # Panics
/// Where the emulation refuses it, as it must.
pub fn refused_without_pcids() {
    invlpgb::start();
    invlpgb(PCID | ASID, 0, edx(1, 0));
}

/// The largest count, and a PCID, are accepted.
pub fn largest_count() {
    start();
    invlpgb(page(0) | ADDRESS | PCID | ASID, 7, edx(0xfff, 0));
    tlbsync();
}

/// Another undefined opcode is not swallowed.
///
/// # Panics
/// Always.
pub fn another_opcode() {
    start();
    // SAFETY: UD2 raises #UD, which ends the test.
    unsafe { asm!("ud2", options(nostack)) };
}
