//! The machine that is current on this host thread, and the stacks of its CPUs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use corosensei::Yielder;

use super::Machine;

thread_local! {
    static MACHINE: RefCell<Option<Box<Machine>>> = const { RefCell::new(None) };
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    static CALLS: RefCell<Option<Calls>> = const { RefCell::new(None) };
    static YIELDERS: RefCell<Vec<*const Yielder<(), ()>>> = const { RefCell::new(Vec::new()) };
}

/// What the machine calls back into the flusher for.
#[derive(Clone)]
pub(crate) struct Calls {
    /// The handler of the flush interrupt.
    pub interrupt: Rc<dyn Fn()>,
    /// Whether an NMI handler may read user memory on the acting CPU.
    pub user_access_ok: Rc<dyn Fn() -> bool>,
}

/// Whether a machine is running on this thread.
#[inline]
pub(crate) fn is_running() -> bool {
    RUNNING.get()
}

/// Makes `machine` current.
pub(crate) fn enter(machine: Box<Machine>, calls: Calls) {
    let cpus = machine.cpus.len();
    YIELDERS.with_borrow_mut(|yielders| {
        yielders.clear();
        yielders.resize(cpus, core::ptr::null());
    });
    CALLS.set(Some(calls));
    MACHINE.set(Some(machine));
    RUNNING.set(true);
}

/// Takes the current machine back.
pub(crate) fn leave() -> Box<Machine> {
    RUNNING.set(false);
    CALLS.take();
    MACHINE
        .take()
        .unwrap_or_else(|| unreachable!("no machine is running on this thread"))
}

/// Acts on the current machine. Must not be nested, and must not suspend.
#[inline]
pub(crate) fn with<R>(act: impl FnOnce(&mut Machine) -> R) -> R {
    MACHINE.with_borrow_mut(|machine| match machine {
        Some(machine) => act(machine),
        None => unreachable!("no machine is running on this thread"),
    })
}

/// The flusher's side of the current machine.
pub(crate) fn calls() -> Calls {
    CALLS
        .with_borrow(|calls| calls.clone())
        .unwrap_or_else(|| unreachable!("no machine is running on this thread"))
}

/// Notes how the CPU whose coroutine this is gives way.
pub(crate) fn set_yielder(cpu: usize, yielder: &Yielder<(), ()>) {
    YIELDERS.with_borrow_mut(|yielders| yielders[cpu] = core::ptr::from_ref(yielder));
}

/// Gives way: returns when this CPU is chosen again.
pub(crate) fn suspend(cpu: usize) {
    let yielder = YIELDERS.with_borrow(|yielders| yielders[cpu]);
    // SAFETY: `set_yielder` stored a reference that lives as long as the coroutine of `cpu` runs, and only that
    // coroutine calls this, so it is running now.
    unsafe { (*yielder).suspend(()) }
}

/// The code under test has panicked: ends the run and gives the CPU that ran; `None` if it was the machine itself.
pub(crate) fn end_by_panic(message: String) -> Option<usize> {
    MACHINE.with(|machine| {
        let mut machine = machine.try_borrow_mut().ok()?;
        let machine = machine.as_mut()?;
        if machine.may_find_retired && message.contains("after it has retired") {
            machine.note(|_| message);
            machine.cut = true;
            machine.tally.cut = 1;
        } else if machine.may_run_out && message.contains("ASID generations are used up") {
            machine.note(|_| message);
            machine.cut = true;
            machine.tally.spent = 1;
        } else {
            machine.fail(message);
        }
        Some(machine.current)
    })
}
