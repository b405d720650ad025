//! Scheduling points: what happens between two operations, and CPUs that wait.

use corosensei::{Coroutine, CoroutineResult, stack::DefaultStack};
use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use super::{
    Machine, STEP_LIMIT,
    cpu::State,
    current::{self, Calls, enter, leave, suspend, with},
    hypervisor::Vcpu,
    interrupts, layout,
};
use crate::{
    choice::{Choice, Point},
    chooser::Options,
};

/// What a CPU at a scheduling point does next.
enum Next {
    GoOn,
    /// Another CPU was chosen.
    GiveWay(usize),
    Nmi(usize, u8),
    /// The run is over.
    Dead(usize),
}

impl Machine {
    pub(crate) fn point(&self) -> Point {
        let it = &self.cpus[self.current];
        Point {
            cpu: self.current as u8,
            section: it.section,
            step: it.step,
        }
    }

    pub(super) fn options(&self) -> Options {
        let mut options = Options {
            current: self.current as u8,
            pages: layout::PAGES,
            ..Options::default()
        };
        for (index, cpu) in self.cpus.iter().enumerate() {
            let bit = 1 << index;
            let flag = |on: bool| if on { bit } else { 0 };
            let is_in = cpu.vcpu == Vcpu::In;
            options.runnable |=
                flag(index != self.current && is_in && cpu.state == State::Runnable);
            options.drain |= flag(self.has_stored(index));
            options.deliver |= flag(cpu.in_flight > 0);
            options.effect |=
                flag(!cpu.issued.is_empty() || cpu.next_root.is_some() || cpu.next_ttbr1.is_some());
            // A vCPU that is out fills nothing and takes no NMI.
            options.active |= flag(is_in);
            options.preempt |= flag(is_in && self.hypervisor.is_some());
            options.host |= flag(!is_in);
        }
        options
    }

    fn is_possible(&self, choice: Choice, options: &Options) -> bool {
        let has = |mask: u16, cpu: u8| cpu < 16 && mask >> cpu & 1 != 0;
        match choice {
            Choice::Run(cpu) => has(options.runnable, cpu),
            Choice::Drain(cpu) => has(options.drain, cpu),
            Choice::Deliver(cpu) => has(options.deliver, cpu),
            Choice::Fill(cpu, page) | Choice::Nmi(cpu, page) => {
                has(options.active, cpu) && page < layout::PAGES
            }
            Choice::Effect(cpu, _) => has(options.effect, cpu),
            Choice::Preempt(cpu) => has(options.preempt, cpu),
            Choice::Host(cpu) => has(options.host, cpu),
            Choice::Early | Choice::Refuse | Choice::Stop => false,
        }
    }

    /// What happens where nothing was chosen and the running CPU can't go on.
    fn fallback(&self, options: &Options) -> Option<Choice> {
        let count = self.cpus.len();
        let next = (1..count)
            .map(|k| (self.current + k) % count)
            .find(|cpu| options.runnable >> cpu & 1 != 0);
        let lowest = |mask: u16| (mask != 0).then(|| mask.trailing_zeros() as u8);
        next.map(|cpu| Choice::Run(cpu as u8))
            .or_else(|| lowest(options.drain).map(Choice::Drain))
            .or_else(|| lowest(options.deliver).map(Choice::Deliver))
            .or_else(|| lowest(options.effect).map(|cpu| Choice::Effect(cpu, 0)))
            .or_else(|| lowest(options.host).map(Choice::Host))
    }

    /// Whether `cpu` waits for nothing and is not preempted.
    #[inline]
    fn can_run(&self, cpu: usize) -> bool {
        self.cpus[cpu].state == State::Runnable && !self.is_out(cpu)
    }

    /// Whether a vCPU that is preempted waits for nothing else. One that waits in vain goes on to when it is let in.
    fn can_any_come_back(&self) -> bool {
        (0..self.cpus.len()).any(|cpu| self.is_out(cpu) && self.cpus[cpu].state == State::Runnable)
    }

    /// Counts a scheduling point of the running CPU.
    fn arrive(&mut self) {
        self.tally.steps += 1;
        self.cpus[self.current].step += 1;
        if self.tally.steps > STEP_LIMIT {
            self.fail(format!("{STEP_LIMIT} steps: livelock"));
        }
    }

    /// Lets things happen until a CPU goes on.
    fn decide(&mut self) -> Next {
        loop {
            let current = self.current;
            if self.is_over() {
                return Next::Dead(current);
            }
            let must = !self.can_run(current);
            let point = self.point();
            if !must
                && self
                    .chooser
                    .is_quiet(point, !self.cpus[current].buffer.is_empty())
            {
                return Next::GoOn;
            }
            let options = self.options();
            let possible = options.runnable | options.drain | options.deliver | options.effect;
            if must && possible == 0 && !self.can_any_come_back() {
                let stuck: Vec<usize> = self
                    .cpus
                    .iter()
                    .filter(|cpu| matches!(cpu.state, State::Parked | State::Halted))
                    .map(|cpu| cpu.number)
                    .collect();
                self.fail(format!("deadlock: CPUs {stuck:?} wait for ever"));
                continue;
            }
            let choice = match self.chooser.choose(point, &options, must) {
                Some(choice) if self.is_possible(choice, &options) => {
                    self.record.push((point, choice));
                    choice
                }
                // An impossible choice of a replay that was shrunk.
                Some(_) => continue,
                None if !must => return Next::GoOn,
                None => match self.fallback(&options) {
                    Some(choice) => {
                        self.record.push((point, choice));
                        choice
                    }
                    None => continue,
                },
            };
            match choice {
                Choice::Run(cpu) => {
                    self.tally.switches += 1;
                    self.current = usize::from(cpu);
                    return Next::GiveWay(current);
                }
                Choice::Drain(cpu) => self.drain(usize::from(cpu)),
                Choice::Deliver(cpu) => self.deliver(usize::from(cpu)),
                Choice::Fill(cpu, page) => self.fill(usize::from(cpu), page),
                Choice::Nmi(cpu, page) if layout::is_kernel(page) => {
                    self.fill(usize::from(cpu), page)
                }
                Choice::Nmi(cpu, page) => return Next::Nmi(usize::from(cpu), page),
                Choice::Effect(cpu, which) => {
                    self.take_effect(usize::from(cpu), usize::from(which))
                }
                Choice::Preempt(cpu) => self.preempt(usize::from(cpu)),
                Choice::Host(cpu) => self.advance(usize::from(cpu)),
                Choice::Early | Choice::Refuse | Choice::Stop => {}
            }
        }
    }

    /// The running CPU waits unless something that it has read since the last turn has changed.
    fn park(&mut self) {
        let it = &mut self.cpus[self.current];
        let interrupted = it.pending && it.interrupts_on;
        if !it.changed && !interrupted {
            it.state = State::Parked;
            self.tally.parks += 1;
        }
    }

    /// Starts the next turn of a waiting loop.
    fn next_turn(&mut self) {
        let it = &mut self.cpus[self.current];
        it.epoch += 1;
        it.changed = false;
    }
}

/// Lets things happen until the running CPU goes on.
fn happen() {
    loop {
        match with(|m| m.decide()) {
            Next::GoOn => return,
            Next::GiveWay(cpu) => {
                suspend(cpu);
                let (dead, waits) = with(|m| (m.is_over(), !m.can_run(cpu)));
                if !dead && !waits {
                    return;
                }
            }
            Next::Nmi(cpu, page) => interrupts::nmi(cpu, page),
            Next::Dead(cpu) => suspend(cpu),
        }
    }
}

/// A scheduling point: called before every operation of the running CPU.
#[inline]
pub(crate) fn point() {
    let probing = with(|m| {
        if m.probe.is_none() {
            m.arrive();
        }
        m.probe.is_some()
    });
    if !probing {
        happen();
        interrupts::take();
    }
}

/// Halts until something wakes this CPU.
pub(crate) fn wait_halted(interruptible: bool) {
    point();
    with(|m| {
        m.arrive();
        m.halt(interruptible);
    });
    happen();
    interrupts::take();
}

/// A turn of a waiting loop.
pub(crate) fn relax() {
    point();
    with(|m| {
        // A point of its own: choices are looked up by point.
        m.arrive();
        m.park();
    });
    happen();
    interrupts::take();
    with(|m| m.next_turn());
}

/// The CPU's scenario has ended: it takes interrupts until all have.
fn idle() {
    with(|m| {
        m.busy -= 1;
        m.note(|_| String::from("done"));
        let it = &mut m.cpus[m.current];
        it.section = u16::MAX;
        it.step = 0;
        it.interrupts_on = true;
    });
    loop {
        let over = with(|m| {
            let over = m.busy == 0;
            if !over {
                let it = &mut m.cpus[m.current];
                it.state = if it.pending {
                    State::Runnable
                } else {
                    State::Idle
                };
                m.arrive();
            }
            over
        });
        if over {
            return;
        }
        happen_while_idle();
        interrupts::take();
    }
}

/// As [`happen`], but returns once all scenarios have ended.
fn happen_while_idle() {
    loop {
        match with(|m| if m.busy == 0 { Next::GoOn } else { m.decide() }) {
            Next::GoOn => return,
            Next::GiveWay(cpu) | Next::Dead(cpu) => suspend(cpu),
            Next::Nmi(cpu, page) => interrupts::nmi(cpu, page),
        }
        if with(|m| !m.is_over() && m.can_run(m.current)) {
            return;
        }
    }
}

thread_local! {
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of a CPU's stack.
const STACK: usize = 128 * 1024;

/// Runs a scenario, one body for each CPU, until all have ended or the contract is broken.
pub(crate) fn run(machine: Machine, calls: Calls, bodies: Vec<Box<dyn FnOnce()>>) -> Box<Machine> {
    super::install();
    enter(Box::new(machine), calls);
    let mut cpus: Vec<Coroutine<(), (), (), DefaultStack>> = bodies
        .into_iter()
        .enumerate()
        .map(|(index, body)| {
            let stack = STACKS.with_borrow_mut(Vec::pop);
            let stack = stack.unwrap_or_else(|| {
                DefaultStack::new(STACK)
                    .unwrap_or_else(|error| panic!("no memory for a CPU's stack: {error}"))
            });
            Coroutine::with_stack(stack, move |yielder, ()| {
                current::set_yielder(index, yielder);
                body();
                idle();
            })
        })
        .collect();
    loop {
        let (cpu, over) = with(|m| (m.current, m.is_over() || m.busy == 0));
        if over {
            break;
        }
        match catch_unwind(AssertUnwindSafe(|| cpus[cpu].resume(()))) {
            Ok(CoroutineResult::Yield(())) => {}
            Ok(CoroutineResult::Return(())) => break,
            Err(_) if with(|m| m.is_over()) => break,
            Err(panic) => resume_unwind(panic),
        }
    }
    let failed = with(|m| m.is_over());
    for (index, mut cpu) in cpus.into_iter().enumerate() {
        if failed && !cpu.done() {
            // SAFETY: nothing on the stack is used again: what the abandoned frames own is leaked, and what they
            // borrow (the flusher, spaces, slots) is only dropped after this.
            unsafe { cpu.force_reset() };
        } else {
            with(|m| m.current = index);
            while !cpu.done() {
                cpu.resume(());
            }
        }
        let stack = cpu.into_stack();
        STACKS.with_borrow_mut(|stacks| stacks.push(stack));
    }
    leave()
}
