//! What the other tests stand on: CPUs start, faults are caught, and the emulator does show stale translations.
#![no_std]
#![no_main]

use x86_kernel::cmdline;

x86_kernel::entry!(main);
x86_kernel::panic_to_exit!();

fn main() -> ! {
    // SAFETY: the runner read the address from this very file.
    unsafe { embedded_test::start(cmdline::get()) }
}

#[embedded_test::tests]
mod tests {
    use x86_kernel::{
        MAX_CPUS, apic,
        frames::{self, Frame},
        fw_cfg,
        paging::{KERNEL_WINDOW, KernelWindow, Tables, USER_WINDOW},
        percpu,
        probe::{self, Fault},
        smp,
    };

    #[test]
    fn all_cpus_run_and_know_their_number() {
        let wanted = fw_cfg::cpu_count().expect("this is QEMU");
        assert_eq!(smp::start(None), wanted.min(MAX_CPUS));
        for _ in 0..100 {
            smp::run_on_all(&|cpu| assert_eq!(percpu::current(), cpu));
        }
    }

    #[test]
    fn fewer_cpus_can_take_part() {
        assert_eq!(smp::start(Some(1)), 1);
        smp::run_on_all(&|cpu| assert_eq!(cpu, 0));
    }

    #[test]
    fn the_apic_is_in_the_mode_that_cpuid_offers() {
        let offered = raw_cpuid::CpuId::new()
            .get_feature_info()
            .is_some_and(|f| f.has_x2apic());
        assert_eq!(apic::is_x2apic(), offered);
    }

    #[test]
    fn a_fault_is_reported() {
        for va in [USER_WINDOW + 8, KERNEL_WINDOW + 16] {
            // SAFETY: nothing is mapped there.
            let outcome = unsafe { probe::read(va) };
            assert_eq!(
                outcome,
                Err(Fault {
                    address: va,
                    error: 0
                })
            );
        }
    }

    #[test]
    fn kernel_mappings_are_seen_through_any_tables() {
        let frame = Frame::data().unwrap();
        frame.store(8, 42);
        KernelWindow::lock()
            .mapper()
            .map(KERNEL_WINDOW, frame)
            .unwrap();
        // SAFETY: a data frame is mapped there.
        assert_eq!(unsafe { probe::read(KERNEL_WINDOW + 8) }, Ok(42));
    }

    #[test]
    fn tables_give_back_what_they_own() {
        let before = frames::available();
        let mut tables = Tables::new().unwrap();
        tables
            .user()
            .map(USER_WINDOW, Frame::data().unwrap())
            .unwrap();
        tables
            .user()
            .map(USER_WINDOW + (1 << 30), Frame::large().unwrap())
            .unwrap();
        assert_eq!(frames::available().data, before.data - 1);
        assert_eq!(frames::available().tables, before.tables - 5);
        drop(tables);
        assert_eq!(frames::available(), before);
    }

    #[test]
    #[should_panic]
    fn a_stale_write_to_a_free_frame_is_noticed() {
        KernelWindow::lock()
            .mapper()
            .map(KERNEL_WINDOW, Frame::data().unwrap())
            .unwrap();
        // SAFETY: a data frame is mapped there.
        unsafe { probe::write(KERNEL_WINDOW, 1) }.unwrap();
        drop(KernelWindow::lock().mapper().unmap(KERNEL_WINDOW));
        // SAFETY: the translation is stale and leads to a data frame.
        if unsafe { probe::write(KERNEL_WINDOW, 2) }.is_ok() {
            drop(Frame::data());
        }
    }
}
