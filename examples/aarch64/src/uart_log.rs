//! defmt's frames go out through the PL011, a channel of their own beside the text on semihosting.
//!
//! With `-serial null` they vanish; with `-serial file:log.bin`, `defmt-print -e ELF < log.bin` decodes them.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arm_pl011_uart::{PL011Registers, Uart, UniqueMmioPointer};

use crate::cpu;
use crate::lock::{Lock, relax};

/// Where QEMU's virt machine has its first UART.
const PL011: usize = 0x0900_0000;

struct Channel {
    uart: Uart<'static>,
    encoder: defmt::Encoder,
}

static CHANNEL: Lock<Channel> = Lock::new(Channel {
    // SAFETY: the identity map has the device's registers at this address, and nothing else refers to them.
    uart: Uart::new(unsafe {
        UniqueMmioPointer::new(NonNull::new(PL011 as *mut PL011Registers).unwrap())
    }),
    encoder: defmt::Encoder::new(),
});
/// Held from `acquire` to `release`, while frames are being written.
static BUSY: AtomicBool = AtomicBool::new(false);
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

impl Channel {
    fn split(&mut self) -> (&mut defmt::Encoder, impl FnMut(&[u8])) {
        let uart = &mut self.uart;
        let send = |bytes: &[u8]| {
            for &byte in bytes {
                while uart.is_tx_fifo_full() {
                    relax();
                }
                uart.write_word(byte);
            }
        };
        (&mut self.encoder, send)
    }
}

#[defmt::global_logger]
struct UartLogger;

// SAFETY: BUSY keeps all but one CPU out between `acquire` and `release`, and interrupts are off meanwhile; frames are
// encoded by defmt's encoder and written whole.
unsafe impl defmt::Logger for UartLogger {
    fn acquire() {
        let interrupts = cpu::irq_save();
        while BUSY.swap(true, Ordering::Acquire) {
            relax();
        }
        INTERRUPTS.store(interrupts, Ordering::Relaxed);
        let mut channel = CHANNEL.lock();
        let (encoder, send) = channel.split();
        encoder.start_frame(send);
    }

    unsafe fn flush() {
        let channel = CHANNEL.lock();
        while channel.uart.is_busy() {
            relax();
        }
    }

    unsafe fn release() {
        let interrupts = INTERRUPTS.load(Ordering::Relaxed);
        {
            let mut channel = CHANNEL.lock();
            let (encoder, send) = channel.split();
            encoder.end_frame(send);
        }
        BUSY.store(false, Ordering::Release);
        cpu::irq_restore(interrupts);
    }

    unsafe fn write(bytes: &[u8]) {
        let mut channel = CHANNEL.lock();
        let (encoder, send) = channel.split();
        encoder.write(bytes, send);
    }
}
