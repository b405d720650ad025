//! What a CPU drops for a request.

use crate::request::Request;

/// The TLB of a CPU that has no PCIDs: it holds translations of the loaded tables only.
pub trait Tlb {
    /// The PCID that the kernel believes to be loaded.
    fn pcid(&self) -> u16;

    /// Whether a translation of this address is global. It must be the same for all translations the address ever
    /// had: the tables may say something else by now.
    fn is_global(&self, address: u64) -> bool;

    /// Drops what translates this address, global or not.
    fn drop_page(&mut self, address: u64);

    /// Drops all that is not global.
    fn drop_non_global(&mut self);

    /// Drops all.
    fn drop_everything(&mut self);
}

/// Drops what `request` names, and no more than that as far as the [`Tlb`] can.
///
/// Paging-structure caches go with everything, so *final translation only* changes nothing: that is always less.
pub fn perform(request: Request, tlb: &mut impl Tlb) {
    // Guests have ASIDs other than 0, and there are none.
    if request.asid().is_some_and(|asid| asid != 0) {
        return;
    }
    // Nothing of other PCIDs is left here.
    if request.pcid().is_some_and(|pcid| pcid != tlb.pcid()) {
        return;
    }
    match request.pages() {
        Some(pages) => {
            for page in pages {
                if request.global() || !tlb.is_global(page) {
                    tlb.drop_page(page);
                }
            }
        }
        None if request.global() => tlb.drop_everything(),
        None => tlb.drop_non_global(),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::{vec, vec::Vec};

    use super::*;
    use crate::request::{Limits, Operands};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Dropped {
        Page(u64),
        NonGlobal,
        Everything,
    }

    /// Has PCID 5 loaded; the upper half is global.
    #[derive(Default)]
    struct Log(Vec<Dropped>);

    impl Tlb for Log {
        fn pcid(&self) -> u16 {
            5
        }

        fn is_global(&self, address: u64) -> bool {
            address >> 63 == 1
        }

        fn drop_page(&mut self, address: u64) {
            self.0.push(Dropped::Page(address));
        }

        fn drop_non_global(&mut self) {
            self.0.push(Dropped::NonGlobal);
        }

        fn drop_everything(&mut self) {
            self.0.push(Dropped::Everything);
        }
    }

    fn dropped(rax: u64, ecx: u32, edx: u32) -> Vec<Dropped> {
        let limits = Limits {
            extra_pages: 7,
            pcide: true,
            address_bits: 48,
        };
        let mut log = Log::default();
        let request = Request::decode(Operands { rax, ecx, edx }, limits).unwrap();
        perform(request, &mut log);
        log.0
    }

    const ADDRESS: u64 = 1;
    const PCID: u64 = 2;
    const ASID: u64 = 4;
    const GLOBAL: u64 = 8;
    const FINAL: u64 = 16;
    const KERNEL: u64 = 0xffff_8000_0000_0000;

    #[test]
    fn pages_of_the_loaded_pcid_only() {
        let two = vec![Dropped::Page(0x1000), Dropped::Page(0x2000)];
        assert_eq!(dropped(0x1000 | ADDRESS | PCID | ASID, 1, 5 << 16), two);
        assert_eq!(
            dropped(0x1000 | ADDRESS | PCID | ASID | FINAL, 1, 5 << 16),
            two
        );
        assert_eq!(dropped(0x1000 | ADDRESS | PCID | ASID, 1, 6 << 16), []);
        assert_eq!(dropped(0x1000 | ADDRESS | ASID, 1, 6 << 16), two);
    }

    #[test]
    fn global_pages_only_if_asked_for() {
        assert_eq!(dropped(KERNEL | ADDRESS | ASID, 0, 0), []);
        assert_eq!(
            dropped(KERNEL | ADDRESS | ASID | GLOBAL, 0, 0),
            [Dropped::Page(KERNEL)]
        );
        assert_eq!(
            dropped(KERNEL | ADDRESS | ASID | GLOBAL | PCID, 0, 6 << 16),
            []
        );
    }

    #[test]
    fn whole_pcids() {
        assert_eq!(dropped(PCID | ASID, 0, 5 << 16), [Dropped::NonGlobal]);
        assert_eq!(dropped(PCID | ASID, 0, 6 << 16), []);
        assert_eq!(dropped(ASID, 0, 6 << 16), [Dropped::NonGlobal]);
        assert_eq!(dropped(ASID | GLOBAL, 0, 0), [Dropped::Everything]);
        assert_eq!(dropped(0, 0, 0), [Dropped::NonGlobal]);
    }

    #[test]
    fn guests_are_not_the_host() {
        assert_eq!(dropped(ASID | GLOBAL, 0, 1), []);
        assert_eq!(dropped(GLOBAL, 0, 1), [Dropped::Everything]);
        assert_eq!(dropped(0x1000 | ADDRESS | ASID, 0, 1), []);
    }
}
