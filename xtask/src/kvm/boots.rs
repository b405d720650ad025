//! The guests: which kernels are booted under KVM, on which CPUs, and what each must show.

use shell_words::quote;
use std::fmt::Write;
use std::path::Path;

/// A boot of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// What it is called.
    pub name: &'static str,
    /// The kernel, by its backend.
    pub kernel: &'static str,
    /// Features added to QEMU's model of the host's CPU.
    pub features: &'static str,
    /// Its virtual CPUs.
    pub cpus: &'static [Cpu],
    /// The kernel's command line, without the number of CPUs.
    pub words: &'static str,
    /// What it must show.
    pub shows: Shows,
}

/// A virtual CPU: its number, and the CPU that it is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu(pub u32, pub u32);

/// What a guest must show, apart from that it reads nothing stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// KVM flushed as often as the guest had asked it to.
    MarksKept,
    /// KVM carried out these hypercalls, as many as the guest made.
    Calls(&'static [Call]),
    /// That it reads something stale: its flushes go to the wrong virtual CPU.
    Stale,
    /// What a flush costs.
    Cost,
}

/// A Hyper-V hypercall: its code, and how the guest names it.
pub type Call = (u32, &'static str);

const SPACE: Call = (0x0002, "space");
const LIST: Call = (0x0003, "list");
const SPACE_EX: Call = (0x0013, "space_ex");
const LIST_EX: Call = (0x0014, "list_ex");

const HYPERV: &str =
    ",hv-relaxed,hv-vpindex,hv-runtime,hv-synic,hv-time,hv-stimer,hv-tlbflush,hv-ipi";

/// Two virtual CPUs on each of two CPUs: initiators run in parallel, and their targets are often preempted.
const OVERCOMMITTED: &[Cpu] = &[Cpu(0, 0), Cpu(1, 0), Cpu(2, 1), Cpu(3, 1)];
/// A CPU each, so that a stale translation lives until somebody drops it.
const ONE_EACH: &[Cpu] = &[Cpu(0, 0), Cpu(1, 1)];
/// As before, but the second has a virtual-processor index that the calls with a mask of 64 bits can't name, and the
/// first has one that they can: so each initiator makes calls of its own kind.
const FAR: &[Cpu] = &[Cpu(0, 0), Cpu(70, 1)];
const SHARED: &[Cpu] = &[Cpu(0, 0), Cpu(1, 0)];

/// Every boot, in order.
pub const BOOTS: [Boot; 5] = [
    Boot {
        name: "kvm_pv",
        kernel: "kvm_pv",
        features: "",
        cpus: OVERCOMMITTED,
        words: "rounds=3",
        shows: Shows::MarksKept,
    },
    Boot {
        name: "hyperv",
        kernel: "hyperv",
        features: HYPERV,
        cpus: FAR,
        words: "rounds=1",
        shows: Shows::Calls(&[SPACE, LIST, SPACE_EX, LIST_EX]),
    },
    Boot {
        name: "hyperv, wrong VP",
        kernel: "hyperv",
        features: HYPERV,
        cpus: ONE_EACH,
        words: "wrong-vp",
        shows: Shows::Stale,
    },
    Boot {
        name: "cost of IPIs",
        kernel: "concurrent_ipi",
        features: "",
        cpus: SHARED,
        words: "cost",
        shows: Shows::Cost,
    },
    Boot {
        name: "cost of KVM PV",
        kernel: "kvm_pv",
        features: "",
        cpus: SHARED,
        words: "cost",
        shows: Shows::Cost,
    },
];

/// How long a guest may run, in seconds.
const LIMIT: u32 = 150;

/// The program for a shell that boots the guests. `kernels` is where they are, by the names of their backends, `work`
/// an empty directory.
pub fn script(boots: &[&Boot], kernels: &Path, work: &Path, tracing: &str) -> String {
    let mut text = format!(
        "QEMU=qemu-system-x86_64 TRACING={} WORK={}\n{}\n",
        quote(tracing),
        quote(&work.display().to_string()),
        include_str!("boot.sh")
    );
    for boot in boots {
        let threads: Vec<_> = boot.cpus.iter().map(thread).collect();
        let kernel = kernels.join(boot.kernel).display().to_string();
        let count = boot.cpus.len();
        // Writing to memory can't fail.
        let _ = writeln!(
            text,
            "boot {} {LIMIT} {} -M pc -nodefaults -no-user-config -display none -no-reboot \
             -device isa-debug-exit,iobase=0xf4,iosize=4 -m 128M -accel kvm -cpu host{} {} -append {} -kernel {}",
            quote(boot.name),
            threads.join(","),
            boot.features,
            processors(boot.cpus),
            quote(format!("cpus={count} {}", boot.words).trim_end()),
            quote(&kernel)
        );
    }
    text
}

/// A virtual CPU and the mask of CPUs that it may run on.
fn thread(Cpu(number, on): &Cpu) -> String {
    format!("{number}:{:x}", 1_u64 << on)
}

/// QEMU's arguments for the virtual CPUs. Where they are not numbered one after the other, each but the first is
/// plugged in by itself.
fn processors(cpus: &[Cpu]) -> String {
    let last = cpus.iter().map(|Cpu(number, _)| *number).max().unwrap_or(0);
    if last as usize + 1 == cpus.len() {
        return format!("-smp {}", cpus.len());
    }
    let slots = last + 1;
    let mut text = format!("-smp 1,sockets={slots},maxcpus={slots}");
    for Cpu(number, _) in &cpus[1..] {
        text += &format!(" -device host-x86_64-cpu,socket-id={number},core-id=0,thread-id=0");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{BOOTS, Cpu, processors, script};
    use std::collections::HashSet;
    use std::path::Path;

    #[test]
    fn names_are_unique() {
        let names: HashSet<_> = BOOTS.iter().map(|boot| boot.name).collect();
        assert_eq!(names.len(), BOOTS.len());
    }

    #[test]
    fn far_processors_are_plugged_in() {
        assert_eq!(processors(&[Cpu(0, 0), Cpu(1, 0)]), "-smp 2");
        assert_eq!(
            processors(&[Cpu(0, 0), Cpu(70, 1)]),
            "-smp 1,sockets=71,maxcpus=71 -device host-x86_64-cpu,socket-id=70,core-id=0,thread-id=0"
        );
    }

    #[test]
    fn the_script_boots_what_it_is_asked_to() {
        let text = script(
            &[&BOOTS[0]],
            Path::new("/a b"),
            Path::new("/tmp"),
            "/tracing",
        );
        let boots: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("boot kvm_pv "))
            .collect();
        let [line] = boots[..] else {
            panic!("{boots:?}")
        };
        assert!(
            line.starts_with("boot kvm_pv 150 0:1,1:1,2:2,3:2 "),
            "{line}"
        );
        assert!(
            line.ends_with("-append 'cpus=4 rounds=3' -kernel '/a b/kvm_pv'"),
            "{line}"
        );
    }
}
