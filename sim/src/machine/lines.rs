//! Cache lines of the words that CPUs share: who has read them since it last waited, and their names.
//!
//! Only registered memory may be shared: per-CPU slots, spaces, the flusher, the scenario's locks. A hooked access to
//! anything else, such as a word on a stack, fails the run.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes a line's number by one multiplication. The order of a map's elements is never used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, value: usize) {
        let mixed = (self.0 ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 29;
    }
}

/// A registered line.
#[derive(Clone, Debug)]
struct Line {
    /// For each CPU, the epoch in which it last read the line.
    read: [u32; 16],
    freed: bool,
}

/// All registered lines.
#[derive(Debug)]
pub(crate) struct Lines {
    index: HashMap<usize, u32, BuildHasherDefault<LineHasher>>,
    lines: Vec<Line>,
    /// Names of words, kept only for a trace.
    names: Option<BTreeMap<usize, String>>,
}

/// A registered line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineId(u32);

impl Lines {
    pub(crate) fn new(named: bool) -> Self {
        Self {
            index: HashMap::default(),
            lines: Vec::new(),
            names: named.then(BTreeMap::new),
        }
    }

    /// Registers the memory of `object`.
    pub(crate) fn register<T>(&mut self, object: &T) {
        let start = core::ptr::from_ref(object) as usize;
        for line in start >> 6..=(start + size_of::<T>().max(1) - 1) >> 6 {
            let next = self.lines.len() as u32;
            let id = *self.index.entry(line).or_insert(next);
            if id == next {
                self.lines.push(Line {
                    read: [0; 16],
                    freed: false,
                });
            }
        }
    }

    /// Names a word for the trace.
    pub(crate) fn name(&mut self, word: usize, name: impl FnOnce() -> String) {
        if let Some(names) = &mut self.names {
            names.insert(word, name());
        }
    }

    /// Marks the memory of `object` as given back: no CPU may touch it again.
    pub(crate) fn free<T>(&mut self, object: &T) {
        let start = core::ptr::from_ref(object) as usize;
        for line in start >> 6..=(start + size_of::<T>().max(1) - 1) >> 6 {
            if let Some(id) = self.index.get(&line) {
                self.lines[*id as usize].freed = true;
            }
        }
    }

    #[inline]
    pub(crate) fn find(&self, word: usize) -> Option<LineId> {
        self.index.get(&(word >> 6)).map(|id| LineId(*id))
    }

    #[inline]
    pub(crate) fn is_freed(&self, line: LineId) -> bool {
        self.lines[line.0 as usize].freed
    }

    /// Notes that `cpu` reads the line in `epoch`.
    #[inline]
    pub(crate) fn read(&mut self, line: LineId, cpu: usize, epoch: u32) {
        self.lines[line.0 as usize].read[cpu] = epoch;
    }

    /// Whether `cpu` has read the line in `epoch`.
    #[inline]
    pub(crate) fn has_read(&self, line: LineId, cpu: usize, epoch: u32) -> bool {
        self.lines[line.0 as usize].read[cpu] == epoch
    }

    /// The name of a word, or of the named word an address value points to.
    pub(crate) fn name_of(&self, word: usize) -> String {
        let names = self.names.as_ref();
        match names.and_then(|names| names.range(..=word).next_back()) {
            Some((at, name)) if *at == word => name.clone(),
            Some((at, name)) if word - at < 4096 => format!("{name}+{}", word - at),
            _ => String::from("?"),
        }
    }

    /// A value for the trace: addresses of named objects by name, so that traces do not depend on the host.
    pub(crate) fn show(&self, value: u64) -> String {
        let known = self
            .names
            .as_ref()
            .and_then(|names| names.get(&(value as usize)));
        match known {
            Some(name) if value > 4096 => format!("&{name}"),
            _ if value > 1 << 20 => format!("{value:#x}"),
            _ => value.to_string(),
        }
    }
}
