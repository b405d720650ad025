//! On-target tests: CPUs and spaces that come and go, and what the crate refuses.
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
    use flush_cases::{Flush, lifecycle, refused};
    use shootdown::x86_64::{ConcurrentIpi, Ipi};
    use x86_kernel::platform::Kernel;

    type Serial = Ipi<Kernel>;
    type Concurrent = ConcurrentIpi<Kernel>;

    #[test]
    fn serial_before_other_cpus_are_online_is_fresh() {
        lifecycle::before_other_cpus::<Serial>(Flush::Done);
    }

    #[test]
    fn serial_before_other_cpus_are_online_is_stale_if_hollow() {
        lifecycle::before_other_cpus::<Serial>(Flush::Hollow);
    }

    #[test]
    fn serial_before_other_cpus_are_online_is_stale_if_missing() {
        lifecycle::before_other_cpus::<Serial>(Flush::Missing);
    }

    #[test]
    fn serial_cpu_offline_and_back() {
        lifecycle::offline_and_back::<Serial>();
    }

    #[test]
    fn serial_cpu_is_reached_again_after_online() {
        lifecycle::reached_again_after_online::<Serial>();
    }

    #[test]
    fn serial_retire_names_users() {
        lifecycle::retire_names_users::<Serial>();
    }

    #[test]
    fn concurrent_before_other_cpus_are_online_is_fresh() {
        lifecycle::before_other_cpus::<Concurrent>(Flush::Done);
    }

    #[test]
    fn concurrent_before_other_cpus_are_online_is_stale_if_hollow() {
        lifecycle::before_other_cpus::<Concurrent>(Flush::Hollow);
    }

    #[test]
    fn concurrent_before_other_cpus_are_online_is_stale_if_missing() {
        lifecycle::before_other_cpus::<Concurrent>(Flush::Missing);
    }

    #[test]
    fn concurrent_cpu_offline_and_back() {
        lifecycle::offline_and_back::<Concurrent>();
    }

    #[test]
    fn concurrent_cpu_is_reached_again_after_online() {
        lifecycle::reached_again_after_online::<Concurrent>();
    }

    #[test]
    fn concurrent_retire_names_users() {
        lifecycle::retire_names_users::<Concurrent>();
    }

    #[test]
    fn features_are_those_of_cpuid() {
        refused::features_are_those_of_cpuid();
    }

    #[test]
    fn pcids_are_refused_where_there_are_none() {
        refused::pcid_without_pcid::<Serial>();
    }

    #[test]
    fn a_cpu_with_other_features_is_refused() {
        refused::unequal_features::<Serial>();
    }

    #[test]
    fn what_comes_too_early_is_refused() {
        refused::before_init::<Serial>();
    }

    #[test]
    #[should_panic]
    fn flush_on_an_offline_cpu_panics() {
        refused::flush_offline::<Serial>();
    }

    #[test]
    #[should_panic]
    fn flush_after_retire_panics() {
        refused::flush_after_retire::<Serial>();
    }

    #[test]
    #[should_panic]
    fn dropping_a_loaded_space_panics() {
        refused::drop_loaded::<Serial>();
    }
}
