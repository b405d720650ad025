//! What CPUs publish of their generations.

use core::sync::atomic::AtomicU64;

use shootdown::CpuSlot;

use crate::machine::Machine;

impl Machine {
    /// A CPU stores to a shared word: published generations must not go backwards.
    pub(crate) fn judge_publication(&mut self, word: &AtomicU64, value: u64) {
        let cpu = self.current;
        let Some(watched) = self.oracle.watched.get(cpu).copied() else {
            return;
        };
        let at = core::ptr::from_ref(word) as usize;
        let Some(which) = watched.iter().position(|word| *word == at) else {
            return;
        };
        let own = |machine: &Self, which: usize| {
            // The words of a slot stand in one line, see `CpuSlot`.
            let address = watched[which] as *const AtomicU64;
            // SAFETY: the address of a word of a slot that lives until the run is over.
            machine.own_view(cpu, unsafe { &*address })
        };
        // The kernel's generation is a scope of its own; no space has id 0.
        let named = match which {
            0 => CpuSlot::loaded_word_id(value).map(|space| (space, own(self, 1))),
            1 => CpuSlot::loaded_word_id(own(self, 0)).map(|space| (space, value)),
            _ => Some((0, value)),
        };
        let Some((space, generation)) = named else {
            return;
        };
        let known = self
            .oracle
            .published
            .iter_mut()
            .find(|(c, s, _)| (*c, *s) == (cpu, space));
        match known {
            Some((_, _, last)) if generation < *last => {
                let last = *last;
                let number = self.cpus[cpu].number;
                let scope = self.oracle.scope_of_id(space);
                self.fail(format!(
                    "cpu{number} publishes generation {generation} of scope {scope} after {last}"
                ));
            }
            Some((_, _, last)) => *last = generation,
            None => self.oracle.published.push((cpu, space, generation)),
        }
    }
}
