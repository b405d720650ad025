//! The command line that the test runner passes to the kernel.

/// The decimal number after the word `run_addr`.
pub fn test_address(command_line: &str) -> Option<usize> {
    let mut words = command_line
        .split_ascii_whitespace()
        .skip_while(|word| *word != "run_addr");
    words.next()?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::test_address;

    #[test]
    fn finds_the_address_between_other_words() {
        assert_eq!(
            test_address("cpus=4 run_addr 1048576 quiet"),
            Some(0x10_0000)
        );
        assert_eq!(test_address("run_addr 7"), Some(7));
    }

    #[test]
    fn refuses_what_names_no_test() {
        for line in ["", "run_addr", "run_addr 0x10", "run_address 7", "7"] {
            assert_eq!(test_address(line), None, "{line:?}");
        }
    }
}
