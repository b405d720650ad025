//! The list of tests, once for all policies.

/// Defines the tests of one policy: each page size and scope that QEMU shows as stale, on the CPU that flushes and on
/// another one.
#[macro_export]
macro_rules! flush_tests {
    ($backend:ty) => {
        $crate::flush_tests! {
            @list $backend;
            cases {
                // case: with its flush, without the instruction
                case(Page, 1, Space, Range).read_on(0) => page_range_same_cpu_fresh, page_range_same_cpu_stale;
                case(Page, 1, Space, Range).read_on(2) => page_range_other_cpu_fresh, page_range_other_cpu_stale;
                case(Page, 1, Space, RangeOfOneLevel).read_on(0) => page_range_one_level_same_cpu_fresh, page_range_one_level_same_cpu_stale;
                case(Page, 1, Space, RangeOfOneLevel).read_on(2) => page_range_one_level_other_cpu_fresh, page_range_one_level_other_cpu_stale;
                case(Page, 33, Space, Range).read_on(0) => pages_odd_range_same_cpu_fresh, pages_odd_range_same_cpu_stale;
                case(Page, 33, Space, Range).read_on(2) => pages_odd_range_other_cpu_fresh, pages_odd_range_other_cpu_stale;
                case(Page, 700, Space, Range).read_on(0) => pages_beyond_a_table_same_cpu_fresh, pages_beyond_a_table_same_cpu_stale;
                case(Page, 700, Space, Range).read_on(2) => pages_beyond_a_table_other_cpu_fresh, pages_beyond_a_table_other_cpu_stale;
                case(Page, 1, Space, All).read_on(0) => page_all_same_cpu_fresh, page_all_same_cpu_stale;
                case(Page, 1, Space, All).read_on(2) => page_all_other_cpu_fresh, page_all_other_cpu_stale;
                case(Page, 20, Space, RangeAndTables).read_on(0) => pages_and_tables_same_cpu_fresh, pages_and_tables_same_cpu_stale;
                case(Page, 20, Space, RangeAndTables).read_on(2) => pages_and_tables_other_cpu_fresh, pages_and_tables_other_cpu_stale;
                case(Block, 1, Space, Range).read_on(0) => block_range_same_cpu_fresh, block_range_same_cpu_stale;
                case(Block, 1, Space, Range).read_on(2) => block_range_other_cpu_fresh, block_range_other_cpu_stale;
                case(Block, 3, Space, RangeOfOneLevel).read_on(0) => blocks_one_level_same_cpu_fresh, blocks_one_level_same_cpu_stale;
                case(Block, 3, Space, RangeOfOneLevel).read_on(2) => blocks_one_level_other_cpu_fresh, blocks_one_level_other_cpu_stale;
                case(Block, 1, Space, All).read_on(0) => block_all_same_cpu_fresh, block_all_same_cpu_stale;
                case(Block, 1, Space, All).read_on(2) => block_all_other_cpu_fresh, block_all_other_cpu_stale;
                case(Page, 1, SpaceElsewhere, Range).read_on(2) => elsewhere_page_range_other_cpu_fresh, elsewhere_page_range_other_cpu_stale;
                case(Page, 1, SpaceElsewhere, All).read_on(2) => elsewhere_all_other_cpu_fresh, elsewhere_all_other_cpu_stale;
                case(Page, 1, Kernel, Range).read_on(0) => kernel_page_range_same_cpu_fresh, kernel_page_range_same_cpu_stale;
                case(Page, 1, Kernel, Range).read_on(2) => kernel_page_range_other_cpu_fresh, kernel_page_range_other_cpu_stale;
                case(Page, 33, Kernel, RangeOfOneLevel).read_on(0) => kernel_pages_one_level_same_cpu_fresh, kernel_pages_one_level_same_cpu_stale;
                case(Page, 33, Kernel, RangeOfOneLevel).read_on(2) => kernel_pages_one_level_other_cpu_fresh, kernel_pages_one_level_other_cpu_stale;
                case(Page, 20, Kernel, RangeAndTables).read_on(0) => kernel_pages_and_tables_same_cpu_fresh, kernel_pages_and_tables_same_cpu_stale;
                case(Page, 20, Kernel, RangeAndTables).read_on(2) => kernel_pages_and_tables_other_cpu_fresh, kernel_pages_and_tables_other_cpu_stale;
                case(Block, 2, Kernel, Range).read_on(0) => kernel_block_range_same_cpu_fresh, kernel_block_range_same_cpu_stale;
                case(Block, 2, Kernel, Range).read_on(2) => kernel_block_range_other_cpu_fresh, kernel_block_range_other_cpu_stale;
                case(Page, 1, Kernel, All).read_on(0) => kernel_all_same_cpu_fresh, kernel_all_same_cpu_stale;
                case(Page, 1, Kernel, All).read_on(2) => kernel_all_other_cpu_fresh, kernel_all_other_cpu_stale;
            }
            protections {
                Page, 0: protected_page_same_cpu_fresh, protected_page_same_cpu_stale;
                Page, 2: protected_page_other_cpu_fresh, protected_page_other_cpu_stale;
                Block, 0: protected_block_same_cpu_fresh, protected_block_same_cpu_stale;
                Block, 2: protected_block_other_cpu_fresh, protected_block_other_cpu_stale;
            }
        }
    };
    (@list $backend:ty;
        cases { $($case:expr => $fresh:ident, $stale:ident;)* }
        protections { $($size:ident, $cpu:literal: $faults:ident, $writes:ident;)* }
    ) => {
        #[cfg(test)]
        #[embedded_test::tests]
        mod tests {
            use flush_cases::batch;
            use flush_cases::case::Owner::{Kernel, Space, SpaceElsewhere};
            use flush_cases::case::Reach::{All, Range, RangeAndTables, RangeOfOneLevel};
            use flush_cases::case::case;
            use flush_cases::protect;
            use shootdown_examples_aarch64::frames::Size::{Block, Page};

            type Backend = $backend;

            $(
                #[test]
                fn $fresh() {
                    $case.is_fresh_after_the_flush::<Backend>();
                }

                #[test]
                fn $stale() {
                    $case.is_stale_without_the_instruction::<Backend>();
                }
            )*

            $(
                #[test]
                fn $faults() {
                    protect::write_faults_after_the_flush::<Backend>($size, $cpu);
                }

                #[test]
                fn $writes() {
                    protect::write_is_stale_without_the_instruction::<Backend>($size, $cpu);
                }
            )*

            #[test]
            fn batch_of_two_spaces_fresh() {
                batch::is_fresh_after_the_flush::<Backend>();
            }

            #[test]
            fn batch_of_two_spaces_stale() {
                batch::is_stale_without_the_instruction::<Backend>();
            }
        }
    };
}
