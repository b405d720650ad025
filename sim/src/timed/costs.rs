//! What everything costs: the only place with figures, each with its source.
//!
//! All are cycles of the machine named. None was chosen by looking at what the experiments predict. Figures marked
//! *assumed* have no published source that we know of; what follows from them is marked in the results.

/// The costs of one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// The machine.
    pub name: &'static str,
    /// Cycles a microsecond.
    pub cycles_per_us: u64,
    /// CPUs that share a last-level cache.
    pub cpus_per_socket: usize,

    /// A load that hits the first-level cache.
    pub load: u64,
    /// A store into the store buffer.
    pub store: u64,
    /// A locked instruction on a line that is owned.
    pub update: u64,
    /// A full fence with an empty store buffer.
    pub fence: u64,
    /// A line from another CPU's cache, same socket.
    pub same_socket: u64,
    /// A line from another CPU's cache, other socket.
    pub other_socket: u64,
    /// A line from memory.
    pub memory: u64,
    /// One turn of a waiting loop.
    pub pause: u64,

    /// Writing the interrupt command register: what the sender spends a target (or a cluster of targets).
    pub ipi_send: u64,
    /// From there to the target's first handler instruction, same socket.
    pub ipi_delivery: u64,
    /// The same to another socket.
    pub ipi_delivery_far: u64,
    /// Interrupt entry and the handler's saving of registers.
    pub interrupt_entry: u64,
    /// End of interrupt, restoring, IRET.
    pub interrupt_exit: u64,

    /// INVLPG.
    pub invlpg: u64,
    /// INVPCID.
    pub invpcid: u64,
    /// MOV to CR3 (or TTBR0 with its ISB).
    pub load_root: u64,
    /// Refilling one entry that was dropped.
    pub refill: u64,
    /// The entries a thread uses again and again.
    pub working_set: u64,

    /// INVLPGB, until the next instruction of the same CPU.
    pub invlpgb: u64,
    /// From INVLPGB until all CPUs have done it, seen by TLBSYNC.
    pub tlbsync: u64,
    /// The time for which the fabric is taken by one INVLPGB; the next of any CPU queues.
    pub invlpgb_occupancy: u64,

    /// A local TLBI with its DSB NSH.
    pub tlbi_local: u64,
    /// A broadcast TLBI and its DSB ISH on an idle fabric.
    pub tlbi_broadcast: u64,
    /// The time for which the fabric is taken by one broadcast TLBI.
    pub dvm_occupancy: u64,
    /// What every other CPU loses to one broadcast TLBI.
    pub dvm_snoop: u64,
    /// ISB.
    pub isb: u64,
    /// The system call that changes a page's permissions, without its flush.
    pub mprotect: u64,

    /// Leaving a guest and entering it again.
    pub vm_exit: u64,
    /// How long a vCPU runs before another gets its CPU.
    pub time_slice: u64,
}

impl Costs {
    /// Two-socket Xeon-like machine at 2.5 GHz.
    pub const XEON: Self = Self {
        name: "x86, 2.5 GHz",
        cycles_per_us: 2500,
        cpus_per_socket: 28,
        // Intel Optimization Reference Manual, Skylake server: L1 5 cycles; Fog, instruction tables: LOCK XADD 18 to 20,
        // MFENCE 33 to 40, PAUSE 140.
        load: 5,
        store: 1,
        update: 20,
        fence: 33,
        // David, Guerraoui, Trigonakis, SOSP 2013, table 2, Xeon: load of a modified line 109 within a socket, 289 one hop
        // away; memory 355.
        same_socket: 109,
        other_socket: 289,
        memory: 355,
        pause: 140,
        // Kaffes et al., NSDI 2019 (Shinjuku), table 1: interrupt to another CPU without VM exit: sender 298, receiver
        // 1212 from arrival to return, of which delivery is the rest of the 1993 total.
        ipi_send: 298,
        ipi_delivery: 483,
        ipi_delivery_far: 663,
        interrupt_entry: 606,
        interrupt_exit: 606,
        // Shi, 2012, x86 flush_tlb_range series: INVLPG 140 ns and a refill 100 ns on Sandy Bridge; Linux since then counts
        // 100 ns a page for both.
        invlpg: 250,
        invpcid: 250,
        // Hansen, Linux Documentation/arch/x86/pti.rst: about a hundred cycles a write of CR3.
        load_root: 100,
        refill: 50,
        working_set: 64,
        // Assumed: no published figure for the instructions alone. A transfer across sockets and back, twice.
        invlpgb: 100,
        tlbsync: 1200,
        invlpgb_occupancy: 100,
        tlbi_local: 0,
        tlbi_broadcast: 0,
        dvm_occupancy: 0,
        dvm_snoop: 0,
        isb: 0,
        // Van Riel, 2025, tables of the INVLPGB series: tlb_flush2 runs 315,000 loops a second on one thread of a Milan.
        mprotect: 7900,
        // Amit, Wei, ATC 2018 (hyperupcalls): a null hypercall about 2000 cycles with mitigations of that time.
        vm_exit: 2000,
        // Linux CFS: 3 ms minimal granularity at 8 CPUs and more (sysctl_sched_min_granularity, 0.75 ms times 4).
        time_slice: 7_500_000,
    };

    /// One-socket arm64 server at 2.8 GHz.
    pub const ARM_SERVER: Self = Self {
        name: "arm64, 2.8 GHz",
        cycles_per_us: 2800,
        cpus_per_socket: 128,
        // Arm Neoverse N1 software optimization guide: L1 4 cycles. The others are assumed to be as on the Xeon, in ns.
        load: 4,
        store: 1,
        update: 22,
        fence: 37,
        same_socket: 122,
        other_socket: 324,
        memory: 398,
        pause: 40,
        // Assumed: as on the Xeon; no arm64 backend sends interrupts.
        ipi_send: 334,
        ipi_delivery: 541,
        ipi_delivery_far: 743,
        interrupt_entry: 679,
        interrupt_exit: 679,
        invlpg: 0,
        invpcid: 0,
        load_root: 112,
        refill: 56,
        working_set: 64,
        invlpgb: 0,
        tlbsync: 0,
        invlpgb_occupancy: 0,
        // Assumed: 50 ns.
        tlbi_local: 140,
        // Jain, Linux c320dbb7c80d: mprotect takes 3.2 us with its flush and 2.85 us without, one thread.
        tlbi_broadcast: 980,
        mprotect: 7980,
        // Gerofi et al., SC 2021 (Linux and McKernel on Fugaku): about 200 ns stolen from every core for each broadcast
        // TLBI on A64FX. A CPU that takes 200 ns for each can take no more than one every 200 ns, and each is followed by
        // the synchronization message of its DSB.
        dvm_occupancy: 560,
        dvm_snoop: 560,
        isb: 28,
        vm_exit: 0,
        time_slice: 0,
    };

    /// The same with page-table isolation: each invalidation is done in the user half as well.
    pub const fn with_isolation(mut self) -> Self {
        self.invlpg += self.invpcid;
        self.load_root *= 2;
        self
    }

    /// Cycles as microseconds.
    pub fn us(&self, cycles: f64) -> f64 {
        cycles / self.cycles_per_us as f64
    }

    /// What a line costs from one CPU's cache to another's.
    pub fn transfer(&self, from: usize, to: usize) -> u64 {
        if self.near(from, to) {
            self.same_socket
        } else {
            self.other_socket
        }
    }

    /// From the sender's command to the target.
    pub fn delivery(&self, from: usize, to: usize) -> u64 {
        if self.near(from, to) {
            self.ipi_delivery
        } else {
            self.ipi_delivery_far
        }
    }

    fn near(&self, a: usize, b: usize) -> bool {
        a / self.cpus_per_socket == b / self.cpus_per_socket
    }
}
