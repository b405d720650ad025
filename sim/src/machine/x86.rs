//! x86_64's instructions on the simulated machine (Intel SDM volume 3, "Caching Translation Information").

use shootdown::x86_64::{Instructions, Invlpgb, InvpcidKind};

use super::{Machine, Mode, current::with, physical::frame_of, scheduler::point};

/// CR4.PGE: global pages.
pub(crate) const CR4_PGE: u64 = 1 << 7;
/// CR4.PCIDE: process-context identifiers.
pub(crate) const CR4_PCIDE: u64 = 1 << 17;
/// CR3's root address.
pub(crate) const ROOT_MASK: u64 = 0x000f_ffff_ffff_f000;
/// CR4 when a CPU comes up: global pages are on.
pub(crate) const INITIAL_CR4: u64 = CR4_PGE;
const EFER_NXE: u64 = 1 << 11;
const EFER_TCE: u64 = 1 << 15;
const NO_FLUSH: u64 = 1 << 63;

/// The simulated x86_64 CPU.
#[derive(Debug)]
pub struct X86;

impl Machine {
    fn current_tag(&self) -> u16 {
        self.context(self.current, 0).tag
    }

    fn has_tce(&self) -> bool {
        matches!(self.mode, Mode::X86 { tce: true, .. })
    }

    fn pcids_enabled(&self) -> bool {
        self.cpus[self.current].cr4 & CR4_PCIDE != 0
    }

    fn invlpg(&mut self, addr: u64) {
        let cpu = self.current;
        self.drain_all(cpu);
        self.note(|_| format!("invlpg {addr:#x}"));
        let tag = self.current_tag();
        let all_tables = !self.has_tce();
        self.cpus[cpu].tlb.drop_where(|entry| {
            if entry.kind.is_leaf() {
                entry.covers(addr) && entry.serves(tag)
            } else {
                entry.tag == tag && (all_tables || entry.covers(addr))
            }
        });
    }

    fn invpcid(&mut self, kind: InvpcidKind, pcid: u16, addr: u64) {
        let cpu = self.current;
        self.drain_all(cpu);
        self.note(|_| format!("invpcid {kind:?} pcid {pcid} {addr:#x}"));
        if !matches!(self.mode, Mode::X86 { invpcid: true, .. }) {
            return self.fail(String::from("#UD: INVPCID on a CPU without it"));
        }
        if pcid != 0 && !self.pcids_enabled() || pcid > 0xfff {
            return self.fail(format!(
                "#GP: INVPCID of PCID {pcid} while CR4.PCIDE is clear or beyond 12 bits"
            ));
        }
        self.cpus[cpu].tlb.drop_where(|entry| match kind {
            InvpcidKind::Address => entry.tag == pcid && !entry.global && entry.covers(addr),
            InvpcidKind::Single => entry.tag == pcid && !entry.global,
            InvpcidKind::AllWithGlobals => true,
            InvpcidKind::AllButGlobals => !entry.global,
        });
    }

    fn write_cr3(&mut self, value: u64) {
        let cpu = self.current;
        self.drain_all(cpu);
        let keep = value & NO_FLUSH != 0;
        let tag = (value & 0xfff) as u16;
        self.note(|m| {
            let root = frame_of(value & ROOT_MASK);
            let scope = m.oracle.scope_of_root(root);
            format!(
                "cr3 = root {root} of scope {scope}, pcid {tag}{}",
                if keep { ", no flush" } else { "" }
            )
        });
        let pcids = self.pcids_enabled();
        if !pcids && (keep || tag != 0) {
            return self.fail(format!("#GP: CR3 = {value:#x} while CR4.PCIDE is clear"));
        }
        let root = frame_of(value & ROOT_MASK);
        if !self.memory.in_use(root) {
            return self.fail(format!("CR3 = {value:#x}: frame {root} is free"));
        }
        if !pcids {
            self.cpus[cpu].tlb.drop_where(|entry| !entry.global);
        } else if !keep {
            self.cpus[cpu]
                .tlb
                .drop_where(|entry| entry.tag == tag && !entry.global);
        }
        self.cpus[cpu].root = value & !NO_FLUSH;
        self.judge_global_pcid(cpu);
        self.oracle_judges_presence(cpu);
    }

    fn write_cr4(&mut self, value: u64) {
        let cpu = self.current;
        self.drain_all(cpu);
        self.note(|_| format!("cr4 = {value:#x}"));
        let old = self.cpus[cpu].cr4;
        let has_pcid = matches!(self.mode, Mode::X86 { pcid: true, .. });
        if value & !old & CR4_PCIDE != 0 && (self.cpus[cpu].root & 0xfff != 0 || !has_pcid) {
            return self.fail(String::from(
                "#GP: CR4.PCIDE is set with CR3[11:0] not 0, or on a CPU without PCIDs",
            ));
        }
        if (value ^ old) & CR4_PGE != 0 || old & !value & CR4_PCIDE != 0 {
            self.cpus[cpu].tlb.drop_where(|_| true);
        }
        self.cpus[cpu].cr4 = value;
    }
}

// SAFETY: each function does on the simulated CPU what its name says; the machine acts on nothing of the host's.
unsafe impl Instructions for X86 {
    fn invlpg(addr: u64) {
        point();
        with(|m| m.invlpg(addr));
    }

    fn invpcid(kind: InvpcidKind, pcid: u16, addr: u64) {
        point();
        with(|m| m.invpcid(kind, pcid, addr));
    }

    fn read_cr3() -> u64 {
        with(|m| m.cpus[m.acting()].root)
    }

    unsafe fn write_cr3(value: u64) {
        point();
        with(|m| m.write_cr3(value));
    }

    fn read_cr4() -> u64 {
        with(|m| m.cpus[m.acting()].cr4)
    }

    unsafe fn write_cr4(value: u64) {
        point();
        with(|m| m.write_cr4(value));
    }

    fn read_efer() -> u64 {
        EFER_NXE | with(|m| if m.has_tce() { EFER_TCE } else { 0 })
    }

    fn publish_before_ipi() {
        point();
        with(|m| {
            let cpu = m.current;
            m.drain_all(cpu);
            m.cpus[cpu].published = true;
            m.note(|_| String::from("mfence; lfence"));
        });
    }

    fn barrier_after_rmw() {
        // The locked instruction before it has drained the store buffer.
    }

    fn publish_before_invlpgb() {
        point();
        with(|m| {
            let cpu = m.current;
            m.drain_all(cpu);
            m.note(|_| String::from("mfence"));
        });
    }

    fn invlpgb(operands: Invlpgb) {
        point();
        with(|m| m.invlpgb(operands.rax(), operands.ecx(), operands.edx()));
    }

    fn tlbsync() {
        point();
        with(|m| m.tlbsync());
    }
}
