//! The interrupt table and what runs behind it.

use core::{
    arch::{global_asm, naked_asm},
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

use spin::{Mutex, Once};
use x86_64::{
    VirtAddr,
    instructions::tables::lidt,
    registers::control::Cr2,
    structures::{
        DescriptorTablePointer,
        idt::{Entry, HandlerFunc},
    },
};

use crate::{apic, host, invalid_opcode, invlpgb, percpu, probe};

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

static TABLE: Mutex<[Entry<HandlerFunc>; VECTORS]> = Mutex::new([Entry::missing(); VECTORS]);

/// Handlers of the vectors that have a gate of their own.
static FAST: [AtomicPtr<()>; VECTORS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; VECTORS];

/// Has `handler` run for `VECTOR`, with interrupts off, and the interrupt acknowledged after it, by a gate of its own
/// that saves what functions may change and nothing else. Call it before interrupts of that vector are sent.
///
/// # Panics
/// When the vector is an exception, the spurious one, or has a handler.
pub fn set_fast_handler<const VECTOR: u8>(handler: extern "C" fn()) {
    assert!(
        u64::from(VECTOR) >= FIRST_INTERRUPT && VECTOR != apic::SPURIOUS,
        "vector {VECTOR} is not free"
    );
    let before = FAST[usize::from(VECTOR)].swap(handler as *mut (), Relaxed);
    assert!(before.is_null(), "vector {VECTOR} has a handler");
    set_gate(
        VECTOR,
        if apic::is_x2apic() {
            x2apic_gate::<VECTOR>
        } else {
            xapic_gate::<VECTOR>
        },
    );
}

/// Makes `gate` the code that the CPU runs for `vector`.
pub(crate) fn set_gate(vector: u8, gate: unsafe extern "C" fn()) {
    let gate = VirtAddr::from_ptr(gate as *const ());
    // SAFETY: a gate saves the registers it changes and returns with IRET; all CPUs have the same code segment.
    unsafe {
        TABLE.lock()[usize::from(vector)]
            .set_handler_addr(gate)
            .set_code_selector(percpu::code_segment());
    }
}

/// A gate that saves 9 registers, those that the C calling convention lets a function change: with the 5 words that
/// the CPU pushes they align the stack. `$acknowledge` ends the interrupt.
macro_rules! fast_gate {
    ($name:ident, [$($acknowledge:literal),*], $($operand:ident = $value:expr),*) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name<const VECTOR: u8>() {
            naked_asm!(
                "push rax",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "push r8",
                "push r9",
                "push r10",
                "push r11",
                "cld",
                "call [{handlers} + 8 * {vector}]",
                $($acknowledge,)*
                "pop r11",
                "pop r10",
                "pop r9",
                "pop r8",
                "pop rdi",
                "pop rsi",
                "pop rdx",
                "pop rcx",
                "pop rax",
                "iretq",
                handlers = sym FAST,
                vector = const VECTOR,
                $($operand = const $value),*
            )
        }
    };
}

// The address is beyond what a displacement can say.
fast_gate!(
    xapic_gate,
    ["mov eax, {address}", "mov dword ptr [rax], 0"],
    address = apic::EOI_ADDRESS
);
fast_gate!(
    x2apic_gate,
    ["mov ecx, {msr}", "xor eax, eax", "xor edx, edx", "wrmsr"],
    msr = apic::EOI_MSR
);

/// Loads the interrupt table on this CPU.
pub(crate) fn load() {
    let mut table = TABLE.lock();
    if table[0].handler_addr() == VirtAddr::zero() {
        let stubs = VirtAddr::from_ptr(&raw const trap_stubs);
        let code = percpu::code_segment();
        for (vector, entry) in table.iter_mut().enumerate() {
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
    }
    let pointer = DescriptorTablePointer {
        limit: (size_of_val(&*table) - 1) as u16,
        base: VirtAddr::from_ptr(&raw const *table),
    };
    // SAFETY: the table is complete and is never freed; entries change only before their interrupts are sent.
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
            // Both must look: an NMI that two sent is one.
            let expected = invlpgb::serve_nmi() | host::serve_nmi();
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
