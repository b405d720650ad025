//! Shrinking: the smallest scenario and schedule that still break the contract, found greedily.

use crate::{
    choice::{Choice, Point, Schedule},
    scenario::{Failure, Spec, run},
};

/// A run that fails, and how.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smaller run.
    pub spec: Spec,
    /// What the oracle finds in it.
    pub message: String,
}

struct Shrinker {
    spec: Spec,
    message: String,
    runs: u32,
}

/// No more runs than this.
const BUDGET: u32 = 6000;

/// Shrinks a run that failed.
pub fn shrink(spec: &Spec, failure: &Failure) -> Shrunk {
    let mut spec = spec.clone();
    spec.schedule = Some(failure.schedule.clone());
    spec.length = Some(failure.length.clone());
    spec.trace = false;
    let mut shrinker = Shrinker {
        spec,
        message: failure.message.clone(),
        runs: 0,
    };
    loop {
        let before = shrinker.size();
        shrinker.drop_operations();
        shrinker.drop_choices();
        if shrinker.size() >= before || shrinker.runs >= BUDGET {
            break;
        }
    }
    Shrunk {
        spec: shrinker.spec,
        message: shrinker.message,
    }
}

impl Shrinker {
    fn size(&self) -> usize {
        let operations: usize = self
            .spec
            .length
            .iter()
            .flatten()
            .map(|length| usize::from(*length))
            .sum();
        operations - self.spec.skip.len() + self.choices().len()
    }

    fn choices(&self) -> Vec<(Point, Choice)> {
        let schedule = self.spec.schedule.iter().flatten();
        schedule
            .flat_map(|(point, choices)| choices.iter().map(|choice| (*point, *choice)))
            .collect()
    }

    /// Keeps `candidate` if it fails too; with the choices that it really made.
    fn attempt(&mut self, mut candidate: Spec) -> bool {
        if self.runs >= BUDGET {
            return false;
        }
        self.runs += 1;
        let Some(failure) = run(&candidate).failure else {
            return false;
        };
        let made = |schedule: &Schedule| schedule.values().map(Vec::len).sum::<usize>();
        if candidate
            .schedule
            .as_ref()
            .is_none_or(|given| made(&failure.schedule) < made(given))
        {
            candidate.schedule = Some(failure.schedule);
        }
        candidate.length = Some(failure.length);
        candidate.skip.retain(|(cpu, number)| {
            candidate
                .length
                .as_ref()
                .is_some_and(|length| *number < length[usize::from(*cpu)])
        });
        self.spec = candidate;
        self.message = failure.message;
        true
    }

    fn drop_operations(&mut self) {
        for cpu in 0..self.spec.cpus {
            let length = |shrinker: &Self| {
                shrinker
                    .spec
                    .length
                    .as_ref()
                    .map_or(0, |length| length[cpu])
            };
            // All of a CPU's operations, then the last ones, then one by one.
            for keep in [0, 1, 2, 4, 8] {
                if keep < length(self) {
                    let mut candidate = self.spec.clone();
                    if let Some(length) = &mut candidate.length {
                        length[cpu] = keep;
                    }
                    candidate
                        .skip
                        .retain(|(of, number)| usize::from(*of) != cpu || *number < keep);
                    if self.attempt(candidate) {
                        break;
                    }
                }
            }
            let mut number = 0;
            while number < length(self) {
                let mut candidate = self.spec.clone();
                if candidate.skip.insert((cpu as u8, number)) {
                    self.attempt(candidate);
                }
                number += 1;
            }
        }
    }

    fn drop_choices(&mut self) {
        let mut chunk = self.choices().len().div_ceil(2).max(1);
        loop {
            let mut start = 0;
            loop {
                let choices = self.choices();
                if start >= choices.len() || self.runs >= BUDGET {
                    break;
                }
                let end = (start + chunk).min(choices.len());
                let mut schedule = Schedule::new();
                for (point, choice) in choices[..start].iter().chain(&choices[end..]) {
                    schedule.entry(*point).or_default().push(*choice);
                }
                let mut candidate = self.spec.clone();
                candidate.schedule = Some(schedule);
                if !self.attempt(candidate) {
                    start = end;
                }
            }
            if chunk == 1 {
                return;
            }
            chunk = chunk.div_ceil(2);
        }
    }
}
