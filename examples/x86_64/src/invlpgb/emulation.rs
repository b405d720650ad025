//! The invalid-opcode handler that stands in for the CPU, and the NMI that carries its requests.

use core::{hint::spin_loop, ptr::with_exposed_provenance};

use invlpgb_emulation::{Board, Instruction, Limits, Operands, Request, Tlb, perform};
use x86_64::{
    VirtAddr,
    instructions::tlb,
    registers::control::{Cr4, Cr4Flags},
};

use super::{cpuid, instructions};
use crate::{MAX_CPUS, apic, paging, percpu, traps::TrapFrame};

/// Requests of a CPU that wait for its TLBSYNC; it is synced early when there are more.
const ROOM: usize = 64;

static BOARD: Board<MAX_CPUS, ROOM> = Board::new();

/// Has this CPU take part: its interrupt table is loaded, and its APIC is on.
pub(crate) fn join() {
    BOARD.join(percpu::current(), || Here.drop_everything());
}

/// Performs what other CPUs have asked for. Returns whether instructions are emulated at all, so that an NMI is no
/// surprise. Called by the NMI handler.
pub(crate) fn serve_nmi() -> bool {
    if !cpuid::is_emulated() {
        return false;
    }
    BOARD.serve(percpu::current(), |request| perform(request, &mut Here));
    true
}

/// Executes the instruction that raised #UD, if it is an emulated one.
///
/// # Panics
/// Where the CPU would raise #GP.
pub(crate) fn emulate(frame: &mut TrapFrame) -> bool {
    if !cpuid::is_emulated() || frame.cs & 3 != 0 {
        return false;
    }
    // SAFETY: the CPU has just fetched an instruction from there; the kernel's text is followed by other sections.
    let bytes =
        unsafe { with_exposed_provenance::<[u8; Instruction::LENGTH]>(frame.rip as usize).read() };
    match Instruction::decode(bytes) {
        Some(Instruction::Invlpgb) => invlpgb(frame),
        Some(Instruction::Tlbsync) => tlbsync(),
        None => return false,
    }
    frame.rip += Instruction::LENGTH as u64;
    true
}

fn invlpgb(frame: &TrapFrame) {
    let operands = Operands {
        rax: frame.rax,
        ecx: frame.rcx as u32,
        edx: frame.rdx as u32,
    };
    let limits = Limits {
        extra_pages: cpuid::EXTRA_PAGES,
        pcide: instructions::pcide(),
        address_bits: if Cr4::read().contains(Cr4Flags::L5_PAGING) {
            57
        } else {
            48
        },
    };
    let request = Request::decode(operands, limits).unwrap_or_else(|why| {
        panic!(
            "INVLPGB at {:#x} raises #GP: {why}: {operands:x?}",
            frame.rip
        )
    });
    let me = percpu::current();
    if BOARD.post(me, request).is_err() {
        // The CPU may perform a request at any time.
        tlbsync();
        BOARD.post(me, request).expect("all is synced");
    }
}

/// Interrupts are off. The other CPUs are waited for, which answer NMIs, as this one does: so CPUs that sync at the
/// same time don't wait for each other.
fn tlbsync() {
    BOARD.sync(
        percpu::current(),
        |request| perform(request, &mut Here),
        |cpu| apic::send_nmi(core::iter::once(cpu)),
        spin_loop,
    );
}

/// The TLB of this CPU.
struct Here;

impl Tlb for Here {
    fn pcid(&self) -> u16 {
        instructions::pcid()
    }

    fn is_global(&self, address: u64) -> bool {
        Cr4::read().contains(Cr4Flags::PAGE_GLOBAL) && paging::is_shared(address)
    }

    fn drop_page(&mut self, address: u64) {
        tlb::flush(VirtAddr::new_truncate(address));
    }

    fn drop_non_global(&mut self) {
        tlb::flush_all();
    }

    fn drop_everything(&mut self) {
        tlb::flush_all();
        // SAFETY: PGE only decides whether global entries are cached, and is put back at once.
        unsafe {
            Cr4::update(|flags| flags.toggle(Cr4Flags::PAGE_GLOBAL));
            Cr4::update(|flags| flags.toggle(Cr4Flags::PAGE_GLOBAL));
        }
    }
}
