use super::{Arch, ElfError, ElfTest, read};
use object::build::elf::{Builder, Section, SectionData};
use object::elf;
use std::time::Duration;

const TEXT: u64 = 0x10_0000;
const PATH: &str = "suite::outer::inner";

/// An executable with 16 bytes of code at `TEXT`, then `PATH`, and the given symbols in the section of the tests.
fn executable(machine: elf::Machine, symbols: &[(&str, &[u64])]) -> Vec<u8> {
    let mut builder = Builder::new(object::Endianness::Little, true);
    builder.header.e_type = elf::ET_EXEC;
    builder.header.e_machine = machine;
    builder.header.e_phoff = builder.file_header_size();

    let code = Part {
        name: ".text",
        flags: elf::SHF_ALLOC | elf::SHF_EXECINSTR,
        address: TEXT,
        offset: 0x1000,
    };
    code.describe(builder.sections.add(), vec![0x90; 16]);
    let strings = Part {
        name: ".rodata",
        flags: elf::SHF_ALLOC,
        address: TEXT + 16,
        offset: 0x1010,
    };
    strings.describe(builder.sections.add(), PATH.as_bytes().to_vec());

    let mut address = 0;
    let mut words = Vec::new();
    let tests = Part {
        name: ".embedded_test",
        flags: elf::SectionFlags(0),
        address,
        offset: 0,
    };
    let values = symbols
        .iter()
        .flat_map(|(_, values)| values.iter().copied());
    words.extend(values.flat_map(u64::to_le_bytes));
    let section = builder.sections.add();
    tests.describe(section, words);
    let section = section.id();
    for (name, values) in symbols {
        let symbol = builder.symbols.add();
        symbol.name = name.as_bytes().to_vec().into();
        symbol.section = Some(section);
        symbol.st_value = address;
        symbol.set_st_info(elf::STB_GLOBAL, elf::STT_OBJECT);
        address += 8 * values.len() as u64;
    }
    for (name, kind, data) in [
        (".symtab", elf::SHT_SYMTAB, SectionData::Symbol),
        (".strtab", elf::SHT_STRTAB, SectionData::String),
        (".shstrtab", elf::SHT_STRTAB, SectionData::SectionString),
    ] {
        let table = builder.sections.add();
        table.name = name.into();
        table.sh_type = kind;
        table.sh_addralign = 8;
        table.data = data;
    }
    let segment = builder.segments.add();
    segment.p_type = elf::PT_LOAD;
    segment.p_flags = elf::PF_R | elf::PF_X;
    (segment.p_offset, segment.p_vaddr, segment.p_paddr) = (0x1000, TEXT, TEXT);
    segment.p_filesz = 16 + PATH.len() as u64;
    segment.p_memsz = segment.p_filesz;
    segment.p_align = 0x1000;
    builder.set_section_sizes();
    let mut file = Vec::new();
    builder.write(&mut file).expect("the parts fit together");
    file
}

struct Part {
    name: &'static str,
    flags: elf::SectionFlags,
    address: u64,
    offset: u64,
}

impl Part {
    fn describe<'a>(self, section: &mut Section<'a>, data: Vec<u8>) {
        section.name = self.name.into();
        section.sh_type = elf::SHT_PROGBITS;
        section.sh_flags = self.flags;
        section.sh_addr = self.address;
        section.sh_offset = self.offset;
        section.sh_addralign = 1;
        section.data = SectionData::Data(data.into());
    }
}

const VERSION: (&str, &[u64]) = ("EMBEDDED_TEST_VERSION", &[1]);
const ENTRY: &[u64] = &[TEXT + 4, TEXT + 16, PATH.len() as u64];

#[test]
fn reads_what_the_macro_writes() {
    let plain = r#"{"disambiguator":1,"name":"b","ignored":false,"should_panic":false}"#;
    let full = r#"{"disambiguator":2,"name":"a","ignored":true,"should_panic":true,"timeout":7}"#;
    let file = executable(elf::EM_X86_64, &[VERSION, (plain, ENTRY), (full, ENTRY)]);
    let (arch, tests) = read(&file).expect("a well-formed file");
    assert_eq!(arch, Arch::X86_64);
    let expected = |name: &str, marked, timeout| ElfTest {
        name: name.into(),
        entry: TEXT + 4,
        ignored: marked,
        should_panic: marked,
        timeout,
    };
    let seconds = Some(Duration::from_secs(7));
    assert_eq!(
        tests,
        [
            expected("outer::inner::a", true, seconds),
            expected("outer::inner::b", false, None)
        ]
    );
}

#[test]
fn refuses_a_file_without_tests() {
    let file = executable(elf::EM_AARCH64, &[VERSION]);
    assert!(matches!(read(&file), Err(ElfError::NoTests)));
    let file = executable(elf::EM_AARCH64, &[]);
    assert!(matches!(read(&file), Err(ElfError::NoTests)));
    assert!(matches!(read(b"no ELF file"), Err(ElfError::Unreadable(_))));
}

#[test]
fn refuses_what_it_does_not_know() {
    let file = executable(elf::EM_X86_64, &[("EMBEDDED_TEST_VERSION", &[2])]);
    assert!(matches!(read(&file), Err(ElfError::Version(2))));
    let file = executable(elf::EM_RISCV, &[VERSION]);
    assert!(matches!(read(&file), Err(ElfError::Architecture(_))));
}

#[test]
fn refuses_malformed_tests() {
    let good = r#"{"name":"a","ignored":false,"should_panic":false}"#;
    for (symbol, words) in [
        (good, &[TEXT + 16, TEXT + 16, 4][..]),
        (good, &[TEXT, 0, 4]),
        (good, &[TEXT, TEXT + 16]),
        (r#"{"name":"a"}"#, ENTRY),
    ] {
        let file = executable(elf::EM_X86_64, &[VERSION, (symbol, words)]);
        assert!(
            matches!(read(&file), Err(ElfError::Malformed { .. })),
            "{symbol} {words:x?}"
        );
    }
}
