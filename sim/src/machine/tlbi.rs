//! What a TLBI names (Arm ARM, "TLBI VAE1IS", "TLBI RVAE1IS" and following), and whether it drops an entry.

use shootdown::aarch64::Tlbi;

use super::{
    part::Part,
    tlb::{Entry, Kind},
};

/// What a TLBI names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    asid: u16,
    /// The first address and the last.
    first: u64,
    last: u64,
    /// The level that the leaf entry is at, if the operand tells.
    leaf: Option<Kind>,
}

/// The code of a 4 KiB granule.
const GRANULE: u64 = 1;

const fn is_range(operation: Tlbi) -> bool {
    matches!(
        operation,
        Tlbi::Rvae1Is
            | Tlbi::Rvale1Is
            | Tlbi::Rvaae1Is
            | Tlbi::Rvaale1Is
            | Tlbi::Rvae1
            | Tlbi::Rvale1
    )
}

const fn is_last_level(operation: Tlbi) -> bool {
    matches!(
        operation,
        Tlbi::Vale1Is
            | Tlbi::Vaale1Is
            | Tlbi::Vale1
            | Tlbi::Rvale1Is
            | Tlbi::Rvaale1Is
            | Tlbi::Rvale1
    )
}

const fn is_any_asid(operation: Tlbi) -> bool {
    matches!(
        operation,
        Tlbi::Vaae1Is | Tlbi::Vaale1Is | Tlbi::Vaae1 | Tlbi::Rvaae1Is | Tlbi::Rvaale1Is
    )
}

/// The leaf that is at a level; an error if none is here.
fn leaf_at(level: u64) -> Result<Kind, String> {
    match level {
        3 => Ok(Kind::Page),
        2 => Ok(Kind::Large),
        other => Err(format!(
            "TLBI with a hint of level {other}, where no leaf is here"
        )),
    }
}

/// An address from bits that begin at `shift` and are `bits` wide; the highest bit tells the half.
const fn extend(field: u64, bits: u32, shift: u32) -> u64 {
    let unused = 64 - bits - shift;
    ((field << (shift + unused)) as i64 >> unused) as u64
}

/// Reads an operand as `part` does.
pub(crate) fn decode(operation: Tlbi, operand: u64, part: Part) -> Result<Named, String> {
    let asid = (operand >> 48) as u16;
    match operation {
        Tlbi::Aside1Is | Tlbi::Aside1 | Tlbi::Vmalle1Is | Tlbi::Vmalle1 => Ok(Named {
            asid,
            first: 0,
            last: u64::MAX,
            leaf: None,
        }),
        _ if is_range(operation) => {
            if !part.range {
                return Err(format!("{operation:?} on a CPU without FEAT_TLBIRANGE"));
            }
            if operand >> 46 & 3 != GRANULE {
                return Err(format!(
                    "{operation:?} {operand:#x} names another granule than TCR"
                ));
            }
            let (scale, num) = (operand >> 44 & 3, operand >> 39 & 0x1f);
            let leaf = match operand >> 37 & 3 {
                0 => None,
                level => Some(leaf_at(level)?),
            };
            let base = operand & ((1 << 37) - 1);
            let first = extend(base, 37, if part.lpa2 { 16 } else { 12 });
            let bytes = (num + 1) << (5 * scale + 1 + 12);
            Ok(Named {
                asid,
                first,
                last: first.wrapping_add(bytes - 1),
                leaf,
            })
        }
        _ => {
            let hint = operand >> 44 & 0xf;
            if hint != 0 && !part.level_hint {
                return Err(format!(
                    "{operation:?} with a level hint on a CPU without FEAT_TTL"
                ));
            }
            let leaf = match (hint >> 2, hint & 3) {
                (0, _) => None,
                (GRANULE, level) => Some(leaf_at(level)?),
                _ => {
                    return Err(format!(
                        "{operation:?} {operand:#x} hints at another granule than TCR"
                    ));
                }
            };
            let first = extend(operand & ((1 << 44) - 1), 44, 12);
            Ok(Named {
                asid,
                first,
                last: first | 0xfff,
                leaf,
            })
        }
    }
}

/// Whether a TLBI drops `entry`. What it names in part goes as a whole; with a level hint, leaves of other levels stay.
pub(crate) fn drops(operation: Tlbi, named: &Named, entry: &Entry) -> bool {
    let any_asid = is_any_asid(operation);
    match operation {
        Tlbi::Vmalle1Is | Tlbi::Vmalle1 => true,
        Tlbi::Aside1Is | Tlbi::Aside1 => !entry.global && entry.tag == named.asid,
        _ if entry.last() < named.first || entry.base > named.last => false,
        _ if entry.kind.is_leaf() => {
            (any_asid || entry.serves(named.asid))
                && named.leaf.is_none_or(|leaf| leaf == entry.kind)
        }
        _ => !is_last_level(operation) && (any_asid || !entry.global && entry.tag == named.asid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Part = Part {
        range: true,
        level_hint: true,
        lpa2: false,
        repeat: false,
        asid_in_ttbr1: false,
        common: false,
    };

    #[test]
    fn ranges() {
        // ASID 7, 4 KiB, SCALE 1, NUM 2, level 3: 3 * 64 pages.
        let operand = 7 << 48 | 1 << 46 | 1 << 44 | 2 << 39 | 3 << 37 | 0x4_0000;
        let named = decode(Tlbi::Rvale1Is, operand, ALL).unwrap();
        let expected = Named {
            asid: 7,
            first: 0x4000_0000,
            last: 0x400b_ffff,
            leaf: Some(Kind::Page),
        };
        assert_eq!(named, expected);
        let lpa2 = Part { lpa2: true, ..ALL };
        assert_eq!(
            decode(Tlbi::Rvale1Is, operand, lpa2).unwrap().first,
            0x4_0000_0000
        );
        assert!(
            decode(Tlbi::Rvale1Is, operand, Part::default())
                .unwrap_err()
                .contains("FEAT_TLBIRANGE")
        );
        assert!(
            decode(Tlbi::Rvae1, operand ^ 3 << 46, ALL)
                .unwrap_err()
                .contains("granule")
        );
    }

    #[test]
    fn both_halves() {
        let high = 0xffff_8000_0000_1000_u64;
        let operand = high >> 12 & ((1 << 44) - 1);
        let named = decode(Tlbi::Vaae1Is, operand, ALL).unwrap();
        assert_eq!((named.first, named.last), (high, high + 0xfff));
        let operand = 1 << 46 | high >> 12 & ((1 << 37) - 1);
        let named = decode(Tlbi::Rvaae1Is, operand, ALL).unwrap();
        assert_eq!((named.first, named.last), (high, high + 0x1fff));
    }

    #[test]
    fn hints_need_the_feature() {
        let operand = 0b0110 << 44 | 0x200;
        assert_eq!(
            decode(Tlbi::Vae1, operand, ALL).unwrap().leaf,
            Some(Kind::Large)
        );
        assert!(
            decode(Tlbi::Vae1, operand, Part::default())
                .unwrap_err()
                .contains("FEAT_TTL")
        );
        assert!(
            decode(Tlbi::Vae1, 0b1010 << 44, ALL)
                .unwrap_err()
                .contains("granule")
        );
    }
}
