//! The flushers that scenarios run on, and how each is set up for a run.

use core::sync::atomic::AtomicU64;

use shootdown::{
    Granule, IpiPlatform, Paging, Platform, TlbFlusher,
    aarch64::{self, policy::Policy},
    coverage::Branch,
    x86_64::{self, Courier, Features},
};

use crate::{
    machine::{Mode, arm::Arm, layout, part::Part, x86::X86},
    rng::Rng,
};

/// A backend of the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// x86_64: the own TLB first, then interrupts.
    Ipi,
    /// x86_64: interrupts, and the own TLB meanwhile.
    ConcurrentIpi,
    /// arm64: always broadcast.
    Broadcast,
    /// arm64: local while no other CPU has ever loaded the space.
    ActiveCpu,
    /// arm64: local while no other CPU runs the space.
    Local,
}

impl BackendKind {
    /// All backends.
    pub const ALL: [Self; 5] = [
        Self::Ipi,
        Self::ConcurrentIpi,
        Self::Broadcast,
        Self::ActiveCpu,
        Self::Local,
    ];

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipi => "ipi",
            Self::ConcurrentIpi => "concurrent_ipi",
            Self::Broadcast => "broadcast",
            Self::ActiveCpu => "active_cpu",
            Self::Local => "local",
        }
    }

    /// The backend of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it is one of arm64's.
    pub const fn is_arm(self) -> bool {
        matches!(self, Self::Broadcast | Self::ActiveCpu | Self::Local)
    }

    /// Whether a run of this backend can take `branch`.
    pub fn can_take(self, branch: Branch) -> bool {
        use Branch as B;
        let arm_only = match branch {
            B::TlbiLeaf
            | B::TlbiTable
            | B::TlbiAsid
            | B::TlbiKernel
            | B::TlbiAll
            | B::TlbiRange => true,
            B::AsidFast | B::AsidSlow | B::AsidPendingFlush | B::AsidReserved | B::AsidRollover => {
                true
            }
            B::TlbiLocal => return matches!(self, Self::ActiveCpu | Self::Local),
            B::TlbiElided | B::StaleFlushed => return self == Self::Local,
            _ => false,
        };
        let both = matches!(
            branch,
            B::Online | B::Offline | B::SwitchSame | B::RetireRefused | B::GatherOverlapped
        );
        if self.is_arm() {
            arm_only || both
        } else {
            !arm_only
        }
    }
}

/// How a run is set up; all of it follows from the seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub mode: Mode,
    /// Kernel mappings are global, and the flusher is told so.
    pub kernel_global: bool,
    /// x86: pages up to which ranges are flushed one by one.
    pub ceiling: u64,
    /// x86: CPUs found away before they are trimmed.
    pub trim_after: u64,
    /// arm64: what the CPUs are.
    pub part: Part,
    /// arm64: ASIDs beyond one for each CPU and the reserved one, so that they run out.
    pub spare_asids: u64,
    /// arm64: ASID generations until there are no more.
    pub generations: Option<u64>,
    /// arm64: each space is mostly used by one CPU, its home.
    pub homes: bool,
    pub spaces: u8,
    /// Pages on which most operations are.
    pub hot: Option<[u8; 3]>,
    /// CPU numbers straddle a word of the masks.
    pub wide: bool,
}

impl Setup {
    pub(crate) fn draw(backend: BackendKind, rng: &mut Rng) -> Self {
        let pcid = rng.chance(2, 3);
        let invpcid = rng.chance(2, 3);
        let mut setup = Self {
            mode: if backend.is_arm() {
                Mode::Arm
            } else {
                Mode::X86 { pcid, invpcid }
            },
            kernel_global: backend.is_arm() || rng.chance(1, 2),
            ceiling: rng.pick(&[1, 4, 33, 33, 512]),
            trim_after: rng.pick(&[0, 0, 1, 3, 256]),
            part: Part::default(),
            spare_asids: rng.pick(&[1, 40]),
            generations: None,
            homes: false,
            spaces: rng.pick(&[2, 2, 3, 4, 7]),
            hot: rng.chance(1, 2).then(|| {
                let first = rng.below(u32::from(layout::USER_PAGES)) as u8;
                let second = (first + rng.pick(&[1, 1, 2, 4])) % layout::USER_PAGES;
                let kernel = layout::USER_PAGES
                    + rng.below(u32::from(layout::PAGES - layout::USER_PAGES)) as u8;
                [first, second, kernel]
            }),
            wide: rng.chance(1, 8),
        };
        if backend.is_arm() {
            setup.draw_part(rng);
        }
        setup
    }

    /// What few runs have, from a source of its own, so that the other runs stay as they are.
    pub(crate) fn draw_rare(&mut self, rng: &mut Rng) {
        if self.mode == Mode::Arm {
            self.part.common = rng.chance(1, 12);
            self.generations = rng.chance(1, 16).then(|| rng.pick(&[0, 1, 2, 3]));
            if self.generations.is_some() {
                // They are used up soon, while some spaces have never been loaded.
                self.spare_asids = 1;
                self.spaces = 18;
            }
        }
    }

    fn draw_part(&mut self, rng: &mut Rng) {
        self.part = Part {
            range: rng.chance(1, 2),
            level_hint: rng.chance(1, 2),
            lpa2: rng.chance(1, 4),
            repeat: rng.chance(1, 4),
            asid_in_ttbr1: rng.chance(1, 3),
            common: false,
        };
        self.spare_asids = rng.pick(&[1, 1, 1, 2, 40]);
        self.homes = rng.chance(2, 3);
        // More spaces than ASIDs, or few spaces that CPUs share.
        self.spaces = rng.pick(&[1, 2, 3, 8, 14, 18]);
    }
}

/// A flusher that scenarios can run on.
pub(crate) trait Backend<const W: usize>: TlbFlusher<W> + 'static {
    /// A flusher that is initialized; CPUs without a space have the kernel's root.
    fn build(setup: &Setup, kernel_root: u64) -> Self;
    /// The handler of the flush interrupt.
    fn handle_interrupt(&self);
    /// The shared words.
    fn name_words(&self, name: &mut dyn FnMut(&'static str, &AtomicU64));
}

impl<P: IpiPlatform, C: Courier, const W: usize> Backend<W> for x86_64::Tlb<P, C, X86, W> {
    fn build(setup: &Setup, kernel_root: u64) -> Self {
        let Mode::X86 { pcid, invpcid } = setup.mode else {
            unreachable!("x86_64 runs on x86_64");
        };
        let features = Features {
            pcid,
            invpcid,
            ..Features::default()
        };
        let config = x86_64::Config::new(features, kernel_root)
            .pcid(pcid)
            .kernel_mappings_global(setup.kernel_global)
            .ceiling(setup.ceiling)
            .trim_after(setup.trim_after);
        let flusher = Self::new();
        if let Err(error) = flusher.init(config) {
            panic!("the scenario's configuration is bad: {error}");
        }
        flusher
    }

    fn handle_interrupt(&self) {
        self.handle_interrupt();
    }

    fn name_words(&self, name: &mut dyn FnMut(&'static str, &AtomicU64)) {
        self.words(name);
    }
}

impl<P: Platform, M: Policy, const W: usize, const A: usize> Backend<W>
    for aarch64::Tlb<P, M, Arm, W, A>
{
    fn build(setup: &Setup, kernel_root: u64) -> Self {
        let flusher = Self::new();
        let mut config = aarch64::Config::new(Paging::arm64(Granule::Size4K), kernel_root)
            .asid_limit(P::CPUS as u64 + 1 + setup.spare_asids);
        if let Some(left) = setup.generations {
            config = config.generations_left(left);
        }
        if let Err(error) = flusher.init(config) {
            panic!("the scenario's configuration is bad: {error}");
        }
        flusher
    }

    fn handle_interrupt(&self) {}

    fn name_words(&self, name: &mut dyn FnMut(&'static str, &AtomicU64)) {
        self.words(name);
    }
}
