//! Sets of CPUs: [`CpuSet`], a value; [`CpuMask`], shared between CPUs; [`Cpus`], a view of a set.
//!
//! All hold one bit a CPU in `W` words of 64; `W` is at most 64, for 4096 CPUs. A mask adds one summary word, so that
//! a scan costs by the words in use and not by the machine's size.

use core::fmt;

use crate::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
    const_unless_loom, zeroed,
};

/// A CPU number that a set or a platform does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CpuOutOfRange {
    /// The CPU asked for.
    pub cpu: usize,
    /// CPU numbers are below this.
    pub limit: usize,
}

impl fmt::Display for CpuOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, limit } = self;
        write!(f, "CPU {cpu} is out of range: there are {limit}")
    }
}

impl core::error::Error for CpuOutOfRange {}

/// A set of up to `64 * W` CPUs.
///
/// ```
/// use shootdown::CpuSet;
///
/// let mut set = CpuSet::<2>::EMPTY;
/// set.insert(70)?;
/// assert!(set.contains(70) && !set.contains(7));
/// assert!(set.insert(128).is_err());
/// # Ok::<(), shootdown::CpuOutOfRange>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CpuSet<const W: usize = 1> {
    words: [u64; W],
}

impl<const W: usize> CpuSet<W> {
    /// The empty set.
    pub const EMPTY: Self = {
        assert!(
            W >= 1 && W <= 64,
            "a CPU set has 1 to 64 words: up to 4096 CPUs"
        );
        Self { words: [0; W] }
    };

    /// CPU numbers are below this.
    pub const CAPACITY: usize = 64 * W;

    /// Adds `cpu`.
    ///
    /// # Errors
    ///
    /// If the set has no such CPU.
    pub const fn insert(&mut self, cpu: usize) -> Result<(), CpuOutOfRange> {
        if cpu >= Self::CAPACITY {
            return Err(CpuOutOfRange {
                cpu,
                limit: Self::CAPACITY,
            });
        }
        self.words[cpu / 64] |= 1 << (cpu % 64);
        Ok(())
    }

    /// Removes `cpu`, if it is there.
    pub const fn remove(&mut self, cpu: usize) {
        if cpu < Self::CAPACITY {
            self.words[cpu / 64] &= !(1 << (cpu % 64));
        }
    }

    /// Whether `cpu` is in the set.
    pub const fn contains(&self, cpu: usize) -> bool {
        cpu < Self::CAPACITY && self.words[cpu / 64] >> (cpu % 64) & 1 != 0
    }

    /// Whether no CPU is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// How many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// A view without the word count in its type.
    #[inline]
    pub const fn view(&self) -> Cpus<'_> {
        Cpus { words: &self.words }
    }

    /// The CPUs in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.view().iter()
    }

    /// The lowest CPU.
    #[inline(always)]
    pub(crate) fn first(&self) -> Option<usize> {
        let index = self.words.iter().position(|word| *word != 0)?;
        Some(64 * index + self.words[index].trailing_zeros() as usize)
    }

    /// Removes the lowest CPU.
    #[inline(always)]
    pub(crate) fn take_first(&mut self) {
        if let Some(word) = self.words.iter_mut().find(|word| **word != 0) {
            *word &= *word - 1;
        }
    }

    /// Whether `cpu`, whose bit in its word is `bit`, is the only one.
    #[inline(always)]
    pub(crate) fn is_only(&self, cpu: impl FnOnce() -> usize, bit: u64) -> bool {
        if W == 1 {
            return self.words[0] == bit;
        }
        let mut others = *self;
        others.take_out(cpu());
        self.words != others.words && others.is_empty()
    }

    /// Calls `f` for each CPU, in ascending order.
    #[inline(always)]
    pub(crate) fn for_each(&self, mut f: impl FnMut(usize)) {
        for (index, word) in self.words.iter().enumerate() {
            for bit in Bits(*word) {
                f(64 * index + bit);
            }
        }
    }

    /// Removes a CPU that is known to fit.
    #[inline(always)]
    pub(crate) fn take_out(&mut self, cpu: usize) {
        self.words[word_of::<W>(cpu)] &= !(1 << (cpu % 64));
    }

    /// Removes all CPUs but those of `other`.
    #[inline(always)]
    pub(crate) fn keep(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(other.words) {
            *word &= other;
        }
    }

    /// Adds all CPUs of `other`.
    #[inline(always)]
    pub(crate) fn add_all(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(other.words) {
            *word |= other;
        }
    }

    /// Adds a CPU that is known to fit: it came out of a mask of the same width, or passed the check at `online`.
    #[inline(always)]
    pub(crate) fn add(&mut self, cpu: usize) {
        self.words[word_of::<W>(cpu)] |= 1 << (cpu % 64);
    }
}

impl<const W: usize> fmt::Debug for CpuSet<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(feature = "defmt")]
impl<const W: usize> defmt::Format for CpuSet<W> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "CpuSet({=[?]:#x})", &self.words[..]);
    }
}

/// A borrowed set of CPUs of any width.
#[derive(Clone, Copy)]
pub struct Cpus<'a> {
    words: &'a [u64],
}

impl<'a> Cpus<'a> {
    /// The words, lowest CPUs first: bit `n` of word `w` is CPU `64 * w + n`. For interrupt controllers that take
    /// masks.
    #[inline]
    pub const fn words(&self) -> &'a [u64] {
        self.words
    }

    /// The CPUs in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.words
            .iter()
            .enumerate()
            .flat_map(|(index, word)| Bits(*word).map(move |bit| 64 * index + bit))
    }
}

impl fmt::Debug for Cpus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The word of a CPU that is known to fit: where there is one word, no check is needed.
#[inline(always)]
const fn word_of<const W: usize>(cpu: usize) -> usize {
    if W == 1 { 0 } else { cpu / 64 }
}

/// The numbers of the set bits of a word.
pub(crate) struct Bits(pub(crate) u64);

impl Iterator for Bits {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        (self.0 != 0).then(|| {
            let bit = self.0.trailing_zeros() as usize;
            self.0 &= self.0 - 1;
            bit
        })
    }
}

/// A set of CPUs shared between CPUs, with a summary word.
#[derive(Debug)]
pub(crate) struct CpuMask<const W: usize> {
    pub(crate) words: [AtomicU64; W],
    /// Bit `w` is set if word `w` ever had a bit: a superset, never cleared while CPUs may insert.
    pub(crate) summary: AtomicU64,
}

impl<const W: usize> CpuMask<W> {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            assert!(W >= 1 && W <= 64, "a CPU mask has 1 to 64 words: up to 4096 CPUs");
            Self {
                words: zeroed!(),
                summary: AtomicU64::new(0),
            }
        }
    }

    /// Whether `cpu`, which is below `64 * W`, is in the mask.
    #[inline]
    pub(crate) fn contains(&self, cpu: usize) -> bool {
        self.words[word_of::<W>(cpu)].load(Relaxed) >> (cpu % 64) & 1 != 0
    }

    /// Inserts `cpu`. The word goes before the summary: a scan that sees neither has not missed a CPU whose insertion
    /// was followed by a full barrier before the scan's own.
    #[inline]
    pub(crate) fn insert(&self, cpu: usize) {
        self.words[cpu / 64].fetch_or(1 << (cpu % 64), SeqCst);
        if W > 1 && self.summary.load(Relaxed) >> (cpu / 64) & 1 == 0 {
            self.summary.fetch_or(1 << (cpu / 64), SeqCst);
        }
    }

    #[inline]
    pub(crate) fn remove(&self, cpu: usize) {
        self.words[cpu / 64].fetch_and(!(1 << (cpu % 64)), SeqCst);
    }

    /// Calls `f` for each CPU in the mask, each word read once.
    #[inline(always)]
    pub(crate) fn for_each(&self, mut f: impl FnMut(usize)) {
        if W == 1 {
            for cpu in Bits(self.words[0].load(Acquire)) {
                f(cpu);
            }
        } else {
            for index in Bits(self.summary.load(Acquire)) {
                for bit in Bits(self.words[index].load(Acquire)) {
                    f(64 * index + bit);
                }
            }
        }
    }

    /// The CPUs in the mask, each word read once.
    #[inline(always)]
    pub(crate) fn snapshot(&self) -> CpuSet<W> {
        let mut set = CpuSet::EMPTY;
        if W == 1 {
            set.words[0] = self.words[0].load(Acquire);
        } else {
            for index in Bits(self.summary.load(Acquire)) {
                set.words[index] = self.words[index].load(Acquire);
            }
        }
        set
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| word.load(Relaxed) == 0)
    }

    /// Removes all CPUs but `keep`, and says whether there were any. Costs one load a word in use if not.
    pub(crate) fn keep_only(&self, keep: Option<usize>) -> bool {
        let mut removed = false;
        let mut words = if W == 1 {
            1
        } else {
            self.summary.load(Acquire)
        };
        while words != 0 {
            let index = words.trailing_zeros() as usize;
            words &= words - 1;
            let kept = match keep {
                Some(cpu) if cpu / 64 == index => 1 << (cpu % 64),
                _ => 0,
            };
            if self.words[index].load(Relaxed) & !kept != 0 {
                self.words[index].fetch_and(kept, SeqCst);
                removed = true;
            }
        }
        removed
    }

    /// Empties the mask, once no CPU inserts any more.
    pub(crate) fn clear(&self) {
        for word in &self.words {
            word.store(0, Relaxed);
        }
        self.summary.store(0, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn set_names_a_cpu_it_lacks() {
        let mut set = CpuSet::<1>::EMPTY;
        assert_eq!(set.insert(64), Err(CpuOutOfRange { cpu: 64, limit: 64 }));
        assert!(set.insert(63).is_ok());
        assert!(!set.contains(4096));
        set.remove(4096);
        assert_eq!(set.len(), 1);
    }

    #[test]
    fn masks_scan_all_words_in_use() {
        let mask = CpuMask::<64>::new();
        let cpus = [0, 63, 64, 1000, 4095];
        for cpu in cpus {
            mask.insert(cpu);
        }
        let mut seen = Vec::new();
        mask.for_each(|cpu| seen.push(cpu));
        assert_eq!(seen, cpus);
        mask.remove(1000);
        assert!(!mask.contains(1000) && mask.contains(4095));
        mask.clear();
        assert!(mask.is_empty());
    }

    #[test]
    fn a_view_gives_the_same_cpus() {
        let mut set = CpuSet::<2>::EMPTY;
        for cpu in [3, 64, 127] {
            set.insert(cpu).unwrap();
        }
        assert_eq!(set.view().iter().collect::<Vec<_>>(), [3, 64, 127]);
        assert_eq!(set.view().words(), [8, 1 | 1 << 63]);
    }
}
