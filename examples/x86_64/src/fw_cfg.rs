//! QEMU's firmware configuration device: how many CPUs the machine has.

use x86_64::instructions::port::Port;

const SIGNATURE: u16 = 0;
const CPU_COUNT: u16 = 5;

/// The number of CPUs, or `None` where this is not QEMU.
#[must_use]
pub fn cpu_count() -> Option<usize> {
    (read(SIGNATURE) == *b"QEMU").then(|| {
        let [low, high, ..] = read(CPU_COUNT);
        usize::from(u16::from_le_bytes([low, high]))
    })
}

fn read(item: u16) -> [u8; 4] {
    let mut data = Port::<u8>::new(0x511);
    // SAFETY: selecting an item and reading it changes nothing but the device's read position.
    unsafe {
        Port::<u16>::new(0x510).write(item);
        core::array::from_fn(|_| data.read())
    }
}
