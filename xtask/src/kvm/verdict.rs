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
    let number = |name| numbers.get(name);
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
    let number = |name| numbers.get(name);
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
    let number = |name| numbers.get(name);
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
    let number = |name| numbers.get(name);
    Ok(Passed(format!(
        "{} cycles, the median of {} flushes ({} interrupts sent)",
        number("median")?,
        number("flushes")?,
        number("sent")?
    )))
}

#[cfg(test)]
mod tests {
    use super::super::boots::{BOOTS, Boot, Shows};
    use super::super::transcript::{Guest, read};
    use super::Verdict::{self, Failed, Inconclusive, Passed};
    use super::judge;
    use crate::kernels;

    fn boot(name: &str) -> &'static Boot {
        BOOTS.iter().find(|boot| boot.name == name).expect("a boot")
    }

    fn verdict(boot: &Boot, guest: &Guest) -> Verdict {
        let kernel = kernels::named(boot.kernel).expect("a kernel");
        judge(boot, kernel, guest)
    }

    /// A boot that showed all it must.
    fn good(boot: &Boot) -> Guest {
        let counts = |stale| {
            format!(
                r#"{{"arch":"x86_64","backend":"{}","cpus":{},"flushes":10,"remote":9,"pages":8,"reads":7,"migrations":6,"stale":{stale},"ipis_sent":0,"ipis_elided":4,"by_host":4,"broadcasts":0,"local":3,"full":2}}"#,
                boot.kernel,
                boot.cpus.len()
            )
        };
        let (status, said) = match boot.shows {
            Shows::MarksKept => (
                33,
                format!(
                    "{}\nkvm: real=1 marked=60 outstanding=1 initiators=2\n\
                     #trace 50 kvm_pv_tlb_flush: vcpu 0 need_flush_tlb true\n\
                     #trace 9 kvm_pv_tlb_flush: vcpu 1 need_flush_tlb true\n\
                     #trace 7 kvm_pv_tlb_flush: vcpu 1 need_flush_tlb false",
                    counts(0)
                ),
            ),
            Shows::Calls(_) => (
                33,
                format!(
                    "{}\nhyperv: real=1 space=1 list=2 space_ex=3 list_ex=5 failed=0\n\
                     #trace 1 kvm_hv_hypercall: code 0x2 slow\n\
                     #trace 2 kvm_hv_hypercall: code 0x3 slow\n\
                     #trace 3 kvm_hv_hypercall: code 0x13 slow\n\
                     #trace 5 kvm_hv_hypercall: code 0x14 slow",
                    counts(0)
                ),
            ),
            Shows::Stale => (37, "aim: rounds=9 stale_if_right=0 stale_if_wrong=3".into()),
            Shows::Cost => (33, "cost: median=7 flushes=9 sent=9".into()),
        };
        let text = format!("#begin {}\n#status {status}\n{said}\n#lost 0\n", boot.name);
        read(&text).swap_remove(0)
    }

    fn changed(boot: &Boot, from: &str, to: &str) -> Verdict {
        let mut guest = good(boot);
        let before = guest.clone();
        guest.output = guest.output.replace(from, to);
        for (_, event) in &mut guest.traces {
            *event = event.replace(from, to);
        }
        assert_ne!(guest, before, "nothing is changed");
        verdict(boot, &guest)
    }

    #[test]
    fn what_shows_all_it_must_passes() {
        for boot in &BOOTS {
            let verdict = verdict(boot, &good(boot));
            assert!(matches!(verdict, Passed(_)), "{}: {verdict:?}", boot.name);
        }
    }

    #[test]
    fn what_was_lost_or_cut_off_is_inconclusive() {
        for boot in &BOOTS {
            for change in [
                |guest: &mut Guest| guest.lost = None,
                |guest: &mut Guest| guest.status = Some(137),
            ] {
                let mut guest = good(boot);
                change(&mut guest);
                assert!(matches!(verdict(boot, &guest), Inconclusive(_)));
            }
            let mut guest = good(boot);
            guest.lost = Some(1);
            let verdict = verdict(boot, &guest);
            let uses_trace = matches!(boot.shows, Shows::MarksKept | Shows::Calls(_));
            assert_eq!(!matches!(verdict, Passed(_)), uses_trace, "{verdict:?}");
        }
    }

    #[test]
    fn each_mark_must_have_been_a_flush() {
        let boot = boot("kvm_pv");
        for marked in ["marked=59", "marked=61"] {
            assert!(matches!(changed(boot, "marked=60", marked), Failed(_)));
        }
        let one = changed(boot, "outstanding=1", "outstanding=0");
        assert!(matches!(one, Failed(_)));
        let alone = changed(boot, "initiators=2", "initiators=1");
        assert!(matches!(alone, Inconclusive(_)));
        let stale = changed(boot, "\"stale\":0", "\"stale\":1");
        assert!(matches!(stale, Failed(_)));
        assert!(matches!(changed(boot, "real=1", "real=0"), Failed(_)));
        let mut few = good(boot);
        few.output = few.output.replace("marked=60", "marked=10");
        few.traces = vec![(9, "kvm_pv_tlb_flush: vcpu 1 need_flush_tlb true".into())];
        assert!(matches!(verdict(boot, &few), Inconclusive(_)));
    }

    #[test]
    fn each_call_must_have_been_made_and_seen() {
        let boot = boot("hyperv");
        let unseen = changed(boot, "list_ex=5", "list_ex=6");
        assert!(matches!(unseen, Failed(_)));
        let refused = changed(boot, "failed=0", "failed=1");
        assert!(matches!(refused, Failed(_)));
        let mut unmade = good(boot);
        unmade.output = unmade.output.replace("list_ex=5", "list_ex=0");
        unmade.traces.retain(|(_, event)| !event.contains("0x14"));
        assert!(matches!(verdict(boot, &unmade), Inconclusive(_)));
    }

    #[test]
    fn a_wrong_aim_must_show() {
        let boot = boot("hyperv, wrong VP");
        let mut unseen = good(boot);
        unseen.status = Some(33);
        assert!(matches!(verdict(boot, &unseen), Inconclusive(_)));
        let right = changed(boot, "stale_if_right=0", "stale_if_right=1");
        assert!(matches!(right, Failed(_)));
    }

    #[test]
    fn a_panic_or_a_failure_of_qemu_fails() {
        for boot in &BOOTS {
            for status in [1, 35, 39] {
                let mut guest = good(boot);
                guest.status = Some(status);
                assert!(matches!(verdict(boot, &guest), Failed(_)));
            }
        }
    }
}
