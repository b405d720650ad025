//! The hypervisor: it takes vCPUs off their CPUs at any step and lets them back in, and does what its guest asks of it.
//!
//! A vCPU that is out does not run, takes no interrupt until it runs again, keeps its TLB and fills nothing into it.

pub(crate) mod flush;
mod hypercall;
pub(crate) mod registers;
mod steal;
#[cfg(test)]
mod tests;

use shootdown::x86_64::{hyperv::InputPage, kvm::StealTime};

use super::{
    Machine,
    cpu::State,
    current::with,
    scheduler::{point, wait_halted},
};

/// Whose interface the hypervisor offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Steal time, and in it the preempted byte.
    Kvm,
    /// Flush hypercalls.
    HyperV {
        /// The forms with a set of virtual processors in banks are offered.
        banks: bool,
    },
}

/// Where a vCPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vcpu {
    /// On a CPU: it may run.
    In,
    /// Taken off, and the guest is not yet told.
    Leaving,
    /// Off, and the guest is told.
    Out,
    /// Let back in, before its next instruction: the guest takes it for running, and it has its flush behind it.
    Entering,
}

/// The hypervisor's state.
#[derive(Debug)]
pub(crate) struct Hypervisor {
    pub kind: Kind,
    /// KVM: the guest's memory for steal times, and each CPU's.
    steal_pages: &'static [StealTime],
    steal: Vec<Option<&'static StealTime>>,
    /// Hyper-V: each CPU's virtual-processor index.
    indices: Vec<u32>,
    /// Hyper-V: MSR 0x4000_0000 and MSR 0x4000_0001.
    guest_id: u64,
    hypercall_page: u64,
    /// Hyper-V: the guest's memory that hypercalls may read.
    input_pages: &'static [InputPage],
}

impl Hypervisor {
    /// A hypervisor of a machine with one virtual-processor index for each CPU. Of the guest's memory it knows the pages
    /// given.
    pub(crate) fn new(
        kind: Kind,
        indices: Vec<u32>,
        steal_pages: &'static [StealTime],
        input_pages: &'static [InputPage],
    ) -> Self {
        Self {
            kind,
            steal_pages,
            steal: vec![None; indices.len()],
            indices,
            guest_id: 0,
            hypercall_page: 0,
            input_pages,
        }
    }
}

impl Machine {
    /// Whether `cpu` is a vCPU that is off its CPU.
    #[inline]
    pub(crate) fn is_out(&self, cpu: usize) -> bool {
        self.cpus[cpu].vcpu != Vcpu::In
    }

    /// Takes a vCPU off its CPU.
    pub(crate) fn preempt(&mut self, cpu: usize) {
        self.cpus[cpu].vcpu = Vcpu::Leaving;
        self.tally.preemptions += 1;
        self.note_for(cpu, |_| String::from("preempted ..."));
    }

    /// The hypervisor does its next step with a vCPU that is not running.
    pub(crate) fn advance(&mut self, cpu: usize) {
        self.cpus[cpu].vcpu = match self.cpus[cpu].vcpu {
            Vcpu::In => Vcpu::In,
            Vcpu::Leaving => {
                // The hypervisor's own stores on this CPU come after the guest's.
                self.drain_all(cpu);
                self.tell_preempted(cpu);
                Vcpu::Out
            }
            Vcpu::Out => {
                self.consume_preempted(cpu);
                Vcpu::Entering
            }
            Vcpu::Entering => {
                self.note_for(cpu, |_| String::from("... runs again"));
                self.oracle_judges_presence(cpu);
                Vcpu::In
            }
        };
    }

    /// The running CPU halts unless it was kicked, or has an interrupt to take. As between STI and HLT, no interrupt is
    /// taken before.
    pub(crate) fn halt(&mut self, interruptible: bool) {
        let it = &mut self.cpus[self.current];
        it.interrupts_on |= interruptible;
        let interrupted = it.pending && it.interrupts_on;
        if !it.kicked && !interrupted {
            it.state = State::Halted;
            self.tally.halts += 1;
        }
        self.note(|_| String::from("halts"));
    }

    /// The running CPU goes on after a halt.
    pub(crate) fn wake(&mut self) {
        self.cpus[self.current].kicked = false;
        self.note(|_| String::from("goes on"));
    }

    fn kick(&mut self, cpu: usize) {
        let number = self.cpus[cpu].number;
        self.note(|_| format!("kicks cpu{number}"));
        let it = &mut self.cpus[cpu];
        it.kicked = true;
        if it.state == State::Halted {
            it.state = State::Runnable;
        }
    }
}

/// Halts the running CPU until it is kicked, or, if `interruptible`, an interrupt arrives: interrupts are on from
/// the halt until then.
pub(crate) fn halt(interruptible: bool) {
    wait_halted(interruptible);
    with(|m| m.wake());
    if interruptible {
        with(|m| m.cpus[m.current].interrupts_on = false);
    }
}

/// Wakes a CPU that is halted, interrupts on or off; one that is not halts once without effect.
pub(crate) fn kick(cpu: usize) {
    point();
    with(|m| m.kick(cpu));
}
