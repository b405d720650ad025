//! Bytes that the CPUs share with their hypervisor: as words, but the hypervisor writes them too.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use shootdown::atomic::Location;

use super::{
    Machine,
    cpu::State,
    stores::{Buffered, short},
};

fn address(byte: &AtomicU8) -> usize {
    core::ptr::from_ref(byte) as usize
}

impl Machine {
    /// Loads a byte on the acting CPU, from its own store buffer where it is there.
    pub(crate) fn load_byte(&mut self, byte: &AtomicU8, at: Location) -> u8 {
        let cpu = self.acting();
        let own = self.cpus[cpu]
            .buffer
            .iter()
            .rev()
            .find_map(|buffered| match buffered {
                Buffered::Byte { byte: at, value } if core::ptr::eq(*at, byte) => Some(*value),
                _ => None,
            });
        let value = own.unwrap_or_else(|| byte.load(Relaxed));
        self.note_read(byte, cpu);
        self.note(|m| format!("load  {} -> {value}   {}", m.byte_name(byte), short(at)));
        value
    }

    /// Stores to a byte on the running CPU.
    pub(crate) fn store_byte(&mut self, byte: &AtomicU8, value: u8, at: Location) {
        self.note(|m| format!("store {} = {value}   {}", m.byte_name(byte), short(at)));
        let cpu = self.current;
        self.cpus[cpu].published = false;
        self.buffer(cpu, Buffered::Byte { byte, value });
    }

    /// A locked read-modify-write of a byte on the running CPU.
    pub(crate) fn update_byte(
        &mut self,
        byte: &AtomicU8,
        update: &mut dyn FnMut(u8) -> Option<u8>,
        at: Location,
    ) -> Result<u8, u8> {
        let cpu = self.current;
        self.cpus[cpu].published = false;
        self.drain_all(cpu);
        let old = byte.load(Relaxed);
        let new = update(old);
        self.note_read(byte, cpu);
        self.note(|m| {
            let new = new.map_or(String::from("unchanged"), |new| new.to_string());
            format!("rmw   {} {old} -> {new}   {}", m.byte_name(byte), short(at))
        });
        let Some(new) = new else { return Err(old) };
        self.write_byte(byte, new);
        Ok(old)
    }

    /// A byte in memory changes.
    pub(crate) fn write_byte(&mut self, byte: &AtomicU8, value: u8) {
        byte.store(value, Relaxed);
        let Some(line) = self.lines.find(address(byte)) else {
            return;
        };
        for cpu in 0..self.cpus.len() {
            let it = &mut self.cpus[cpu];
            if self.lines.has_read(line, cpu, it.epoch) {
                it.changed = true;
                if it.state == State::Parked {
                    it.state = State::Runnable;
                }
            }
        }
    }

    fn note_read(&mut self, byte: &AtomicU8, cpu: usize) {
        match self.lines.find(address(byte)) {
            Some(line) => {
                let epoch = self.cpus[cpu].epoch;
                self.lines.read(line, cpu, epoch);
            }
            None => self.fail(String::from(
                "a shared byte is outside of what the hypervisor was told",
            )),
        }
    }

    pub(crate) fn byte_name(&self, byte: &AtomicU8) -> String {
        self.lines.name_of(address(byte))
    }
}
