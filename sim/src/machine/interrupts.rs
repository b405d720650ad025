//! Interrupts and NMIs, and panics of the code under test.

use std::cell::Cell;

use super::{
    Machine,
    cpu::State,
    current::{self, calls, is_running, with},
    walk::Access,
};
use crate::choice::Choice;

thread_local! {
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

impl Machine {
    /// Sends the flush interrupt from the running CPU to `target`. Without a publication since its last store, the
    /// interrupt may arrive before the request does.
    pub(crate) fn send_interrupt(&mut self, target: usize, unpublished: bool) {
        let number = self.cpus[target].number;
        let point = self.point();
        if unpublished && self.chooser.toss(point, Choice::Early) {
            self.tally.early_interrupts += 1;
            self.record.push((point, Choice::Early));
            self.note(|_| {
                format!("interrupt -> cpu{number} overtakes the stores before it and finds nothing")
            });
            return;
        }
        self.cpus[target].in_flight += 1;
        self.note(|_| format!("interrupt -> cpu{number}"));
    }

    /// An interrupt in flight reaches `cpu`.
    pub(crate) fn deliver(&mut self, cpu: usize) {
        self.cpus[cpu].in_flight -= 1;
        self.cpus[cpu].pending = true;
        self.note_for(cpu, |_| String::from("interrupt arrives"));
        let it = &mut self.cpus[cpu];
        if it.interrupts_on && it.state != State::Runnable {
            it.state = State::Runnable;
        }
    }

    fn accept_interrupt(&mut self) -> bool {
        let cpu = self.current;
        let deaf = self.is_over() || self.probe.is_some() || self.busy == 0;
        let it = &mut self.cpus[cpu];
        if deaf || !it.pending || !it.interrupts_on {
            return false;
        }
        it.pending = false;
        it.interrupts_on = false;
        if it.inside > 0 {
            self.tally.nested_interrupts += 1;
        }
        self.tally.interrupts += 1;
        self.note(|_| String::from("interrupt >>>"));
        true
    }

    fn end_interrupt(&mut self) {
        let cpu = self.current;
        // IRET and ERET serialize.
        self.drain_all(cpu);
        self.synchronize_context(cpu);
        self.note(|_| String::from("interrupt <<<"));
        let it = &mut self.cpus[cpu];
        it.interrupts_on = true;
        // What the interrupted loop had read may have changed meanwhile.
        it.changed = true;
    }

    /// An NMI handler on `cpu`, which was told whether it may, reads a page.
    fn nmi_access(&mut self, cpu: usize, page: u8, may: bool) {
        if !may {
            self.tally.nmi_refused += 1;
            return;
        }
        self.tally.nmi_accesses += 1;
        self.access(cpu, page, Access::Nmi, None);
    }
}

/// Takes interrupts that are pending on the running CPU.
#[inline]
pub(crate) fn take() {
    while with(|m| m.accept_interrupt()) {
        (calls().interrupt)();
        with(|m| m.end_interrupt());
    }
}

/// What an NMI handler on `cpu` would be told.
pub(crate) fn user_access_ok(cpu: usize) -> bool {
    let calls = calls();
    let trace = with(|m| {
        m.probe = Some(cpu);
        m.trace.take()
    });
    let may = (calls.user_access_ok)();
    with(|m| {
        m.probe = None;
        m.trace = trace;
    });
    may
}

/// An NMI on `cpu`.
pub(crate) fn nmi(cpu: usize, page: u8) {
    let may = user_access_ok(cpu);
    with(|m| m.nmi_access(cpu, page, may));
}

/// Whether a panic was caught on this thread, which can then run no further machine: the standard library goes on
/// counting it.
pub(crate) fn has_panicked() -> bool {
    PANICKED.get()
}

/// Makes a panic in a simulated CPU end the run. It unwinds no further than to the first scheduling point, where the CPU
/// gives way for good: destructors of the flusher would wait for other CPUs.
pub(crate) fn catch_panics() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !is_running() {
            return previous(info);
        }
        let place = info.location().map_or(String::new(), |at| {
            format!(" at {}", super::stores::short_panic(at))
        });
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("panic");
        match current::end_by_panic(format!("panic: {text}{place}")) {
            Some(_) => PANICKED.set(true),
            // The simulator itself has panicked.
            None => previous(info),
        }
    }));
}
