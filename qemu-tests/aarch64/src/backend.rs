//! The flushers under test.

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{ReadWriteable, TCR_EL1};
use shootdown::TlbFlusher;
use shootdown::aarch64::{ActiveCpu, Broadcast, Config, Features, Hardware, InitError, Local};
use shootdown_examples_aarch64::platform::Kernel;

use crate::keeping::Keeping;

/// A policy with its static flusher.
pub trait Backend: TlbFlusher<Platform = Kernel> + 'static {
    /// The flusher.
    const TLB: &'static Self;

    /// As the flusher's own.
    ///
    /// # Errors
    /// See [`InitError`].
    fn init(&self, config: Config) -> Result<(), InitError>;

    /// As the flusher's own.
    fn features(&self) -> Features;

    /// Sets up what this CPU needs before the flusher looks at it.
    fn prepare_cpu();
}

macro_rules! backends {
    ($($name:ident: $flusher:ty, $prepare:path;)*) => {$(
        static $name: $flusher = <$flusher>::new();

        impl Backend for $flusher {
            const TLB: &'static Self = &$name;

            fn init(&self, config: Config) -> Result<(), InitError> {
                self.init(config)
            }

            fn features(&self) -> Features {
                self.features()
            }

            fn prepare_cpu() {
                $prepare();
            }
        }
    )*};
}

/// [`Broadcast`] with so few ASIDs that they run out soon.
pub type BroadcastFewAsids = Broadcast<Kernel, Hardware, 1, 4>;
/// [`Local`] with so few ASIDs that they run out soon.
pub type LocalFewAsids = Local<Kernel, Hardware, 1, 4>;
/// [`Broadcast`] on a TLB that keeps what it has on a switch.
pub type BroadcastKeeping = Broadcast<Kernel, Keeping>;
/// [`BroadcastKeeping`] with so few ASIDs that they run out soon.
pub type BroadcastKeepingFewAsids = Broadcast<Kernel, Keeping, 1, 4>;
/// [`ActiveCpu`] on a TLB that keeps what it has on a switch.
pub type ActiveCpuKeeping = ActiveCpu<Kernel, Keeping>;
/// [`Local`] on a TLB that keeps what it has on a switch.
pub type LocalKeeping = Local<Kernel, Keeping>;
/// [`Broadcast`] on CPUs that take the ASID from TTBR1.
pub type BroadcastTtbr1 = Broadcast<Kernel, Hardware, 1, 512>;
/// [`Local`] on CPUs that take the ASID from TTBR1.
pub type LocalTtbr1 = Local<Kernel, Hardware, 1, 512>;

backends! {
    BROADCAST: Broadcast<Kernel>, as_booted;
    ACTIVE_CPU: ActiveCpu<Kernel>, as_booted;
    LOCAL: Local<Kernel>, as_booted;
    BROADCAST_FEW_ASIDS: BroadcastFewAsids, as_booted;
    LOCAL_FEW_ASIDS: LocalFewAsids, as_booted;
    BROADCAST_KEEPING: BroadcastKeeping, as_booted;
    BROADCAST_KEEPING_FEW_ASIDS: BroadcastKeepingFewAsids, as_booted;
    ACTIVE_CPU_KEEPING: ActiveCpuKeeping, as_booted;
    LOCAL_KEEPING: LocalKeeping, as_booted;
    BROADCAST_TTBR1: BroadcastTtbr1, asid_in_ttbr1;
    LOCAL_TTBR1: LocalTtbr1, asid_in_ttbr1;
}

fn as_booted() {}

/// The ASID is in TTBR1 from now on. It is 0 in both registers.
fn asid_in_ttbr1() {
    TCR_EL1.modify(TCR_EL1::A1::TTBR1);
    barrier::isb(barrier::SY);
}
