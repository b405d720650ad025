//! The floor: what a shootdown costs without any protocol. An interrupt handler that saves all registers, drops what one
//! word says, and counts an acknowledgement.

use core::{
    arch::{asm, naked_asm},
    hint::spin_loop,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};

use x86_64::instructions::interrupts::without_interrupts;

use super::ADDRESS;
use crate::{apic, arena::PAGE};

/// The vector of the floor's interrupt.
pub const VECTOR: u8 = 0xd0;

/// Pages to drop, 0 for everything.
static PAGES: AtomicU64 = AtomicU64::new(0);
static ACKNOWLEDGED: AtomicU64 = AtomicU64::new(0);

/// The gate of [`VECTOR`].
#[unsafe(naked)]
pub unsafe extern "C" fn gate() {
    naked_asm!(
        "push rax", "push rcx", "push rdx", "push rbx", "push rbp", "push rsi", "push rdi", "push r8",
        "push r9", "push r10", "push r11", "push r12", "push r13", "push r14", "push r15",
        "cld",
        "call {serve}",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop r11", "pop r10", "pop r9", "pop r8",
        "pop rdi", "pop rsi", "pop rbp", "pop rbx", "pop rdx", "pop rcx", "pop rax",
        "iretq",
        serve = sym serve,
    )
}

extern "C" fn serve() {
    drop_pages(PAGES.load(Acquire));
    ACKNOWLEDGED.fetch_add(1, SeqCst);
    apic::end_of_interrupt();
}

#[inline(always)]
fn drop_pages(pages: u64) {
    if pages == 0 {
        // SAFETY: it is the root that is loaded now.
        unsafe { asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack)) };
        return;
    }
    let mut address = ADDRESS;
    let end = ADDRESS + pages * PAGE;
    while address != end {
        // SAFETY: INVLPG changes no memory and no register.
        unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
        address += PAGE;
    }
}

/// Has this CPU and `others`, a mask of `count` CPUs, drop `pages` pages from [`ADDRESS`] on, or everything if that is 0.
#[inline(never)]
pub fn flush(pages: u64, others: u64, count: u64) {
    if others == 0 {
        drop_pages(pages);
        return;
    }
    without_interrupts(|| {
        ACKNOWLEDGED.store(0, Relaxed);
        PAGES.store(pages, Release);
        apic::send_to_mask(VECTOR, others);
    });
    drop_pages(pages);
    while ACKNOWLEDGED.load(Acquire) < count {
        spin_loop();
    }
}
