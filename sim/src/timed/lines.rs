//! Cache lines: who holds each, and what it costs to get it.

use std::collections::HashMap;

use super::costs::Costs;

/// Bytes of a line.
const LINE: usize = 64;

/// A line as the coherence protocol sees it.
#[derive(Debug, Default)]
struct Line {
    /// The CPU that may write it without asking.
    owner: Option<usize>,
    /// The CPUs that may read it without asking, one bit each.
    holders: Vec<u64>,
    /// When the last transfer is over; the next one queues behind it.
    free_at: u64,
    /// CPUs that have read it since they last looked for changes, one bit each.
    watchers: Vec<u64>,
}

/// How an operation uses a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Waits for the value.
    Load,
    /// Leaves it to the store buffer.
    Store,
    /// A locked instruction: waits for the line.
    Update,
}

/// All lines that were ever touched.
#[derive(Debug, Default)]
pub(super) struct Lines(HashMap<usize, Line>);

/// The line of an address.
pub(super) fn line_of(address: usize) -> usize {
    address / LINE
}

impl Lines {
    /// What it costs `cpu` to use a line at time `now`, in cycles.
    pub(super) fn touch(
        &mut self,
        costs: &Costs,
        line: usize,
        cpu: usize,
        now: u64,
        how: Use,
    ) -> u64 {
        let line = self.0.entry(line).or_default();
        let hit = match how {
            Use::Load => line
                .holders
                .get(cpu / 64)
                .is_some_and(|word| word >> (cpu % 64) & 1 != 0),
            Use::Store | Use::Update => line.owner == Some(cpu),
        };
        let mut cost = match how {
            Use::Load => costs.load,
            Use::Store => costs.store,
            Use::Update => costs.update,
        };
        if !hit {
            let start = now.max(line.free_at);
            let transfer = line.transfer(costs, cpu, how);
            line.free_at = start + transfer;
            if how != Use::Store {
                cost += line.free_at - now;
            }
        }
        if how == Use::Load {
            line.owner = line.owner.filter(|owner| *owner == cpu);
        } else {
            line.holders.fill(0);
            line.owner = Some(cpu);
        }
        set(&mut line.holders, cpu);
        cost
    }

    /// Notes that `cpu` wants to know of writes to the line.
    pub(super) fn watch(&mut self, line: usize, cpu: usize) {
        set(&mut self.0.entry(line).or_default().watchers, cpu);
    }

    /// The CPUs that wanted to know of a write to the line; they have been told then.
    pub(super) fn take_watchers(&mut self, line: usize) -> Vec<usize> {
        let Some(line) = self.0.get_mut(&line) else {
            return Vec::new();
        };
        let watchers = bits(&line.watchers).collect();
        line.watchers.fill(0);
        watchers
    }
}

impl Line {
    /// From the farthest CPU that must answer: the owner, or for a write every holder. Memory, where nobody has it.
    fn transfer(&self, costs: &Costs, cpu: usize, how: Use) -> u64 {
        if let Some(owner) = self.owner {
            return costs.transfer(owner, cpu);
        }
        let mut others = bits(&self.holders).filter(|holder| *holder != cpu);
        let first = others.next();
        match (how, first) {
            (_, None) => costs.memory,
            (Use::Load, Some(holder)) => costs.transfer(holder, cpu),
            // Invalidations go out at once; the farthest counts.
            (_, Some(holder)) => others.fold(costs.transfer(holder, cpu), |most, holder| {
                most.max(costs.transfer(holder, cpu))
            }),
        }
    }
}

/// Sets bit `bit` of a set of words that grows as it must.
fn set(words: &mut Vec<u64>, bit: usize) {
    if words.len() <= bit / 64 {
        words.resize(bit / 64 + 1, 0);
    }
    words[bit / 64] |= 1 << (bit % 64);
}

/// The set bits of a set of words.
fn bits(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(index, word)| {
        let mut left = *word;
        core::iter::from_fn(move || {
            (left != 0).then(|| {
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                64 * index + bit
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_bounces_between_writers() {
        let costs = Costs::XEON;
        let mut lines = Lines::default();
        let mut at = |cpu, now, how| lines.touch(&costs, 1, cpu, now, how);
        let first = at(0, 0, Use::Update);
        assert_eq!(first, costs.update + costs.memory);
        assert_eq!(at(0, 1000, Use::Update), costs.update);
        assert_eq!(at(1, 2000, Use::Update), costs.update + costs.same_socket);
        // Two at once: the second queues.
        assert_eq!(at(2, 3000, Use::Load), costs.load + costs.same_socket);
        assert_eq!(at(3, 3000, Use::Load), costs.load + 2 * costs.same_socket);
        // Everybody has it now: reading is free, and the writer reaches all at once.
        assert_eq!(at(2, 9000, Use::Load), costs.load);
        assert_eq!(at(1, 9000, Use::Update), costs.update + costs.same_socket);
    }
}
