//! Where a courier keeps its [`Broadcast`].

use super::Broadcast;

/// In itself, so that it can be made in a constant.
#[cfg(not(loom))]
#[derive(Debug)]
pub(in super::super) struct Home(Broadcast);

#[cfg(not(loom))]
impl Home {
    pub(in super::super) const fn new() -> Self {
        Self(Broadcast::new())
    }

    #[inline(always)]
    pub(in super::super) fn get(&self) -> &Broadcast {
        &self.0
    }
}

/// loom's atomics can't be made in a constant: one for each execution, which has one flusher.
#[cfg(loom)]
#[derive(Debug)]
pub(in super::super) struct Home;

#[cfg(loom)]
loom::lazy_static! {
    static ref OF_THIS_EXECUTION: Broadcast = Broadcast::new();
}

#[cfg(loom)]
impl Home {
    pub(in super::super) const fn new() -> Self {
        Self
    }

    pub(in super::super) fn get(&self) -> &Broadcast {
        &OF_THIS_EXECUTION
    }
}
