//! Passing time: computing, waiting, and being interrupted.

use super::{
    clockwork::{Clockwork, give_way_until, handler, suspend, with},
    cpu::State,
};

/// Called before every operation: CPUs whose clocks are behind act first, and a due interrupt is taken.
#[inline]
pub(super) fn point() {
    let now = with(|m| m.me().now);
    give_way_until(now);
    take_interrupt();
}

/// Takes the flush interrupt if it is there and interrupts are on.
pub(super) fn take_interrupt() {
    let entered = with(|m| {
        let entry = m.costs.interrupt_entry;
        let it = m.me();
        if !it.has_interrupt() {
            return None;
        }
        let began = it.now;
        it.arrival = None;
        it.interrupts_on = false;
        it.interrupts += 1;
        it.now += entry;
        let state = core::mem::replace(&mut it.state, State::Ready);
        Some((began, state))
    });
    let Some((began, state)) = entered else {
        return;
    };
    handler()();
    with(|m| {
        let exit = m.costs.interrupt_exit;
        let it = m.me();
        it.now += exit;
        it.interrupts_on = true;
        it.stolen += it.now - began;
        it.state = state;
    });
}

/// The thread computes for so many cycles, not counting what interrupts and snooped broadcasts take.
pub(super) fn compute(cycles: u64) {
    let mut end = with(|m| {
        let broadcasts = m.broadcasts;
        let it = m.me();
        it.snooped = broadcasts;
        it.state = State::Open;
        it.now + cycles
    });
    loop {
        let at = with(|m| {
            let it = m.me();
            match it.arrival {
                Some(arrival) if it.interrupts_on => end.min(arrival.max(it.now)),
                _ => end,
            }
        });
        end += give_way_until(at);
        let before = with(|m| m.me().now);
        take_interrupt();
        let over = with(|m| {
            let (broadcasts, snoop) = (m.broadcasts, m.costs.dvm_snoop);
            let it = m.me();
            end += it.now - before;
            end += (broadcasts - it.snooped) * snoop + core::mem::take(&mut it.owed);
            it.snooped = broadcasts;
            it.now >= end
        });
        if over {
            break;
        }
    }
    with(|m| m.me().state = State::Ready);
}

/// One turn of a waiting loop: parks unless something that was read since the last turn has changed.
pub(super) fn relax() {
    point();
    with(|m| m.spend(m.costs.pause));
    while let Some(cpu) = with(park) {
        suspend(cpu);
        with(|m| m.me().state = State::Ready);
        let now = with(|m| m.me().now);
        give_way_until(now);
    }
    take_interrupt();
    with(|m| m.me().changed = false);
}

/// Parks the running CPU until something happens to it; `None` if something has.
fn park(m: &mut Clockwork) -> Option<usize> {
    let slice_end = m.slice_end();
    let it = m.me();
    if it.changed || it.has_interrupt() {
        return None;
    }
    it.state = State::Parked;
    let arrival = it.arrival.filter(|_| it.interrupts_on);
    let wake = arrival.map_or(slice_end, |arrival| arrival.min(slice_end));
    let cpu = m.current;
    if wake != u64::MAX {
        m.queue(cpu, wake);
    }
    Some(cpu)
}
