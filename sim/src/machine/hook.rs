//! The hook behind the crate's atomics: each operation is a scheduling point, then the machine performs it.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::sync::Once;

use shootdown::atomic::{Hook, Location, set_hook};

use crate::timed;

use super::{
    current::{is_running, with},
    scheduler::point,
};

/// The operations of the machine that is current on the calling thread; on a thread without one, the plain operations.
#[derive(Debug)]
pub(crate) struct Hooked;

static HOOKED: &dyn Hook = &Hooked;

/// Installs the hook for this process.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_hook(&HOOKED);
        super::interrupts::catch_panics();
    });
}

impl Hook for Hooked {
    fn load(&self, word: &AtomicU64, order: Ordering, at: Location) -> u64 {
        if timed::is_running() {
            return timed::load(word);
        }
        if !is_running() {
            return word.load(order);
        }
        point();
        with(|m| m.load(word, at))
    }

    fn store(&self, word: &AtomicU64, value: u64, order: Ordering, at: Location) {
        if timed::is_running() {
            return timed::store(word, value, order);
        }
        if !is_running() {
            return word.store(value, order);
        }
        point();
        with(|m| {
            m.store(word, value, at);
            if order == Ordering::SeqCst {
                m.drain_all(m.current);
            }
        });
    }

    fn rmw(
        &self,
        word: &AtomicU64,
        update: &mut dyn FnMut(u64) -> Option<u64>,
        order: Ordering,
        at: Location,
    ) -> Result<u64, u64> {
        if timed::is_running() {
            return timed::rmw(word, update);
        }
        if !is_running() {
            return word.fetch_update(order, Ordering::Relaxed, update);
        }
        point();
        with(|m| m.update(word, update, at))
    }

    fn fence(&self, order: Ordering, at: Location) {
        if timed::is_running() {
            return timed::fence(order);
        }
        if !is_running() {
            return fence(order);
        }
        point();
        with(|m| {
            if order == Ordering::SeqCst {
                m.drain_all(m.current);
            }
            m.note(|_| format!("fence {order:?}   {}", super::stores::short(at)));
        });
    }

    fn load_byte(&self, byte: &AtomicU8, order: Ordering, at: Location) -> u8 {
        if timed::is_running() {
            return timed::load_byte(byte);
        }
        if !is_running() {
            return byte.load(order);
        }
        point();
        with(|m| m.load_byte(byte, at))
    }

    fn store_byte(&self, byte: &AtomicU8, value: u8, order: Ordering, at: Location) {
        if timed::is_running() {
            return timed::store_byte(byte, value);
        }
        if !is_running() {
            return byte.store(value, order);
        }
        point();
        with(|m| m.store_byte(byte, value, at));
    }

    fn rmw_byte(
        &self,
        byte: &AtomicU8,
        update: &mut dyn FnMut(u8) -> Option<u8>,
        order: Ordering,
        at: Location,
    ) -> Result<u8, u8> {
        if timed::is_running() {
            return timed::rmw_byte(byte, update);
        }
        if !is_running() {
            return byte.fetch_update(order, Ordering::Relaxed, update);
        }
        point();
        with(|m| m.update_byte(byte, update, at))
    }
}
