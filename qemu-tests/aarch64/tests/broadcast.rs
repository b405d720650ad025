//! TLBI broadcast: each page size and scope that QEMU shows as stale, on the CPU that flushes and on another one.
//!
//! Every test has its counter-test, in which the same flush runs without the invalidation instruction.
#![no_std]
#![no_main]

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use flush_cases::batch;
    use flush_cases::case::Owner::{Kernel, Space, SpaceElsewhere};
    use flush_cases::case::Reach::{All, Range, RangeAndTables, RangeOfOneLevel};
    use flush_cases::case::{Case, case};
    use flush_cases::protect::{
        write_faults_after_the_flush, write_is_stale_without_the_instruction,
    };
    use shootdown_examples_aarch64::frames::Size::{Block, Page};

    const PAGE_RANGE: Case = case(Page, 1, Space, Range);
    const PAGE_RANGE_ONE_LEVEL: Case = case(Page, 1, Space, RangeOfOneLevel);
    const PAGES_ODD_RANGE: Case = case(Page, 33, Space, Range);
    const PAGES_BEYOND_A_TABLE: Case = case(Page, 700, Space, Range);
    const PAGE_ALL: Case = case(Page, 1, Space, All);
    const PAGES_AND_TABLES: Case = case(Page, 20, Space, RangeAndTables);
    const BLOCK_RANGE: Case = case(Block, 1, Space, Range);
    const BLOCKS_ONE_LEVEL: Case = case(Block, 3, Space, RangeOfOneLevel);
    const BLOCK_ALL: Case = case(Block, 1, Space, All);
    const ELSEWHERE_PAGE_RANGE: Case = case(Page, 1, SpaceElsewhere, Range);
    const ELSEWHERE_ALL: Case = case(Page, 1, SpaceElsewhere, All);
    const KERNEL_PAGE_RANGE: Case = case(Page, 1, Kernel, Range);
    const KERNEL_PAGES_ONE_LEVEL: Case = case(Page, 33, Kernel, RangeOfOneLevel);
    const KERNEL_PAGES_AND_TABLES: Case = case(Page, 20, Kernel, RangeAndTables);
    const KERNEL_BLOCK_RANGE: Case = case(Block, 2, Kernel, Range);
    const KERNEL_ALL: Case = case(Page, 1, Kernel, All);

    #[test]
    fn page_range_same_cpu_fresh() {
        PAGE_RANGE.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn page_range_same_cpu_stale() {
        PAGE_RANGE.read_on(0).is_stale_without_the_instruction();
    }

    #[test]
    fn page_range_other_cpu_fresh() {
        PAGE_RANGE.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn page_range_other_cpu_stale() {
        PAGE_RANGE.read_on(2).is_stale_without_the_instruction();
    }

    #[test]
    fn page_range_one_level_same_cpu_fresh() {
        PAGE_RANGE_ONE_LEVEL.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn page_range_one_level_same_cpu_stale() {
        PAGE_RANGE_ONE_LEVEL
            .read_on(0)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn page_range_one_level_other_cpu_fresh() {
        PAGE_RANGE_ONE_LEVEL.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn page_range_one_level_other_cpu_stale() {
        PAGE_RANGE_ONE_LEVEL
            .read_on(2)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn pages_odd_range_same_cpu_fresh() {
        PAGES_ODD_RANGE.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn pages_odd_range_same_cpu_stale() {
        PAGES_ODD_RANGE
            .read_on(0)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn pages_odd_range_other_cpu_fresh() {
        PAGES_ODD_RANGE.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn pages_odd_range_other_cpu_stale() {
        PAGES_ODD_RANGE
            .read_on(2)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn pages_beyond_a_table_same_cpu_fresh() {
        PAGES_BEYOND_A_TABLE.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn pages_beyond_a_table_same_cpu_stale() {
        PAGES_BEYOND_A_TABLE
            .read_on(0)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn pages_beyond_a_table_other_cpu_fresh() {
        PAGES_BEYOND_A_TABLE.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn pages_beyond_a_table_other_cpu_stale() {
        PAGES_BEYOND_A_TABLE
            .read_on(2)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn page_all_same_cpu_fresh() {
        PAGE_ALL.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn page_all_same_cpu_stale() {
        PAGE_ALL.read_on(0).is_stale_without_the_instruction();
    }

    #[test]
    fn page_all_other_cpu_fresh() {
        PAGE_ALL.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn page_all_other_cpu_stale() {
        PAGE_ALL.read_on(2).is_stale_without_the_instruction();
    }

    #[test]
    fn pages_and_tables_same_cpu_fresh() {
        PAGES_AND_TABLES.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn pages_and_tables_same_cpu_stale() {
        PAGES_AND_TABLES
            .read_on(0)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn pages_and_tables_other_cpu_fresh() {
        PAGES_AND_TABLES.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn pages_and_tables_other_cpu_stale() {
        PAGES_AND_TABLES
            .read_on(2)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn block_range_same_cpu_fresh() {
        BLOCK_RANGE.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn block_range_same_cpu_stale() {
        BLOCK_RANGE.read_on(0).is_stale_without_the_instruction();
    }

    #[test]
    fn block_range_other_cpu_fresh() {
        BLOCK_RANGE.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn block_range_other_cpu_stale() {
        BLOCK_RANGE.read_on(2).is_stale_without_the_instruction();
    }

    #[test]
    fn blocks_one_level_same_cpu_fresh() {
        BLOCKS_ONE_LEVEL.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn blocks_one_level_same_cpu_stale() {
        BLOCKS_ONE_LEVEL
            .read_on(0)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn blocks_one_level_other_cpu_fresh() {
        BLOCKS_ONE_LEVEL.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn blocks_one_level_other_cpu_stale() {
        BLOCKS_ONE_LEVEL
            .read_on(2)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn block_all_same_cpu_fresh() {
        BLOCK_ALL.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn block_all_same_cpu_stale() {
        BLOCK_ALL.read_on(0).is_stale_without_the_instruction();
    }

    #[test]
    fn block_all_other_cpu_fresh() {
        BLOCK_ALL.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn block_all_other_cpu_stale() {
        BLOCK_ALL.read_on(2).is_stale_without_the_instruction();
    }

    #[test]
    fn elsewhere_page_range_other_cpu_fresh() {
        ELSEWHERE_PAGE_RANGE.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn elsewhere_page_range_other_cpu_stale() {
        ELSEWHERE_PAGE_RANGE
            .read_on(2)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn elsewhere_all_other_cpu_fresh() {
        ELSEWHERE_ALL.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn elsewhere_all_other_cpu_stale() {
        ELSEWHERE_ALL.read_on(2).is_stale_without_the_instruction();
    }

    #[test]
    fn kernel_page_range_same_cpu_fresh() {
        KERNEL_PAGE_RANGE.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn kernel_page_range_same_cpu_stale() {
        KERNEL_PAGE_RANGE
            .read_on(0)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn kernel_page_range_other_cpu_fresh() {
        KERNEL_PAGE_RANGE.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn kernel_page_range_other_cpu_stale() {
        KERNEL_PAGE_RANGE
            .read_on(2)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn kernel_pages_one_level_same_cpu_fresh() {
        KERNEL_PAGES_ONE_LEVEL.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn kernel_pages_one_level_same_cpu_stale() {
        KERNEL_PAGES_ONE_LEVEL
            .read_on(0)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn kernel_pages_one_level_other_cpu_fresh() {
        KERNEL_PAGES_ONE_LEVEL.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn kernel_pages_one_level_other_cpu_stale() {
        KERNEL_PAGES_ONE_LEVEL
            .read_on(2)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn kernel_pages_and_tables_same_cpu_fresh() {
        KERNEL_PAGES_AND_TABLES
            .read_on(0)
            .is_fresh_after_the_flush();
    }

    #[test]
    fn kernel_pages_and_tables_same_cpu_stale() {
        KERNEL_PAGES_AND_TABLES
            .read_on(0)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn kernel_pages_and_tables_other_cpu_fresh() {
        KERNEL_PAGES_AND_TABLES
            .read_on(2)
            .is_fresh_after_the_flush();
    }

    #[test]
    fn kernel_pages_and_tables_other_cpu_stale() {
        KERNEL_PAGES_AND_TABLES
            .read_on(2)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn kernel_block_range_same_cpu_fresh() {
        KERNEL_BLOCK_RANGE.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn kernel_block_range_same_cpu_stale() {
        KERNEL_BLOCK_RANGE
            .read_on(0)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn kernel_block_range_other_cpu_fresh() {
        KERNEL_BLOCK_RANGE.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn kernel_block_range_other_cpu_stale() {
        KERNEL_BLOCK_RANGE
            .read_on(2)
            .is_stale_without_the_instruction();
    }

    #[test]
    fn kernel_all_same_cpu_fresh() {
        KERNEL_ALL.read_on(0).is_fresh_after_the_flush();
    }

    #[test]
    fn kernel_all_same_cpu_stale() {
        KERNEL_ALL.read_on(0).is_stale_without_the_instruction();
    }

    #[test]
    fn kernel_all_other_cpu_fresh() {
        KERNEL_ALL.read_on(2).is_fresh_after_the_flush();
    }

    #[test]
    fn kernel_all_other_cpu_stale() {
        KERNEL_ALL.read_on(2).is_stale_without_the_instruction();
    }

    #[test]
    fn protected_page_same_cpu_fresh() {
        write_faults_after_the_flush(Page, 0);
    }

    #[test]
    fn protected_page_same_cpu_stale() {
        write_is_stale_without_the_instruction(Page, 0);
    }

    #[test]
    fn protected_page_other_cpu_fresh() {
        write_faults_after_the_flush(Page, 2);
    }

    #[test]
    fn protected_page_other_cpu_stale() {
        write_is_stale_without_the_instruction(Page, 2);
    }

    #[test]
    fn protected_block_same_cpu_fresh() {
        write_faults_after_the_flush(Block, 0);
    }

    #[test]
    fn protected_block_same_cpu_stale() {
        write_is_stale_without_the_instruction(Block, 0);
    }

    #[test]
    fn protected_block_other_cpu_fresh() {
        write_faults_after_the_flush(Block, 2);
    }

    #[test]
    fn protected_block_other_cpu_stale() {
        write_is_stale_without_the_instruction(Block, 2);
    }

    #[test]
    fn batch_of_two_spaces_fresh() {
        batch::is_fresh_after_the_flush();
    }

    #[test]
    fn batch_of_two_spaces_stale() {
        batch::is_stale_without_the_instruction();
    }
}
