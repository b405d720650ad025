//! What the `invlpgb` kernel shows: spaces that few CPUs run are flushed by interrupts, those that many run by
//! broadcast, and there are only so many global PCIDs.

use shootdown::x86_64::{Config, GlobalError, InvlpgbIpi, PcidUse};
use shootdown_workload::{Crowd, Options, Phase, Session, Skipped};

use crate::{
    demo::{PhaseList, config_of},
    invlpgb::{self, BroadcastCpu, LeaveOut},
    machine::Pc,
    platform::Kernel,
    smp,
};

/// The flusher.
pub type Tlb = InvlpgbIpi<Kernel, BroadcastCpu>;

type Space = Crowd<Pc<Tlb>>;

/// So few that they run out.
const GLOBAL_PCIDS: u16 = 3;

/// A space that more CPUs than this run gets a global PCID, where this many CPUs take part.
fn threshold(cpus: usize) -> usize {
    usize::from(Config::DEFAULT_BROADCAST_ABOVE)
        .min(cpus - 1)
        .max(1)
}

/// The configuration where this many CPUs take part.
pub fn config(cpus: usize) -> Config {
    config_of(invlpgb::features())
        .broadcast_above(threshold(cpus) as u16)
        .global_pcids(GLOBAL_PCIDS)
}

/// Skips one instruction from now on.
pub fn skip(instruction: Skipped) {
    invlpgb::leave_out(match instruction {
        Skipped::Invlpgb => LeaveOut::Invlpgb,
        Skipped::Tlbsync => LeaveOut::Tlbsync,
    });
}

/// The phases, one after the other.
struct Show<'a> {
    tlb: &'static Tlb,
    session: &'a Session<'a, Pc<Tlb>>,
    options: &'a Options,
    phases: &'a mut PhaseList,
}

/// How a phase's space is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// By interrupts, at the end too.
    Interrupts,
    /// By interrupts at first, then by broadcast.
    Both,
    /// By broadcast.
    Broadcast,
}

impl Show<'_> {
    /// Has `cpus` CPUs run `space`, and checks how it is flushed.
    ///
    /// # Panics
    /// When it is flushed in another way, or stale reads are not where they must be.
    fn phase(&mut self, name: &'static str, space: &Space, cpus: usize, expected: Expected) {
        let seen = self.session.run(space, cpus);
        let tag = space.space().tag();
        let (interrupts, broadcasts) = (seen.ipis_sent > 0, seen.broadcasts > 0);
        assert_eq!(
            (interrupts, broadcasts, tag != 0),
            match expected {
                // One CPU has nobody to interrupt.
                Expected::Interrupts => (cpus > 1, false, false),
                Expected::Both => (true, true, true),
                Expected::Broadcast => (false, true, true),
            },
            "{name}: whether interrupts were sent, INVLPGBs executed, and the PCID is global"
        );
        match self.options.skipped {
            _ if !self.options.break_flush => {
                assert_eq!(seen.stale, 0, "{name}: stale reads");
            }
            Some(_) if expected == Expected::Interrupts => {
                assert_eq!(seen.stale, 0, "{name}: interrupts need no INVLPGB");
            }
            _ if expected == Expected::Broadcast && cpus > 1 => {
                assert!(seen.stale_elsewhere > 0, "{name}: nobody noticed");
            }
            _ => {}
        }
        self.phases.add(Phase {
            name,
            cpus: cpus as u64,
            tag,
            seen,
        });
    }

    fn pcids(&self) -> PcidUse {
        self.tlb.pcid_use().expect("this flusher broadcasts")
    }

    /// Around the threshold: a space that few CPUs run, then all, then few again.
    fn threshold(&mut self, few: usize, all: usize) -> Space {
        let space = self.session.crowd();
        self.phase("few", &space, few, Expected::Interrupts);
        assert_eq!(self.pcids().in_use, 0);
        self.phase("more", &space, all, Expected::Both);
        let tag = space.space().tag();
        self.phase("many", &space, all, Expected::Broadcast);
        self.phase("few again", &space, few, Expected::Broadcast);
        assert_eq!(space.space().tag(), tag, "a space keeps its PCID for life");
        space
    }

    /// PCIDs run out, and come back.
    ///
    /// # Panics
    /// When two spaces have the same PCID, or one has a PCID that had to be flushed first.
    fn exhaustion(&mut self, first: &Space, all: usize) {
        let second = self.session.crowd();
        self.phase("a second", &second, all, Expected::Both);
        let scarce = self.session.crowd();
        // The threshold has risen: what was enough for the first space is not any more.
        let raised = all.min(self.pcids().threshold as usize);
        assert!(raised > threshold(all), "{:?}", self.pcids());
        self.phase("scarce", &scarce, raised, Expected::Interrupts);
        // The kernel may insist, and then that was the last one.
        assert_eq!(self.tlb.make_global(scarce.space()), Ok(()));
        let (refused, resets) = (self.pcids().refused, invlpgb::executed().resets);
        let late = self.session.crowd();
        assert_eq!(
            self.tlb.make_global(late.space()),
            Err(GlobalError::Exhausted)
        );
        self.phase("exhausted", &late, all, Expected::Interrupts);
        let now = self.pcids();
        assert_eq!((now.in_use, now.resets), (now.total, 0), "{now:?}");
        assert!(now.refused > refused, "{now:?}");
        assert_eq!(
            invlpgb::executed().resets,
            resets,
            "a flush for nothing: no PCID was given back"
        );
        self.session.retire(first);
        self.session.retire(&second);
        self.phase("after reset", &late, all, Expected::Both);
        assert_ne!(late.space().tag(), scarce.space().tag(), "an alias");
        let now = self.pcids();
        assert_eq!((now.in_use, now.resets), (2, 1), "{now:?}");
        assert_eq!(invlpgb::executed().resets, resets + 1);
        for space in [&scarce, &late] {
            self.session.retire(space);
        }
        assert_eq!(self.pcids().in_use, 0);
    }
}

/// Runs the phases, then what all kernels run.
///
/// # Panics
/// When a space is not flushed as it should be.
pub fn work(
    machine: &Pc<Tlb>,
    backend: &'static str,
    options: &Options,
    phases: &mut PhaseList,
) -> shootdown_workload::Outcome {
    let session = Session::new(machine, options);
    let cpus = smp::cpus();
    if cpus > 1 {
        let mut show = Show {
            tlb: machine.0,
            session: &session,
            options,
            phases,
        };
        let first = show.threshold(threshold(cpus), cpus);
        show.exhaustion(&first, cpus);
    }
    session.finish(backend)
}
