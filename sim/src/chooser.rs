//! [`Chooser`]: decides what happens at each scheduling point, at random or as a replay says.

use crate::{
    choice::{Choice, Point, Schedule},
    rng::Rng,
};

/// What could happen at a scheduling point; masks hold one bit for each CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// The CPU that is at the point.
    pub current: u8,
    /// Other CPUs that can run.
    pub runnable: u16,
    /// CPUs with stores in their buffers.
    pub drain: u16,
    /// CPUs with an interrupt in flight.
    pub deliver: u16,
    /// CPUs that may translate speculatively or take an NMI.
    pub active: u16,
    /// CPUs that have issued something that is yet to take effect.
    pub effect: u16,
    /// vCPUs that can be preempted.
    pub preempt: u16,
    /// vCPUs that are off their CPUs.
    pub host: u16,
    /// How many pages there are to translate.
    pub pages: u8,
}

/// Where choices come from.
#[derive(Clone, Debug)]
pub(crate) enum Chooser {
    /// Weights drawn once a run.
    Random(Box<Swarm>),
    /// The choices of an earlier run.
    Replay(Replay),
}

impl Chooser {
    /// Choices drawn from `seed`; translations and NMIs prefer the pages `hot`, if there are any.
    pub(crate) fn random(seed: u64, hot: Option<[u8; 3]>) -> Self {
        Self::Random(Box::new(Swarm::new(seed, hot)))
    }

    pub(crate) fn replay(schedule: Schedule) -> Self {
        Self::Replay(Replay { schedule })
    }

    /// The next thing to happen at `point`, or `None`: the CPU goes on, or, where it can't (`must`), the first
    /// other that can runs.
    #[inline]
    pub(crate) fn choose(&mut self, point: Point, options: &Options, must: bool) -> Option<Choice> {
        match self {
            Self::Random(swarm) => swarm.choose(options, must),
            Self::Replay(replay) => replay.choose(point),
        }
    }

    /// Whether nothing happens at `point`, where the CPU can go on: the usual case, decided fast. `buffered` says that
    /// the CPU has stores that others do not see.
    #[inline]
    pub(crate) fn is_quiet(&mut self, point: Point, buffered: bool) -> bool {
        match self {
            Self::Random(swarm) => swarm.is_quiet(buffered),
            Self::Replay(replay) => !replay.schedule.contains_key(&point),
        }
    }

    /// Whether the chance `choice` is taken at `point`.
    pub(crate) fn toss(&mut self, point: Point, choice: Choice) -> bool {
        match self {
            Self::Random(swarm) => swarm.toss(choice),
            Self::Replay(replay) => {
                let choices = replay.schedule.get(&point);
                choices.is_some_and(|choices| choices.contains(&choice))
            }
        }
    }
}

/// A replay in progress.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    /// What is still to come. A CPU that waits comes to the same point again and again.
    schedule: Schedule,
}

impl Replay {
    fn choose(&mut self, point: Point) -> Option<Choice> {
        let choices = self.schedule.get_mut(&point)?;
        let next = choices.iter().position(|choice| !choice.is_chance())?;
        Some(choices.remove(next))
    }
}

/// Random choices: each run draws how often and what happens, so that some runs hardly drain, some hardly switch, some
/// stall one CPU for a long time, and some run by strict priorities that change now and then (as in PCT).
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    rng: Rng,
    /// Of 64 points, how many are used.
    rate: u32,
    /// Weights of run, drain, deliver, fill, NMI, effect, preempt, host.
    weights: [u32; 8],
    /// Of 16 chances that the hypervisor refuses or stops, how many it takes.
    refuse: u32,
    stop: u32,
    /// One in so many points stalls a CPU; 0 is never.
    stall: u32,
    /// One in so many points of a CPU with buffered stores stalls it; 0 is never.
    stall_buffered: u32,
    /// A stalled CPU's store buffer is stalled too.
    freeze: bool,
    stalled: [u32; 16],
    /// When the last stall ends.
    last_stall: u32,
    /// A stall begins at this point.
    stall_now: bool,
    /// The running CPU is stalled at this point.
    stall_current: bool,
    hot: Option<[u8; 3]>,
    /// The point was found to be used already.
    used: bool,
    /// Priorities of the CPUs, in runs that go by them.
    priorities: Option<[u32; 16]>,
    lowest: u32,
    /// One in so many points lowers the priority of the running CPU.
    change: u32,
    steps: u32,
}

impl Swarm {
    fn new(seed: u64, hot: Option<[u8; 3]>) -> Self {
        let mut rng = Rng::new(seed, 1);
        // A generator of its own: what is drawn without a hypervisor stays the same.
        let mut virtual_rng = Rng::new(seed, 50);
        let rate = rng.pick(&[2, 4, 8, 16, 32]);
        let weights = [
            rng.pick(&[1, 4, 8, 16]),
            rng.pick(&[0, 1, 4, 16]),
            rng.pick(&[0, 1, 4, 16]),
            rng.pick(&[1, 4, 16]),
            rng.pick(&[0, 1, 4]),
            rng.pick(&[0, 1, 4, 16]),
            virtual_rng.pick(&[0, 1, 2, 8]),
            virtual_rng.pick(&[1, 4, 16]),
        ];
        let stall = rng.pick(&[0, 0, 64, 256, 1024]);
        let stall_buffered = rng.pick(&[0, 0, 6, 24]);
        let freeze = rng.chance(2, 3);
        let by_priority = rng.chance(1, 3);
        let priorities =
            by_priority.then(|| core::array::from_fn(|_| 1 << 30 | rng.below(1 << 20)));
        let change = rng.pick(&[40, 150, 600]);
        Self {
            rng,
            rate,
            weights,
            refuse: virtual_rng.pick(&[0, 0, 1, 8]),
            stop: virtual_rng.pick(&[0, 4, 12]),
            stall,
            stall_buffered,
            freeze,
            stalled: [0; 16],
            last_stall: 0,
            stall_now: false,
            stall_current: false,
            hot,
            used: false,
            priorities,
            lowest: 1 << 29,
            change,
            steps: 0,
        }
    }

    #[inline]
    fn is_quiet(&mut self, buffered: bool) -> bool {
        self.steps += 1;
        self.stall_now = self.stall != 0 && self.rng.below(self.stall) == 0;
        self.stall_current =
            buffered && self.stall_buffered != 0 && self.rng.below(self.stall_buffered) == 0;
        if self.priorities.is_some()
            || self.stall_now
            || self.stall_current
            || self.last_stall > self.steps
        {
            return false;
        }
        self.used = self.rng.below(64) < self.rate;
        !self.used
    }

    fn toss(&mut self, choice: Choice) -> bool {
        let times = match choice {
            Choice::Refuse => self.refuse,
            Choice::Stop => self.stop,
            _ => 8,
        };
        self.rng.chance(times, 16)
    }

    fn stall(&mut self, cpu: u8, most: u32) {
        let until = self.steps + 30 + self.rng.below(most);
        self.stalled[usize::from(cpu)] = until;
        self.last_stall = self.last_stall.max(until);
    }

    fn page(&mut self, options: &Options) -> u8 {
        match self.hot {
            Some(hot) if self.rng.chance(3, 4) => self.rng.pick(&hot),
            _ => self.rng.below(u32::from(options.pages)) as u8,
        }
    }

    fn choose(&mut self, options: &Options, must: bool) -> Option<Choice> {
        let used = core::mem::take(&mut self.used);
        let mut must = must;
        let mut runnable = options.runnable;
        let mut drain = options.drain;
        if core::mem::take(&mut self.stall_now) {
            let cpu = self.rng.bit(options.runnable | 1 << options.current);
            self.stall(cpu, 1500);
        }
        if core::mem::take(&mut self.stall_current) {
            self.stall(options.current, 400);
        }
        if self.last_stall > self.steps {
            let awake = |cpu: u8| self.stalled[usize::from(cpu)] <= self.steps;
            let free: u16 = (0..16)
                .filter(|cpu| runnable >> cpu & 1 != 0 && awake(*cpu))
                .map(|cpu| 1 << cpu)
                .sum();
            if free != 0 {
                runnable = free;
                must |= !awake(options.current);
                if self.freeze {
                    let stalled = (0..16)
                        .filter(|cpu| !awake(*cpu))
                        .map(|cpu| 1 << cpu)
                        .sum::<u16>();
                    drain &= !stalled;
                }
            }
        }
        if let Some(priorities) = &mut self.priorities {
            if self.rng.below(self.change) == 0 {
                self.lowest -= 1;
                priorities[usize::from(options.current)] = self.lowest;
            }
            let of = |cpu: u8| priorities[usize::from(cpu)];
            let best = (0..16)
                .filter(|cpu| runnable >> cpu & 1 != 0)
                .max_by_key(|cpu| of(*cpu));
            if let Some(best) = best.filter(|best| must || of(*best) > of(options.current)) {
                return Some(Choice::Run(best));
            }
            runnable = 0;
        }
        if !must && !used && self.rng.below(64) >= self.rate {
            return None;
        }
        let masks = [
            runnable,
            drain,
            options.deliver,
            options.active,
            options.active,
            options.effect,
            options.preempt,
            options.host,
        ];
        // Where no CPU can run, what must happen some time happens now.
        let stuck = must && options.runnable == 0;
        let weights = &self.weights;
        let weight = |kind: usize| match kind {
            _ if masks[kind] == 0 => 0,
            1 | 2 | 5 | 7 if stuck => weights[kind].max(1),
            _ => weights[kind],
        };
        let total: u32 = (0..8).map(weight).sum();
        if total == 0 {
            return None;
        }
        let mut left = self.rng.below(total);
        let kind = (0..8).find(|kind| {
            let own = weight(*kind);
            let found = left < own;
            left = left.wrapping_sub(own);
            found
        })?;
        let cpu = self.rng.bit(masks[kind]);
        Some(match kind {
            0 => Choice::Run(cpu),
            1 => Choice::Drain(cpu),
            2 => Choice::Deliver(cpu),
            3 => Choice::Fill(cpu, self.page(options)),
            4 => Choice::Nmi(cpu, self.page(options)),
            5 => Choice::Effect(cpu, self.rng.below(16) as u8),
            6 => Choice::Preempt(cpu),
            _ => Choice::Host(cpu),
        })
    }
}
