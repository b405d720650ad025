//! The kernel's command line.

use core::fmt;

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Use this many CPUs (`cpus=N`); all there are where absent.
    pub cpus: Option<usize>,
    /// Scales the length of the run (`rounds=N`).
    pub rounds: u32,
    /// Seed of all random choices (`seed=N`).
    pub seed: u64,
    /// The counter-proof (`break-flush`): skip the invalidation instructions and show that the reads notice.
    pub break_flush: bool,
    /// Skip this instruction alone (`break-flush=invlpgb`, `break-flush=tlbsync`); `break_flush` is set as well.
    pub skipped: Option<Skipped>,
    /// Measure what a flush costs instead (`cost`), where a kernel can.
    pub cost: bool,
}

/// An instruction that a counter-proof skips while all others are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// INVLPGB, which has all CPUs drop translations.
    Invlpgb,
    /// TLBSYNC, which waits until they have.
    Tlbsync,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cpus: None,
            rounds: 10,
            seed: 1,
            break_flush: false,
            skipped: None,
            cost: false,
        }
    }
}

impl Options {
    /// Reads words separated by white space. Words without a meaning here are left to others if they hold a `/`, as
    /// the path a boot loader puts first does.
    ///
    /// # Errors
    /// [`BadOption`] for an unknown word or a value that is no number.
    pub fn parse(line: &str) -> Result<Self, BadOption<'_>> {
        Self::parse_but_for(line, "")
    }

    /// As [`parse`](Self::parse), but `own` is a word that the kernel knows by itself.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_but_for<'a>(line: &'a str, own: &str) -> Result<Self, BadOption<'a>> {
        let mut options = Self::default();
        for word in line.split_ascii_whitespace().filter(|word| *word != own) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<u64>().map_err(|_| BadOption(word));
            match key {
                "break-flush" => {
                    options.break_flush = true;
                    options.skipped = match value {
                        "" if word == key => None,
                        "invlpgb" => Some(Skipped::Invlpgb),
                        "tlbsync" => Some(Skipped::Tlbsync),
                        _ => return Err(BadOption(word)),
                    };
                }
                "cost" if value.is_empty() => options.cost = true,
                "cpus" => options.cpus = Some(number()?.try_into().map_err(|_| BadOption(word))?),
                "rounds" => options.rounds = number()?.try_into().map_err(|_| BadOption(word))?,
                "seed" => options.seed = number()?,
                _ if word.contains('/') => {}
                _ => return Err(BadOption(word)),
            }
        }
        Ok(options)
    }
}

/// A word of the command line that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadOption<'a>(pub &'a str);

impl fmt::Display for BadOption<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown option {:?}: use cpus=N, rounds=N, seed=N, break-flush, break-flush=INSTRUCTION, cost",
            self.0
        )
    }
}

impl core::error::Error for BadOption<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_all_options() {
        let options = Options::parse("  cpus=3 rounds=7 seed=99 break-flush ").unwrap();
        assert_eq!(
            options,
            Options {
                cpus: Some(3),
                rounds: 7,
                seed: 99,
                break_flush: true,
                skipped: None,
                cost: false
            }
        );
        assert!(Options::parse("cost").unwrap().cost);
        assert_eq!(Options::parse("/boot/kernel").unwrap(), Options::default());
    }

    #[test]
    fn one_instruction_can_be_skipped() {
        for (word, skipped) in [
            ("break-flush=invlpgb", Skipped::Invlpgb),
            ("break-flush=tlbsync", Skipped::Tlbsync),
        ] {
            let options = Options::parse(word).unwrap();
            assert_eq!(
                (options.break_flush, options.skipped),
                (true, Some(skipped))
            );
        }
    }

    #[test]
    fn names_what_it_does_not_know() {
        for bad in [
            "cpu=1",
            "cpus=x",
            "cpus",
            "break-flush=1",
            "break-flush=",
            "seed=-1",
        ] {
            assert_eq!(Options::parse(bad), Err(BadOption(bad)));
        }
        assert_eq!(Options::parse("own"), Err(BadOption("own")));
        let default = Ok(Options::default());
        assert_eq!(Options::parse_but_for("own", "own"), default);
    }
}
