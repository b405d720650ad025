//! What `boot.sh` prints about each guest.

use qemu_test_runner::process::last_lines;
use std::collections::BTreeMap;

/// What is known of a boot of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guest {
    /// The boot's name.
    pub name: String,
    /// QEMU's exit status.
    pub status: Option<i32>,
    /// What the guest printed.
    pub output: String,
    /// KVM's tracepoints: how often each was hit with the same values.
    pub traces: Vec<(u64, String)>,
    /// Events that the trace lost.
    pub lost: Option<u64>,
    /// What went wrong outside the guest.
    pub errors: Vec<String>,
}

/// Numbers by name, from a line `TITLE name=number name=number`.
#[derive(Debug)]
pub struct Numbers(BTreeMap<String, u64>);

impl Numbers {
    /// The number of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, name: &str) -> Result<u64, String> {
        let number = self.0.get(name).copied();
        number.ok_or(format!("the guest did not say how many {name}"))
    }
}

/// The guests, in the order of their boots. One whose boot did not come to its end has no `lost`.
pub fn read(output: &str) -> Vec<Guest> {
    let mut guests: Vec<Guest> = Vec::new();
    for line in output.lines().map(str::trim_end) {
        let Some((word, rest)) = line.strip_prefix('#').map(split) else {
            if let Some(guest) = guests.last_mut() {
                guest.output += line;
                guest.output.push('\n');
            }
            continue;
        };
        if word == "begin" {
            guests.push(Guest {
                name: rest.into(),
                ..Guest::default()
            });
        }
        let Some(guest) = guests.last_mut() else {
            continue;
        };
        match word {
            "status" => guest.status = rest.parse().ok(),
            "lost" => guest.lost = rest.parse().ok(),
            "error" => guest.errors.push(rest.into()),
            "trace" => match split(rest) {
                (count, event) if count.parse::<u64>().is_ok() => {
                    guest
                        .traces
                        .push((count.parse().unwrap_or(0), event.into()));
                }
                _ => guest.errors.push(format!("malformed trace: {rest}")),
            },
            _ => {}
        }
    }
    guests
}

fn split(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap_or((line, ""))
}

impl Guest {
    /// The last lines of what it printed, and what went wrong outside of it.
    pub fn last_lines(&self, count: usize) -> String {
        last_lines(&self.output, count) + &self.errors_only()
    }

    /// What went wrong outside of the guest, indented.
    pub fn errors_only(&self) -> String {
        last_lines(&self.errors.join("\n"), usize::MAX)
    }

    /// How often tracepoints were hit whose text the predicate likes.
    pub fn traced(&self, matches: impl Fn(&str) -> bool) -> u64 {
        let matching = self.traces.iter().filter(|(_, event)| matches(event));
        matching.map(|(count, _)| count).sum()
    }

    /// The numbers of the guest's only line that begins with `title`.
    ///
    /// # Errors
    /// If there is not exactly one, or it is malformed.
    pub fn numbers(&self, title: &str) -> Result<Numbers, String> {
        let mut lines = self
            .output
            .lines()
            .filter_map(|line| line.strip_prefix(title)?.strip_prefix(' '));
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(format!("the guest did not print one line `{title} ...`"));
        };
        let numbers: Result<_, _> = line
            .split_whitespace()
            .map(|word| {
                let pair = word.split_once('=');
                pair.and_then(|(name, number)| Some((name.to_string(), number.parse().ok()?)))
                    .ok_or(format!("malformed line of the guest: {title} {line}"))
            })
            .collect();
        numbers.map(Numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    const OUTPUT: &str = "\
SeaBIOS\r
#ready 4.29\r
#begin a\r
#status 33\r
hello\r
kvm: marked=53 outstanding=0\r
#trace 50 kvm_pv_tlb_flush: vcpu 0 need_flush_tlb true\r
#trace 3 kvm_pv_tlb_flush: vcpu 1 need_flush_tlb true\r
#trace 7 kvm_hv_hypercall: code 0x3\r
#error a warning\r
#lost 0\r
#end a\r
#begin b\r
#status 137\r
";

    #[test]
    fn each_guest_has_what_was_said_of_it() {
        let guests = read(OUTPUT);
        assert_eq!(guests.len(), 2);
        let (a, b) = (&guests[0], &guests[1]);
        assert_eq!(
            (a.name.as_str(), a.status, a.lost),
            ("a", Some(33), Some(0))
        );
        assert_eq!(a.traced(|event| event.ends_with("need_flush_tlb true")), 53);
        let numbers = a.numbers("kvm:").expect("a line");
        assert_eq!(numbers.get("marked"), Ok(53));
        assert!(numbers.get("made").is_err());
        assert_eq!(a.errors, ["a warning"]);
        assert_eq!((b.status, b.lost), (Some(137), None));
    }

    #[test]
    fn numbers_stand_on_one_well_formed_line() {
        let mut guest = read(OUTPUT).swap_remove(0);
        assert!(guest.numbers("hyperv:").is_err());
        guest.output += "kvm: marked=1\n";
        assert!(
            guest
                .numbers("kvm:")
                .is_err_and(|reason| reason.contains("one line"))
        );
        guest.output = "kvm: marked\n".into();
        assert!(
            guest
                .numbers("kvm:")
                .is_err_and(|reason| reason.contains("malformed"))
        );
    }
}
