//! Physical memory: data frames and page tables, poisoned when freed.

use super::layout::ENTRIES;

/// The entry is in use.
pub(crate) const PRESENT: u64 = 1 << 0;
/// The entry maps memory; else it leads to a table.
pub(crate) const LEAF: u64 = 1 << 1;
/// The page may be written.
pub(crate) const WRITABLE: u64 = 1 << 2;
/// The translation is global.
pub(crate) const GLOBAL: u64 = 1 << 3;

/// What a freed table holds: an entry that leads nowhere.
const POISON: u64 = PRESENT | 0xdead << 12;

/// The entry that maps or leads to `frame`.
pub(crate) const fn entry(frame: u16, flags: u64) -> u64 {
    PRESENT | flags | physical_address(frame)
}

/// The frame of an entry.
pub(crate) const fn frame_of(entry: u64) -> u16 {
    ((entry >> 12) as u16).wrapping_sub(1)
}

/// The physical address of a frame. No frame is at 0.
pub(crate) const fn physical_address(frame: u16) -> u64 {
    (frame as u64 + 1) << 12
}

/// A frame: a table's entries, or data.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Rises each time the frame is given out or back: an entry made earlier leads to something else now.
    pub generation: u32,
    /// How many page-table entries map it, or 1 for a table; 0 is free.
    pub uses: u32,
    /// As memory has them, for software.
    pub entries: [u64; ENTRIES],
    /// As table walkers see them: on arm64 they may lag behind.
    pub walked: [u64; ENTRIES],
}

/// All frames.
#[derive(Debug)]
pub(crate) struct Physical {
    pub frames: Vec<Frame>,
    free: Vec<u16>,
    /// The frame of the kernel's root, and of the table below it.
    kernel: (u16, u16),
}

impl Physical {
    pub(crate) fn new() -> Self {
        let mut memory = Self {
            frames: Vec::new(),
            free: Vec::new(),
            kernel: (0, 0),
        };
        let root = memory.take();
        let middle = memory.take();
        memory.kernel = (root, middle);
        memory.initialize(root, 3, entry(middle, 0));
        memory
    }

    /// The physical address of the kernel's root.
    pub(crate) fn kernel_root(&self) -> u64 {
        physical_address(self.kernel.0)
    }

    /// The kernel's table of regions, which every space's root leads to.
    pub(crate) fn kernel_middle(&self) -> u16 {
        self.kernel.1
    }

    /// Gives out a frame, the one freed last first, to provoke whoever still uses it.
    pub(crate) fn take(&mut self) -> u16 {
        let frame = self.free.pop().unwrap_or_else(|| {
            self.frames.push(Frame {
                generation: 0,
                uses: 0,
                entries: [0; ENTRIES],
                walked: [0; ENTRIES],
            });
            (self.frames.len() - 1) as u16
        });
        let it = &mut self.frames[usize::from(frame)];
        it.generation += 1;
        it.uses = 1;
        it.entries = [0; ENTRIES];
        it.walked = [0; ENTRIES];
        frame
    }

    /// A new root that leads to the kernel's tables.
    pub(crate) fn take_root(&mut self) -> u16 {
        let root = self.take();
        let middle = self.kernel.1;
        self.initialize(root, 3, entry(middle, 0));
        root
    }

    /// Writes an entry of a table that nothing leads to yet.
    pub(crate) fn initialize(&mut self, table: u16, index: usize, value: u64) {
        let it = &mut self.frames[usize::from(table)];
        it.entries[index] = value;
        it.walked[index] = value;
    }

    /// Counts one more entry that maps `frame`.
    pub(crate) fn share(&mut self, frame: u16) {
        self.frames[usize::from(frame)].uses += 1;
    }

    /// Counts one entry less; true if the frame is free now. It is poisoned then.
    pub(crate) fn put(&mut self, frame: u16) -> bool {
        let it = &mut self.frames[usize::from(frame)];
        debug_assert!(it.uses > 0, "frame {frame} is freed twice");
        it.uses -= 1;
        if it.uses > 0 {
            return false;
        }
        it.generation += 1;
        it.entries = [POISON; ENTRIES];
        it.walked = [POISON; ENTRIES];
        self.free.push(frame);
        true
    }

    /// The generation of a frame, or `None` if there is no such frame.
    pub(crate) fn generation(&self, frame: u16) -> Option<u32> {
        self.frames
            .get(usize::from(frame))
            .map(|frame| frame.generation)
    }

    /// Whether the frame is in use.
    pub(crate) fn in_use(&self, frame: u16) -> bool {
        self.frames
            .get(usize::from(frame))
            .is_some_and(|frame| frame.uses > 0)
    }
}
