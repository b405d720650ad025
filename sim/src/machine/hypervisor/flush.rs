//! Hyper-V's flush hypercalls, carried out: what the operands name, on the virtual processors that they name.

use shootdown::x86_64::hyperv::InputPage;

use super::{
    Kind,
    hypercall::{Flush, Processors, Status, decode},
};
use crate::{
    choice::Choice,
    machine::{
        Machine,
        current::with,
        physical::{frame_of, physical_address},
        scheduler::point,
    },
};

impl Machine {
    /// Takes a hypercall of the running CPU: what it asks for and the CPUs it is for, or why it fails.
    fn take_hypercall(&mut self, control: u64, input: u64) -> Result<(Flush, Vec<usize>), Status> {
        let kind = self.hypervisor.as_ref().map(|hypervisor| hypervisor.kind);
        let Some(Kind::HyperV { banks }) = kind.filter(|_| self.hypercalls_enabled()) else {
            self.fail(String::from(
                "#UD: a hypercall, but there is no hypercall page",
            ));
            return Err(Status::InvalidCode);
        };
        let is_at = |page: &&InputPage| core::ptr::from_ref(*page) as u64 == input & !0xfff;
        let pages = self.hypervisor.as_ref().map(|it| it.input_pages);
        let Some(page) = pages.and_then(|pages| pages.iter().find(is_at)) else {
            self.fail(format!(
                "a hypercall's input is at {input:#x}, which is none of its pages"
            ));
            return Err(Status::InvalidAlignment);
        };
        let flush = decode(control, input, |index| page.word(index), banks);
        self.note(|_| format!("hypercall {control:#x}: {flush:?}"));
        let flush = match flush {
            Ok(flush) => flush,
            // A guest falls back, but must not ask for what is never done.
            Err(status) => {
                self.fail(format!(
                    "the hypercall {control:#x} is rejected: {status:?}"
                ));
                return Err(status);
            }
        };
        let indices = self
            .hypervisor
            .iter()
            .flat_map(|it| it.indices.iter().enumerate());
        let cpus = indices
            .filter(|(_, index)| match &flush.processors {
                Processors::All => true,
                Processors::These(named) => named.contains(index),
            })
            .map(|(cpu, _)| cpu)
            .collect();
        Ok((flush, cpus))
    }

    /// Flushes on one virtual processor, wherever it is: a rep of a list, or everything. A list is of translations: cached
    /// tables stay. Of a space that is named, user translations go; of the kernel's, the global ones.
    pub(super) fn flush_processor(&mut self, cpu: usize, flush: &Flush, rep: usize) {
        // A value that is no root, such as CR3 with a PCID in it, names no space.
        let scope = flush.space.map(|root| match frame_of(root) {
            frame if physical_address(frame) == root => self.oracle.scope_of_root(frame),
            _ => 0,
        });
        let (first, last) = match &flush.list {
            Some(list) => list[rep],
            None => (0, u64::MAX),
        };
        self.note_for(cpu, |_| {
            format!("host: flushes {first:#x}..={last:#x} of {scope:?}")
        });
        self.cpus[cpu].tlb.drop_where(|entry| {
            let named = match scope {
                None => true,
                Some(scope) => entry.global || (entry.scope != 0 && entry.scope == scope),
            };
            named
                && (entry.kind.is_leaf() || flush.list.is_none())
                && !(entry.global && flush.keeps_globals)
                && entry.base <= last
                && first <= entry.last()
        });
    }

    /// A chance that the hypervisor takes.
    fn toss(&mut self, choice: Choice) -> bool {
        let point = self.point();
        let yes = self.chooser.toss(point, choice);
        if yes {
            self.record.push((point, choice));
        }
        yes
    }
}

/// A hypercall of the running CPU; gives its result value.
pub(crate) fn hypercall(control: u64, input: u64) -> u64 {
    point();
    with(|m| m.tally.hypercalls += 1);
    let (flush, cpus) = match with(|m| m.take_hypercall(control, input)) {
        Ok(taken) => taken,
        Err(status) => return status as u64,
    };
    let reps = flush.list.as_ref().map_or(1, Vec::len);
    let result = |status: u64, done: usize| {
        let done = if flush.list.is_some() { done } else { 0 };
        status | (done as u64) << 32
    };
    for rep in flush.start..reps {
        if with(|m| m.toss(Choice::Refuse)) {
            with(|m| {
                m.tally.hypercalls_refused += 1;
                m.note(|_| String::from("host: out of memory for now"));
            });
            return result(Status::InsufficientMemory as u64, rep);
        }
        for cpu in &cpus {
            point();
            with(|m| m.flush_processor(*cpu, &flush, rep));
        }
        point();
        if rep + 1 < reps && with(|m| m.toss(Choice::Stop)) {
            with(|m| {
                m.tally.hypercalls_stopped += 1;
                m.note(|_| format!("host: stops after rep {rep}"));
            });
            return result(0, rep + 1);
        }
    }
    result(0, reps)
}
