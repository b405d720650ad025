//! The interrupt table and what runs behind it.

use core::arch::global_asm;

use spin::Once;
use x86_64::{
    VirtAddr,
    instructions::tables::lidt,
    registers::control::Cr2,
    structures::{
        DescriptorTablePointer,
        idt::{Entry, HandlerFunc},
    },
};

use crate::{apic, host, invalid_opcode, percpu, probe};

global_asm!(include_str!("trap.s"));

const VECTORS: usize = 256;
const STUB_SIZE: u64 = 16;
const NMI: u64 = 2;
const INVALID_OPCODE: u64 = 6;
const DOUBLE_FAULT: usize = 8;
const PAGE_FAULT: u64 = 14;
const FIRST_INTERRUPT: u64 = 32;

/// All registers of the interrupted code, as the stubs save them.
#[derive(Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields are the registers of the same name")]
pub struct TrapFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

static HANDLERS: [Once<fn()>; VECTORS] = [const { Once::new() }; VECTORS];

/// Has `handler` run for `vector`, with interrupts off, and the interrupt acknowledged after it. With vector 2 it
/// runs for NMIs, on their own stack; for those too by which a stand-in works.
///
/// # Panics
/// When the vector is an exception other than the NMI, the spurious one, or has a handler.
pub fn set_handler(vector: u8, handler: fn()) {
    let number = u64::from(vector);
    assert!(
        number == NMI || number >= FIRST_INTERRUPT && vector != apic::SPURIOUS,
        "vector {vector} is not free"
    );
    let mut set = false;
    HANDLERS[usize::from(vector)].call_once(|| {
        set = true;
        handler
    });
    assert!(set, "vector {vector} has a handler");
}

unsafe extern "C" {
    static trap_stubs: u8;
}

struct Table(Once<[Entry<HandlerFunc>; VECTORS]>);

static TABLE: Table = Table(Once::new());

/// Loads the interrupt table on this CPU.
pub(crate) fn load() {
    let table = TABLE.0.call_once(|| {
        let mut entries = [const { Entry::missing() }; VECTORS];
        let stubs = VirtAddr::from_ptr(&raw const trap_stubs);
        let code = percpu::code_segment();
        for (vector, entry) in entries.iter_mut().enumerate() {
            // SAFETY: the stubs are 16 bytes apart, save all registers and return with IRET; all CPUs have the same
            // code segment, and the two stacks named here.
            unsafe {
                let options = entry.set_handler_addr(stubs + STUB_SIZE * vector as u64);
                options.set_code_selector(code);
                match vector {
                    _ if vector as u64 == NMI => {
                        options.set_stack_index(percpu::NMI_STACK);
                    }
                    DOUBLE_FAULT => {
                        options.set_stack_index(percpu::DOUBLE_FAULT_STACK);
                    }
                    _ => {}
                }
            }
        }
        entries
    });
    let pointer = DescriptorTablePointer {
        limit: (size_of_val(table) - 1) as u16,
        base: VirtAddr::from_ptr(table),
    };
    // SAFETY: the table is complete and is never changed or freed.
    unsafe { lidt(&pointer) };
}

/// Called by the stubs, with interrupts off.
#[unsafe(no_mangle)]
extern "C" fn trap_entry(frame: &mut TrapFrame) {
    if frame.vector == PAGE_FAULT && probe::recover(frame, Cr2::read_raw()) {
        return;
    }
    if frame.vector == INVALID_OPCODE && invalid_opcode::emulate(frame) {
        return;
    }
    match frame.vector {
        NMI => {
            let expected = host::serve_nmi();
            match HANDLERS[NMI as usize].get() {
                Some(handler) => handler(),
                None => assert!(expected, "unexpected NMI at {:#x}", frame.rip),
            }
        }
        vector if vector < FIRST_INTERRUPT => {
            panic!(
                "unexpected exception {vector}, CR2 {:#x}, {frame:#x?}",
                Cr2::read_raw()
            )
        }
        vector if vector == u64::from(apic::SPURIOUS) => {}
        vector => {
            match HANDLERS[vector as usize].get() {
                Some(handler) => handler(),
                None => panic!("unexpected interrupt {vector:#x}"),
            }
            apic::end_of_interrupt();
        }
    }
}
