//! On-target tests in which CPUs race: few enough for an emulator whose CPUs really run in parallel, on two of them.
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
        backend::{Global, HyperVPv, KvmPv, Policy},
        emulation, interrupts, kernel, paravirt, race, space,
    };
    use shootdown::x86_64::{ConcurrentIpi, Ipi};
    use x86_kernel::platform::Kernel;

    type Serial = Ipi<Kernel>;
    type Concurrent = ConcurrentIpi<Kernel>;

    #[test]
    fn serial_space_page_is_fresh() {
        space::page_4k::<Serial>(Flush::Done);
    }

    #[test]
    fn serial_space_page_is_stale_without_a_flush() {
        space::page_4k::<Serial>(Flush::Missing);
    }

    #[test]
    fn concurrent_space_page_is_fresh() {
        space::page_4k::<Concurrent>(Flush::Done);
    }

    #[test]
    fn concurrent_kernel_page_is_fresh() {
        kernel::page_4k::<Concurrent>(Flush::Done);
    }

    #[test]
    fn serial_all_deaf() {
        interrupts::all_deaf::<Serial>();
    }

    #[test]
    fn concurrent_all_deaf() {
        interrupts::all_deaf::<Concurrent>();
    }

    #[test]
    fn serial_workloads_read_nothing_stale() {
        race::workloads::<Serial>(false);
    }

    #[test]
    fn concurrent_workloads_read_nothing_stale() {
        race::workloads::<Concurrent>(false);
    }

    #[test]
    fn emulated_broadcasts_at_once() {
        emulation::all_at_once();
    }

    #[test]
    fn broadcast_all_deaf() {
        interrupts::all_deaf::<Global>();
    }

    #[test]
    fn broadcast_kernel_page_is_fresh() {
        kernel::page_4k::<Global>(Flush::Done);
    }

    #[test]
    fn workloads_with_promotions_read_nothing_stale() {
        race::workloads::<Policy>(false);
    }

    #[test]
    fn kvm_all_deaf() {
        interrupts::all_deaf::<KvmPv>();
    }

    #[test]
    fn hyperv_all_deaf() {
        interrupts::all_deaf::<HyperVPv>();
    }

    #[test]
    fn kvm_workloads_read_nothing_stale() {
        race::workloads::<KvmPv>(false);
    }

    #[test]
    fn hyperv_workloads_read_nothing_stale() {
        race::workloads::<HyperVPv>(false);
    }

    #[test]
    fn a_contended_lock_reads_nothing_stale() {
        paravirt::contended_lock(Flush::Done);
    }

    #[test]
    fn workloads_without_the_instruction_read_stale() {
        race::workloads::<Concurrent>(true);
    }
}
