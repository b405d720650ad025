//! Example kernel: a guest of KVM. CPUs that are not running are flushed by the host before they run again, CPUs that
//! wait halted for a lock are lazy, and only the others are interrupted.
#![no_std]
#![no_main]

use shootdown::{
    TlbFlusher,
    x86_64::{
        Tlb,
        kvm::{Kvm, KvmFeatures},
    },
};
use spin::Once;
use x86_kernel::{
    contention,
    demo::{Demo, Extras},
    kvm_guest::{self, KvmGuest},
    platform::Kernel,
    println, pv_lock, smp,
};

x86_kernel::entry!(main);
x86_kernel::panic_to_exit!();

static TLB: Tlb<Kernel, Kvm<KvmGuest>> = Tlb::new();
static HOST: Once<(KvmFeatures, bool)> = Once::new();

extern "C" fn serve() {
    TLB.handle_interrupt();
}

fn main() -> ! {
    let extras = Extras {
        boot,
        cpu: || kvm_guest::prepare_cpu(&host().0),
        workload,
        report,
        ..Extras::default()
    };
    Demo {
        extras,
        ..Demo::new(&TLB, "kvm_pv", |config| TLB.init(config), serve)
    }
    .run()
}

fn host() -> (KvmFeatures, bool) {
    *HOST.call_once(kvm_guest::features)
}

fn boot(cpus: usize) {
    pv_lock::init();
    let (features, real) = host();
    println!(
        "KVM is {}",
        if real {
            "real"
        } else {
            "played by this kernel"
        }
    );
    if let Err(missing) = TLB.courier_ref().enable(&features, cpus) {
        println!("everyone is interrupted: {missing}");
    }
}

fn workload() -> u64 {
    let lazy_before = TLB.counters().elided_lazy;
    let contention = contention::run(&TLB);
    println!(
        "contention: halts={} reads={} stale={} elided_lazy={}",
        contention.halts,
        contention.reads,
        contention.stale,
        TLB.counters().elided_lazy - lazy_before
    );
    contention.stale
}

fn report() {
    // Every CPU runs once more, so that the host has taken all it was asked.
    smp::run_on_all(&|_| {});
    let marks = |cpu: usize| TLB.counters_of(cpu).host_requests;
    let counters = TLB.counters();
    println!(
        "kvm: real={} marked={} outstanding={} initiators={} elided={} came_back={}",
        u64::from(host().1),
        counters.host_requests,
        kvm_guest::outstanding(),
        (0..smp::cpus()).filter(|cpu| marks(*cpu) > 0).count(),
        counters.elided_by_host,
        counters.host_refusals
    );
}
