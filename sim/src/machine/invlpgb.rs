//! INVLPGB and TLBSYNC (AMD APM volume 3): an invalidation that is sent to all CPUs, and the wait for it.
//!
//! INVLPGB is weakly ordered. It takes effect on each CPU at any step of its own, even before earlier stores of the CPU
//! that issued it are visible, and at the latest when that same CPU executes TLBSYNC. It drops what its operands name and
//! nothing else.

use super::{Machine, Mode, arm::Issued, tlb::Entry, x86};

/// The largest number of extra pages: small, so that ranges must be split.
pub(crate) const MAX_EXTRA: u16 = 7;

/// The address is valid.
const ADDRESS: u64 = 1 << 0;
/// The PCID is valid.
const PCID: u64 = 1 << 1;
/// The ASID is valid.
const ASID: u64 = 1 << 2;
/// Global translations go too.
const GLOBAL: u64 = 1 << 3;
/// Cached tables stay.
const FINAL_ONLY: u64 = 1 << 4;
/// Translations of nested guests go too.
const NESTED: u64 = 1 << 5;
const KNOWN: u64 = ADDRESS | PCID | ASID | GLOBAL | FINAL_ONLY | NESTED;

/// What an INVLPGB names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The first address, the step and the number of addresses; all addresses if there is none.
    addresses: Option<(u64, u64, u64)>,
    /// All PCIDs if there is none.
    pcid: Option<u16>,
    global: bool,
    final_only: bool,
}

/// Whether an address is canonical where addresses have 48 bits.
const fn is_canonical(address: u64) -> bool {
    (address << 16) as i64 >> 16 == address as i64
}

/// Reads the registers as a host's CPU does.
pub(crate) fn decode(rax: u64, ecx: u32, edx: u32, pcids: bool) -> Result<Named, String> {
    let raw = format!("INVLPGB rax {rax:#x} ecx {ecx:#x} edx {edx:#x}");
    let flags = rax & 0xfff;
    let (extra, pcid, asid) = (ecx as u16, (edx >> 16) as u16, edx as u16);
    if flags & !KNOWN != 0 || ecx >> 16 & 0x7fff != 0 || pcid > 0xfff {
        return Err(format!("#GP: {raw} has reserved bits"));
    }
    if extra > MAX_EXTRA {
        return Err(format!("#GP: {raw} has more than {MAX_EXTRA} extra pages"));
    }
    if pcid != 0 && !pcids {
        return Err(format!("#GP: {raw} has a PCID while CR4.PCIDE is clear"));
    }
    // Without a valid ASID it is for the TLB entries of all of them.
    if flags & ASID == 0 || asid != 0 {
        return Err(format!("guest TLBs are flushed by {raw}"));
    }
    let step = if ecx >> 31 != 0 { 1 << 21 } else { 1 << 12 };
    let first = rax & !0xfff;
    let last = first.wrapping_add((u64::from(extra) + 1) * step - 1);
    let is_whole = is_canonical(first) && is_canonical(last) && first >> 63 == last >> 63;
    if flags & ADDRESS != 0 && (last < first || !is_whole) {
        return Err(format!(
            "#GP: {raw} reaches addresses that are not canonical"
        ));
    }
    Ok(Named {
        addresses: (flags & ADDRESS != 0).then_some((first, step, u64::from(extra) + 1)),
        pcid: (flags & PCID != 0).then_some(pcid),
        global: flags & GLOBAL != 0,
        final_only: flags & FINAL_ONLY != 0,
    })
}

/// Whether an entry is among what is named: of the tables that a walk goes through, those that lead to the address.
pub(crate) fn drops(named: &Named, entry: &Entry) -> bool {
    let is_of_pcid = named.pcid.is_none_or(|pcid| pcid == entry.tag);
    let is_kept = entry.global && !named.global || !entry.kind.is_leaf() && named.final_only;
    let is_named = named.addresses.is_none_or(|(first, step, count)| {
        (0..count).any(|number| entry.covers(first + number * step))
    });
    is_of_pcid && !is_kept && is_named
}

impl Machine {
    /// The running CPU executes INVLPGB.
    pub(crate) fn invlpgb(&mut self, rax: u64, ecx: u32, edx: u32) {
        let cpu = self.current;
        self.note(|_| format!("invlpgb rax {rax:#x} ecx {ecx:#x} edx {edx:#x}"));
        if !matches!(self.mode, Mode::X86 { invlpgb: true, .. }) {
            return self.fail(String::from("#UD: INVLPGB on a CPU without it"));
        }
        let pcids = self.cpus[cpu].cr4 & x86::CR4_PCIDE != 0;
        match decode(rax, ecx, edx, pcids) {
            Ok(named) => {
                self.tally.broadcasts += 1;
                let targets = 0..self.cpus.len();
                let issued = targets.map(|target| Issued::Invlpgb { named, target });
                let it = &mut self.cpus[cpu];
                it.issued.extend(issued);
                if let Some(pcid) = named.pcid {
                    it.named_several |= *it.named_pcid.get_or_insert(pcid) != pcid;
                }
            }
            Err(message) => self.fail(message),
        }
    }

    /// An INVLPGB of `cpu` takes effect on `target`.
    pub(crate) fn complete_invlpgb(&mut self, cpu: usize, target: usize, named: &Named) {
        if target != cpu && !self.cpus[target].listens {
            return;
        }
        self.note_for(target, |m| {
            format!("  invlpgb of cpu{} is done: {named:x?}", m.cpus[cpu].number)
        });
        self.cpus[target]
            .tlb
            .drop_where(|entry| drops(named, entry));
    }

    /// The running CPU executes TLBSYNC: it waits for its own INVLPGBs, and for nothing else.
    pub(crate) fn tlbsync(&mut self) {
        let cpu = self.current;
        self.note(|_| String::from("tlbsync"));
        if !matches!(self.mode, Mode::X86 { invlpgb: true, .. }) {
            return self.fail(String::from("#UD: TLBSYNC on a CPU without it"));
        }
        let it = &mut self.cpus[cpu];
        it.named_pcid = None;
        self.tally.shared_syncs += u64::from(core::mem::take(&mut it.named_several));
        for issued in core::mem::take(&mut it.issued) {
            self.complete(cpu, issued);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tlb::Kind;

    const HOLE: u64 = 1 << 47;

    fn refused(rax: u64, ecx: u32, edx: u32, pcids: bool) -> String {
        decode(rax, ecx, edx, pcids).unwrap_err()
    }

    #[test]
    fn what_the_manual_rejects() {
        assert!(refused(ASID, 8, 0, true).contains("extra pages"));
        assert!(refused(ASID | PCID, 0, 7 << 16, false).contains("CR4.PCIDE"));
        assert!(refused(ASID, 0, 7 << 16, false).contains("CR4.PCIDE"));
        assert!(refused(PCID, 0, 7 << 16, true).contains("guest TLBs"));
        assert!(refused(ASID, 0, 1, true).contains("guest TLBs"));
        assert!(refused(ASID | 1 << 6, 0, 0, true).contains("reserved"));
        assert!(refused(ASID, 1 << 16, 0, true).contains("reserved"));
        for (first, extra) in [(HOLE - 0x1000, 1), (HOLE, 0), (0xffff_ffff_ffff_f000, 1)] {
            assert!(refused(ASID | ADDRESS | first, extra, 0, true).contains("canonical"));
        }
        assert!(decode(ASID | ADDRESS | (HOLE - 0x1000), 0, 0, true).is_ok());
        assert!(decode(ASID | ADDRESS | 0xffff_ffff_ffff_f000, 0, 0, true).is_ok());
    }

    const fn entry(kind: Kind, tag: u16, global: bool, base: u64) -> Entry {
        Entry {
            tag,
            global,
            common: false,
            kind,
            base,
            frame: 0,
            generation: 0,
            writable: false,
            times: [0; 3],
            scope: 1,
        }
    }

    #[test]
    fn what_is_named_goes_and_nothing_else() {
        let page = entry(Kind::Page, 7, false, 0x3000);
        let (large, table) = (
            entry(Kind::Large, 7, false, 0),
            entry(Kind::Region, 7, false, 0),
        );
        let global = entry(Kind::Page, 7, true, 0x3000);
        let gone = |rax: u64, ecx: u32, edx: u32| {
            let named = decode(rax | ASID, ecx, edx, true).unwrap();
            [page, large, table, global].map(|entry| drops(&named, &entry))
        };
        let (all, none) = ([true, true, true, false], [false; 4]);
        assert_eq!(gone(0, 0, 0), all);
        assert_eq!(gone(GLOBAL, 0, 0), [true; 4]);
        assert_eq!(gone(PCID, 0, 7 << 16), all);
        assert_eq!(gone(PCID, 0, 8 << 16), none);
        assert_eq!(gone(FINAL_ONLY, 0, 0), [true, true, false, false]);
        assert_eq!(gone(ADDRESS | 0x3000, 0, 0), all);
        assert_eq!(gone(ADDRESS, 2, 0), [false, true, true, false]);
        assert_eq!(gone(ADDRESS, 3, 0), all);
        assert_eq!(gone(ADDRESS | 0x20_0000, 0, 0), none);
        // Steps of 2 MiB name one address each.
        assert_eq!(gone(ADDRESS, 1 | 1 << 31, 0), [false, true, true, false]);
    }
}
