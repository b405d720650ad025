//! The shared words by name, for the simulated machine: to draw its trace, and to watch what must never happen.

use core::sync::atomic::AtomicU64 as Native;

use crate::{
    cpus::CpuMask,
    domain::Domain,
    slot::{CpuSlot, Loaded},
    space::Space,
};

/// Called with the name of each word and the word.
pub(crate) type Name<'a> = &'a mut dyn FnMut(&'static str, &Native);

/// The words of a scope of flushes.
pub(crate) fn domain(domain: &Domain, name: Name<'_>) {
    const RING: [(&str, &str); 2] = [
        ("ring0.tag", "ring0.payload"),
        ("ring1.tag", "ring1.payload"),
    ];
    name("generation", domain.generation.native());
    for (entry, (tag, payload)) in domain.ring.iter().zip(RING) {
        name(tag, entry.tag.native());
        name(payload, entry.payload.native());
    }
}

/// The words of a mask.
pub(crate) fn mask<const W: usize>(mask: &CpuMask<W>, name: Name<'_>) {
    for word in &mask.words {
        name("cpus", word.native());
    }
    name("summary", mask.summary.native());
}

impl CpuSlot {
    /// The slot's shared words.
    #[doc(hidden)]
    pub fn words(&self, name: Name<'_>) {
        name("loaded", self.seen.loaded.native());
        name("generation", self.seen.generation.native());
        name("kernel_generation", self.seen.kernel_generation.native());
        name("pending", self.mail.pending.native());
        name("trim", self.mail.trim.native());
        name("active_asid", self.mail.active_asid.native());
        name("reserved_asid", self.mail.reserved_asid.native());
    }

    /// The id of the space that a value of the word `loaded` names, in use or lazy.
    #[doc(hidden)]
    pub fn loaded_word_id(word: u64) -> Option<u64> {
        let loaded = Loaded(word);
        loaded.is_space().then(|| loaded.id())
    }

    /// Whether a value of the word `loaded` names a space that is not in use.
    #[doc(hidden)]
    pub fn loaded_word_is_lazy(word: u64) -> bool {
        let loaded = Loaded(word);
        loaded.is_space() && !loaded.is_used()
    }
}

impl<const W: usize> Space<W> {
    /// The space's shared words.
    #[doc(hidden)]
    pub fn words(&self, name: Name<'_>) {
        domain(&self.domain, name);
        mask(&self.cpus, name);
        name("gathers", self.gathers.native());
        name("trims", self.trims.native());
        name("tag", self.tag.native());
        name("active", self.active.native());
    }
}
