//! Store buffers, and the way of page-table stores to the table walkers.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use shootdown::{CpuSlot, atomic::Location};

use super::{Machine, Mode, arm::Issued, cpu::State, layout, physical::physical_address};

/// What a page-table store takes away: whatever was cached of it before must go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Whose table: 0 is the kernel.
    pub scope: u8,
    /// The level of the entry: 0 for a page's, 1 for a region's, 2 for the root's.
    pub level: u8,
    /// Pages whose translation changes, as a mask; none if the entry was not present.
    pub pages: u32,
    /// Regions whose table is unlinked, as a mask.
    pub tables: u8,
    /// The table of regions is unlinked.
    pub top: bool,
}

/// A page-table store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryStore {
    pub table: u16,
    pub index: usize,
    pub value: u64,
    /// Its place in the order of all page-table stores.
    pub sequence: u64,
    pub change: Change,
    /// arm64: CPUs that have read it, as a mask: a DSB of theirs completes it as well.
    pub observers: u64,
}

/// A store in a store buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Buffered {
    /// To a word of registered memory.
    Word {
        /// Lives until the end of the run: only registered memory is buffered.
        word: *const AtomicU64,
        value: u64,
    },
    /// To a byte that the hypervisor shares.
    Byte {
        /// Lives until the end of the run, as words do.
        byte: *const AtomicU8,
        value: u8,
    },
    /// To a page table.
    Entry(EntryStore),
}

/// A store buffer has room for so many stores.
const BUFFER: usize = 12;

/// The part of a path that names a file within its package.
pub(crate) fn short(at: Location) -> String {
    let file = at.file();
    let start = ["/src/", "/arch/"]
        .iter()
        .filter_map(|part| file.rfind(part))
        .min()
        .map_or(0, |at| at + 1);
    let file = if file.contains("shootdown-sim") || file.contains("sim/src") {
        "scenario"
    } else {
        &file[start..]
    };
    format!("{file}:{}", at.line())
}

impl Machine {
    /// Loads a word on the acting CPU, from its own store buffer where it is there.
    pub(crate) fn load(&mut self, word: &AtomicU64, at: Location) -> u64 {
        let cpu = self.acting();
        let value = self.own_view(cpu, word);
        if self.probe.is_none() {
            let Some(line) = self.line(word, at) else {
                return value;
            };
            let epoch = self.cpus[cpu].epoch;
            self.lines.read(line, cpu, epoch);
        }
        self.note(|m| {
            format!(
                "load  {} -> {}   {}",
                m.name(word),
                m.show(word, value),
                short(at)
            )
        });
        value
    }

    /// The value of a word as `cpu` sees it.
    pub(crate) fn own_view(&self, cpu: usize, word: &AtomicU64) -> u64 {
        let own = self.cpus[cpu]
            .buffer
            .iter()
            .rev()
            .find_map(|buffered| match buffered {
                Buffered::Word { word: at, value } if core::ptr::eq(*at, word) => Some(*value),
                _ => None,
            });
        own.or_else(|| self.own_update(cpu, word))
            .unwrap_or_else(|| word.load(Relaxed))
    }

    /// Stores to a word on the running CPU.
    pub(crate) fn store(&mut self, word: &AtomicU64, value: u64, at: Location) {
        if self.line(word, at).is_none() {
            word.store(value, Relaxed);
            return;
        }
        self.note(|m| {
            format!(
                "store {} = {}   {}",
                m.name(word),
                m.show(word, value),
                short(at)
            )
        });
        self.judge_publication(word, value);
        self.judge_tag(word, value);
        let cpu = self.current;
        self.cpus[cpu].published = false;
        self.buffer(cpu, Buffered::Word { word, value });
    }

    /// A locked read-modify-write on the running CPU.
    pub(crate) fn update(
        &mut self,
        word: &AtomicU64,
        update: &mut dyn FnMut(u64) -> Option<u64>,
        at: Location,
    ) -> Result<u64, u64> {
        let cpu = self.current;
        self.cpus[cpu].published = false;
        match self.mode {
            Mode::X86 { .. } => self.drain_all(cpu),
            Mode::Arm => self.before_update(cpu, word),
        }
        let old = word.load(Relaxed);
        let new = update(old);
        let Some(line) = self.line(word, at) else {
            if let Some(new) = new {
                word.store(new, Relaxed);
            }
            return new.map_or(Err(old), |_| Ok(old));
        };
        let epoch = self.cpus[cpu].epoch;
        self.lines.read(line, cpu, epoch);
        self.note(|m| {
            let new = new.map_or(String::from("unchanged"), |new| m.show(word, new));
            format!(
                "rmw   {} {} -> {new}   {}",
                m.name(word),
                m.show(word, old),
                short(at)
            )
        });
        let Some(new) = new else { return Err(old) };
        self.judge_publication(word, new);
        self.judge_tag(word, new);
        match self.mode {
            Mode::X86 { .. } => self.write_word(word, new),
            Mode::Arm => self.defer_update(cpu, word, new),
        }
        Ok(old)
    }

    /// The registered line of a word; a word outside of registered memory, or in memory given back, fails the run.
    fn line(&mut self, word: &AtomicU64, at: Location) -> Option<super::lines::LineId> {
        let line = self.lines.find(core::ptr::from_ref(word) as usize);
        match line {
            None => self.fail(format!(
                "a shared word outside of slots, spaces and the flusher is used at {}",
                short(at)
            )),
            Some(line) if self.lines.is_freed(line) => {
                let name = self.name(word);
                self.fail(format!(
                    "{name} is used at {} after its memory was given back",
                    short(at)
                ));
            }
            Some(_) => {}
        }
        line
    }

    /// A value for the trace. Ids of spaces go on from run to run, so loaded words are shown as scopes.
    pub(crate) fn show(&self, word: &AtomicU64, value: u64) -> String {
        if self.trace.is_none() || !self.name(word).ends_with("loaded") {
            return self.lines.show(value);
        }
        match CpuSlot::loaded_word_id(value) {
            Some(id) => {
                let state = if CpuSlot::loaded_word_is_lazy(value) {
                    "lazy"
                } else {
                    "used"
                };
                format!("{state} space {}", self.oracle.scope_of_id(id))
            }
            None => String::from(["OFFLINE", "SWITCHING", "KERNEL", "?"][value as usize & 3]),
        }
    }

    pub(crate) fn name(&self, word: &AtomicU64) -> String {
        self.lines.name_of(core::ptr::from_ref(word) as usize)
    }

    /// Stores to a page table on the running CPU.
    pub(crate) fn store_entry(&mut self, table: u16, index: usize, value: u64, change: Change) {
        let cpu = self.current;
        self.note(|m| format!("store table {table}[{index}] = {}", show_entry(m, value)));
        self.cpus[cpu].published = false;
        self.store_sequence += 1;
        let store = EntryStore {
            table,
            index,
            value,
            sequence: self.store_sequence,
            change,
            observers: 0,
        };
        match self.mode {
            Mode::X86 { .. } => self.buffer(cpu, Buffered::Entry(store)),
            Mode::Arm => {
                self.settle_entry(table, index);
                self.memory.frames[usize::from(table)].entries[index] = value;
                self.cpus[cpu].issued.push(Issued::Store(store));
            }
        }
    }

    /// Loads from a page table on the running CPU.
    pub(crate) fn load_entry(&mut self, table: u16, index: usize) -> u64 {
        self.observe_entry(table, index);
        let own = self.cpus[self.current]
            .buffer
            .iter()
            .rev()
            .find_map(|buffered| match buffered {
                Buffered::Entry(store) if (store.table, store.index) == (table, index) => {
                    Some(store.value)
                }
                _ => None,
            });
        own.unwrap_or(self.memory.frames[usize::from(table)].entries[index])
    }

    pub(super) fn buffer(&mut self, cpu: usize, store: Buffered) {
        if self.cpus[cpu].buffer.len() >= BUFFER {
            self.drain(cpu);
        }
        self.cpus[cpu].buffer.push_back(store);
    }

    /// The oldest store of `cpu`'s buffer reaches memory.
    pub(crate) fn drain(&mut self, cpu: usize) {
        if self.complete_update(cpu) {
            return;
        }
        let Some(store) = self.cpus[cpu].buffer.pop_front() else {
            return;
        };
        self.tally.drains += 1;
        match store {
            Buffered::Word { word, value } => {
                // SAFETY: `store` buffers only words of registered memory, and the scenario keeps what it has
                // registered until the run is over.
                let word = unsafe { &*word };
                self.settle_updates(word);
                self.note_for(cpu, |m| {
                    format!("  drain {} = {}", m.name(word), m.show(word, value))
                });
                self.write_word(word, value);
            }
            Buffered::Byte { byte, value } => {
                // SAFETY: as for words.
                let byte = unsafe { &*byte };
                self.note_for(cpu, |m| format!("  drain {} = {value}", m.byte_name(byte)));
                self.write_byte(byte, value);
            }
            Buffered::Entry(store) => {
                self.memory.frames[usize::from(store.table)].entries[store.index] = store.value;
                self.walkers_see(cpu, &store);
            }
        }
    }

    /// All stores of `cpu`'s buffer reach memory.
    pub(crate) fn drain_all(&mut self, cpu: usize) {
        while self.has_stored(cpu) {
            self.drain(cpu);
        }
    }

    /// A page-table store of `cpu` reaches the table walkers of all CPUs.
    pub(crate) fn walkers_see(&mut self, cpu: usize, store: &EntryStore) {
        self.memory.frames[usize::from(store.table)].walked[store.index] = store.value;
        let time = self.tick();
        self.note_for(cpu, |m| {
            format!(
                "  walkers see table {}[{}] = {}",
                store.table,
                store.index,
                show_entry(m, store.value)
            )
        });
        self.oracle
            .committed(cpu, store.sequence, &store.change, time);
    }

    pub(crate) fn write_word(&mut self, word: &AtomicU64, value: u64) {
        word.store(value, Relaxed);
        let Some(line) = self.lines.find(core::ptr::from_ref(word) as usize) else {
            return;
        };
        for cpu in 0..self.cpus.len() {
            let it = &mut self.cpus[cpu];
            if self.lines.has_read(line, cpu, it.epoch) {
                it.changed = true;
                if it.state == State::Parked {
                    it.state = State::Runnable;
                }
            }
        }
    }
}

fn show_entry(machine: &Machine, entry: u64) -> String {
    use super::physical::{LEAF, PRESENT, WRITABLE, frame_of};
    if entry & PRESENT == 0 {
        return String::from("nothing");
    }
    let frame = frame_of(entry);
    let generation = machine.memory.generation(frame).unwrap_or(0);
    debug_assert!(physical_address(frame) == entry & 0xf_ffff_f000);
    let what = if entry & LEAF != 0 { "frame" } else { "table" };
    let right = if entry & (LEAF | WRITABLE) == LEAF {
        " read-only"
    } else {
        ""
    };
    format!("{what} {frame}.{generation}{right}")
}

impl Change {
    /// A translation of one page.
    pub(crate) fn page(scope: u8, page: u8) -> Self {
        Self {
            scope,
            pages: 1 << page,
            ..Self::default()
        }
    }

    /// A region's large page.
    pub(crate) fn large(scope: u8, region: u8) -> Self {
        Self {
            scope,
            level: 1,
            pages: 0xf << (region * layout::PAGES_OF_REGION),
            ..Self::default()
        }
    }

    /// A region's table, with all that it maps.
    pub(crate) fn table(scope: u8, region: u8) -> Self {
        Self {
            tables: 1 << region,
            ..Self::large(scope, region)
        }
    }
}

/// As [`short`], for the place of a panic.
pub(crate) fn short_panic(at: &std::panic::Location<'_>) -> String {
    let file = at.file();
    let start = ["/src/", "/arch/"]
        .iter()
        .filter_map(|part| file.rfind(part))
        .min()
        .map_or(0, |at| at + 1);
    format!("{}:{}", &file[start..], at.line())
}
