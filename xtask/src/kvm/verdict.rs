//! What a boot of a guest proves.

use super::boots::{Boot, Call, Shows};
use super::transcript::Guest;
use crate::demo::counts;
use crate::kernels::Kernel;
use qemu_test_runner::ended::{Ended, Report};
use qemu_test_runner::machine::Arch;

/// What came of a boot; the text says what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It showed what it must.
    Passed(String),
    /// It showed the opposite.
    Failed(String),
    /// It showed neither: what is to be seen did not come up.
    Inconclusive(String),
}

use Verdict::{Failed, Inconclusive, Passed};

/// Fewer flushes asked of KVM than this show nothing.
const LEAST_MARKS: u64 = 50;

/// Judges a guest by what it must show.
pub fn judge(boot: &Boot, kernel: &Kernel, guest: &Guest) -> Verdict {
    let Some(lost) = guest.lost else {
        return Inconclusive("the boot did not come to its end".into());
    };
    let Some(status) = guest.status else {
        return Failed("QEMU was not started".into());
    };
    if status == KILLED {
        return Inconclusive("no end within its time limit".into());
    }
    let report = Report::of(Arch::X86_64, Ended::Status(status));
    let seen = match (boot.shows, report) {
        (Shows::Stale, Report::Stale) => wrong(guest),
        (Shows::Stale, Report::Passed) => Ok(Inconclusive("no stale translation came up".into())),
        (Shows::Cost, Report::Passed) => cost(guest),
        (Shows::MarksKept, Report::Passed) => {
            fresh(boot, kernel, guest).and_then(|()| marks(guest, lost))
        }
        (Shows::Calls(needed), Report::Passed) => {
            fresh(boot, kernel, guest).and_then(|()| calls(guest, lost, needed))
        }
        (_, Report::Stale | Report::Panicked | Report::None(_)) => Err(report.to_string()),
    };
    seen.unwrap_or_else(Failed)
}

/// What `timeout -s KILL` makes of a program that it ended.
const KILLED: i32 = 137;

/// Whether the guest's own counts are in order, and none of its reads was stale.
fn fresh(boot: &Boot, kernel: &Kernel, guest: &Guest) -> Result<(), String> {
    let cpus = u32::try_from(boot.cpus.len()).map_err(|error| error.to_string())?;
    match counts::find(kernel, cpus, &guest.output)?.numbers.stale {
        0 => Ok(()),
        stale => Err(format!("{stale} stale reads")),
    }
}

/// Whether KVM flushed exactly as often as the guest turned "preempted" into "preempted, flush", apart from virtual
/// CPUs that have not run again.
fn marks(guest: &Guest, lost: u64) -> Result<Verdict, String> {
    let numbers = guest.numbers("kvm:")?;
    let number = |name: &str| {
        let number = numbers.get(name).copied();
        number.ok_or(format!("the guest did not say how many {name}"))
    };
    if number("real")? == 0 {
        return Err("the guest found no KVM and made do with its own".into());
    }
    let (marked, outstanding) = (number("marked")?, number("outstanding")?);
    let initiators = number("initiators")?;
    let flushed = guest.traced(|event| {
        event.starts_with("kvm_pv_tlb_flush: ") && event.ends_with(" need_flush_tlb true")
    });
    let text = format!(
        "the guest marked {marked} preempted virtual CPUs ({initiators} initiators, {outstanding} not yet back), KVM \
         flushed {flushed}"
    );
    Ok(if lost > 0 {
        Inconclusive(format!("{text}; the trace lost {lost} events"))
    } else if flushed != marked.saturating_sub(outstanding) {
        Failed(text)
    } else if marked < LEAST_MARKS || initiators < 2 {
        Inconclusive(format!(
            "{text}; needed: {LEAST_MARKS} marks by 2 initiators"
        ))
    } else {
        Passed(text)
    })
}

/// Whether KVM saw each hypercall that the guest made, none failed, and those of `needed` were among them.
fn calls(guest: &Guest, lost: u64, needed: &[Call]) -> Result<Verdict, String> {
    let numbers = guest.numbers("hyperv:")?;
    let number = |name: &str| {
        let number = numbers.get(name).copied();
        number.ok_or(format!("the guest did not say how many {name}"))
    };
    if number("real")? == 0 {
        return Err("the guest found no Hyper-V and made do with its own".into());
    }
    let mut text = String::new();
    let mut verdict: fn(String) -> Verdict = Passed;
    for (code, name) in needed {
        let made = number(name)?;
        let start = format!("kvm_hv_hypercall: code {code:#x} ");
        let seen = guest.traced(|event| event.starts_with(&start));
        text += &format!("{name}: {made} made, {seen} seen by KVM; ");
        if made == 0 {
            verdict = Inconclusive;
        }
        if made != seen && lost == 0 {
            return Ok(Failed(text));
        }
    }
    let failed = number("failed")?;
    text += &format!("{failed} failed");
    if failed > 0 {
        return Ok(Failed(text));
    }
    Ok(if lost > 0 {
        Inconclusive(format!("{text}; the trace lost {lost} events"))
    } else {
        verdict(text)
    })
}

/// How often a flush that went elsewhere was seen as stale.
fn wrong(guest: &Guest) -> Result<Verdict, String> {
    let numbers = guest.numbers("aim:")?;
    let number = |name: &str| {
        let number = numbers.get(name).copied();
        number.ok_or(format!("the guest did not say how many {name}"))
    };
    let (wrong, right) = (number("stale_if_wrong")?, number("stale_if_right")?);
    let text = format!(
        "of {} flushes each: seen as stale {wrong} times if aimed at the wrong VP, {right} times if at the right one",
        number("rounds")?
    );
    Ok(if wrong > 0 && right == 0 {
        Passed(text)
    } else {
        Failed(text)
    })
}

fn cost(guest: &Guest) -> Result<Verdict, String> {
    let numbers = guest.numbers("cost:")?;
    let number = |name: &str| {
        let number = numbers.get(name).copied();
        number.ok_or(format!("the guest did not say how many {name}"))
    };
    Ok(Passed(format!(
        "{} cycles, the median of {} flushes ({} interrupts sent)",
        number("median")?,
        number("flushes")?,
        number("sent")?
    )))
}
