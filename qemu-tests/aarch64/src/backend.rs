//! The flushers under test.

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
}

macro_rules! backends {
    ($($name:ident: $flusher:ty;)*) => {$(
        static $name: $flusher = <$flusher>::new();

        impl Backend for $flusher {
            const TLB: &'static Self = &$name;

            fn init(&self, config: Config) -> Result<(), InitError> {
                self.init(config)
            }

            fn features(&self) -> Features {
                self.features()
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

backends! {
    BROADCAST: Broadcast<Kernel>;
    ACTIVE_CPU: ActiveCpu<Kernel>;
    LOCAL: Local<Kernel>;
    BROADCAST_FEW_ASIDS: BroadcastFewAsids;
    LOCAL_FEW_ASIDS: LocalFewAsids;
    BROADCAST_KEEPING: BroadcastKeeping;
    BROADCAST_KEEPING_FEW_ASIDS: BroadcastKeepingFewAsids;
    ACTIVE_CPU_KEEPING: ActiveCpuKeeping;
    LOCAL_KEEPING: LocalKeeping;
}
