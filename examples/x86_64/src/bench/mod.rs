//! What a flush and a switch cost, in instructions, beside what they would cost without any protocol.

mod clock;
pub mod crew;
mod floor;
pub mod measure;

use crate::paging::USER_WINDOW;

/// Where the pages lie that are flushed. QEMU's TLB is indexed by the lower bits of the page number: nothing that this
/// kernel touches meanwhile may evict them.
const ADDRESS: u64 = USER_WINDOW + (1 << 30) + (0x70 << 12);
