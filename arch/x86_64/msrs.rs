//! [`Msrs`]: model-specific registers, through which a hypervisor's interfaces are set up.

/// Model-specific registers of the CPU that calls. [`Hardware`](super::Hardware) has the real ones.
///
/// # Safety
///
/// Each function must do what its name says, on the CPU that calls it.
pub unsafe trait Msrs: 'static {
    /// RDMSR.
    ///
    /// # Safety
    ///
    /// The CPU must have the register, and it must be readable.
    unsafe fn read(register: u32) -> u64;

    /// WRMSR.
    ///
    /// # Safety
    ///
    /// The CPU must have the register and take the value; what it does then is the caller's responsibility.
    unsafe fn write(register: u32, value: u64);
}
