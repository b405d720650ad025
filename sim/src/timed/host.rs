//! A host with fewer CPUs than its guest has vCPUs: each CPU runs its vCPUs in turn, for a time slice each.

use core::sync::atomic::Ordering::Relaxed;
use std::collections::VecDeque;

use shootdown::x86_64::kvm::StealTime;

use super::clockwork::Clockwork;

/// The bits of the byte that the host owns (Linux, Documentation/virt/kvm/x86/msr.rst).
const PREEMPTED: u8 = 1 << 0;
const FLUSH_TLB: u8 = 1 << 1;

/// The host.
pub(super) struct Host {
    cpus: Vec<HostCpu>,
    /// The steal times of the vCPUs.
    steal: &'static [StealTime],
}

/// One of its CPUs.
struct HostCpu {
    waiting: VecDeque<usize>,
    slice_ends: u64,
}

impl Host {
    /// A host with `cpus` CPUs; vCPUs are dealt out to them in turn.
    pub(super) fn new(cpus: usize, steal: &'static [StealTime]) -> Self {
        Self {
            cpus: (0..cpus)
                .map(|_| HostCpu {
                    waiting: VecDeque::new(),
                    slice_ends: 0,
                })
                .collect(),
            steal,
        }
    }

    fn home(&mut self, vcpu: usize) -> &mut HostCpu {
        let home = vcpu % self.cpus.len();
        &mut self.cpus[home]
    }
}

impl Clockwork {
    /// Puts the vCPUs on the host's CPUs: the first of each runs.
    pub(super) fn begin(&mut self) {
        let count = self.cpus.len();
        let slice = self.costs.time_slice;
        for vcpu in 0..count {
            if let Some(host) = &mut self.host {
                let cpus = host.cpus.len();
                if vcpu >= cpus {
                    host.home(vcpu).waiting.push_back(vcpu);
                    host.steal[vcpu].preempted_byte().store(PREEMPTED, Relaxed);
                    self.cpus[vcpu].out = true;
                    continue;
                }
                // Time slices of different CPUs do not end in step.
                host.home(vcpu).slice_ends = slice * (vcpu as u64 + 1) / cpus as u64;
            }
            self.queue(vcpu, 0);
        }
    }

    /// When the running vCPU has to stop, if another one waits for its CPU.
    pub(super) fn slice_end(&mut self) -> u64 {
        let me = self.current;
        match &mut self.host {
            None => u64::MAX,
            Some(host) => {
                let home = host.home(me);
                if home.waiting.is_empty() {
                    u64::MAX
                } else {
                    home.slice_ends
                }
            }
        }
    }

    /// The running vCPU stops and waits for its next turn. Gives when it stopped.
    pub(super) fn stop(&mut self) -> u64 {
        let me = self.current;
        let now = self.me().now;
        self.me().out = true;
        if let Some(host) = &mut self.host {
            host.steal[me].preempted_byte().fetch_or(PREEMPTED, Relaxed);
            host.home(me).waiting.push_back(me);
        }
        self.let_next_run(me, now);
        now
    }

    /// The running vCPU's thread has ended; it does not come back.
    pub(super) fn leave_host(&mut self) {
        let (me, now) = (self.current, self.me().now);
        if self.host.is_some() {
            self.me().out = true;
            self.let_next_run(me, now);
        }
    }

    /// Enters the vCPU whose turn it is on the CPU that `leaving` leaves at `now`.
    fn let_next_run(&mut self, leaving: usize, now: u64) {
        let (exit, slice) = (self.costs.vm_exit, self.costs.time_slice);
        let Some(host) = &mut self.host else {
            return;
        };
        let home = host.home(leaving);
        home.slice_ends = now + exit + slice;
        let Some(next) = home.waiting.pop_front() else {
            return;
        };
        let asked = host.steal[next].preempted_byte().swap(0, Relaxed) & FLUSH_TLB != 0;
        let it = &mut self.cpus[next];
        it.out = false;
        if asked || core::mem::take(&mut it.flush_on_entry) {
            it.cold.clear();
        }
        it.now = it.now.max(now + exit);
        let at = it.now;
        self.queue(next, at);
    }
}
