//! Which CPU this is, and the tables each CPU has of its own.

use core::{
    arch::asm,
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, Ordering::AcqRel},
};

use shootdown::CpuSlot;
use x86_64::{
    VirtAddr,
    instructions::{segmentation, tables::load_tss},
    registers::{
        control::{Cr4, Cr4Flags},
        model_specific::GsBase,
        segmentation::{CS, DS, ES, FS, GS, SS, Segment, SegmentSelector},
    },
    structures::{
        gdt::{Descriptor, GlobalDescriptorTable},
        tss::TaskStateSegment,
    },
};

use crate::MAX_CPUS;

/// Stack-table entry of the NMI, which may interrupt any instruction, on any stack.
pub const NMI_STACK: u16 = 0;
/// Stack-table entry of the double fault.
pub const DOUBLE_FAULT_STACK: u16 = 1;

const EXTRA_STACK_SIZE: usize = 16 * 1024;

#[repr(align(16))]
struct Stack(UnsafeCell<[u8; EXTRA_STACK_SIZE]>);

/// Flushers that may run side by side, each with a slot on every CPU.
pub(crate) const FLUSHERS: usize = 4;

/// What GS points to. `index` comes first: [`current`] reads it at offset 0; then the address of its [`SLOTS`].
#[repr(C)]
struct PerCpu {
    index: UnsafeCell<usize>,
    own_slots: UnsafeCell<*const [CpuSlot; FLUSHERS]>,
    taken: AtomicBool,
    tss: UnsafeCell<TaskStateSegment>,
    gdt: UnsafeCell<GlobalDescriptorTable>,
    stacks: [Stack; 2],
}

/// As many as a word of a CPU set has bits, so that the compiler need not check a bit's number.
static SLOTS: [[CpuSlot; FLUSHERS]; 64] = [const { [const { CpuSlot::new() }; FLUSHERS] }; 64];
const _: () = assert!(MAX_CPUS <= SLOTS.len());

/// Where they are, as a kernel knows that places them in memory near each CPU: one load each.
static PLACES: [&[CpuSlot; FLUSHERS]; SLOTS.len()] = {
    let mut places = [&SLOTS[0]; SLOTS.len()];
    let mut cpu = 0;
    while cpu < SLOTS.len() {
        places[cpu] = &SLOTS[cpu];
        cpu += 1;
    }
    places
};

// SAFETY: `init` lets one CPU write its own entry, once; after that it is only read.
unsafe impl Sync for PerCpu {}

static CPUS: [PerCpu; MAX_CPUS] = [const {
    PerCpu {
        index: UnsafeCell::new(0),
        own_slots: UnsafeCell::new(core::ptr::null()),
        taken: AtomicBool::new(false),
        tss: UnsafeCell::new(TaskStateSegment::new()),
        gdt: UnsafeCell::new(GlobalDescriptorTable::new()),
        stacks: [const { Stack(UnsafeCell::new([0; EXTRA_STACK_SIZE])) }; 2],
    }
}; MAX_CPUS];

/// Makes the caller's CPU number `index`: segment tables, stacks for NMI and double fault, GS base, and global pages
/// where the CPU has them.
///
/// # Panics
/// When a CPU has that number already, or it is not below [`MAX_CPUS`].
pub(crate) fn init(index: usize) {
    let cpu = &CPUS[index];
    assert!(
        !cpu.taken.swap(true, AcqRel),
        "CPU {index} was started twice"
    );
    // SAFETY: `taken` gives this CPU the entry for itself; the static is never moved, so the tables may be loaded.
    unsafe {
        *cpu.index.get() = index;
        *cpu.own_slots.get() = slots(index);
        let tss = &mut *cpu.tss.get();
        // The segment is packed: its table is written as a whole.
        let mut tops = [VirtAddr::zero(); 7];
        for (top, stack) in tops.iter_mut().zip(&cpu.stacks) {
            *top = VirtAddr::from_ptr(stack.0.get().add(1));
        }
        tss.interrupt_stack_table = tops;
        let gdt = &mut *cpu.gdt.get();
        let code = gdt.append(Descriptor::kernel_code_segment());
        let data = gdt.append(Descriptor::kernel_data_segment());
        let task = gdt.append(Descriptor::tss_segment(&*cpu.tss.get()));
        (*cpu.gdt.get()).load_unsafe();
        CS::set_reg(code);
        SS::set_reg(data);
        DS::set_reg(data);
        ES::set_reg(data);
        FS::set_reg(SegmentSelector::NULL);
        GS::set_reg(SegmentSelector::NULL);
        load_tss(task);
    }
    GsBase::write(VirtAddr::from_ptr(cpu));
    if raw_cpuid::CpuId::new()
        .get_feature_info()
        .is_some_and(|f| f.has_pge())
    {
        // SAFETY: the boot page tables mark as global what all address spaces share, and nothing else.
        unsafe { Cr4::update(|flags| *flags |= Cr4Flags::PAGE_GLOBAL) };
    }
}

/// The number of the caller's CPU. Cheap, and right in any context once the CPU is set up.
#[inline]
#[must_use]
pub fn current() -> usize {
    let index;
    // SAFETY: GS points to this CPU's `PerCpu`, whose first field is the number and never changes.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) index, options(nostack, preserves_flags, readonly, pure))
    };
    index
}

/// The flushers' memory for CPU `cpu`.
#[inline]
pub(crate) fn slots(cpu: usize) -> &'static [CpuSlot; FLUSHERS] {
    // A remainder rather than a check: there is no such CPU, and this is where a flush spends its time.
    PLACES[cpu % PLACES.len()]
}

/// The flushers' memory for the caller's CPU, once it is set up.
#[inline]
pub(crate) fn own_slots() -> &'static [CpuSlot; FLUSHERS] {
    let slots: *const [CpuSlot; FLUSHERS];
    // SAFETY: GS points to this CPU's `PerCpu`, whose second field is the address of its slots and never changes.
    unsafe {
        asm!("mov {}, gs:[8]", out(reg) slots, options(nostack, preserves_flags, readonly, pure));
        &*slots
    }
}

/// The selector of the code segment, as the interrupt table needs it.
pub(crate) fn code_segment() -> SegmentSelector {
    segmentation::CS::get_reg()
}
