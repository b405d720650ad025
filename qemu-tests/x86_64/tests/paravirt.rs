//! On-target tests: what a hypervisor does for a flush, and what happens if it does not.
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
    use flush_cases::{Flush, paravirt};

    #[test]
    fn stopped_cpus_are_left_to_the_host() {
        paravirt::stopped_cpus_are_left_to_the_host(Flush::Done);
    }

    #[test]
    fn stopped_cpus_are_stale_if_the_host_forgets() {
        paravirt::stopped_cpus_are_left_to_the_host(Flush::Hollow);
    }

    #[test]
    fn stopped_cpus_are_stale_if_not_marked() {
        paravirt::stopped_cpus_are_left_to_the_host(Flush::Missing);
    }

    #[test]
    fn running_cpus_are_interrupted() {
        paravirt::running_cpus_are_interrupted();
    }

    #[test]
    fn contended_lock_is_fresh() {
        paravirt::contended_lock(Flush::Done);
    }

    #[test]
    fn contended_lock_is_stale_if_hollow() {
        paravirt::contended_lock(Flush::Hollow);
    }

    #[test]
    fn each_hypercall_is_made() {
        paravirt::each_hypercall_is_made();
    }

    #[test]
    fn long_list_is_fresh() {
        paravirt::long_list(Flush::Done);
    }

    #[test]
    fn long_list_is_stale_if_hollow() {
        paravirt::long_list(Flush::Hollow);
    }

    #[test]
    fn refused_hypercalls_are_interrupts() {
        paravirt::refused_hypercalls_are_interrupts();
    }

    #[test]
    fn wrong_processor_is_stale() {
        paravirt::wrong_processor_is_stale();
    }
}
