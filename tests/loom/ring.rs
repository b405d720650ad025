//! The ring of requests: what a serving CPU takes for a generation is that generation's, whole.

use shootdown::variant::Broken;

use crate::{
    explore::{STALE, Scenario},
    machine::{Machine, boot, config, on, start},
    page::Page,
};

const PAGES: [Page; 3] = [Page::X, Page::Y, Page::Z];

/// CPU `reader` uses the space, and its TLB holds all pages.
fn prepare(cpus: usize, reader: usize) -> &'static Machine {
    let machine = boot(cpus, config());
    on(reader, || {
        machine.switch(machine.a());
        for page in PAGES {
            machine.access(page);
        }
    });
    machine
}

/// CPU 0 writes a request. CPU 1 writes two, of which one may share CPU 0's entry, and reads the ring for its own TLB.
const WRITER_AND_READER: Scenario = Scenario::full(|| {
    let machine = prepare(2, 1);
    let cpu1 = start(1, || {
        for page in [Page::Y, Page::Z] {
            // The flush before may have dropped everything.
            machine.access(page);
            machine.change(page);
            let posted = machine.post(page.request());
            machine.complete(&posted);
            machine.reuse(page);
        }
        machine.access(Page::Z);
    });
    machine.change(Page::X);
    let posted = machine.post(Page::X.request());
    cpu1.join().unwrap();
    on(1, || machine.take_interrupt());
    machine.complete(&posted);
    machine.reuse(Page::X);
    on(1, || machine.access(Page::X));
});

#[test]
fn writer_and_reader() {
    WRITER_AND_READER.is_clean();
}

#[test]
fn writer_and_reader_without_the_claim() {
    WRITER_AND_READER.catches(Broken::RingUnclaimed, STALE);
}

#[test]
fn writer_and_reader_without_the_tag() {
    WRITER_AND_READER.catches(Broken::RingTagIgnored, STALE);
}

/// CPUs 0 and 1 write, CPU 2 reads whenever it likes.
const TWO_WRITERS: Scenario = Scenario::bounded(
    || {
        let machine = prepare(3, 2);
        let cpu1 = start(1, || {
            [Page::Y, Page::Z].map(|page| {
                machine.change(page);
                machine.post(page.request())
            })
        });
        let cpu2 = start(2, || {
            machine.serve();
            machine.serve();
        });
        machine.change(Page::X);
        let first = machine.post(Page::X.request());
        let others = cpu1.join().unwrap();
        cpu2.join().unwrap();
        on(2, || machine.take_interrupt());
        machine.complete(&first);
        on(1, || {
            others.iter().for_each(|posted| machine.complete(posted))
        });
        for page in PAGES {
            machine.reuse(page);
            on(2, || machine.access(page));
        }
    },
    2,
);

#[test]
fn two_writers() {
    TWO_WRITERS.is_clean();
}

#[test]
fn two_writers_without_the_claim() {
    TWO_WRITERS.catches(Broken::RingUnclaimed, STALE);
}

#[test]
fn two_writers_without_the_tag() {
    TWO_WRITERS.catches(Broken::RingTagIgnored, STALE);
}
