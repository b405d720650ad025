//! On-target tests: which spaces get a global PCID, and CPUs and spaces that come and go with one.
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
    use flush_cases::{
        Flush,
        backend::{Global, Policy},
        lifecycle, promotion, race,
    };
    use x86_kernel::invlpgb::LeaveOut;

    #[test]
    fn all_cpus_are_many() {
        promotion::all_cpus_are_many();
    }

    #[test]
    fn one_less_is_not() {
        promotion::one_less_is_not();
    }

    #[test]
    fn a_space_that_is_kept_local_stays_so() {
        promotion::kept_local();
    }

    #[test]
    fn exhaustion_and_reset() {
        promotion::exhaustion_and_reset();
    }

    #[test]
    fn flush_is_fresh() {
        promotion::one_instruction_left_out(LeaveOut::Nothing);
    }

    #[test]
    fn flush_is_stale_without_invlpgb() {
        promotion::one_instruction_left_out(LeaveOut::Invlpgb);
    }

    #[test]
    fn flush_is_stale_without_tlbsync() {
        promotion::one_instruction_left_out(LeaveOut::Tlbsync);
    }

    #[test]
    fn the_courier_is_chosen_by_cpuid() {
        promotion::chosen_by_cpuid();
    }

    #[test]
    fn before_other_cpus_are_online_is_fresh() {
        lifecycle::before_other_cpus::<Global>(Flush::Done);
    }

    #[test]
    fn before_other_cpus_are_online_is_stale_if_hollow() {
        lifecycle::before_other_cpus::<Global>(Flush::Hollow);
    }

    #[test]
    fn before_other_cpus_are_online_is_stale_if_missing() {
        lifecycle::before_other_cpus::<Global>(Flush::Missing);
    }

    #[test]
    fn cpu_is_reached_again_after_online() {
        lifecycle::reached_again_after_online::<Global>();
    }

    #[test]
    fn retire_names_users_of_a_global_space() {
        lifecycle::retire_names_users::<Global>();
    }

    #[test]
    fn workloads_with_promotions_read_nothing_stale() {
        race::workloads::<Policy>(false);
    }

    #[test]
    fn workloads_with_promotions_read_stale_without_the_instructions() {
        race::workloads::<Policy>(true);
    }
}
