//! Fake platforms: each test has a machine of its own, with slots, a CPU number a thread, and a log of what was done.

use std::{cell::Cell, cell::RefCell, collections::BTreeMap};

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
    static PINS: Cell<i32> = const { Cell::new(0) };
    static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static REGISTERS: Cell<Registers> = const { Cell::new(Registers::INITIAL) };
}

/// What the fake CPU of this thread reads from its registers.
#[derive(Clone, Copy)]
pub struct Registers {
    pub cr3: u64,
    pub cr4: u64,
    pub efer: u64,
    pub tcr: u64,
    pub mmfr0: u64,
    pub mmfr2: u64,
    pub isar0: u64,
    pub midr: u64,
    pub ttbr1: u64,
    pub level: u8,
    pub hcr: u64,
}

impl Registers {
    const INITIAL: Self = Self {
        cr3: 0x1000,
        cr4: 1 << 7,
        efer: 1 << 11,
        tcr: 1 << 36 | 2 << 30,
        mmfr0: 2 << 4,
        mmfr2: 0,
        isar0: 0,
        midr: 0x410f_d083,
        ttbr1: 0x4000_1000,
        level: 1,
        hcr: 0,
    };
}

/// Sets registers of this thread's CPU.
pub fn set_registers(change: impl FnOnce(&mut Registers)) {
    let mut registers = REGISTERS.get();
    change(&mut registers);
    REGISTERS.set(registers);
}

pub fn registers() -> Registers {
    REGISTERS.get()
}

/// Makes this thread the CPU `cpu`.
pub fn become_cpu(cpu: usize) {
    CPU.set(cpu);
}

pub fn current_cpu() -> usize {
    CPU.get()
}

/// Lets this thread be CPU `cpu` while `f` runs.
pub fn on_cpu<R>(cpu: usize, f: impl FnOnce() -> R) -> R {
    let before = CPU.replace(cpu);
    let result = f();
    CPU.set(before);
    result
}

pub fn pin(change: i32) {
    PINS.set(PINS.get() + change);
}

pub fn pins() -> i32 {
    PINS.get()
}

pub fn log(what: String) {
    LOG.with_borrow_mut(|log| log.push(what));
}

/// What this thread's CPU did since it was last asked.
pub fn take_log() -> Vec<String> {
    LOG.take()
}

/// Defines a platform with its own slots, and a flusher of the given type in a static.
#[macro_export]
macro_rules! machine {
    ($platform:ident, $cpus:literal, $tlb:ident: $flusher:ty) => {
        $crate::machine!($platform, $cpus, $tlb: $flusher, stuck = |_, _| ());
    };
    ($platform:ident, $cpus:literal, $tlb:ident: $flusher:ty, stuck = $stuck:expr) => {
        $crate::machine!($platform, $cpus, $tlb: $flusher, stuck = $stuck, on_ipi = |_| ());
    };
    // One thread plays all CPUs: whoever is interrupted serves at once.
    ($platform:ident, $cpus:literal, $tlb:ident: $flusher:ty, served) => {
        $crate::machine!(
            $platform, $cpus, $tlb: $flusher,
            stuck = |cpu, _| panic!("CPU {cpu} is waited for, but nobody has told it"),
            on_ipi = |cpu| $crate::platform::on_cpu(cpu, || $tlb.handle_interrupt())
        );
    };
    (
        $platform:ident, $cpus:literal, $tlb:ident: $flusher:ty,
        stuck = $stuck:expr, on_ipi = $on_ipi:expr
    ) => {
        struct $platform;
        static $tlb: $flusher = <$flusher>::new();

        // SAFETY: each thread keeps its CPU number, there are no interrupts, and each CPU has a slot of its own.
        unsafe impl shootdown::Platform for $platform {
            const CPUS: usize = $cpus;
            fn current_cpu() -> usize {
                $crate::platform::current_cpu()
            }
            fn pin() {
                $crate::platform::pin(1);
            }
            fn unpin() {
                $crate::platform::pin(-1);
            }
            fn irq_save() -> usize {
                0
            }
            fn irq_restore(_: usize) {}
            fn slot(cpu: usize) -> &'static shootdown::CpuSlot {
                static SLOTS: [shootdown::CpuSlot; $cpus] =
                    [const { shootdown::CpuSlot::new() }; $cpus];
                &SLOTS[cpu]
            }
            fn relax() {
                std::thread::yield_now();
            }
            fn stuck(cpu: usize, turns: u64) {
                let stuck: fn(usize, u64) = $stuck;
                stuck(cpu, turns);
            }
        }

        // SAFETY: targets take the interrupt at once, or poll, which is as good.
        unsafe impl shootdown::IpiPlatform for $platform {
            fn send_flush_ipi(targets: shootdown::Cpus<'_>) {
                let targets: Vec<_> = targets.iter().collect();
                $crate::platform::log(format!("ipi {targets:?}"));
                let on_ipi: fn(usize) = $on_ipi;
                targets.into_iter().for_each(on_ipi);
            }
        }
    };
}

/// x86_64 instructions that are logged.
#[derive(Debug)]
pub struct LogX86;

// SAFETY: there is no TLB to keep coherent; registers behave as registers.
unsafe impl shootdown::x86_64::Instructions for LogX86 {
    fn invlpg(addr: u64) {
        log(format!("invlpg {addr:#x}"));
    }
    fn invpcid(kind: shootdown::x86_64::InvpcidKind, pcid: u16, addr: u64) {
        log(format!("invpcid {kind:?} {pcid} {addr:#x}"));
    }
    fn read_cr3() -> u64 {
        registers().cr3
    }
    unsafe fn write_cr3(value: u64) {
        log(format!("cr3 {value:#x}"));
        set_registers(|registers| registers.cr3 = value & !(1 << 63));
    }
    fn read_cr4() -> u64 {
        registers().cr4
    }
    unsafe fn write_cr4(value: u64) {
        log(format!("cr4 {value:#x}"));
        let pcide = 1 << 17;
        // What the hardware answers with a general-protection fault.
        let enabling = value & pcide != 0 && registers().cr4 & pcide == 0;
        assert!(
            !enabling || registers().cr3 & 0xfff == 0,
            "#GP: CR3 bits 11:0 are not 0"
        );
        set_registers(|registers| registers.cr4 = value);
    }
    fn read_efer() -> u64 {
        registers().efer
    }
    fn publish_before_ipi() {
        log("publish".into());
    }
    fn barrier_after_rmw() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
    fn publish_before_invlpgb() {
        log("mfence".into());
    }
    fn invlpgb(operands: shootdown::x86_64::Invlpgb) {
        let (rax, ecx, edx) = (operands.rax(), operands.ecx(), operands.edx());
        log(format!("invlpgb {rax:#x} {ecx:#x} {edx:#x}"));
    }
    fn tlbsync() {
        log("tlbsync".into());
    }
}

/// Model-specific registers that are logged when written, and give what was written last.
#[derive(Debug)]
pub struct LogMsrs;

thread_local! {
    static MSRS: RefCell<BTreeMap<u32, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Sets a register as the hardware or the hypervisor would.
pub fn set_msr(register: u32, value: u64) {
    MSRS.with_borrow_mut(|msrs| msrs.insert(register, value));
}

// SAFETY: they behave as registers, and do nothing.
unsafe impl shootdown::x86_64::Msrs for LogMsrs {
    unsafe fn read(register: u32) -> u64 {
        MSRS.with_borrow(|msrs| msrs.get(&register).copied().unwrap_or(0))
    }
    unsafe fn write(register: u32, value: u64) {
        log(format!("wrmsr {register:#x} {value:#x}"));
        set_msr(register, value);
    }
}

/// arm64 instructions that are logged.
#[derive(Debug)]
pub struct LogArm;

// SAFETY: there is no TLB to keep coherent; registers behave as registers.
unsafe impl shootdown::aarch64::Instructions for LogArm {
    fn tlbi(operation: shootdown::aarch64::Tlbi, operand: u64) {
        log(format!("tlbi {operation:?} {operand:#x}"));
    }
    fn dsb_ishst() {
        log("dsb ishst".into());
    }
    fn dsb_ish() {
        log("dsb ish".into());
    }
    fn dsb_nsh() {
        log("dsb nsh".into());
    }
    fn isb() {
        log("isb".into());
    }
    unsafe fn write_ttbr0(value: u64) {
        log(format!("ttbr0 {value:#x}"));
    }
    fn regime() -> (u8, u64) {
        (registers().level, registers().hcr)
    }
    fn id_aa64mmfr0() -> u64 {
        registers().mmfr0
    }
    fn id_aa64mmfr2() -> u64 {
        registers().mmfr2
    }
    fn id_aa64isar0() -> u64 {
        registers().isar0
    }
    fn midr() -> u64 {
        registers().midr
    }
    fn read_ttbr1() -> u64 {
        registers().ttbr1
    }
    unsafe fn write_ttbr1(value: u64) {
        log(format!("ttbr1 {value:#x}"));
        set_registers(|registers| registers.ttbr1 = value);
    }
    fn tcr() -> u64 {
        registers().tcr
    }
}

/// The message of the panic that `f` ends in.
pub fn panic_of(f: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_err();
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => (*panic.downcast::<&str>().unwrap()).to_string(),
    }
}
