//! arm64's instructions in virtual time.

use shootdown::aarch64::{Instructions, Tlbi};

use super::{
    clockwork::{Clockwork, with},
    wait::point,
};

/// The arm64 CPU in virtual time: 16-bit ASIDs, ranges, level hints.
#[derive(Debug)]
pub struct TimedArm;

impl Clockwork {
    fn broadcast(&mut self) {
        let (latency, occupancy) = (self.costs.tlbi_broadcast, self.costs.dvm_occupancy);
        let now = self.me().now;
        let start = now.max(self.fabric_free_at);
        self.fabric_free_at = start + occupancy;
        self.broadcasts += 1;
        let it = self.me();
        // Its own does not disturb it twice.
        it.snooped += 1;
        it.broadcast_done = it.broadcast_done.max(start + latency);
    }

    fn wait_for_broadcasts(&mut self) {
        let it = self.me();
        it.now = it.now.max(it.broadcast_done);
    }
}

// SAFETY: it acts on nothing of the host's, and no translation depends on it.
unsafe impl Instructions for TimedArm {
    fn tlbi(operation: Tlbi, _operand: u64) {
        point();
        with(|m| {
            if operation.is_broadcast() {
                m.broadcast();
            } else {
                m.spend(m.costs.tlbi_local);
            }
        });
    }

    fn dsb_ishst() {
        point();
        with(|m| m.spend(m.costs.fence));
    }

    fn dsb_ish() {
        point();
        with(|m| {
            m.spend(m.costs.fence);
            m.wait_for_broadcasts();
        });
    }

    fn dsb_nsh() {
        point();
        with(|m| m.spend(m.costs.fence));
    }

    fn isb() {
        with(|m| m.spend(m.costs.isb));
    }

    unsafe fn write_ttbr0(value: u64) {
        point();
        with(|m| {
            m.spend(m.costs.load_root);
            m.me().root = value;
        });
    }

    fn regime() -> (u8, u64) {
        (1, 0)
    }

    fn id_aa64mmfr0() -> u64 {
        2 << 4
    }

    fn id_aa64mmfr2() -> u64 {
        1 << 48
    }

    fn id_aa64isar0() -> u64 {
        2 << 56
    }

    fn midr() -> u64 {
        0x41 << 24 | 0xf << 16 | 0xd08 << 4
    }

    fn read_ttbr1() -> u64 {
        0
    }

    unsafe fn write_ttbr1(_value: u64) {
        with(|m| m.spend(m.costs.load_root));
    }

    fn tcr() -> u64 {
        16 | 16 << 16 | 0b10 << 30 | 1 << 36
    }
}
