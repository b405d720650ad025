//! The series: floor first, then each backend.

use core::hint::black_box;

use shootdown::{Range, Request, Space, Stride, TlbFlusher};

use super::{
    ADDRESS,
    clock::cost,
    crew::{self, Crew},
    floor,
};
use crate::{
    arena::PAGE,
    frames::Frame,
    paging::{Tables, kernel_root},
    println, smp, traps,
};
use spin::Mutex;

/// Pages of a flush, 0 for everything.
pub const PAGES: [u64; 4] = [1, 8, 33, 0];
/// As many pages as are ever read.
const MOST: u64 = 33;
const OLD: u64 = 1;
const NEW: u64 = 2;

/// Measures the floor. Indexed by CPUs - 1, then as [`PAGES`].
pub fn floor() -> [[u64; 4]; 4] {
    traps::set_gate(floor::VECTOR, floor::gate);
    let figures = Mutex::new([[0; 4]; 4]);
    for cpus in 1..=smp::cpus() {
        let root = Mutex::new(Tables::new().expect("there are frames"));
        let address = root.lock().root();
        crew::run(cpus, &|| load(address), &|| load(kernel_root()), &|crew| {
            for (index, pages) in PAGES.into_iter().enumerate() {
                check(crew, &root, pages, || {
                    floor::flush(pages, crew.others(), crew.cpus() as u64 - 1)
                });
                let (pages, others, count) = black_box((pages, crew.others(), cpus as u64 - 1));
                figures.lock()[cpus - 1][index] = cost!(floor::flush(pages, others, count));
            }
        });
    }
    figures.into_inner()
}

fn load(root: u64) {
    use x86_64::{
        PhysAddr,
        registers::control::{Cr3, Cr3Flags},
        structures::paging::PhysFrame,
    };
    // SAFETY: all roots map the kernel.
    unsafe {
        Cr3::write(
            PhysFrame::containing_address(PhysAddr::new(root)),
            Cr3Flags::empty(),
        )
    };
}

/// Checks that `flush` does what it is to be timed for: of each page, every CPU holds the old translation before it, and
/// none after it. One page at a time: QEMU's TLB may have too few entries to hold them all while tables are changed.
fn check(crew: &Crew, tables: &Mutex<Tables>, pages: u64, flush: impl Fn()) {
    let frame = |value| {
        let frame = Frame::data().expect("there are frames");
        frame.store(0, value);
        frame
    };
    let mut tables = tables.lock();
    for page in 0..if pages == 0 { MOST } else { pages } {
        let address = ADDRESS + page * PAGE;
        let mut map = |value| {
            let old = tables.user().unmap(address);
            tables
                .user()
                .map(address, frame(value))
                .expect("it was unmapped");
            old
        };
        map(OLD);
        assert!(crew.all_see(page, OLD), "page {page} is mapped");
        // The frame lives on: stale translations are read on purpose.
        let old = map(NEW);
        assert!(
            crew.all_see(page, OLD),
            "every CPU holds the old translation of page {page}"
        );
        flush();
        assert!(
            crew.all_see(page, NEW),
            "every CPU has lost the old translation of page {page}"
        );
        drop(old);
        // Nobody reads the page any more.
        drop(tables.user().unmap(address));
    }
}

/// A flusher to be measured: a static, as in a kernel.
pub trait Backend {
    /// Its type.
    type Tlb: TlbFlusher + 'static;
    /// The flusher.
    const TLB: &'static Self::Tlb;
    /// Its name.
    const NAME: &'static str;
}

/// Measures a backend, beside what [`floor`] gave.
pub fn backend<B: Backend>(floor: &[[u64; 4]; 4]) {
    let (tlb, name) = (B::TLB, B::NAME);
    smp::run_on_all(&|_| tlb.online().expect("all CPUs are alike"));
    for cpus in 1..=smp::cpus() {
        let tables = Mutex::new(Tables::new().expect("there are frames"));
        let space = tlb.space(tables.lock().root()).expect("a root");
        crew::run(
            cpus,
            // SAFETY: all tables map the kernel, and the space is retired before it is dropped.
            &|| unsafe { tlb.switch(&space) },
            // SAFETY: the kernel's own tables map the kernel.
            &|| unsafe { tlb.unload() },
            &|crew| {
                for (index, pages) in PAGES.into_iter().enumerate() {
                    let request = black_box(request(tlb, pages));
                    check(crew, &tables, pages, || tlb.flush(&space, request).wait());
                    let cost = flush::<B>(&space, request);
                    let floor = floor[cpus - 1][index];
                    print(
                        name,
                        if pages == 0 { "flush_all" } else { "flush" },
                        pages,
                        cpus,
                        cost,
                        floor,
                    );
                }
            },
        );
        tlb.retire(&space).expect("nobody runs it");
    }
    switches::<B>();
    smp::run_on_all(&|_| tlb.offline());
}

fn request<F: TlbFlusher>(tlb: &F, pages: u64) -> Request {
    if pages == 0 {
        Request::all()
    } else {
        let range = Range::new(tlb.paging(), ADDRESS, pages, Stride::Size4K);
        Request::range(range.expect("a range of the window"))
    }
}

#[inline(never)]
fn flush<B: Backend>(space: &Space, request: Request) -> u64 {
    cost!(B::TLB.flush(space, request).wait())
}

fn switches<B: Backend>() {
    let tlb = B::TLB;
    let name = B::NAME;
    let tables = [(); 2].map(|()| Tables::new().expect("there are frames"));
    let spaces = [0, 1].map(|it| tlb.space(tables[it].root()).expect("a root"));
    crew::run(
        1,
        &|| (),
        // SAFETY: the kernel's own tables map the kernel.
        &|| unsafe { tlb.unload() },
        &|_| {
            let floor = cost!(load_raw(tables[0].root()));
            let mut turn = 0;
            // SAFETY: all tables map the kernel, and the spaces are retired before they are dropped.
            unsafe {
                tlb.switch(&spaces[0]);
                let other = cost!({
                    turn ^= 1;
                    tlb.switch(&spaces[turn]);
                });
                let turning = cost!({
                    turn ^= 1;
                    black_box(&spaces[turn]);
                });
                tlb.switch(&spaces[0]);
                let same = cost!(tlb.switch(&spaces[0]));
                let lazy = cost!({
                    let outer = tlb.lazy_enter();
                    tlb.lazy_leave(outer, &spaces[0]);
                });
                print(name, "switch_other", 0, 1, other - turning, floor);
                print(name, "switch_same", 0, 1, same, 0);
                print(name, "lazy", 0, 1, lazy, 0);
            }
        },
    );
    for space in &spaces {
        tlb.retire(space).expect("nobody runs it");
    }
}

#[inline(always)]
fn load_raw(root: u64) {
    // SAFETY: all roots map the kernel.
    unsafe { core::arch::asm!("mov cr3, {}", in(reg) root) };
}

fn print(backend: &str, op: &str, pages: u64, cpus: usize, instructions: u64, floor: u64) {
    println!(
        r#"{{"arch":"x86_64","backend":"{backend}","op":"{op}","pages":{pages},"cpus":{cpus},"instructions":{instructions},"floor":{floor}}}"#
    );
}
