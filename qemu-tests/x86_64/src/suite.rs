//! The list of tests, once for all couriers.

/// Defines the tests of one courier, and the kernel that runs them.
#[macro_export]
macro_rules! flush_tests {
    ($courier:ty) => {
        $crate::flush_tests! {
            @list $courier;
            three ways {
                // case: with its flush; without the instruction; without the flush
                space::page_4k: space_page_4k_is_fresh, space_page_4k_is_stale_if_hollow, space_page_4k_is_stale_if_missing;
                space::page_2m: space_page_2m_is_fresh, space_page_2m_is_stale_if_hollow, space_page_2m_is_stale_if_missing;
                space::range_partial: space_range_by_pages_is_fresh, space_range_by_pages_is_stale_if_hollow, space_range_by_pages_is_stale_if_missing;
                space::range_full: space_range_as_a_whole_is_fresh, space_range_as_a_whole_is_stale_if_hollow, space_range_as_a_whole_is_stale_if_missing;
                space::all: space_all_is_fresh, space_all_is_stale_if_hollow, space_all_is_stale_if_missing;
                space::unmap: space_unmap_is_fresh, space_unmap_is_stale_if_hollow, space_unmap_is_stale_if_missing;
                space::protect: space_protect_is_fresh, space_protect_is_stale_if_hollow, space_protect_is_stale_if_missing;
                collect::tables_freed: space_tables_freed_is_fresh, space_tables_freed_is_stale_if_hollow, space_tables_freed_is_stale_if_missing;
                collect::gather: space_gather_is_fresh, space_gather_is_stale_if_hollow, space_gather_is_stale_if_missing;
                collect::batch: two_spaces_in_a_batch_is_fresh, two_spaces_in_a_batch_is_stale_if_hollow, two_spaces_in_a_batch_is_stale_if_missing;
                space::local: local_page_is_fresh, local_page_is_stale_if_hollow, local_page_is_stale_if_missing;
                kernel::page_4k: kernel_page_4k_is_fresh, kernel_page_4k_is_stale_if_hollow, kernel_page_4k_is_stale_if_missing;
                kernel::page_4k_without_space: kernel_page_4k_without_space_is_fresh, kernel_page_4k_without_space_is_stale_if_hollow, kernel_page_4k_without_space_is_stale_if_missing;
                kernel::page_4k_lazy: kernel_page_4k_on_lazy_cpus_is_fresh, kernel_page_4k_on_lazy_cpus_is_stale_if_hollow, kernel_page_4k_on_lazy_cpus_is_stale_if_missing;
                kernel::page_2m: kernel_page_2m_is_fresh, kernel_page_2m_is_stale_if_hollow, kernel_page_2m_is_stale_if_missing;
                kernel::all: kernel_all_is_fresh, kernel_all_is_stale_if_hollow, kernel_all_is_stale_if_missing;
                lazy::skipped_then_clean: lazy_cpu_when_it_is_back_is_fresh, lazy_cpu_when_it_is_back_is_stale_if_hollow, lazy_cpu_when_it_is_back_is_stale_if_missing;
            }
            once {
                lazy::reached_when_tables_are_freed: lazy_cpu_is_reached_when_tables_are_freed;
                lazy::elsewhere_is_spared: cpu_in_another_space_is_spared;
                lazy::nmi_asks_first: nmi_asks_first;
                interrupts::all_deaf: all_cpus_flush_with_interrupts_off;
                interrupts::two_deaf_initiators: two_cpus_flush_with_interrupts_off;
                interrupts::polling_is_enough: polling_with_interrupts_off_is_enough;
                interrupts::all_listen: all_cpus_flush_with_interrupts_on;
            }
        }
    };
    (@list $courier:ty;
        three ways { $($case:path: $fresh:ident, $hollow:ident, $missing:ident;)* }
        once { $($other:path: $name:ident;)* }
    ) => {
        x86_kernel::entry!(main);
        x86_kernel::panic_to_exit!();

        fn main() -> ! {
            // SAFETY: the runner read the address from this very file.
            unsafe { embedded_test::start(x86_kernel::cmdline::get()) }
        }

        #[embedded_test::tests]
        mod tests {
            use flush_cases::{Flush, collect, interrupts, kernel, lazy, space};

            type Courier = $courier;

            $(
                #[test]
                fn $fresh() {
                    use $case as case;
                    case::<Courier>(Flush::Done);
                }

                #[test]
                fn $hollow() {
                    use $case as case;
                    case::<Courier>(Flush::Hollow);
                }

                #[test]
                fn $missing() {
                    use $case as case;
                    case::<Courier>(Flush::Missing);
                }
            )*

            $(
                #[test]
                fn $name() {
                    use $other as case;
                    case::<Courier>();
                }
            )*
        }
    };
}
