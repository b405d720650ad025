//! x86_64's instructions in virtual time.

use shootdown::x86_64::{Instructions, Invlpgb, InvpcidKind};

use super::{
    clockwork::{Clockwork, with},
    wait::point,
};

/// The x86_64 CPU in virtual time.
#[derive(Debug)]
pub struct TimedX86;

const CR4_PCIDE: u64 = 1 << 17;
const NO_FLUSH: u64 = 1 << 63;

impl Clockwork {
    fn tag(&mut self) -> u16 {
        (self.me().root & 0xfff) as u16
    }

    /// The running CPU lacks one entry more of `tag`.
    fn drop_one(&mut self, tag: u16) {
        let most = self.costs.working_set;
        let it = self.me();
        if let Some(cold) = it.cold.get_mut(&tag) {
            *cold = (*cold + 1).min(most);
        }
    }

    /// Queues on the fabric; every CPU loses what the operands name. It disturbs no other CPU's pipeline.
    fn invlpgb(&mut self, operands: Invlpgb) {
        const ADDRESS_VALID: u64 = 1 << 0;
        const PCID_VALID: u64 = 1 << 1;
        let pages = u64::from(operands.ecx() & 0xffff) + 1;
        let pcid = (operands.edx() >> 16) as u16;
        let (by_address, by_pcid) = (
            operands.rax() & ADDRESS_VALID != 0,
            operands.rax() & PCID_VALID != 0,
        );
        let most = self.costs.working_set;
        for cpu in &mut self.cpus {
            match (by_address, by_pcid) {
                (true, true) => {
                    if let Some(cold) = cpu.cold.get_mut(&pcid) {
                        *cold = (*cold + pages).min(most);
                    }
                }
                (false, true) => {
                    cpu.cold.remove(&pcid);
                }
                (true, false) => {}
                (false, false) => cpu.cold.clear(),
            }
        }
        let (cost, latency, occupancy) = (
            self.costs.invlpgb,
            self.costs.tlbsync,
            self.costs.invlpgb_occupancy,
        );
        let start = self.me().now.max(self.fabric_free_at);
        self.fabric_free_at = start + occupancy;
        let it = self.me();
        it.now += cost;
        it.broadcast_done = it.broadcast_done.max(start + latency);
    }

    /// The thread uses its working set: what was dropped is filled again.
    pub(super) fn use_working_set(&mut self) {
        let (most, refill) = (self.costs.working_set, self.costs.refill);
        let tag = self.tag();
        let missing = self.me().cold.insert(tag, 0).unwrap_or(most);
        self.spend(missing * refill);
    }
}

// SAFETY: it acts on nothing of the host's. What it drops it counts; no translation depends on it.
unsafe impl Instructions for TimedX86 {
    fn invlpg(_addr: u64) {
        point();
        with(|m| {
            m.spend(m.costs.invlpg);
            let tag = m.tag();
            m.drop_one(tag);
        });
    }

    fn invpcid(kind: InvpcidKind, pcid: u16, _addr: u64) {
        point();
        with(|m| {
            m.spend(m.costs.invpcid);
            match kind {
                InvpcidKind::Address => m.drop_one(pcid),
                InvpcidKind::Single => {
                    m.me().cold.remove(&pcid);
                }
                InvpcidKind::AllWithGlobals | InvpcidKind::AllButGlobals => m.me().cold.clear(),
            }
        });
    }

    fn read_cr3() -> u64 {
        with(|m| m.me().root)
    }

    unsafe fn write_cr3(value: u64) {
        point();
        with(|m| {
            m.spend(m.costs.load_root);
            let it = m.me();
            it.root = value & !NO_FLUSH;
            let tag = (value & 0xfff) as u16;
            if value & NO_FLUSH == 0 {
                it.cold.remove(&tag);
            }
        });
    }

    fn read_cr4() -> u64 {
        with(|m| m.me().cr4)
    }

    unsafe fn write_cr4(value: u64) {
        with(|m| {
            let it = m.me();
            if (it.cr4 ^ value) & !CR4_PCIDE != 0 {
                it.cold.clear();
            }
            it.cr4 = value;
        });
    }

    fn read_efer() -> u64 {
        1 << 11
    }

    fn publish_before_ipi() {
        point();
        with(|m| m.spend(m.costs.fence));
    }

    fn barrier_after_rmw() {}

    fn publish_before_invlpgb() {
        point();
        with(|m| m.spend(m.costs.fence));
    }

    fn invlpgb(operands: Invlpgb) {
        point();
        with(|m| m.invlpgb(operands));
    }

    fn tlbsync() {
        point();
        with(|m| {
            let it = m.me();
            it.now = it.now.max(it.broadcast_done);
        });
    }
}
