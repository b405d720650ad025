//! The list of tests, once for all couriers.

/// Defines the tests of one courier, and the kernel that runs them.
#[macro_export]
macro_rules! flush_tests {
    ($courier:ty) => {
        x86_kernel::entry!(main);
        x86_kernel::panic_to_exit!();

        fn main() -> ! {
            // SAFETY: the runner read the address from this very file.
            unsafe { embedded_test::start(x86_kernel::cmdline::get()) }
        }

        #[embedded_test::tests]
        mod tests {
            use flush_cases::{Flush::*, interrupts, kernel, lazy, lifecycle, space};

            type Courier = $courier;

            #[test]
            fn space_page_4k_is_fresh() {
                space::page_4k::<Courier>(Done);
            }

            #[test]
            fn space_page_4k_is_stale_without_the_instruction() {
                space::page_4k::<Courier>(Hollow);
            }

            #[test]
            fn space_page_4k_is_stale_without_a_flush() {
                space::page_4k::<Courier>(Missing);
            }

            #[test]
            fn space_page_2m_is_fresh() {
                space::page_2m::<Courier>(Done);
            }

            #[test]
            fn space_page_2m_is_stale_without_the_instruction() {
                space::page_2m::<Courier>(Hollow);
            }

            #[test]
            fn space_page_2m_is_stale_without_a_flush() {
                space::page_2m::<Courier>(Missing);
            }

            #[test]
            fn space_range_by_pages_is_fresh() {
                space::range_partial::<Courier>(Done);
            }

            #[test]
            fn space_range_by_pages_is_stale_without_the_instruction() {
                space::range_partial::<Courier>(Hollow);
            }

            #[test]
            fn space_range_by_pages_is_stale_without_a_flush() {
                space::range_partial::<Courier>(Missing);
            }

            #[test]
            fn space_range_as_a_whole_is_fresh() {
                space::range_full::<Courier>(Done);
            }

            #[test]
            fn space_range_as_a_whole_is_stale_without_the_instruction() {
                space::range_full::<Courier>(Hollow);
            }

            #[test]
            fn space_range_as_a_whole_is_stale_without_a_flush() {
                space::range_full::<Courier>(Missing);
            }

            #[test]
            fn space_all_is_fresh() {
                space::all::<Courier>(Done);
            }

            #[test]
            fn space_all_is_stale_without_the_instruction() {
                space::all::<Courier>(Hollow);
            }

            #[test]
            fn space_all_is_stale_without_a_flush() {
                space::all::<Courier>(Missing);
            }

            #[test]
            fn space_unmap_is_fresh() {
                space::unmap::<Courier>(Done);
            }

            #[test]
            fn space_unmap_is_stale_without_the_instruction() {
                space::unmap::<Courier>(Hollow);
            }

            #[test]
            fn space_unmap_is_stale_without_a_flush() {
                space::unmap::<Courier>(Missing);
            }

            #[test]
            fn space_protect_is_fresh() {
                space::protect::<Courier>(Done);
            }

            #[test]
            fn space_protect_is_stale_without_the_instruction() {
                space::protect::<Courier>(Hollow);
            }

            #[test]
            fn space_protect_is_stale_without_a_flush() {
                space::protect::<Courier>(Missing);
            }

            #[test]
            fn space_tables_freed_is_fresh() {
                space::tables_freed::<Courier>(Done);
            }

            #[test]
            fn space_tables_freed_is_stale_without_the_instruction() {
                space::tables_freed::<Courier>(Hollow);
            }

            #[test]
            fn space_tables_freed_is_stale_without_a_flush() {
                space::tables_freed::<Courier>(Missing);
            }

            #[test]
            fn space_gather_is_fresh() {
                space::gather::<Courier>(Done);
            }

            #[test]
            fn space_gather_is_stale_without_the_instruction() {
                space::gather::<Courier>(Hollow);
            }

            #[test]
            fn space_gather_is_stale_without_a_flush() {
                space::gather::<Courier>(Missing);
            }

            #[test]
            fn two_spaces_in_a_batch_is_fresh() {
                space::batch::<Courier>(Done);
            }

            #[test]
            fn two_spaces_in_a_batch_is_stale_without_the_instruction() {
                space::batch::<Courier>(Hollow);
            }

            #[test]
            fn two_spaces_in_a_batch_is_stale_without_a_flush() {
                space::batch::<Courier>(Missing);
            }

            #[test]
            fn local_page_is_fresh() {
                space::local::<Courier>(Done);
            }

            #[test]
            fn local_page_is_stale_without_the_instruction() {
                space::local::<Courier>(Hollow);
            }

            #[test]
            fn local_page_is_stale_without_a_flush() {
                space::local::<Courier>(Missing);
            }

            #[test]
            fn kernel_page_4k_is_fresh() {
                kernel::page_4k::<Courier>(Done);
            }

            #[test]
            fn kernel_page_4k_is_stale_without_the_instruction() {
                kernel::page_4k::<Courier>(Hollow);
            }

            #[test]
            fn kernel_page_4k_is_stale_without_a_flush() {
                kernel::page_4k::<Courier>(Missing);
            }

            #[test]
            fn kernel_page_4k_without_space_is_fresh() {
                kernel::page_4k_without_space::<Courier>(Done);
            }

            #[test]
            fn kernel_page_4k_without_space_is_stale_without_the_instruction() {
                kernel::page_4k_without_space::<Courier>(Hollow);
            }

            #[test]
            fn kernel_page_4k_without_space_is_stale_without_a_flush() {
                kernel::page_4k_without_space::<Courier>(Missing);
            }

            #[test]
            fn kernel_page_4k_on_lazy_cpus_is_fresh() {
                kernel::page_4k_lazy::<Courier>(Done);
            }

            #[test]
            fn kernel_page_4k_on_lazy_cpus_is_stale_without_the_instruction() {
                kernel::page_4k_lazy::<Courier>(Hollow);
            }

            #[test]
            fn kernel_page_4k_on_lazy_cpus_is_stale_without_a_flush() {
                kernel::page_4k_lazy::<Courier>(Missing);
            }

            #[test]
            fn kernel_page_2m_is_fresh() {
                kernel::page_2m::<Courier>(Done);
            }

            #[test]
            fn kernel_page_2m_is_stale_without_the_instruction() {
                kernel::page_2m::<Courier>(Hollow);
            }

            #[test]
            fn kernel_page_2m_is_stale_without_a_flush() {
                kernel::page_2m::<Courier>(Missing);
            }

            #[test]
            fn kernel_all_is_fresh() {
                kernel::all::<Courier>(Done);
            }

            #[test]
            fn kernel_all_is_stale_without_the_instruction() {
                kernel::all::<Courier>(Hollow);
            }

            #[test]
            fn kernel_all_is_stale_without_a_flush() {
                kernel::all::<Courier>(Missing);
            }

            #[test]
            fn lazy_cpu_is_clean_when_back_is_fresh() {
                lazy::skipped_then_clean::<Courier>(Done);
            }

            #[test]
            fn lazy_cpu_is_clean_when_back_is_stale_without_the_instruction() {
                lazy::skipped_then_clean::<Courier>(Hollow);
            }

            #[test]
            fn lazy_cpu_is_clean_when_back_is_stale_without_a_flush() {
                lazy::skipped_then_clean::<Courier>(Missing);
            }

            #[test]
            fn before_other_cpus_are_online_is_fresh() {
                lifecycle::before_other_cpus::<Courier>(Done);
            }

            #[test]
            fn before_other_cpus_are_online_is_stale_without_the_instruction() {
                lifecycle::before_other_cpus::<Courier>(Hollow);
            }

            #[test]
            fn before_other_cpus_are_online_is_stale_without_a_flush() {
                lifecycle::before_other_cpus::<Courier>(Missing);
            }

            #[test]
            fn lazy_reached_when_tables_are_freed() {
                lazy::reached_when_tables_are_freed::<Courier>();
            }

            #[test]
            fn lazy_elsewhere_is_spared() {
                lazy::elsewhere_is_spared::<Courier>();
            }

            #[test]
            fn lazy_nmi_asks_first() {
                lazy::nmi_asks_first::<Courier>();
            }

            #[test]
            fn lifecycle_offline_and_back() {
                lifecycle::offline_and_back::<Courier>();
            }

            #[test]
            fn lifecycle_reached_again_after_online() {
                lifecycle::reached_again_after_online::<Courier>();
            }

            #[test]
            fn lifecycle_retire_names_users() {
                lifecycle::retire_names_users::<Courier>();
            }

            #[test]
            fn interrupts_all_deaf() {
                interrupts::all_deaf::<Courier>();
            }

            #[test]
            fn interrupts_two_deaf_initiators() {
                interrupts::two_deaf_initiators::<Courier>();
            }

            #[test]
            fn interrupts_polling_is_enough() {
                interrupts::polling_is_enough::<Courier>();
            }

            #[test]
            fn interrupts_all_listen() {
                interrupts::all_listen::<Courier>();
            }
        }
    };
}
