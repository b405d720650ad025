//! A space that may be loaded stops the program when it is dropped. Seen from outside: the test runs itself again.

use std::process::Command;

use shootdown::{
    TlbFlusher,
    x86_64::{Config, Features, Ipi},
};

use crate::{machine, platform::LogX86};

const CHILD: &str = "SHOOTDOWN_DROP_A_LOADED_SPACE";

#[test]
fn dropping_a_loaded_space_aborts() {
    machine!(Kernel, 1, TLB: Ipi<Kernel, LogX86>);
    if std::env::var_os(CHILD).is_some() {
        TLB.init(Config::new(Features::default(), 0x1000)).unwrap();
        TLB.online().unwrap();
        let space = TLB.space(0xa000).unwrap();
        // SAFETY: nothing is translated on the host.
        unsafe { TLB.switch(&space) };
        // An abort can't be caught.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(space)));
        std::process::exit(0);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "drop::dropping_a_loaded_space_aborts",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), None, "killed by a signal\n{stderr}");
    assert!(
        stderr.contains("was dropped but not retired: call `retire` first"),
        "{stderr}"
    );
}

#[test]
fn a_space_that_was_never_loaded_may_be_dropped() {
    machine!(Kernel, 1, TLB: Ipi<Kernel, LogX86>);
    TLB.init(Config::new(Features::default(), 0x1000)).unwrap();
    drop(TLB.space(0xa000).unwrap());
}
