//! The local APIC: xAPIC, or x2APIC where CPUID says so.
//!
//! Written here because the `x2apic` crate keeps one mutable driver per CPU, which an interrupt handler could not
//! share with the code it interrupts, and also programs a timer.

use core::{
    ptr::with_exposed_provenance_mut,
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Relaxed, Release},
    },
};

use raw_cpuid::CpuId;
use x86_64::{
    instructions::interrupts::without_interrupts,
    registers::model_specific::{ApicBase, ApicBaseFlags, Msr},
    structures::paging::PhysFrame,
};

use crate::{MAX_CPUS, percpu};

/// The vector of interrupts that vanished before they were delivered; not acknowledged.
pub const SPURIOUS: u8 = 0xff;

const BASE: usize = 0xfee0_0000;
const ID: u32 = 0x20;
const EOI: u32 = 0xb0;
const LOGICAL_DESTINATION: u32 = 0xd0;
const DESTINATION_FORMAT: u32 = 0xe0;
const SPURIOUS_VECTOR: u32 = 0xf0;
const COMMAND: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;

/// Where an interrupt is acknowledged: in memory, or the MSR in x2APIC mode.
pub(crate) const EOI_ADDRESS: usize = BASE + EOI as usize;
pub(crate) const EOI_MSR: u32 = 0x800 + (EOI >> 4);

const SOFTWARE_ENABLE: u32 = 1 << 8;
const PENDING: u32 = 1 << 12;
const ASSERT: u32 = 1 << 14;
const NMI: u32 = 0x400;
const INIT: u32 = 0x500;
const STARTUP: u32 = 0x600;
const LOGICAL: u32 = 1 << 11;
const ALL_BUT_SELF: u32 = 0xc_0000;

/// CPUs that one command of an xAPIC reaches: its flat logical destination has a bit for each.
const FLAT: usize = 8;

static X2APIC: AtomicBool = AtomicBool::new(false);
static IDS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

/// Chooses the mode, once, on the boot CPU.
pub(crate) fn detect() {
    let x2apic = CpuId::new()
        .get_feature_info()
        .is_some_and(|f| f.has_x2apic());
    X2APIC.store(x2apic, Relaxed);
}

/// Turns this CPU's APIC on and notes its id.
pub(crate) fn enable() {
    let frame = PhysFrame::containing_address(x86_64::PhysAddr::new(BASE as u64));
    let mode = if is_x2apic() {
        ApicBaseFlags::X2APIC_ENABLE
    } else {
        ApicBaseFlags::empty()
    };
    // SAFETY: the base is the one the CPU starts with, and its page is mapped uncached.
    unsafe {
        ApicBase::write(
            frame,
            ApicBase::read().1 | ApicBaseFlags::LAPIC_ENABLE | mode,
        )
    };
    if !is_x2apic() && percpu::current() < FLAT {
        write(DESTINATION_FORMAT, u32::MAX);
        write(LOGICAL_DESTINATION, 1 << (24 + percpu::current()));
    }
    write(SPURIOUS_VECTOR, SOFTWARE_ENABLE | u32::from(SPURIOUS));
    let id = read(ID);
    IDS[percpu::current()].store(if is_x2apic() { id } else { id >> 24 }, Release);
}

/// Whether the APIC is reached through MSRs.
#[inline]
#[must_use]
pub fn is_x2apic() -> bool {
    X2APIC.load(Relaxed)
}

/// Sends interrupt `vector` to the CPUs whose bits are set in `cpus`, by as few commands as the APIC allows. Call it
/// with interrupts off: one that sends in between would come between the two halves of an xAPIC's command. Stores before it must have been made visible by the caller: in x2APIC
/// mode the write that sends is not ordered after them.
#[inline]
pub fn send_to_mask(vector: u8, cpus: u64) {
    let low = ASSERT | LOGICAL | u32::from(vector);
    if is_x2apic() {
        send_to_clusters(low, cpus);
        return;
    }
    if cpus < 1 << FLAT {
        write_xapic_command((cpus as u32) << 24, low);
    } else {
        send_to_each(ASSERT | u32::from(vector), cpus);
    }
}

/// An x2APIC's logical id is its cluster, bits 31:16, and a bit for each of the 16 CPUs of a cluster (Intel SDM volume
/// 3, "Deriving Logical x2APIC ID from the Local x2APIC ID"). Neighbours share a command.
#[inline(never)]
fn send_to_clusters(low: u32, cpus: u64) {
    let mut destination = 0;
    for cpu in bits(cpus) {
        let id = IDS[cpu].load(Relaxed);
        let (cluster, bit) = (id >> 4 << 16, 1 << (id & 0xf));
        if destination != 0 && destination >> 16 << 16 != cluster {
            command(destination, low);
            destination = 0;
        }
        destination |= cluster | bit;
    }
    command(destination, low);
}

#[cold]
fn send_to_each(low: u32, cpus: u64) {
    for cpu in bits(cpus) {
        command(IDS[cpu].load(Relaxed), low);
    }
}

fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    })
}

/// Sends an NMI to each of `cpus`.
pub fn send_nmi(cpus: impl Iterator<Item = usize>) {
    for cpu in cpus {
        command(IDS[cpu].load(Relaxed), ASSERT | NMI);
    }
}

/// Acknowledges the interrupt being served.
pub fn end_of_interrupt() {
    write(EOI, 0);
}

/// Resets all other CPUs.
pub(crate) fn send_init_to_others() {
    command(0, ALL_BUT_SELF | ASSERT | INIT);
}

/// Has all other CPUs start in real mode at the page `page`.
pub(crate) fn send_startup_to_others(page: u8) {
    command(0, ALL_BUT_SELF | ASSERT | STARTUP | u32::from(page));
}

fn command(destination: u32, low: u32) {
    if is_x2apic() {
        // SAFETY: in x2APIC mode this is the command register, and the command asks for no more than an interrupt.
        unsafe { msr(COMMAND).write(u64::from(destination) << 32 | u64::from(low)) };
        return;
    }
    // An interrupt handler that sends would come between the two halves.
    without_interrupts(|| write_xapic_command(destination << 24, low));
}

#[inline]
fn write_xapic_command(high: u32, low: u32) {
    let [command, command_high] =
        [COMMAND, COMMAND_HIGH].map(|it| with_exposed_provenance_mut::<u32>(BASE + it as usize));
    // SAFETY: the APIC's page is mapped uncached, these are its command registers, and the command asks for no more
    // than an interrupt.
    unsafe {
        while command.read_volatile() & PENDING != 0 {
            core::hint::spin_loop();
        }
        command_high.write_volatile(high);
        command.write_volatile(low);
    }
}

fn read(register: u32) -> u32 {
    if is_x2apic() {
        // SAFETY: CPUID said that the APIC has these MSRs, and reading one has no side effect.
        unsafe { msr(register).read() as u32 }
    } else {
        // SAFETY: the APIC's page is mapped uncached, and this is one of its registers.
        unsafe { with_exposed_provenance_mut::<u32>(BASE + register as usize).read_volatile() }
    }
}

fn write(register: u32, value: u32) {
    if is_x2apic() {
        // SAFETY: CPUID said that the APIC has these MSRs; the callers write values the register accepts.
        unsafe { msr(register).write(u64::from(value)) };
    } else {
        // SAFETY: the APIC's page is mapped uncached, and this is one of its registers.
        unsafe {
            with_exposed_provenance_mut::<u32>(BASE + register as usize).write_volatile(value)
        };
    }
}

fn msr(register: u32) -> Msr {
    Msr::new(0x800 + (register >> 4))
}
