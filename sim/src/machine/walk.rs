//! Table walks, speculative and not, and the accesses that use translations.

use super::{
    Machine, Mode, layout,
    physical::{GLOBAL, LEAF, PRESENT, WRITABLE, frame_of},
    tlb::{Entry, Kind},
    x86,
};

/// Where a CPU's walks of an address start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// The root table.
    pub root: u16,
    /// PCID or ASID.
    pub tag: u16,
    /// Whose root it is.
    pub scope: u8,
}

/// An access and who makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// By an NMI handler that was told that it may.
    Nmi,
}

/// What came of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Not mapped.
    Fault,
    /// Mapped, but not for writing, as the translation that was used says.
    ReadOnly,
}

impl Machine {
    /// The context in which `cpu` translates `address`.
    pub(crate) fn context(&self, cpu: usize, address: u64) -> Context {
        let it = &self.cpus[cpu];
        let (root, tag) = match self.mode {
            Mode::X86 { .. } => {
                let tag = if it.cr4 & x86::CR4_PCIDE != 0 {
                    it.root as u16 & 0xfff
                } else {
                    0
                };
                (frame_of(it.root & x86::ROOT_MASK), tag)
            }
            Mode::Arm => {
                let user = it.root & super::arm::ROOT_MASK;
                let root = if address >> 63 != 0 {
                    self.memory.kernel_root()
                } else {
                    user
                };
                let tag = if self.part.asid_in_ttbr1 {
                    it.ttbr1
                } else {
                    it.root
                };
                (frame_of(root), (tag >> 48) as u16)
            }
        };
        let scope = if address >> 63 != 0 {
            0
        } else {
            self.oracle.scope_of_root(root)
        };
        Context { root, tag, scope }
    }

    /// Translates `address` on `cpu` as hardware does: through its paging-structure caches, into the TLB.
    pub(crate) fn walk(&mut self, cpu: usize, address: u64) -> Option<Entry> {
        let Context {
            root,
            tag,
            mut scope,
        } = self.context(cpu, address);
        let now = self.tick();
        let mut times = [u64::MAX; 3];
        let (mut table, mut generation, mut level) = (root, self.memory.generation(root)?, 2);
        for (kind, below) in [(Kind::Region, 0), (Kind::Top, 1)] {
            if let Some(cached) = self.table(cpu, kind, tag, address) {
                (table, generation, level) = (cached.frame, cached.generation, below);
                // The tag alone leads there, whatever root is loaded.
                (times, scope) = (cached.times, cached.scope);
                self.tally.fills_through_caches += 1;
                break;
            }
        }
        loop {
            if self.memory.generation(table) != Some(generation) || !self.memory.in_use(table) {
                if !self.cpus[cpu].exempt {
                    let number = self.cpus[cpu].number;
                    self.fail(format!(
                        "cpu{number} walks a freed page table (frame {table}.{generation}) for {address:#x}"
                    ));
                }
                return None;
            }
            let entry =
                self.memory.frames[usize::from(table)].walked[layout::entry_of(address, level)];
            if entry & PRESENT == 0 {
                return None;
            }
            let frame = frame_of(entry);
            times[level as usize] = now;
            let kind = match (level, entry & LEAF != 0) {
                (0, _) => Kind::Page,
                (1, true) => Kind::Large,
                (1, false) => Kind::Region,
                _ => Kind::Top,
            };
            let kernel = address >> 63 != 0;
            let global = match self.mode {
                Mode::X86 { .. } => {
                    kind.is_leaf() && entry & GLOBAL != 0 && self.cpus[cpu].cr4 & x86::CR4_PGE != 0
                }
                Mode::Arm => kernel,
            };
            let cached = Entry {
                tag,
                global,
                kind,
                base: Entry::base(kind, address),
                frame,
                generation: self.memory.generation(frame).unwrap_or(0),
                writable: entry & WRITABLE != 0,
                common: self.is_common(cpu, address),
                times,
                scope,
            };
            self.cpus[cpu].tlb.entries.push(cached);
            if kind.is_leaf() {
                return Some(cached);
            }
            (table, generation, level) = (frame, cached.generation, level - 1);
        }
    }

    /// `cpu` translates a page speculatively, if it has no translation.
    pub(crate) fn fill(&mut self, cpu: usize, page: u8) {
        let address = layout::address(page);
        let tag = self.context(cpu, address).tag;
        if self.translation(cpu, tag, address).is_some() {
            return;
        }
        self.tally.fills += 1;
        if let Some(entry) = self.walk(cpu, address) {
            self.note_for(cpu, |_| format!("speculative fill: {}", entry.show()));
            self.oracle_judges_presence(cpu);
        }
    }

    /// `cpu` uses a page; the oracle judges the translation. `space` is whose memory it means.
    pub(crate) fn access(
        &mut self,
        cpu: usize,
        page: u8,
        access: Access,
        space: Option<u8>,
    ) -> Outcome {
        let address = layout::address(page);
        let tag = self.context(cpu, address).tag;
        self.tally.accesses += 1;
        let fetched = &self.cpus[cpu].tlb.fetched;
        let late = fetched
            .iter()
            .find(|entry| entry.covers(address) && entry.serves(tag))
            .copied();
        let cached = late.or_else(|| self.translation(cpu, tag, address));
        let hit = cached.is_some();
        let Some(entry) = cached.or_else(|| self.walk(cpu, address)) else {
            self.note_for(cpu, |_| format!("{access:?} {address:#x}: not mapped"));
            return Outcome::Fault;
        };
        self.note_for(cpu, |_| {
            format!(
                "{access:?} {address:#x}: {} {}",
                if hit { "hit" } else { "walk" },
                entry.show()
            )
        });
        self.judge_use(cpu, page, &entry, space);
        if access == Access::Write && !entry.writable {
            Outcome::ReadOnly
        } else {
            Outcome::Done
        }
    }
}
