//! A flush from its begin to its end.

use super::{FlushId, Promise};
use crate::machine::{Machine, arm::Issued, stores::Buffered};

impl Machine {
    /// A flush begins on the running CPU.
    pub(crate) fn begin_flush(&mut self, promise: Promise) -> FlushId {
        self.tally.flushes += 1;
        self.note(|_| {
            let Promise {
                scope,
                pages,
                hard,
                tables,
            } = promise;
            format!(
                "flush of scope {scope}, pages {pages:#x}, speculation {hard}, tables {tables} >>>"
            )
        });
        let sequence = self.store_sequence;
        let broadcasts = self.broadcasts_for_device(promise.scope);
        self.oracle
            .begin(self.current, promise, sequence, broadcasts)
    }

    /// The running CPU relies on a change being flushed that the flusher says is.
    pub(crate) fn begin_claim(&mut self, promise: Promise) -> FlushId {
        self.note(|_| {
            format!(
                "relies on scope {}, pages {:#x} being flushed",
                promise.scope, promise.pages
            )
        });
        self.oracle.begin(self.current, promise, 0, None)
    }

    /// A flush has completed, as its initiator believes.
    pub(crate) fn end_flush(&mut self, flush: FlushId) -> Promise {
        let Some(open) = self.oracle.open[flush.0].take() else {
            unreachable!("a flush ends once");
        };
        let Promise { scope, pages, .. } = open.promise;
        self.note(|_| format!("flush of scope {scope}, pages {pages:#x} <<< complete"));
        let own = &self.cpus[open.cpu];
        let late = own.buffer.iter().filter_map(|store| match store {
            Buffered::Entry(store) => Some(store),
            Buffered::Word { .. } => None,
        });
        let unseen = late
            .chain(own.issued.iter().filter_map(Issued::as_store))
            .find(|store| {
                store.sequence <= open.sequence
                    && store.change.scope == scope
                    && store.change.pages & pages != 0
            });
        if let Some(store) = unseen.copied() {
            let number = own.number;
            self.fail(format!(
                "a flush of cpu{number} completed, but table walkers do not see its store to table {}[{}] yet",
                store.table, store.index
            ));
        }
        self.judge_broadcast(open.cpu, scope, open.broadcasts);
        self.oracle.close(&open);
        open.promise
    }
}
