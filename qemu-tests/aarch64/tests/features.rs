//! Which instructions are used is what the CPU offers: ranges, level hints, a second completion.
#![no_std]
#![no_main]

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use aarch64_cpu::registers::{ID_AA64ISAR0_EL1, ID_AA64MMFR2_EL1, MIDR_EL1, Readable};
    use flush_cases::backend::Backend;
    use flush_cases::case::Owner::{Kernel as OfKernel, Space};
    use flush_cases::case::Reach::{Range, RangeOfOneLevel};
    use flush_cases::case::case;
    use flush_cases::rig;
    use shootdown::aarch64::{Broadcast, Config, Features, InitError, Local, MAX_TLBI_OPERATIONS};
    use shootdown::{Granule, OnlineError, Paging, Request, Stride, TlbFlusher};
    use shootdown_examples_aarch64::boot;
    use shootdown_examples_aarch64::frames::Size::Page;
    use shootdown_examples_aarch64::paging::{KERNEL_WINDOW, WINDOW};
    use shootdown_examples_aarch64::platform::{self, Kernel};

    type Tlb = Broadcast<Kernel>;

    const CORTEX_A72: u64 = 0xd08;
    const NEOVERSE_N2: u64 = 0xd49;

    fn found() -> Features {
        rig::start_alone::<Tlb>();
        Tlb::TLB.features()
    }

    #[test]
    fn the_features_are_those_of_the_id_registers() {
        let features = found();
        let field = |register: u64, low: u32| register >> low & 0xf;
        assert_eq!(features.range, field(ID_AA64ISAR0_EL1.get(), 56) == 2);
        assert_eq!(features.level_hint, field(ID_AA64MMFR2_EL1.get(), 48) == 1);
        let older = Features {
            asid16: true,
            ..Features::default()
        };
        let newer = Features {
            range: true,
            level_hint: true,
            ..older
        };
        assert_eq!(
            features,
            match MIDR_EL1.get() >> 4 & 0xfff {
                CORTEX_A72 => older,
                // Its broadcasts must be repeated.
                NEOVERSE_N2 => Features {
                    repeat: true,
                    ..newer
                },
                _ => newer,
            }
        );
    }

    /// How many instructions a flush of `pages` pages takes.
    fn instructions(start: u64, pages: u64) -> u64 {
        let range = shootdown::Range::new(Tlb::TLB.paging(), start, pages, Stride::Size4K);
        let request = Request::range(range.expect("the windows are large enough"));
        let before = Tlb::TLB.counters().broadcasts;
        if start == KERNEL_WINDOW.start {
            Tlb::TLB.flush_kernel(request).wait();
        } else {
            let space = Tlb::TLB.space(boot::reserved_root());
            let space = space.expect("it is a table");
            Tlb::TLB.flush(&space, request).wait();
            Tlb::TLB.retire(&space).expect("no CPU has it loaded");
        }
        Tlb::TLB.counters().broadcasts - before
    }

    #[test]
    fn ranges_take_few_instructions_where_there_are_some_for_ranges() {
        let features = found();
        for start in [WINDOW.start, KERNEL_WINDOW.start] {
            for (pages, by_range) in [(1, 1), (2, 1), (3, 2), (33, 2), (64, 1), (65, 2), (512, 1)] {
                // A table's worth is the least that is flushed as a whole.
                let by_page = if pages < MAX_TLBI_OPERATIONS {
                    pages
                } else {
                    1
                };
                let expected = if features.range { by_range } else { by_page };
                assert_eq!(instructions(start, pages), expected, "{pages} pages");
            }
            // Everything at once, or a few ranges.
            let many = instructions(start, MAX_TLBI_OPERATIONS + 189);
            assert!(
                if features.range {
                    many > 1 && many < 8
                } else {
                    many == 1
                },
                "{many} instructions for 701 pages"
            );
        }
    }

    #[test]
    fn ranges_may_be_done_without() {
        let config = platform::config().ranges(false).level_hints(false);
        Tlb::TLB.init(config).expect("QEMU's CPUs are served");
        Tlb::TLB.online().expect("CPU 0 was offline");
        let features = Tlb::TLB.features();
        assert!(!features.range && !features.level_hint);
        assert_eq!(instructions(WINDOW.start, 33), 33);
    }

    #[test]
    fn another_granule_than_tcr_has_is_refused() {
        let config = Config::new(Paging::arm64(Granule::Size64K), boot::reserved_root());
        assert_eq!(Tlb::TLB.init(config), Err(InitError::WrongGranule));
    }

    #[test]
    fn a_second_flusher_is_refused_on_the_same_cpus() {
        rig::start_alone::<Tlb>();
        let second = Local::<Kernel>::TLB;
        second
            .init(platform::config())
            .expect("QEMU's CPUs are served");
        assert_eq!(second.online(), Err(OnlineError::OtherFlusher));
    }

    #[test]
    fn ranges_broadcast_fresh() {
        case(Page, 65, Space, RangeOfOneLevel)
            .read_on(2)
            .is_fresh_after_the_flush::<Tlb>();
    }

    #[test]
    fn ranges_broadcast_stale() {
        case(Page, 65, Space, RangeOfOneLevel)
            .read_on(2)
            .is_stale_without_the_instruction::<Tlb>();
    }

    // QEMU drops more than a range of several pages, but no more than a page that stands alone.
    #[test]
    fn shortest_range_fresh() {
        case(Page, 2, Space, Range)
            .read_on(2)
            .is_fresh_after_the_flush::<Tlb>();
    }

    #[test]
    fn shortest_range_stale() {
        case(Page, 2, Space, Range)
            .read_on(2)
            .is_stale_without_the_instruction::<Tlb>();
    }

    #[test]
    fn ranges_local_fresh() {
        case(Page, 127, Space, Range)
            .read_on(0)
            .is_fresh_after_the_flush::<Local<Kernel>>();
    }

    #[test]
    fn ranges_local_stale() {
        case(Page, 127, Space, Range)
            .read_on(0)
            .is_stale_without_the_instruction::<Local<Kernel>>();
    }

    #[test]
    fn ranges_kernel_fresh() {
        case(Page, 129, OfKernel, Range)
            .read_on(2)
            .is_fresh_after_the_flush::<Tlb>();
    }

    #[test]
    fn ranges_kernel_stale() {
        case(Page, 129, OfKernel, Range)
            .read_on(2)
            .is_stale_without_the_instruction::<Tlb>();
    }
}
