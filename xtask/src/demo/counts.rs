//! What a kernel counted: one line of JSON in its output.

use crate::kernels::Kernel;
use serde::Deserialize;

/// What a kernel counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The kernel's own line.
    pub line: String,
    /// The numbers on it.
    pub numbers: Numbers,
}

/// The numbers that every kernel reports; the table's legend explains each.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    pub arch: String,
    pub backend: String,
    pub cpus: u64,
    pub flushes: u64,
    pub remote: u64,
    pub pages: u64,
    pub reads: u64,
    pub migrations: u64,
    pub stale: u64,
    pub ipis_sent: u64,
    pub ipis_elided: u64,
    pub by_host: u64,
    pub broadcasts: u64,
    pub local: u64,
    pub full: u64,
    #[serde(default)]
    pub phases: Vec<Phase>,
}

/// What a kernel counted while some CPUs ran one space.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    pub name: String,
    pub cpus: u64,
    pub tag: u64,
    pub flushes: u64,
    pub ipis_sent: u64,
    pub broadcasts: u64,
    pub reads: u64,
    pub stale: u64,
    pub stale_elsewhere: u64,
}

impl Numbers {
    /// A number that must not be 0 if the run is to show anything, but is.
    fn idle(&self) -> Option<&'static str> {
        let always = [("flushes", self.flushes), ("reads", self.reads)];
        let among_cpus = [("remote", self.remote), ("migrations", self.migrations)];
        let among_cpus = among_cpus.into_iter().filter(|_| self.cpus > 1);
        always
            .into_iter()
            .chain(among_cpus)
            .find(|(_, number)| *number == 0)
            .map(|(name, _)| name)
    }

    /// Why a run of a guest of a hypervisor shows nothing, if so: it must have left CPUs to the hypervisor, and
    /// interrupted others.
    pub fn idle_guest(&self) -> Option<String> {
        let needed = [
            ("ipis_sent", self.ipis_sent),
            ("ipis_elided", self.ipis_elided),
            ("by_host", self.by_host),
        ];
        let idle = needed.into_iter().find(|(_, number)| *number == 0);
        idle.filter(|_| self.cpus > 1)
            .map(|(name, _)| format!("the run shows nothing: {name} = 0"))
    }
}

/// Finds the line in a kernel's output; the error says what is wrong with it.
pub fn find(kernel: &Kernel, cpus: u32, output: &str) -> Result<Counts, String> {
    let mut lines = output
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with('{'));
    let line = lines.next().ok_or("the kernel printed no counts")?;
    if lines.next().is_some() {
        return Err("the kernel printed its counts twice".into());
    }
    let numbers: Numbers =
        serde_json::from_str(line).map_err(|error| format!("malformed counts: {error}: {line}"))?;
    if numbers.arch != kernel.arch.to_string() || numbers.backend != kernel.backend {
        let Numbers { arch, backend, .. } = &numbers;
        return Err(format!(
            "{} {} calls itself {arch} {backend}",
            kernel.arch, kernel.backend
        ));
    }
    if numbers.cpus != u64::from(cpus) {
        return Err(format!("{} CPUs took part instead of {cpus}", numbers.cpus));
    }
    if let Some(idle) = numbers.idle() {
        return Err(format!("the run shows nothing: {idle} = 0"));
    }
    Ok(Counts {
        line: line.to_string(),
        numbers,
    })
}

#[cfg(test)]
pub mod tests {
    use super::{Counts, find};
    use crate::kernels::KERNELS;

    /// The counts of the first kernel, as it would print them.
    pub fn counts(stale: u64) -> Counts {
        find(&KERNELS[0], 4, &line(stale)).expect("a well-formed line")
    }

    fn line(stale: u64) -> String {
        format!(
            r#"{{"arch":"x86_64","backend":"ipi","cpus":4,"flushes":10,"remote":9,"pages":8,"reads":7,"migrations":6,"stale":{stale},"ipis_sent":5,"ipis_elided":4,"by_host":1,"broadcasts":0,"local":3,"full":2}}"#
        )
    }

    #[test]
    fn finds_the_one_line_between_others() {
        let output = format!("booting\r\n  a table\n{}\r\nbye", line(3));
        let counts = find(&KERNELS[0], 4, &output).expect("there is one");
        assert_eq!(counts.line, line(3));
        assert_eq!((counts.numbers.flushes, counts.numbers.stale), (10, 3));
    }

    #[test]
    fn refuses_missing_double_and_malformed_lines() {
        assert!(find(&KERNELS[0], 4, "a table").is_err());
        assert!(find(&KERNELS[0], 4, &format!("{0}\n{0}", line(0))).is_err());
        assert!(find(&KERNELS[0], 4, &line(0).replace("\"full\"", "\"fool\"")).is_err());
        assert!(find(&KERNELS[0], 4, &line(0)[..40]).is_err());
    }

    #[test]
    fn a_kernel_speaks_for_itself_only() {
        assert!(find(&KERNELS[1], 4, &line(0)).is_err());
    }

    #[test]
    fn a_guest_must_leave_some_to_its_host_and_interrupt_others() {
        let good = counts(0).numbers;
        assert_eq!(good.idle_guest(), None);
        let mut idle = good.clone();
        idle.by_host = 0;
        assert!(idle.idle_guest().is_some_and(|it| it.contains("by_host")));
        idle.cpus = 1;
        assert_eq!(idle.idle_guest(), None);
        let mut idle = good;
        idle.ipis_sent = 0;
        assert!(idle.idle_guest().is_some_and(|it| it.contains("ipis_sent")));
    }

    #[test]
    fn a_run_must_show_something_on_all_its_cpus() {
        assert!(
            find(&KERNELS[0], 3, &line(0))
                .is_err_and(|reason| reason.contains("4 CPUs took part instead of 3"))
        );
        for (name, number) in [
            ("flushes", 10),
            ("reads", 7),
            ("remote", 9),
            ("migrations", 6),
        ] {
            let idle = line(0).replace(&format!("\"{name}\":{number}"), &format!("\"{name}\":0"));
            assert!(
                find(&KERNELS[0], 4, &idle)
                    .is_err_and(|reason| reason.ends_with(&format!("{name} = 0")))
            );
        }
        let alone = line(0)
            .replace("\"cpus\":4", "\"cpus\":1")
            .replace("\"remote\":9", "\"remote\":0");
        assert!(find(&KERNELS[0], 1, &alone).is_ok());
    }
}
