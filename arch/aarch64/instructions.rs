//! [`Instructions`]: the machine instructions the arm64 backends use, so that they run on hardware and on the simulated
//! machine alike.

/// A TLB invalidation by the Inner Shareable domain or by this CPU (Arm ARM, "TLB maintenance instructions").
///
/// The names are the architecture's. They apply to the EL1&0 regime, and to EL2&0 where HCR_EL2.{E2H, TGE} is {1, 1}.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tlbi {
    /// By address and ASID, all levels, broadcast.
    Vae1Is,
    /// By address and ASID, last level, broadcast.
    Vale1Is,
    /// By address, any ASID, all levels, broadcast.
    Vaae1Is,
    /// By address, any ASID, last level, broadcast.
    Vaale1Is,
    /// By range and ASID, all levels, broadcast (FEAT_TLBIRANGE).
    Rvae1Is,
    /// By range and ASID, last level, broadcast (FEAT_TLBIRANGE).
    Rvale1Is,
    /// By range, any ASID, all levels, broadcast (FEAT_TLBIRANGE).
    Rvaae1Is,
    /// By range, any ASID, last level, broadcast (FEAT_TLBIRANGE).
    Rvaale1Is,
    /// By ASID, broadcast.
    Aside1Is,
    /// Everything of the regime, broadcast; takes no operand.
    Vmalle1Is,
    /// By address and ASID, all levels, this CPU.
    Vae1,
    /// By address and ASID, last level, this CPU.
    Vale1,
    /// By range and ASID, all levels, this CPU (FEAT_TLBIRANGE).
    Rvae1,
    /// By range and ASID, last level, this CPU (FEAT_TLBIRANGE).
    Rvale1,
    /// By ASID, this CPU.
    Aside1,
    /// By address, any ASID, all levels, this CPU.
    Vaae1,
    /// Everything of the regime, this CPU; takes no operand.
    Vmalle1,
}

impl Tlbi {
    /// Whether other CPUs of the Inner Shareable domain are reached.
    pub const fn is_broadcast(self) -> bool {
        !matches!(
            self,
            Self::Vae1
                | Self::Vale1
                | Self::Rvae1
                | Self::Rvale1
                | Self::Aside1
                | Self::Vaae1
                | Self::Vmalle1
        )
    }
}

/// The machine instructions.
///
/// # Safety
///
/// Each function must do what its name says, on the CPU that calls it, and must be neither removed nor moved by the
/// compiler across memory accesses.
pub unsafe trait Instructions: Sized + 'static {
    /// TLBI with its operand, which is ignored where the operation takes none.
    ///
    /// # Implementation safety
    ///
    /// Must drop at least what the operation and operand name, once the matching DSB is complete.
    fn tlbi(operation: Tlbi, operand: u64);

    /// DSB ISHST: earlier stores are complete, for table walkers too, before anything later.
    ///
    /// # Implementation safety
    ///
    /// As said.
    fn dsb_ishst();

    /// DSB ISH: earlier accesses and broadcast invalidations are complete.
    ///
    /// # Implementation safety
    ///
    /// As said.
    fn dsb_ish();

    /// DSB NSH: earlier accesses and local invalidations are complete.
    ///
    /// # Implementation safety
    ///
    /// As said.
    fn dsb_nsh();

    /// ISB: later instructions are fetched anew and see earlier changes of system registers.
    ///
    /// # Implementation safety
    ///
    /// As said.
    fn isb();

    /// Writes TTBR0_EL1 (or TTBR0_EL2 where E2H and TGE are set, which has the same encoding there).
    ///
    /// # Safety
    ///
    /// The new tables must not take away what the running code needs.
    unsafe fn write_ttbr0(value: u64);

    /// The exception level, and at EL2 HCR_EL2, else 0.
    ///
    /// # Implementation safety
    ///
    /// Must give the CPU's state.
    fn regime() -> (u8, u64);

    /// ID_AA64MMFR0_EL1, whose bits 7:4 tell the ASID size.
    ///
    /// # Implementation safety
    ///
    /// Must give the register's value.
    fn id_aa64mmfr0() -> u64;

    /// ID_AA64MMFR2_EL1, whose bits 51:48 tell whether level hints are read.
    ///
    /// # Implementation safety
    ///
    /// Must give the register's value.
    fn id_aa64mmfr2() -> u64;

    /// ID_AA64ISAR0_EL1, whose bits 59:56 tell which TLBI instructions there are.
    ///
    /// # Implementation safety
    ///
    /// Must give the register's value.
    fn id_aa64isar0() -> u64;

    /// MIDR_EL1: which part this is.
    ///
    /// # Implementation safety
    ///
    /// Must give the register's value.
    fn midr() -> u64;

    /// TTBR1_EL1 (or TTBR1_EL2 where E2H and TGE are set), whose ASID field counts where TCR.A1 is set.
    ///
    /// # Implementation safety
    ///
    /// Must give the register's value.
    fn read_ttbr1() -> u64;

    /// Writes TTBR1.
    ///
    /// # Safety
    ///
    /// Only the ASID field may differ from what was read.
    unsafe fn write_ttbr1(value: u64);

    /// TCR_EL1 (TCR_EL2 where E2H is set).
    ///
    /// # Implementation safety
    ///
    /// Must give the register's value.
    fn tcr() -> u64;
}
