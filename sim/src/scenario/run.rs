//! One run: a seed, and everything that follows from it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use shootdown::{
    CpuSlot, Platform,
    aarch64::{
        self,
        policy::{AlwaysBroadcast, NeverLoaded, NotRunning, Policy},
    },
    coverage::{Branch, take_coverage},
    variant::{Broken, break_protocol},
    x86_64,
};

use super::{
    actor::Actor,
    backend::{Backend, BackendKind, Setup},
    op::{Op, Weights},
    world::{World, address},
};
use crate::{
    choice::{Choice, Schedule},
    chooser::Chooser,
    machine::{
        Machine, Mode, Tally,
        arm::Arm,
        current::{Calls, with},
        interrupts,
        part::set_part,
        scheduler,
        x86::X86,
    },
    platform::{SimPlatform, set_slots},
    rng::Rng,
};

/// What to run.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The flusher.
    pub backend: BackendKind,
    /// How many CPUs, 1 to 16.
    pub cpus: usize,
    /// Draws the scenario, and the schedule unless one is given.
    pub seed: u64,
    /// The way in which the protocol is broken, if any.
    pub broken: Option<Broken>,
    /// The schedule of an earlier run.
    pub schedule: Option<Schedule>,
    /// Operations to leave out: CPU and number.
    pub skip: BTreeSet<(u8, u16)>,
    /// How many operations each CPU has, if not as many as the run's flushes take.
    pub length: Option<Vec<u16>>,
    /// Writes a trace.
    pub trace: bool,
    /// What each CPU does, instead of what the seed draws.
    pub(crate) script: Option<Vec<Vec<Op>>>,
}

impl Spec {
    /// A run of `backend` with everything drawn from `seed`.
    pub fn new(backend: BackendKind, cpus: usize, seed: u64) -> Self {
        Self {
            backend,
            cpus,
            seed,
            broken: None,
            schedule: None,
            skip: BTreeSet::new(),
            length: None,
            trace: false,
            script: None,
        }
    }
}

/// A broken contract.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What the oracle found.
    pub message: String,
    /// The choices that led there.
    pub schedule: Schedule,
    /// How many operations each CPU had begun.
    pub length: Vec<u16>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `None` if the contract was kept.
    pub failure: Option<Failure>,
    /// What happened.
    pub tally: Tally,
    /// The branches of the protocol that were taken.
    pub coverage: BTreeMap<Branch, u64>,
    /// The trace, if one was asked for.
    pub trace: Option<String>,
}

/// Each run has at least so many flushes.
const FLUSHES: u64 = 20;
/// Each CPU has at least so many operations, and at most so many.
const OPERATIONS: (u16, u16) = (6, 400);
/// The stream of random numbers for what few runs have.
const RARE: u64 = 1 << 32;
/// After so many operations, a CPU whose scenario has hardly flushed does little else.
const PATIENCE: u16 = 80;

/// Runs a spec. The outcome depends on nothing else.
pub fn run(spec: &Spec) -> Outcome {
    if interrupts::has_panicked() {
        // The standard library still counts the panic that ended an earlier run on this thread.
        return std::thread::scope(|scope| match scope.spawn(|| run_here(spec)).join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        });
    }
    run_here(spec)
}

fn run_here(spec: &Spec) -> Outcome {
    let mut rng = Rng::new(spec.seed, 0);
    let mut setup = Setup::draw(spec.backend, &mut rng);
    setup.draw_rare(&mut Rng::new(spec.seed, RARE));
    match (spec.backend, setup.wide) {
        (BackendKind::Ipi, false) => {
            run_on::<x86_64::Ipi<SimPlatform<16>, X86>, 1>(spec, setup, rng)
        }
        (BackendKind::Ipi, true) => {
            run_on::<x86_64::Ipi<SimPlatform<80>, X86, 2>, 2>(spec, setup, rng)
        }
        (BackendKind::ConcurrentIpi, false) => {
            run_on::<x86_64::ConcurrentIpi<SimPlatform<16>, X86>, 1>(spec, setup, rng)
        }
        (BackendKind::ConcurrentIpi, true) => {
            run_on::<x86_64::ConcurrentIpi<SimPlatform<80>, X86, 2>, 2>(spec, setup, rng)
        }
        (BackendKind::Broadcast, _) => run_on_arm::<AlwaysBroadcast>(spec, setup, rng),
        (BackendKind::ActiveCpu, _) => run_on_arm::<NeverLoaded>(spec, setup, rng),
        (BackendKind::Local, _) => run_on_arm::<NotRunning>(spec, setup, rng),
    }
}

/// The fewer CPUs the platform has, the fewer ASIDs there may be.
fn run_on_arm<M: Policy>(spec: &Spec, setup: Setup, rng: Rng) -> Outcome {
    match (setup.wide, spec.cpus) {
        (true, _) => run_on::<aarch64::Tlb<SimPlatform<80>, M, Arm, 2, 2>, 2>(spec, setup, rng),
        (false, ..=4) => run_on::<aarch64::Tlb<SimPlatform<4>, M, Arm, 1, 1>, 1>(spec, setup, rng),
        (false, _) => run_on::<aarch64::Tlb<SimPlatform<16>, M, Arm, 1, 1>, 1>(spec, setup, rng),
    }
}

/// The numbers of the CPUs: 0, 1, 2 ..., or some on both sides of a word's end.
fn numbers(cpus: usize, wide: bool) -> Vec<usize> {
    const WIDE: [usize; 16] = [0, 63, 64, 1, 65, 62, 66, 2, 67, 61, 68, 3, 69, 60, 70, 4];
    if wide {
        WIDE[..cpus].to_vec()
    } else {
        (0..cpus).collect()
    }
}

fn run_on<F: Backend<W>, const W: usize>(spec: &Spec, setup: Setup, mut rng: Rng) -> Outcome {
    crate::machine::install();
    break_protocol(spec.broken);
    set_part(setup.part);
    take_coverage();
    let numbers = numbers(spec.cpus, setup.wide);
    let chooser = match &spec.schedule {
        Some(schedule) => Chooser::replay(schedule.clone()),
        None => Chooser::random(spec.seed, setup.hot),
    };
    let mut machine = Machine::new(setup.mode, &numbers, chooser, spec.trace);
    machine.may_run_out = setup.generations.is_some();
    machine.note(|_| format!("{setup:?}"));
    let slots: Box<[CpuSlot]> = (0..F::Platform::CPUS).map(|_| CpuSlot::new()).collect();
    for slot in &slots {
        machine.lines.register(slot);
    }
    for number in &numbers {
        let slot = &slots[*number];
        let mut words = Vec::new();
        slot.words(&mut |name, word| {
            machine
                .lines
                .name(address(word), || format!("cpu{number}.{name}"));
            words.push(address(word));
        });
        machine.oracle.watch([words[0], words[1], words[2]]);
    }
    let mut world = Box::new(World::<F, W>::new(&mut machine, setup, &mut rng));
    world.settle(&mut machine, &mut rng);
    let weights = Weights::draw(&mut rng);
    // SAFETY: `slots` and `world` are dropped at the end of this function. Whatever borrows them does so on the
    // stacks of the machine's CPUs, which are gone once `scheduler::run` returns, or in `set_slots`, which is taken
    // back, and in `calls`, which the machine drops.
    let (world, slots_now): (&'static World<F, W>, &'static [CpuSlot]) = unsafe {
        (
            &*core::ptr::from_ref(&*world),
            &*core::ptr::from_ref(&*slots),
        )
    };
    set_slots(slots_now);
    let calls = Calls {
        interrupt: Rc::new(|| world.flusher.handle_interrupt()),
        user_access_ok: Rc::new(|| world.flusher.user_access_ok()),
    };
    let bodies = (0..spec.cpus)
        .map(|index| {
            let operations = Operations::new(spec, index, weights.clone(), setup);
            Box::new(move || body(world, index, operations)) as Box<dyn FnOnce()>
        })
        .collect();
    let mut machine = scheduler::run(machine, calls, bodies);
    set_slots(&[]);
    break_protocol(None);
    let failure = machine.failure.take().map(|message| {
        let mut schedule = Schedule::new();
        for (point, choice) in &machine.record {
            let choices: &mut Vec<Choice> = schedule.entry(*point).or_default();
            choices.push(*choice);
        }
        let length = machine.cpus.iter().map(|cpu| cpu.sections).collect();
        Failure {
            message,
            schedule,
            length,
        }
    });
    let trace = machine.trace.as_ref().map(|trace| trace.render(&numbers));
    Outcome {
        failure,
        tally: machine.tally,
        coverage: take_coverage(),
        trace,
    }
}

/// The operations of one CPU, drawn one after the other.
struct Operations {
    index: usize,
    cpus: usize,
    rng: Rng,
    weights: Weights,
    setup: Setup,
    next: u16,
    length: Option<u16>,
    skip: BTreeSet<u16>,
    script: Option<Vec<Op>>,
}

impl Operations {
    fn new(spec: &Spec, index: usize, weights: Weights, setup: Setup) -> Self {
        let own = |(cpu, number): &(u8, u16)| (usize::from(*cpu) == index).then_some(*number);
        Self {
            index,
            cpus: spec.cpus,
            rng: Rng::new(spec.seed, 2 + index as u64),
            weights,
            setup,
            next: 0,
            length: spec.length.as_ref().map(|length| length[index]),
            skip: spec.skip.iter().filter_map(own).collect(),
            script: spec.script.as_ref().map(|script| script[index].clone()),
        }
    }

    /// The next operation and its number.
    fn next(&mut self) -> Option<(u16, Op)> {
        loop {
            let number = self.next;
            if let Some(script) = &self.script {
                self.next += 1;
                return script.get(usize::from(number)).map(|op| (number, *op));
            }
            let over = match self.length {
                Some(length) => number >= length,
                None => {
                    let enough = number >= OPERATIONS.0 && with(|m| m.tally.flushes) >= FLUSHES;
                    enough || number >= OPERATIONS.1
                }
            };
            if over {
                return None;
            }
            self.next += 1;
            let mut op = Op::draw(&mut self.rng, &self.weights, &self.setup);
            if number > PATIENCE {
                op = Op::insist(&mut self.rng, number);
            }
            if self.setup.mode == Mode::Arm {
                op = op.settle(&mut self.rng, &self.setup, self.index, self.cpus);
            }
            if !self.skip.contains(&number) {
                return Some((number, op));
            }
        }
    }
}

/// What one CPU does.
fn body<F: Backend<W>, const W: usize>(
    world: &'static World<F, W>,
    index: usize,
    mut operations: Operations,
) {
    let mut actor = Actor::new(world, index);
    actor.online();
    while let Some((number, op)) = operations.next() {
        with(|m| {
            let cpu = &mut m.cpus[index];
            cpu.section = number + 1;
            cpu.step = 0;
            cpu.sections = number + 1;
            m.note(|_| format!("== {number}: {op:?}"));
        });
        actor.perform(op);
    }
    with(|m| {
        let cpu = &mut m.cpus[index];
        cpu.section = u16::MAX - 1;
        cpu.step = 0;
    });
    actor.finish();
}
