//! [`Actor`]: one CPU of the simulated kernel, and what it has loaded.

mod access;
mod change;
mod running;
mod spaces;

use std::rc::Rc;

use shootdown::{Outer, Pending, Platform, Request, Space};

use super::{backend::Backend, owner::Owner, world::World};
use crate::machine::{
    current::with, interrupts::user_access_ok, oracle::FlushId, scheduler::point,
};

/// One CPU of the simulated kernel.
pub(crate) struct Actor<'w, F: Backend<W>, const W: usize> {
    pub world: &'w World<F, W>,
    pub index: usize,
    /// The space that was switched to last.
    pub space: Option<Rc<Owner<W>>>,
    lazy: Vec<Outer>,
    /// It will not come back to the space that it is lazy in.
    abandoned: bool,
}

/// Waits for a flush to complete, and lets the oracle judge the moment.
pub(crate) fn complete(flush: FlushId) {
    let (promise, cpus) = with(|m| (m.end_flush(flush), m.cpus.len()));
    for cpu in 0..cpus {
        let may = user_access_ok(cpu);
        with(|m| m.judge_completion(cpu, &promise, may));
    }
}

/// Counts how deep this CPU is in the flusher, to see interrupts nest there.
pub(crate) fn inside<R>(act: impl FnOnce() -> R) -> R {
    with(|m| m.cpus[m.current].inside += 1);
    let result = act();
    with(|m| m.cpus[m.current].inside -= 1);
    result
}

impl<'w, F: Backend<W>, const W: usize> Actor<'w, F, W> {
    pub(crate) fn new(world: &'w World<F, W>, index: usize) -> Self {
        Self {
            world,
            index,
            space: None,
            lazy: Vec::new(),
            abandoned: false,
        }
    }

    pub(crate) fn flusher(&self) -> &'w F {
        &self.world.flusher
    }

    /// Begins an operation on a space, unless it is about to retire.
    pub(crate) fn begin(&self, space: u8) -> Option<Rc<Owner<W>>> {
        let owner = Rc::clone(&self.world.places.get(usize::from(space))?.borrow());
        owner.begin().then_some(owner)
    }

    /// Ends an operation. The last one on a space that has retired meanwhile gives back what the space had.
    pub(crate) fn end(&self, owner: &Owner<W>) {
        if owner.end() {
            self.bury(owner);
        }
    }

    /// Polls as a spin lock does that was taken with interrupts off.
    pub(crate) fn poll_masked(&self, turns: u8) {
        let state = F::Platform::irq_save();
        for _ in 0..turns {
            inside(|| self.flusher().poll());
            point();
        }
        F::Platform::irq_restore(state);
        inside(|| self.flusher().poll());
    }

    /// Takes an owner's lock; polls while it spins where interrupts are off.
    pub(crate) fn lock(&self, owner: &Owner<W>, masked: bool) {
        owner.lock.lock(|| {
            if masked {
                inside(|| self.flusher().poll());
            }
        });
    }

    pub(crate) fn start<'a>(&'a self, owner: &'a Owner<W>, request: Request) -> Pending<'a, F, W> {
        inside(|| match &owner.space {
            Some(space) => self.flusher().flush(space, request),
            None => self.flusher().flush_kernel(request),
        })
    }
}

/// The space of an owner that is not the kernel.
pub(crate) fn space_of<const W: usize>(owner: &Owner<W>) -> &Space<W> {
    owner
        .space
        .as_deref()
        .unwrap_or_else(|| unreachable!("the kernel is no space"))
}

/// Gives frames and tables back: what is used of them from now on is poison.
pub(crate) fn give_back(frames: &[u16]) {
    with(|m| {
        for frame in frames {
            let free = m.memory.put(*frame);
            m.note(|_| {
                format!(
                    "frame {frame} {}",
                    if free { "is freed" } else { "is mapped less" }
                )
            });
        }
    });
}
