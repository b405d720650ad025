//! The instruction counter.

use core::arch::asm;

/// Instructions that all CPUs together have executed. That is what QEMU's time-stamp counter counts under `-icount
/// shift=0`.
#[inline(always)]
pub fn instructions() -> u64 {
    let count;
    // As one block: whatever is timed, the same instructions are timed with it, and taken off again.
    // SAFETY: every x86_64 CPU has the counter, and nothing here restricts it.
    unsafe {
        asm!("rdtsc", "shl rdx, 32", "or rax, rdx", out("rax") count, out("rdx") _, options(nostack));
    }
    count
}

/// How often each figure is measured.
pub const SAMPLES: usize = 2000;

/// The cost of an expression in instructions, without the measurement's own: the median of [`SAMPLES`]. A macro, so that
/// what is timed is compiled where it stands.
macro_rules! cost {
    ($work:expr) => {{
        let mut samples = [0; $crate::bench::clock::SAMPLES];
        for sample in &mut samples {
            let begin = $crate::bench::clock::instructions();
            $work;
            *sample = $crate::bench::clock::instructions() - begin;
        }
        $crate::bench::clock::median(&mut samples) - $crate::bench::clock::overhead()
    }};
}
pub(super) use cost;

/// What measuring nothing costs.
pub fn overhead() -> u64 {
    let mut samples = [0; SAMPLES];
    for sample in &mut samples {
        let begin = instructions();
        *sample = instructions() - begin;
    }
    median(&mut samples)
}

#[inline(never)]
pub fn median(samples: &mut [u64; SAMPLES]) -> u64 {
    samples.sort_unstable();
    samples[SAMPLES / 2]
}
