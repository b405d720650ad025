//! On-target tests: the emulated INVLPGB and TLBSYNC, without a flusher: they act on what the operands name.
#![no_std]
#![no_main]

x86_kernel::entry!(main);
x86_kernel::panic_to_exit!();

fn main() -> ! {
    // SAFETY: the runner read the address from this very file.
    unsafe { embedded_test::start(x86_kernel::cmdline::get()) }
}

#[embedded_test::tests]
mod tests {
    use flush_cases::emulation;

    #[test]
    fn one_page_of_one_pcid_and_no_other() {
        emulation::one_page();
    }

    #[test]
    fn two_pages_of_all_pcids_and_no_third() {
        emulation::two_pages_of_all_pcids();
    }

    #[test]
    fn all_of_one_pcid_and_no_other() {
        emulation::one_pcid();
    }

    #[test]
    fn kernel_page_is_fresh() {
        emulation::kernel_page_with_global();
    }

    #[test]
    fn kernel_page_is_stale_if_global_pages_are_not_named() {
        emulation::kernel_page_without_global();
    }

    #[test]
    fn everything_is_fresh() {
        emulation::everything();
    }

    #[test]
    fn the_host_is_stale_if_a_guest_is_named() {
        emulation::guest();
    }

    #[test]
    fn all_is_stale_without_tlbsync() {
        emulation::no_tlbsync();
    }

    #[test]
    fn all_is_stale_if_another_cpu_syncs() {
        emulation::tlbsync_elsewhere();
    }

    #[test]
    fn all_is_stale_without_invlpgb() {
        emulation::no_invlpgb();
    }

    #[test]
    fn cpus_with_interrupts_off_are_reached() {
        emulation::deaf_cpus();
    }

    #[test]
    fn more_requests_than_fit() {
        emulation::more_than_fit();
    }

    #[test]
    fn reload_is_fresh() {
        emulation::reload(false);
    }

    #[test]
    fn reload_that_keeps_entries_is_stale() {
        emulation::reload(true);
    }

    #[test]
    fn all_cpus_broadcast_at_once() {
        emulation::all_at_once();
    }

    #[test]
    fn all_cpus_broadcast_at_once_is_stale_without_tlbsync() {
        emulation::all_at_once_unsynced();
    }

    #[test]
    fn largest_count_is_accepted() {
        emulation::largest_count();
    }

    #[test]
    #[should_panic]
    fn larger_count_is_refused() {
        emulation::refused(0b101, 8, 0);
    }

    #[test]
    #[should_panic]
    fn reserved_bit_is_refused() {
        emulation::refused(1 << 6 | 0b100, 0, 0);
    }

    #[test]
    #[should_panic]
    fn range_over_the_hole_is_refused() {
        emulation::refused(0x7fff_ffff_f000 | 0b101, 1, 0);
    }

    #[test]
    #[should_panic]
    fn pcid_without_pcids_is_refused() {
        emulation::refused_without_pcids();
    }

    #[test]
    #[should_panic]
    fn another_opcode_is_not_swallowed() {
        emulation::another_opcode();
    }
}
