//! What the other tests stand on: CPUs start, faults are caught, and writes through stale translations are noticed.
#![no_std]
#![no_main]

// The start of all tests.
use flush_cases as _;

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use aarch64_cpu::asm::barrier;
    use shootdown_examples_aarch64::crew::Crew;
    use shootdown_examples_aarch64::frames::{Frame, Size, available};
    use shootdown_examples_aarch64::paging::{
        Access, KERNEL_WINDOW, MapError, Tables, WINDOW, with_kernel_tables,
    };
    use shootdown_examples_aarch64::{cpu, probe};

    #[test]
    fn all_cpus_run_and_know_their_number() {
        let crew = Crew::start(cpu::present(), |_| {}).expect("all that are present start");
        for _ in 0..100 {
            crew.run(&|cpu| assert_eq!(cpu::id(), cpu));
        }
    }

    #[test]
    fn a_cpu_that_runs_is_not_started_again() {
        cpu::start(0, |_| {}).expect_err("this one runs");
        cpu::start(cpu::MAX - 1, |_| {}).expect_err("QEMU has fewer");
    }

    #[test]
    fn a_fault_is_reported() {
        let _root = with_kernel_tables(|tables| tables.root());
        for va in [WINDOW.start + 8, KERNEL_WINDOW.start + 16] {
            assert_eq!(probe::read(va).map_err(|fault| fault.address), Err(va));
            assert_eq!(probe::write(va, 1).map_err(|fault| fault.address), Err(va));
        }
    }

    #[test]
    #[should_panic]
    fn a_probe_outside_the_windows_is_refused() {
        let _ = probe::read(0x4008_0000);
    }

    #[test]
    fn tables_give_back_what_they_own() {
        let before = available();
        let mut tables = Tables::of_space().expect("the pool is full at start");
        for (va, size) in [
            (0, Size::Page),
            (2 << 20, Size::Block),
            (4 << 20, Size::Page),
        ] {
            let frame = Frame::data(size).expect("the pool is full at start");
            let mapped = tables.map(WINDOW.start + va, frame, Access::ReadWrite);
            mapped.expect("the window is empty");
        }
        let now = available();
        assert_eq!(
            (now.pages, now.blocks),
            (before.pages - 2, before.blocks - 1)
        );
        assert_eq!(now.tables, before.tables - 4);

        let twice = Frame::data(Size::Page).expect("there are more");
        let refused = tables.map(WINDOW.start + (2 << 20), twice, Access::ReadWrite);
        assert_eq!(refused, Err(MapError::Occupied), "a block is in the way");
        let mut freed = 0;
        tables.unmap_with_tables(WINDOW.start..WINDOW.start + (2 << 20), &mut |_| freed += 1);
        assert_eq!(freed, 2, "the page and its table");
        assert!(tables.unmap(WINDOW.start, Size::Page).is_none());
        drop(tables);
        assert_eq!(available(), before);
    }

    #[test]
    #[should_panic]
    fn a_stale_write_to_a_free_frame_is_noticed() {
        let va = KERNEL_WINDOW.start;
        let frame = Frame::data(Size::Page).expect("the pool is full at start");
        let mapped = with_kernel_tables(|tables| tables.map(va, frame, Access::ReadWrite));
        mapped.expect("the window is empty");
        barrier::dsb(barrier::ISHST);
        probe::write(va, 1).expect("it is mapped");
        drop(with_kernel_tables(|tables| tables.unmap(va, Size::Page)));
        if probe::write(va, 2).is_ok() {
            let _noticed = Frame::data(Size::Page);
        }
    }
}
