//! Example kernel: a guest of Hyper-V. Other CPUs are flushed by hypercall, and interrupted where the host refuses.
#![no_std]
#![no_main]

use shootdown::x86_64::{
    Tlb,
    hyperv::{HyperV, HyperVFeatures},
};
use spin::Once;
use x86_kernel::{
    aim,
    demo::{Demo, Extras, Instead},
    host,
    hyperv_guest::{self, HyperVGuest},
    platform::Kernel,
    println,
};

x86_kernel::entry!(main);
x86_kernel::panic_to_exit!();

static TLB: Tlb<Kernel, HyperV<HyperVGuest>> = Tlb::new();
static HOST: Once<(HyperVFeatures, bool)> = Once::new();

/// How often the host that this kernel plays refuses, so that interrupts are sent too.
const REFUSE_EVERY: u64 = 16;

extern "C" fn serve() {
    TLB.handle_interrupt();
}

fn main() -> ! {
    let extras = Extras {
        boot,
        cpu: || hyperv_guest::prepare_cpu(&hypervisor().0),
        report,
        // The counter-proof under a real hypervisor.
        instead: Some(Instead {
            word: "wrong-vp",
            act: wrong_vp,
        }),
        ..Extras::default()
    };
    Demo {
        extras,
        ..Demo::new(&TLB, "hyperv", |config| TLB.init(config), serve)
    }
    .run()
}

fn hypervisor() -> (HyperVFeatures, bool) {
    *HOST.call_once(hyperv_guest::features)
}

fn boot(cpus: usize) {
    let (features, real) = hypervisor();
    println!(
        "Hyper-V is {}",
        if real {
            "real"
        } else {
            "played by this kernel"
        }
    );
    host::refuse_every(REFUSE_EVERY);
    if let Err(missing) = TLB.courier_ref().enable(&features, cpus) {
        println!("everyone is interrupted: {missing}");
    }
}

/// Whether flushes that go to the wrong processor show, and no others.
fn wrong_vp() -> bool {
    host::refuse_every(0);
    let aim = aim::check(&TLB, hyperv_guest::aim_at_wrong_vp);
    let aim::Aim {
        rounds,
        right,
        wrong,
    } = aim;
    println!("aim: rounds={rounds} stale_if_right={right} stale_if_wrong={wrong}");
    assert_eq!(right, 0, "stale although the flush went where it should");
    wrong > 0
}

fn report() {
    let calls = hyperv_guest::calls();
    println!(
        "hyperv: real={} space={} list={} space_ex={} list_ex={} failed={}",
        u64::from(hypervisor().1),
        calls.space,
        calls.list,
        calls.space_ex,
        calls.list_ex,
        calls.failed
    );
    if let Some(status) = TLB.courier_ref().last_refusal() {
        println!("the host refused last with status {status}");
    }
}
