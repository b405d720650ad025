//! tmp
#![no_std]
#![no_main]
use aarch64_cpu::registers::*;
use shootdown_examples_aarch64::{frames::*, paging::*, *};
aarch64_rt::entry!(main, 16);
fn main(_: u64, _: u64, _: u64, _: u64) -> ! {
    console::line(format_args!("EL{}", boot::exception_level()));
    if boot::exception_level() != 1 {
        console::exit(2)
    }
    boot::init_cpu(0);
    defmt::info!("hello {}", 5);
    console::for_each_argument(|a| console::line(format_args!("arg {a}")));
    console::line(format_args!("cpus {} {:?}", cpu::present(), available()));
    let crew = crew::Crew::start(cpu::present(), |id| {
        console::line(format_args!("cpu {id} up"))
    })
    .unwrap();
    let before = available();
    let mut t = Tables::of_space().unwrap();
    let va = WINDOW.start;
    t.map(va, Frame::data(Size::Page).unwrap(), Access::ReadWrite)
        .unwrap();
    t.map(
        va + (2 << 20),
        Frame::data(Size::Block).unwrap(),
        Access::ReadWrite,
    )
    .unwrap();
    with_kernel_tables(|k| {
        k.map(
            KERNEL_WINDOW.start,
            Frame::data(Size::Page).unwrap(),
            Access::ReadOnly,
        )
        .unwrap()
    });
    aarch64_cpu::asm::barrier::dsb(aarch64_cpu::asm::barrier::ISHST);
    let root = t.root();
    crew.run(&|id| {
        TTBR0_EL1.set(root | 1 << 48);
        aarch64_cpu::asm::barrier::isb(aarch64_cpu::asm::barrier::SY);
        console::line(format_args!(
            "{id}: {:x?} {:x?} {:x?} {:x?} {:x?}",
            probe::read(va),
            probe::read(va + 4096),
            probe::write(va + (2 << 20) + 8, 7),
            probe::write(KERNEL_WINDOW.start, 1),
            probe::read(KERNEL_WINDOW.start)
        ));
        TTBR0_EL1.set(boot::reserved_root());
        aarch64_cpu::asm::barrier::isb(aarch64_cpu::asm::barrier::SY);
    });
    drop(t);
    with_kernel_tables(|k| k.unmap_with_tables(KERNEL_WINDOW, &mut drop));
    assert_eq!(before, available());
    panic!("end")
}
