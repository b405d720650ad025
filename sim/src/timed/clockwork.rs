//! The machine that is current on this host thread: the queue of clocks, and the CPUs' stacks.

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::BinaryHeap,
    rc::Rc,
};

use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};

use super::{
    costs::Costs,
    cpu::{Cpu, State},
    host::Host,
    lines::{Lines, Use, line_of},
};

/// A machine in virtual time.
pub(super) struct Clockwork {
    pub costs: Costs,
    pub cpus: Vec<Cpu>,
    pub current: usize,
    pub lines: Lines,
    /// When the fabric can take the next broadcast.
    pub fabric_free_at: u64,
    /// Broadcasts that reached every other CPU.
    pub broadcasts: u64,
    /// Who runs the CPUs, if they are a guest's.
    pub host: Option<Host>,
    /// Bodies that have not ended.
    busy: usize,
    queue: BinaryHeap<Reverse<(u64, usize, u64)>>,
}

thread_local! {
    static MACHINE: RefCell<Option<Box<Clockwork>>> = const { RefCell::new(None) };
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    static HANDLER: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
    static YIELDERS: RefCell<Vec<*const Yielder<(), ()>>> = const { RefCell::new(Vec::new()) };
}

/// Whether a machine in virtual time is running on this thread.
#[inline]
pub(crate) fn is_running() -> bool {
    RUNNING.get()
}

/// Acts on the current machine. Must not be nested, and must not suspend.
#[inline]
pub(super) fn with<R>(act: impl FnOnce(&mut Clockwork) -> R) -> R {
    MACHINE.with_borrow_mut(|machine| match machine {
        Some(machine) => act(machine),
        None => unreachable!("no machine is running on this thread"),
    })
}

impl Clockwork {
    pub(super) fn me(&mut self) -> &mut Cpu {
        &mut self.cpus[self.current]
    }

    /// Lets the running CPU's clock go on.
    pub(super) fn spend(&mut self, cycles: u64) {
        self.me().now += cycles;
    }

    /// Queues `cpu` for time `at`, in place of what it was queued for.
    pub(super) fn queue(&mut self, cpu: usize, at: u64) {
        let it = &mut self.cpus[cpu];
        it.ticket += 1;
        it.due = at;
        self.queue.push(Reverse((at, cpu, it.ticket)));
    }

    /// The least time that another CPU is queued for.
    fn next(&mut self) -> Option<u64> {
        while let Some(Reverse((at, cpu, ticket))) = self.queue.peek() {
            if self.cpus[*cpu].ticket == *ticket {
                return Some(*at);
            }
            self.queue.pop();
        }
        None
    }

    /// Whether the running CPU may act at `at` without asking anybody.
    pub(super) fn is_least(&mut self, at: u64) -> bool {
        self.next().is_none_or(|next| next >= at)
    }

    /// Charges the running CPU for an operation on the word at `address`.
    pub(super) fn charge(&mut self, address: usize, how: Use) {
        let (cpu, line) = (self.current, line_of(address));
        let now = self.cpus[cpu].now;
        let cost = self.lines.touch(&self.costs, line, cpu, now, how);
        self.cpus[cpu].now += cost;
        if how != Use::Store {
            self.lines.watch(line, cpu);
        }
    }

    /// Tells the CPUs that have read it of a write to the word at `address`.
    pub(super) fn written(&mut self, address: usize) {
        let (me, now) = (self.current, self.me().now);
        for cpu in self.lines.take_watchers(line_of(address)) {
            if cpu == me {
                continue;
            }
            let it = &mut self.cpus[cpu];
            it.changed = true;
            if it.state == State::Parked {
                it.state = State::Ready;
                if !it.out {
                    it.now = it.now.max(now);
                    let at = it.now;
                    self.queue(cpu, at);
                }
            }
        }
    }

    /// The flush interrupt is sent to `target`.
    pub(super) fn interrupt(&mut self, target: usize) {
        let from = self.current;
        let arrival = self.cpus[from].now + self.costs.delivery(from, target);
        let it = &mut self.cpus[target];
        it.arrival = Some(it.arrival.map_or(arrival, |earlier| earlier.min(arrival)));
        let at = arrival.max(it.now);
        if it.interrupts_on && it.state != State::Ready && at < it.due && !it.out {
            if it.state == State::Parked {
                it.state = State::Ready;
            }
            self.queue(target, at);
        }
    }
}

/// Lets CPUs whose clocks are behind `at` act, then the running CPU at `at`, or earlier if it is queued for an interrupt
/// meanwhile. A vCPU whose time slice is over before stops for others, and returns when it is back: gives how long it was
/// out.
pub(super) fn give_way_until(at: u64) -> u64 {
    let (now, end) = with(|m| (m.me().now, m.slice_end()));
    if at < end {
        pass_until(at);
        return 0;
    }
    let end = end.max(now);
    pass_until(end);
    if with(|m| m.me().now) < end {
        return 0;
    }
    let (cpu, stopped) = with(|m| (m.current, m.stop()));
    suspend(cpu);
    with(|m| m.me().now) - stopped
}

fn pass_until(at: u64) {
    let wait = with(|m| {
        if m.is_least(at) {
            m.me().now = at;
            return None;
        }
        let cpu = m.current;
        m.queue(cpu, at);
        Some(cpu)
    });
    if let Some(cpu) = wait {
        suspend(cpu);
    }
}

/// Gives way for good: returns when somebody has queued this CPU.
pub(super) fn suspend(cpu: usize) {
    let yielder = YIELDERS.with_borrow(|yielders| yielders[cpu]);
    // SAFETY: stored by the coroutine of `cpu`, which is the one that runs now, from a reference that lives as long as it runs.
    unsafe { (*yielder).suspend(()) }
}

/// The handler of the flush interrupt.
pub(super) fn handler() -> Rc<dyn Fn()> {
    HANDLER
        .with_borrow(Clone::clone)
        .unwrap_or_else(|| unreachable!("no machine is running on this thread"))
}

/// Bytes of a CPU's stack.
const STACK: usize = 64 * 1024;

/// What is left when all bodies have ended.
pub(super) struct Ended {
    /// For each CPU: its clock when its body ended, cycles stolen by interrupts, interrupts taken.
    pub cpus: Vec<(u64, u64, u64)>,
    /// Broadcasts that reached every other CPU.
    pub broadcasts: u64,
}

/// Runs one body a CPU until all have ended. `root` is what CPUs have loaded at first.
pub(super) fn run(
    costs: Costs,
    root: u64,
    host: Option<Host>,
    handler: Rc<dyn Fn()>,
    bodies: Vec<Box<dyn FnOnce()>>,
) -> Ended {
    crate::machine::install();
    let count = bodies.len();
    let mut machine = Box::new(Clockwork {
        costs,
        cpus: (0..count).map(|_| Cpu::new(root)).collect(),
        current: 0,
        lines: Lines::default(),
        fabric_free_at: 0,
        broadcasts: 0,
        host,
        busy: count,
        queue: BinaryHeap::new(),
    });
    machine.begin();
    MACHINE.set(Some(machine));
    HANDLER.set(Some(handler));
    YIELDERS.set(vec![core::ptr::null(); count]);
    RUNNING.set(true);
    let mut cpus: Vec<_> = bodies.into_iter().enumerate().map(stack_of).collect();
    while let Some(cpu) = with(Clockwork::choose) {
        match cpus[cpu].resume(()) {
            CoroutineResult::Yield(()) | CoroutineResult::Return(()) => {}
        }
    }
    for (index, mut cpu) in cpus.into_iter().enumerate() {
        // Every body has ended; what is left of a stack is the loop that takes interrupts, perhaps in the midst of one.
        while !cpu.done() {
            with(|m| m.current = index);
            cpu.resume(());
        }
    }
    RUNNING.set(false);
    HANDLER.set(None);
    let machine = MACHINE
        .take()
        .unwrap_or_else(|| unreachable!("it was set above"));
    Ended {
        cpus: machine
            .cpus
            .iter()
            .map(|cpu| (cpu.now, cpu.stolen, cpu.interrupts))
            .collect(),
        broadcasts: machine.broadcasts,
    }
}

impl Clockwork {
    /// The CPU that acts next, its clock set; `None` once all bodies have ended.
    fn choose(&mut self) -> Option<usize> {
        if self.busy == 0 {
            return None;
        }
        loop {
            let Some(Reverse((at, cpu, ticket))) = self.queue.pop() else {
                panic!("deadlock in virtual time: every CPU waits");
            };
            if self.cpus[cpu].ticket == ticket {
                self.current = cpu;
                let it = &mut self.cpus[cpu];
                it.due = u64::MAX;
                it.now = it.now.max(at);
                return Some(cpu);
            }
        }
    }

    /// The running CPU's body has ended.
    fn end(&mut self) -> usize {
        self.busy -= 1;
        let it = self.me();
        it.state = State::Ended;
        it.interrupts_on = true;
        self.current
    }
}

fn stack_of((index, body): (usize, Box<dyn FnOnce()>)) -> Coroutine<(), (), (), DefaultStack> {
    let stack = DefaultStack::new(STACK)
        .unwrap_or_else(|error| panic!("no memory for a CPU's stack: {error}"));
    Coroutine::with_stack(stack, move |yielder, ()| {
        YIELDERS.with_borrow_mut(|yielders| yielders[index] = core::ptr::from_ref(yielder));
        body();
        let cpu = with(Clockwork::end);
        with(Clockwork::leave_host);
        loop {
            let (over, pending) = with(|m| (m.busy == 0, m.me().arrival));
            if over {
                return;
            }
            match pending {
                Some(at) => {
                    give_way_until(at);
                    super::wait::take_interrupt();
                }
                None => suspend(cpu),
            }
        }
    })
}
