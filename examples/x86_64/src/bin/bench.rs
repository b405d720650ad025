//! Benchmark kernel: what each backend costs in instructions, beside the floor.
#![no_std]
#![no_main]

use shootdown::x86_64::{ConcurrentIpi, Ipi};
use x86_kernel::{
    bench::{
        crew,
        measure::{self, Backend},
    },
    demo::config,
    exit::{Exit, exit},
    platform::{FLUSH_VECTOR, Kernel},
    smp, traps,
};

x86_kernel::entry!(main);
x86_kernel::panic_to_exit!();

static CONCURRENT: ConcurrentIpi<Kernel<0>> = ConcurrentIpi::new();
static SERIAL: Ipi<Kernel<1>> = Ipi::new();

extern "C" fn serve_concurrent() {
    CONCURRENT.handle_interrupt();
}

extern "C" fn serve_serial() {
    SERIAL.handle_interrupt();
}

struct InParallel;

impl Backend for InParallel {
    type Tlb = ConcurrentIpi<Kernel<0>>;
    const TLB: &'static Self::Tlb = &CONCURRENT;
    const NAME: &'static str = "concurrent_ipi";
}

struct InTurn;

impl Backend for InTurn {
    type Tlb = Ipi<Kernel<1>>;
    const TLB: &'static Self::Tlb = &SERIAL;
    const NAME: &'static str = "ipi";
}

fn main() -> ! {
    CONCURRENT.init(config()).expect("it suits this machine");
    SERIAL.init(config()).expect("it suits this machine");
    traps::set_fast_handler::<FLUSH_VECTOR>(serve_concurrent);
    traps::set_fast_handler::<{ FLUSH_VECTOR + 1 }>(serve_serial);
    crew::init();
    smp::start(None);
    let floor = measure::floor();
    measure::backend::<InParallel>(&floor);
    measure::backend::<InTurn>(&floor);
    exit(Exit::Success)
}
