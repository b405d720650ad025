//! The crate's atomics in virtual time: each costs what its cache line costs.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::{clockwork::with, lines::Use, wait::point};

pub(crate) use super::clockwork::is_running;

fn address<T>(word: &T) -> usize {
    core::ptr::from_ref(word).addr()
}

pub(crate) fn load(word: &AtomicU64) -> u64 {
    point();
    with(|m| m.charge(address(word), Use::Load));
    word.load(Ordering::Relaxed)
}

pub(crate) fn store(word: &AtomicU64, value: u64, order: Ordering) {
    point();
    let how = if order == Ordering::SeqCst {
        Use::Update
    } else {
        Use::Store
    };
    word.store(value, Ordering::Relaxed);
    with(|m| {
        m.charge(address(word), how);
        m.written(address(word));
    });
}

pub(crate) fn rmw(
    word: &AtomicU64,
    update: &mut dyn FnMut(u64) -> Option<u64>,
) -> Result<u64, u64> {
    point();
    let result = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    with(|m| {
        m.charge(address(word), Use::Update);
        if result.is_ok() {
            m.written(address(word));
        }
    });
    result
}

pub(crate) fn fence(order: Ordering) {
    point();
    if order == Ordering::SeqCst {
        with(|m| m.spend(m.costs.fence));
    }
}

pub(crate) fn load_byte(byte: &AtomicU8) -> u8 {
    point();
    with(|m| m.charge(address(byte), Use::Load));
    byte.load(Ordering::Relaxed)
}

pub(crate) fn store_byte(byte: &AtomicU8, value: u8) {
    point();
    byte.store(value, Ordering::Relaxed);
    with(|m| {
        m.charge(address(byte), Use::Store);
        m.written(address(byte));
    });
}

pub(crate) fn rmw_byte(
    byte: &AtomicU8,
    update: &mut dyn FnMut(u8) -> Option<u8>,
) -> Result<u8, u8> {
    point();
    let result = byte.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    with(|m| {
        m.charge(address(byte), Use::Update);
        if result.is_ok() {
            m.written(address(byte));
        }
    });
    result
}
