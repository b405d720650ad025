//! The simulated kernel's state that all its CPUs share.

use core::sync::atomic::AtomicU64;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::{
    backend::{Backend, Setup},
    halting::HaltingLock,
    owner::{Owner, index_of_page, index_of_region},
};
use crate::{
    machine::{
        Machine, layout,
        physical::{GLOBAL, LEAF, WRITABLE, entry},
    },
    rng::Rng,
};

/// The simulated kernel.
#[derive(Debug)]
pub(crate) struct World<F, const W: usize> {
    pub flusher: F,
    pub setup: Setup,
    pub kernel: Owner<W>,
    /// A lock whose waiters halt.
    pub halting: HaltingLock,
    /// The kernel's spaces. When one retires, another takes its place.
    pub places: Vec<RefCell<Rc<Owner<W>>>>,
    /// Every space there ever was: its memory stays until the run is over.
    all: RefCell<Vec<Rc<Owner<W>>>>,
    /// CPUs that have ended their operations.
    pub done: Cell<usize>,
}

impl<F: Backend<W>, const W: usize> World<F, W> {
    /// Builds the kernel on a machine that is not yet running.
    pub(crate) fn new(machine: &mut Machine, setup: Setup, rng: &mut Rng) -> Self {
        let root = machine.memory.kernel_root();
        let flusher = F::build(&setup, root, machine.cpus.len());
        let kernel = Owner::new(None, 0, crate::machine::physical::frame_of(root));
        let world = Self {
            flusher,
            setup,
            kernel,
            halting: HaltingLock::default(),
            places: Vec::new(),
            all: RefCell::default(),
            done: Cell::new(0),
        };
        let kernel_middle = machine.memory.kernel_middle();
        for region in layout::USER_REGIONS..layout::REGIONS {
            world.populate(machine, kernel_middle, region, rng);
        }
        world
    }

    /// Registers what stands in memory, once it does not move any more, and makes the first spaces.
    pub(crate) fn settle(&mut self, machine: &mut Machine, rng: &mut Rng) {
        machine.lines.register(&self.flusher);
        self.flusher.name_words(&mut |name, word| {
            machine
                .lines
                .name(address(word), || format!("kernel.{name}"))
        });
        machine.lines.register(&self.kernel.lock);
        machine.lines.name(address(self.kernel.lock.word()), || {
            String::from("kernel.lock")
        });
        machine.lines.register(&self.halting);
        for (name, word) in self.halting.words() {
            machine.lines.name(address(word), || String::from(name));
        }
        for _ in 0..self.setup.spaces {
            let owner = self.new_space(machine);
            let middle = machine.memory.take();
            machine.memory.initialize(owner.root, 0, entry(middle, 0));
            for region in 0..layout::USER_REGIONS {
                self.populate(machine, middle, region, rng);
            }
            self.places.push(RefCell::new(owner));
        }
    }

    /// A space with an empty root.
    pub(crate) fn new_space(&self, machine: &mut Machine) -> Rc<Owner<W>> {
        let root = machine.memory.take_root();
        let space = match self
            .flusher
            .space(crate::machine::physical::physical_address(root))
        {
            Ok(space) => Some(space),
            Err(error) => {
                machine.fail(format!("no space can be made: {error}"));
                None
            }
        };
        self.adopt(machine, space, root)
    }

    /// Makes the kernel know a space.
    pub(crate) fn adopt(
        &self,
        machine: &mut Machine,
        space: Option<shootdown::Space<W>>,
        root: u16,
    ) -> Rc<Owner<W>> {
        let scope = machine.oracle.new_scope(root);
        let owner = Rc::new(Owner::new(space, scope, root));
        if let Some(space) = &owner.space {
            machine.oracle.identify(space.id(), scope);
            machine.lines.register(&**space);
            machine
                .lines
                .name(core::ptr::from_ref(&**space) as usize, || {
                    format!("space{scope}")
                });
            space.words(&mut |name, word| {
                machine
                    .lines
                    .name(address(word), || format!("space{scope}.{name}"));
                if name == "tag" {
                    machine.tags.watch(scope, word);
                }
            });
        }
        machine.lines.register(&owner.lock);
        machine
            .lines
            .name(address(owner.lock.word()), || format!("space{scope}.lock"));
        self.all.borrow_mut().push(Rc::clone(&owner));
        owner
    }

    /// Maps some pages of a region before the run begins.
    fn populate(&self, machine: &mut Machine, middle: u16, region: u8, rng: &mut Rng) {
        let kernel = region >= layout::USER_REGIONS;
        let global = if kernel && self.setup.kernel_global {
            GLOBAL
        } else {
            0
        };
        let memory = &mut machine.memory;
        match rng.below(8) {
            0 => {}
            1 | 2 => {
                let frame = memory.take();
                memory.initialize(
                    middle,
                    index_of_region(region),
                    entry(frame, LEAF | WRITABLE | global),
                );
            }
            _ => {
                let table = memory.take();
                memory.initialize(middle, index_of_region(region), entry(table, 0));
                for page in region * layout::PAGES_OF_REGION..(region + 1) * layout::PAGES_OF_REGION
                {
                    if rng.chance(2, 3) {
                        let frame = memory.take();
                        let right = if rng.chance(2, 3) { WRITABLE } else { 0 };
                        memory.initialize(
                            table,
                            index_of_page(page),
                            entry(frame, LEAF | right | global),
                        );
                    }
                }
            }
        }
    }
}

/// The address of a word.
pub(crate) fn address(word: &AtomicU64) -> usize {
    core::ptr::from_ref(word) as usize
}
