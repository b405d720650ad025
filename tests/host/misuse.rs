//! Misuse ends in a panic that says what to do.

use shootdown::{
    Batch, Request, SpaceError, TlbFlusher,
    aarch64::{self, Broadcast},
    x86_64::{Config, Features, InitError, Ipi},
};

use crate::{
    machine,
    platform::{LogArm, LogX86, become_cpu, panic_of, pins},
};

fn config() -> Config {
    Config::new(Features::default(), 0x1000)
}

#[test]
fn a_cpu_that_is_not_online() {
    machine!(Kernel, 4, TLB: Ipi<Kernel, LogX86>);
    TLB.init(config()).unwrap();
    TLB.online().unwrap();
    let space = TLB.space(0xa000).unwrap();
    become_cpu(3);
    let offline = "CPU 3, which is not online: call `online` on it first";
    let calls: [(&str, &dyn Fn()); 6] = [
        ("flush", &|| TLB.flush(&space, Request::all()).wait()),
        ("flush", &|| TLB.flush_kernel(Request::all()).wait()),
        // SAFETY: nothing is translated on the host.
        ("switch", &|| unsafe { TLB.switch(&space) }),
        ("lazy_enter", &|| {
            let _ = TLB.lazy_enter();
        }),
        ("offline", &|| TLB.offline()),
        ("retire", &|| {
            let _ = TLB.retire(&space);
        }),
    ];
    for (name, call) in calls {
        let message = panic_of(call);
        assert_eq!(message, format!("shootdown: {name} on {offline}"));
    }
    assert!(!TLB.user_access_ok());
    assert_eq!(pins(), 0, "a panic gives the pin back");
}

#[test]
fn a_retired_space() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>);
    TLB.init(config()).unwrap();
    TLB.online().unwrap();
    let space = TLB.space(0xa000).unwrap();
    TLB.retire(&space).unwrap();
    let expected = format!(
        "shootdown: space {} is used after it has retired",
        space.id()
    );
    let flush = panic_of(|| TLB.flush(&space, Request::all()).wait());
    // SAFETY: nothing is translated on the host.
    let switch = panic_of(|| unsafe { TLB.switch(&space) });
    let batch = panic_of(|| Batch::<_, 1, 2>::new(&TLB).add(&space, Request::all()));
    assert_eq!(
        [flush, switch, batch],
        [expected.clone(), expected.clone(), expected]
    );
    // The refused switch left nothing behind.
    TLB.offline();
}

#[test]
fn a_retired_space_on_arm64() {
    machine!(Kernel, 2, TLB: Broadcast<Kernel, LogArm>);
    let paging = shootdown::Paging::arm64(shootdown::Granule::Size4K);
    TLB.init(aarch64::Config::new(paging, 0x1000)).unwrap();
    TLB.online().unwrap();
    let space = TLB.space(0xa000).unwrap();
    TLB.retire(&space).unwrap();
    let flush = panic_of(|| TLB.flush(&space, Request::all()).wait());
    assert!(flush.contains("used after it has retired"));
    // SAFETY: nothing is translated on the host.
    let switch = panic_of(|| unsafe { TLB.switch(&space) });
    assert!(switch.contains("used after it has retired"));
    become_cpu(1);
    let offline = panic_of(|| TLB.flush_kernel(Request::all()).wait());
    assert!(offline.contains("CPU 1, which is not online"));
}

#[test]
fn the_wrong_space_at_lazy_leave() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>);
    TLB.init(config()).unwrap();
    TLB.online().unwrap();
    let (a, b) = (TLB.space(0xa000).unwrap(), TLB.space(0xb000).unwrap());
    // SAFETY: nothing is translated on the host.
    unsafe { TLB.switch(&a) };
    let outer = TLB.lazy_enter();
    // SAFETY: as above.
    let message = panic_of(|| unsafe { TLB.lazy_leave(outer, &b) });
    assert!(message.contains(&format!("but space {} was in use", a.id())));
    // SAFETY: as above.
    unsafe { TLB.unload() };
    TLB.retire(&a).unwrap();
}

#[test]
fn a_flusher_that_is_not_initialized_or_twice() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>);
    assert_eq!(TLB.space(0xa000).unwrap_err(), SpaceError::NotInitialized);
    TLB.init(config()).unwrap();
    assert_eq!(TLB.init(config()), Err(InitError::AlreadyInitialized));
    assert_eq!(
        TLB.space(0xa001).unwrap_err(),
        SpaceError::BadRoot { root: 0xa001 }
    );
    let top = 1 << 63 | 0xa000;
    assert_eq!(
        TLB.space(top).unwrap_err(),
        SpaceError::BadRoot { root: top }
    );
}

#[test]
fn a_cpu_out_of_range() {
    machine!(Kernel, 2, TLB: Ipi<Kernel, LogX86>);
    // SAFETY: there is no such CPU.
    let dead = panic_of(|| unsafe { TLB.declare_dead(2) });
    let counters = panic_of(|| {
        TLB.counters_of(64);
    });
    assert_eq!(dead, "shootdown: CPU 2 is out of range: the platform has 2");
    assert_eq!(
        counters,
        "shootdown: CPU 64 is out of range: the platform has 2"
    );
}
