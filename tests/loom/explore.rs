//! Runs a scenario in every execution that loom finds, or expects that one of them is caught.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use shootdown::variant::{Broken, break_protocol};

/// A translation was used after the flush that it should not have survived.
pub const STALE: &str = "a translation was used after its flush was complete";
/// A flush does not end.
pub const FOREVER: &str = "a CPU waits for ever";
/// loom's own judgement: a CPU uses a word of a space whose memory was given to another one.
pub const REUSED: &str = "Causality violation";
/// What some models expect: the refusal of a space that has retired, and the end of the ASID generations.
const REFUSALS: [&str; 2] = [
    "is used after it has retired",
    "ASID generations are used up",
];

/// No scenario may take longer; the usual one takes a second.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A model: what the CPUs do in one execution.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Called by the thread that is CPU 0.
    pub run: fn(),
    /// At most so many preemptions an execution; `None` explores all.
    pub preemptions: Option<usize>,
}

impl Scenario {
    /// All executions of `run`.
    pub const fn full(run: fn()) -> Self {
        Self {
            run,
            preemptions: None,
        }
    }

    /// Those executions of `run` with at most `preemptions` switches away from a thread that could go on.
    pub const fn bounded(run: fn(), preemptions: usize) -> Self {
        Self {
            run,
            preemptions: Some(preemptions),
        }
    }

    /// Passes if no execution is caught.
    pub fn is_clean(self) {
        self.explore("clean");
    }

    /// Passes if some execution fails with `symptom` while the shipping code is broken in the way of `variant`.
    pub fn catches(self, variant: Broken, symptom: &str) {
        let failure = catch_unwind(|| {
            // Per OS thread, and loom runs all its threads on this one.
            break_protocol(Some(variant));
            self.explore(&format!("{variant:?} missed"));
        });
        break_protocol(None);
        expect_symptom(failure, symptom);
    }

    /// Passes if some execution fails with `symptom`: the scenario itself leaves out a step.
    pub fn fails(self, symptom: &str) {
        expect_symptom(catch_unwind(|| self.explore("missed")), symptom);
    }

    fn explore(self, outcome: &str) {
        let start = Instant::now();
        let executions = Arc::new(AtomicUsize::new(0));
        let report = Report {
            start,
            executions: executions.clone(),
        };
        let mut model = loom::model::Builder::new();
        model.preemption_bound = self.preemptions;
        model.max_branches = 20_000;
        model.check(move || {
            executions.fetch_add(1, Relaxed);
            assert!(
                start.elapsed() < TIME_LIMIT,
                "the model is too large: bound its preemptions"
            );
            (self.run)();
        });
        report.print(outcome);
    }
}

struct Report {
    start: Instant,
    executions: Arc<AtomicUsize>,
}

impl Report {
    fn print(&self, outcome: &str) {
        let thread = thread::current();
        println!(
            "{}: {outcome}, execution {}, {} ms",
            thread.name().unwrap_or("model"),
            self.executions.load(Relaxed),
            self.start.elapsed().as_millis()
        );
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if thread::panicking() {
            self.print("caught");
        }
    }
}

fn expect_symptom(outcome: Result<(), Box<dyn Any + Send>>, symptom: &str) {
    let failure = outcome.expect_err("no execution was caught");
    let message = message(&*failure);
    assert!(
        message.contains(symptom),
        "caught, but not by the model's judgement: {message}"
    );
}

/// Whether `f`, which uses a space, went well; it panics if the space is refused.
pub fn unless_refused(f: impl FnOnce()) -> bool {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        // A thousand refusals a test are no news.
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !is_refusal(info.payload()) {
                report(info);
            }
        }));
    });
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => true,
        Err(refusal) if is_refusal(&*refusal) => false,
        Err(failure) => panic::resume_unwind(failure),
    }
}

fn is_refusal(payload: &(dyn Any + Send)) -> bool {
    let message = message(payload);
    REFUSALS.iter().any(|refusal| message.contains(refusal))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or_default()
}

#[test]
fn loom_runs_its_threads_on_the_thread_of_the_test() {
    loom::model(|| {
        let outer = thread::current().id();
        loom::thread::spawn(move || assert_eq!(thread::current().id(), outer))
            .join()
            .unwrap();
    });
}
