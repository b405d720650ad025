//! CPUs that wait: lazy, on any courier, and what ends it.

use shootdown::{
    Paging, Range, Request, RetireError, Stride, TlbFlusher,
    x86_64::{ConcurrentIpi, Config, Features, Ipi},
};

use crate::{
    machine,
    platform::{LogX86, become_cpu, on_cpu, panic_of, take_log},
};

fn config() -> Config {
    Config::new(Features::default(), 0x1000)
}

fn page(addr: u64) -> Request {
    Request::range(Range::new(Paging::X86_4_LEVEL, addr, 1, Stride::Size4K).unwrap())
}

/// Brings both CPUs online, and lets CPU 1 run a new space, which the caller retires.
macro_rules! two_cpus {
    ($tlb:ident, $space:ident) => {
        $tlb.init(config()).unwrap();
        for cpu in 0..2 {
            on_cpu(cpu, || $tlb.online().unwrap());
        }
        let $space = $tlb.space(0xa000).unwrap();
        // SAFETY: nothing is translated on the host.
        on_cpu(1, || unsafe { $tlb.switch(&$space) });
        take_log();
    };
}

#[test]
fn a_waiting_cpu_is_skipped_and_catches_up() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>, served);
    two_cpus!(TLB, space);
    let waiting = on_cpu(1, || TLB.wait_enter());
    on_cpu(1, || assert!(!TLB.user_access_ok()));
    TLB.flush(&space, page(0x5000)).wait();
    assert_eq!(take_log(), [""; 0]);
    assert_eq!(TLB.counters().elided_lazy, 1);
    // SAFETY: nothing is translated on the host, and the space lives.
    on_cpu(1, || unsafe { TLB.wait_leave(waiting) });
    assert_eq!(take_log(), ["invlpg 0x5000"]);
    on_cpu(1, || assert!(TLB.user_access_ok()));

    // Nothing was flushed: nothing is dropped.
    let waiting = on_cpu(1, || TLB.wait_enter());
    // SAFETY: as above.
    on_cpu(1, || unsafe { TLB.wait_leave(waiting) });
    assert_eq!(take_log(), [""; 0]);
    // SAFETY: as above.
    on_cpu(1, || unsafe { TLB.unload() });
    TLB.retire(&space).unwrap();
}

#[test]
fn a_nested_wait_leaves_the_outer_one_as_it_was() {
    machine!(Kernel, 2, TLB: ConcurrentIpi<Kernel, LogX86>, served);
    two_cpus!(TLB, space);
    become_cpu(1);
    let outer = TLB.wait_enter();
    let inner = TLB.wait_enter();
    // SAFETY: nothing is translated on the host, and the space lives.
    unsafe { TLB.wait_leave(inner) };
    assert!(!TLB.user_access_ok());
    // In lazy mode, and lazy mode in a wait.
    let lazy = TLB.lazy_enter();
    // SAFETY: as above.
    unsafe { TLB.lazy_leave(lazy, &space) };
    assert!(!TLB.user_access_ok());
    // SAFETY: as above.
    unsafe { TLB.wait_leave(outer) };
    assert!(TLB.user_access_ok());
    let lazy = TLB.lazy_enter();
    let inner = TLB.wait_enter();
    // SAFETY: as above.
    unsafe { TLB.wait_leave(inner) };
    assert!(!TLB.user_access_ok());
    // SAFETY: as above.
    unsafe { TLB.lazy_leave(lazy, &space) };
    assert!(TLB.user_access_ok());

    // An interrupt that touches user memory leaves first, and lets the CPU wait again.
    let outer = TLB.wait_enter();
    on_cpu(0, || TLB.flush(&space, page(0x5000)).wait());
    assert_eq!(take_log(), [""; 0]);
    // SAFETY: as above.
    unsafe { TLB.switch(&space) };
    assert_eq!(take_log(), ["invlpg 0x5000"]);
    assert!(TLB.user_access_ok());
    let _ = TLB.wait_enter();
    assert!(!TLB.user_access_ok());
    // SAFETY: as above.
    unsafe { TLB.wait_leave(outer) };
    assert!(TLB.user_access_ok());

    // One that switches to another thread and back has ended the wait.
    let other = TLB.space(0xb000).unwrap();
    let outer = TLB.wait_enter();
    // SAFETY: as above.
    unsafe {
        TLB.switch(&other);
        assert!(TLB.user_access_ok());
        TLB.switch(&space);
        TLB.wait_leave(outer);
    }
    assert!(TLB.user_access_ok());
    // SAFETY: as above.
    unsafe { TLB.unload() };
    become_cpu(0);
    TLB.retire(&space).unwrap();
    TLB.retire(&other).unwrap();
}

#[test]
fn freed_tables_and_the_kernel_reach_a_waiting_cpu() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>, served);
    two_cpus!(TLB, space);
    let waiting = on_cpu(1, || TLB.wait_enter());
    TLB.flush(&space, page(0x5000).tables_freed()).wait();
    // The space is unloaded, and comes back when the wait ends.
    assert_eq!(take_log(), ["publish", "ipi [1]", "cr3 0x1000"]);
    // SAFETY: nothing is translated on the host, and the space lives.
    on_cpu(1, || unsafe { TLB.wait_leave(waiting) });
    assert_eq!(take_log(), ["cr3 0xa000"]);
    on_cpu(1, || assert!(TLB.user_access_ok()));

    let waiting = on_cpu(1, || TLB.wait_enter());
    TLB.flush(&space, page(0x5000).attributes_changed()).wait();
    assert!(take_log().contains(&"ipi [1]".into()));
    TLB.flush_kernel(Request::all()).wait();
    assert!(take_log().contains(&"ipi [1]".into()));
    // SAFETY: as above.
    on_cpu(1, || unsafe { TLB.wait_leave(waiting) });
    // SAFETY: as above.
    on_cpu(1, || unsafe { TLB.unload() });
    TLB.retire(&space).unwrap();
}

#[test]
fn a_wait_without_a_space_is_nothing() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>, served);
    TLB.init(config()).unwrap();
    TLB.online().unwrap();
    take_log();
    let waiting = TLB.wait_enter();
    // SAFETY: there is no space.
    unsafe { TLB.wait_leave(waiting) };
    assert_eq!(take_log(), [""; 0]);
    become_cpu(1);
    let message = panic_of(|| {
        let _ = TLB.wait_enter();
    });
    assert!(message.contains("wait_enter on CPU 1, which is not online"));
}

#[test]
fn a_space_retires_from_under_a_waiting_cpu() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>, served);
    two_cpus!(TLB, space);
    let waiting = on_cpu(1, || TLB.wait_enter());
    let retired: Result<(), RetireError> = TLB.retire(&space);
    retired.unwrap();
    // The space is still there, so it can be seen that it must not be used.
    // SAFETY: the space lives.
    let message = panic_of(|| on_cpu(1, || unsafe { TLB.wait_leave(waiting) }));
    assert!(message.contains("is used after it has retired"));
}
