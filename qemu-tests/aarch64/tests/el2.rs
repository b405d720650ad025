//! A kernel that was started at EL2 and stays there. Needs the machine option `virtualization=on`.
#![no_std]
#![no_main]

#[cfg(test)]
#[embedded_test::tests]
mod tests {
    use flush_cases::backend::Backend;
    use shootdown::aarch64::{InitError, Local};
    use shootdown::{OnlineError, SpaceError, TlbFlusher};
    use shootdown_examples_aarch64::platform::Kernel;
    use shootdown_examples_aarch64::{boot, platform};

    type Tlb = Local<Kernel>;

    #[test]
    fn el2_without_e2h_is_a_typed_error() {
        assert_eq!(
            boot::exception_level(),
            2,
            "boot with -M virt,virtualization=on"
        );
        let refused = Tlb::TLB.init(platform::config());
        assert_eq!(refused, Err(InitError::WrongRegime { level: 2 }));
        assert_eq!(Tlb::TLB.online(), Err(OnlineError::NotInitialized));
        let space = Tlb::TLB.space(boot::reserved_root());
        assert_eq!(space.map(drop), Err(SpaceError::NotInitialized));
    }
}
