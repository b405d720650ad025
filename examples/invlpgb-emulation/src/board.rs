//! Requests on their way: each CPU posts its own, and all CPUs perform them when that CPU syncs.
//!
//! INVLPGB is weakly ordered: a CPU may perform it at any moment up to the TLBSYNC of the CPU that issued it. Here they
//! all do so at the last moment, so that a TLBSYNC that is missing, or that another CPU executes, shows.

use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use crate::request::Request;

/// The requests of `CPUS` CPUs, up to `ROOM` of each that are not synced.
#[derive(Debug)]
pub struct Board<const CPUS: usize, const ROOM: usize> {
    cpus: [Cpu<CPUS, ROOM>; CPUS],
}

#[derive(Debug)]
struct Cpu<const CPUS: usize, const ROOM: usize> {
    /// Whether it performs requests.
    joined: AtomicBool,
    /// The requests it has posted, by number.
    slots: [[AtomicU64; 2]; ROOM],
    /// How many it has posted since boot. Only it counts.
    posted: AtomicU64,
    /// How many of them others are to perform.
    published: AtomicU64,
    /// How many of them each CPU has performed. Only that CPU counts.
    performed: [AtomicU64; CPUS],
}

/// There is no room: sync first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl<const CPUS: usize, const ROOM: usize> Cpu<CPUS, ROOM> {
    const fn new() -> Self {
        Self {
            joined: AtomicBool::new(false),
            slots: [const { [AtomicU64::new(0), AtomicU64::new(0)] }; ROOM],
            posted: AtomicU64::new(0),
            published: AtomicU64::new(0),
            performed: [const { AtomicU64::new(0) }; CPUS],
        }
    }

    fn request(&self, number: u64) -> Request {
        let [first, second] = &self.slots[(number % ROOM as u64) as usize];
        Request::from_words([first.load(Relaxed), second.load(Relaxed)])
    }
}

impl<const CPUS: usize, const ROOM: usize> Default for Board<CPUS, ROOM> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const CPUS: usize, const ROOM: usize> Board<CPUS, ROOM> {
    /// Nothing posted, no CPU joined.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            cpus: [const { Cpu::new() }; CPUS],
        }
    }

    /// Has CPU `me`, the caller's, perform requests from now on, and `drop_everything` for what came before. The CPU
    /// answers interrupts by [`serve`](Self::serve) already.
    pub fn join(&self, me: usize, drop_everything: impl FnOnce()) {
        // Before everything is dropped: who does not see it has made his changes before that.
        self.cpus[me].joined.store(true, SeqCst);
        for cpu in &self.cpus {
            // An interrupt may come between the two and count further.
            cpu.performed[me].fetch_max(cpu.published.load(SeqCst), SeqCst);
        }
        drop_everything();
    }

    /// Posts a request of CPU `me`, the caller's.
    ///
    /// # Errors
    /// [`Full`] when as many as there is room for wait to be synced.
    pub fn post(&self, me: usize, request: Request) -> Result<(), Full> {
        let my = &self.cpus[me];
        let posted = my.posted.load(Relaxed);
        if posted - my.published.load(Relaxed) == ROOM as u64 {
            return Err(Full);
        }
        for (word, value) in my.slots[(posted % ROOM as u64) as usize]
            .iter()
            .zip(request.to_words())
        {
            word.store(value, Relaxed);
        }
        my.posted.store(posted + 1, Relaxed);
        Ok(())
    }

    /// Has all CPUs perform what CPU `me`, the caller's, has posted: performs it here, calls `interrupt` for each other
    /// CPU, which must then call [`serve`](Self::serve), and `relax` until all have.
    pub fn sync(
        &self,
        me: usize,
        mut perform: impl FnMut(Request),
        mut interrupt: impl FnMut(usize),
        mut relax: impl FnMut(),
    ) {
        let my = &self.cpus[me];
        let (first, end) = (my.published.load(Relaxed), my.posted.load(Relaxed));
        if first == end {
            return;
        }
        for number in first..end {
            perform(my.request(number));
        }
        // The slots come before, and so do the caller's changes of page tables. Pairs with `join` and `serve`.
        my.published.store(end, SeqCst);
        let told: [bool; CPUS] =
            core::array::from_fn(|cpu| cpu != me && self.cpus[cpu].joined.load(SeqCst));
        let told = || (0..CPUS).filter(|cpu| told[*cpu]);
        told().for_each(&mut interrupt);
        for cpu in told() {
            // Acquire: what the other CPU dropped is dropped.
            while my.performed[cpu].load(Acquire) < end {
                relax();
            }
        }
    }

    /// Performs, on CPU `me`, the caller's, what others have published, and says so. Called from the interrupt only, so
    /// that it does not interrupt itself. One interrupt does for any number of requests that came before it.
    pub fn serve(&self, me: usize, mut perform: impl FnMut(Request)) {
        // The own ones were performed by `sync`.
        for (_, cpu) in self.cpus.iter().enumerate().filter(|(cpu, _)| *cpu != me) {
            let end = cpu.published.load(Acquire);
            for number in cpu.performed[me].load(Relaxed)..end {
                perform(cpu.request(number));
            }
            cpu.performed[me].store(end, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::{sync::mpsc, thread, vec::Vec};

    use super::*;
    use crate::request::{Limits, Operands};

    const CPUS: usize = 3;
    const ROOM: usize = 4;

    fn request(page: u64) -> Request {
        let limits = Limits {
            extra_pages: 0,
            pcide: false,
            address_bits: 48,
        };
        let operands = Operands {
            rax: page << 12 | 1,
            ..Operands::default()
        };
        Request::decode(operands, limits).unwrap()
    }

    fn page(request: Request) -> u64 {
        request.pages().unwrap().next().unwrap() >> 12
    }

    fn joined() -> Board<CPUS, ROOM> {
        let board = Board::new();
        for cpu in 0..CPUS {
            board.join(cpu, || {});
        }
        board
    }

    fn served(board: &Board<CPUS, ROOM>, me: usize) -> Vec<u64> {
        let mut pages = Vec::new();
        board.serve(me, |request| pages.push(page(request)));
        pages
    }

    #[test]
    fn nobody_performs_before_the_issuer_syncs() {
        let board = joined();
        board.post(0, request(7)).unwrap();
        board.post(0, request(8)).unwrap();
        assert_eq!(served(&board, 1), []);
        // Another CPU's sync is not the issuer's.
        board.sync(1, |_| unreachable!(), |_| unreachable!(), || {});
        assert_eq!(served(&board, 2), []);
        let (mut own, mut told) = (Vec::new(), Vec::new());
        board.sync(
            0,
            |request| own.push(page(request)),
            |cpu| {
                told.push(cpu);
                assert_eq!(served(&board, cpu), [7, 8]);
            },
            || unreachable!("all have served"),
        );
        assert_eq!((own, told), (Vec::from([7, 8]), Vec::from([1, 2])));
        // Each performs them once.
        for cpu in 0..CPUS {
            assert_eq!(served(&board, cpu), []);
        }
    }

    #[test]
    fn sync_waits_for_each_cpu() {
        let board = joined();
        board.post(0, request(7)).unwrap();
        let mut turns = 0;
        board.sync(
            0,
            |_| {},
            |_| {},
            || {
                turns += 1;
                // One interrupt is late, the other one later.
                let cpu = [1, 2][(turns > 10) as usize];
                served(&board, cpu);
            },
        );
        assert!(turns > 10);
    }

    #[test]
    fn there_is_room_for_some() {
        let board = joined();
        for page in 0..ROOM as u64 {
            board.post(0, request(page)).unwrap();
        }
        assert_eq!(board.post(0, request(9)), Err(Full));
        assert_eq!(board.post(1, request(9)), Ok(()));
        board.sync(
            0,
            |_| {},
            |cpu| assert_eq!(served(&board, cpu).len(), ROOM),
            || {},
        );
        assert_eq!(board.post(0, request(9)), Ok(()));
    }

    #[test]
    fn who_joins_late_drops_everything_and_is_told_from_then_on() {
        let board = Board::<CPUS, ROOM>::new();
        board.join(0, || {});
        board.post(0, request(7)).unwrap();
        board.sync(0, |_| {}, |_| unreachable!("nobody is there"), || {});
        let mut dropped = false;
        board.join(1, || dropped = true);
        assert!(dropped);
        assert_eq!(served(&board, 1), []);
        board.post(0, request(8)).unwrap();
        board.sync(0, |_| {}, |cpu| assert_eq!(served(&board, cpu), [8]), || {});
    }

    /// Threads for CPUs, a channel for the interrupt: the only thing that is asked of a CPU is to serve some time.
    #[test]
    fn cpus_that_sync_at_once_serve_each_other() {
        const ROUNDS: u64 = 200;
        let board = joined();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..CPUS).map(|_| mpsc::channel()).unzip();
        let performed: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];
        thread::scope(|scope| {
            for (me, interrupts) in receivers.into_iter().enumerate() {
                let (board, senders, performed) = (&board, senders.clone(), &performed);
                scope.spawn(move || {
                    let take = |_: Request| _ = performed[me].fetch_add(1, Relaxed);
                    let serve = || {
                        if interrupts.try_recv().is_ok() {
                            board.serve(me, take);
                        }
                        thread::yield_now();
                    };
                    for round in 0..ROUNDS {
                        board.post(me, request(round)).unwrap();
                        // Who has served it already may be gone.
                        let interrupt = |cpu: usize| _ = senders[cpu].send(());
                        board.sync(me, take, interrupt, serve);
                    }
                    while performed[me].load(Relaxed) < CPUS as u64 * ROUNDS {
                        serve();
                    }
                });
            }
        });
        for count in performed {
            assert_eq!(count.into_inner(), CPUS as u64 * ROUNDS);
        }
    }
}
