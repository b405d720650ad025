//! The one place that decides which atomics the crate runs on.
//!
//! * normally: `core`'s, re-exported, at no cost;
//! * under `cfg(loom)`: loom's, so that the memory ordering of each handshake can be explored;
//! * with the internal feature `_sim`: wrappers that let a simulated machine *perform* each operation. A callback
//!   before the operation would not be enough: store buffers need the store itself.
//!
//! Every word that two CPUs share goes through here. Words that only their own CPU touches do not.

pub use core::sync::atomic::Ordering;

#[cfg(not(any(loom, feature = "_sim")))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU64, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU64, fence};

#[cfg(all(feature = "_sim", not(loom)))]
pub(crate) use hooked::{AtomicU8, AtomicU64, fence};
#[cfg(all(feature = "_sim", not(loom)))]
pub use hooked::{Hook, Location, set_hook};

#[cfg(all(feature = "_sim", target_os = "none"))]
compile_error!(
    "the feature `_sim` is for the simulated machine on a host: remove it from the kernel's build"
);

/// Declares a function `const`, except under loom, whose atomics have no `const` constructor.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $name($($arg: $ty),*) -> $ret $body
        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) -> $ret $body
    };
}
pub(crate) use const_unless_loom;

/// An array of zeroed atomics, in whichever way the chosen atomics can be built.
macro_rules! zeroed {
    () => {{
        #[cfg(not(loom))]
        let words = [const { $crate::atomic::AtomicU64::new(0) }; _];
        #[cfg(loom)]
        let words = core::array::from_fn(|_| $crate::atomic::AtomicU64::new(0));
        words
    }};
}
pub(crate) use zeroed;

#[cfg(all(feature = "_sim", not(loom)))]
mod hooked {
    use core::sync::atomic::{self as native, AtomicPtr};

    pub use core::panic::Location as SourceLocation;

    use super::Ordering;

    /// Where in the crate an operation stands.
    pub type Location = &'static SourceLocation<'static>;

    /// What a simulated machine implements: it performs each operation on the given word.
    ///
    /// A hook decides for each thread whether it acts; on a thread without a machine it must perform the plain
    /// operation.
    pub trait Hook: Sync {
        /// Loads `word`.
        fn load(&self, word: &native::AtomicU64, order: Ordering, at: Location) -> u64;
        /// Stores `value` in `word`.
        fn store(&self, word: &native::AtomicU64, value: u64, order: Ordering, at: Location);
        /// Replaces the value `old` of `word` by `update(old)` in one atomic step, or leaves it where that is
        /// `None`; gives `old` in both cases.
        fn rmw(
            &self,
            word: &native::AtomicU64,
            update: &mut dyn FnMut(u64) -> Option<u64>,
            order: Ordering,
            at: Location,
        ) -> Result<u64, u64>;
        /// A memory fence.
        fn fence(&self, order: Ordering, at: Location);
        /// Loads a byte, which a hypervisor writes too.
        fn load_byte(&self, byte: &native::AtomicU8, order: Ordering, at: Location) -> u8;
        /// Stores `value` in a byte.
        fn store_byte(&self, byte: &native::AtomicU8, value: u8, order: Ordering, at: Location);
        /// As [`rmw`](Self::rmw), for a byte.
        fn rmw_byte(
            &self,
            byte: &native::AtomicU8,
            update: &mut dyn FnMut(u8) -> Option<u8>,
            order: Ordering,
            at: Location,
        ) -> Result<u8, u8>;
    }

    static HOOK: AtomicPtr<&'static dyn Hook> = AtomicPtr::new(core::ptr::null_mut());

    /// Installs the process-wide hook.
    pub fn set_hook(hook: &'static &'static dyn Hook) {
        HOOK.store(core::ptr::from_ref(hook).cast_mut(), Ordering::Release);
    }

    #[inline]
    fn hook() -> Option<&'static dyn Hook> {
        let hook = HOOK.load(Ordering::Acquire);
        // SAFETY: the pointer is null or came from a `&'static &'static dyn Hook` in `set_hook`.
        (!hook.is_null()).then(|| unsafe { *hook })
    }

    #[repr(transparent)]
    #[derive(Debug)]
    pub(crate) struct AtomicU64(native::AtomicU64);

    impl AtomicU64 {
        pub(crate) const fn new(value: u64) -> Self {
            Self(native::AtomicU64::new(value))
        }

        /// The word that the hook is given.
        pub(crate) const fn native(&self) -> &native::AtomicU64 {
            &self.0
        }

        #[track_caller]
        pub(crate) fn load(&self, order: Ordering) -> u64 {
            match hook() {
                None => self.0.load(order),
                Some(hook) => hook.load(&self.0, order, SourceLocation::caller()),
            }
        }

        #[track_caller]
        pub(crate) fn store(&self, value: u64, order: Ordering) {
            match hook() {
                None => self.0.store(value, order),
                Some(hook) => hook.store(&self.0, value, order, SourceLocation::caller()),
            }
        }

        #[track_caller]
        pub(crate) fn compare_exchange(
            &self,
            current: u64,
            new: u64,
            order: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            match hook() {
                None => self.0.compare_exchange(current, new, order, failure),
                Some(hook) => hook.rmw(
                    &self.0,
                    &mut |old| (old == current).then_some(new),
                    order,
                    SourceLocation::caller(),
                ),
            }
        }

        #[track_caller]
        fn replace(&self, order: Ordering, mut update: impl FnMut(u64) -> u64) -> u64 {
            let at = SourceLocation::caller();
            let (Ok(old) | Err(old)) = match hook() {
                None => self
                    .0
                    .fetch_update(order, Ordering::Relaxed, |old| Some(update(old))),
                Some(hook) => hook.rmw(&self.0, &mut |old| Some(update(old)), order, at),
            };
            old
        }

        #[track_caller]
        pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
            self.replace(order, |_| value)
        }

        #[track_caller]
        pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            self.replace(order, |old| old.wrapping_add(value))
        }

        #[track_caller]
        pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
            self.replace(order, |old| old.wrapping_sub(value))
        }

        #[track_caller]
        pub(crate) fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
            self.replace(order, |old| old | value)
        }

        #[track_caller]
        pub(crate) fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
            self.replace(order, |old| old & value)
        }
    }

    /// A byte, of which only what the crate needs can be done.
    #[repr(transparent)]
    #[derive(Debug)]
    pub(crate) struct AtomicU8(native::AtomicU8);

    impl AtomicU8 {
        pub(crate) const fn new(value: u8) -> Self {
            Self(native::AtomicU8::new(value))
        }

        /// The byte that the hook is given.
        pub(crate) const fn native(&self) -> &native::AtomicU8 {
            &self.0
        }

        #[track_caller]
        pub(crate) fn load(&self, order: Ordering) -> u8 {
            match hook() {
                None => self.0.load(order),
                Some(hook) => hook.load_byte(&self.0, order, SourceLocation::caller()),
            }
        }

        #[track_caller]
        pub(crate) fn store(&self, value: u8, order: Ordering) {
            match hook() {
                None => self.0.store(value, order),
                Some(hook) => hook.store_byte(&self.0, value, order, SourceLocation::caller()),
            }
        }

        #[track_caller]
        pub(crate) fn compare_exchange(
            &self,
            current: u8,
            new: u8,
            order: Ordering,
            failure: Ordering,
        ) -> Result<u8, u8> {
            self.update(order, failure, |old| (old == current).then_some(new))
        }

        #[track_caller]
        pub(crate) fn swap(&self, value: u8, order: Ordering) -> u8 {
            let (Ok(old) | Err(old)) = self.update(order, Ordering::Relaxed, |_| Some(value));
            old
        }

        #[track_caller]
        pub(crate) fn fetch_or(&self, value: u8, order: Ordering) -> u8 {
            let (Ok(old) | Err(old)) =
                self.update(order, Ordering::Relaxed, |old| Some(old | value));
            old
        }

        #[track_caller]
        pub(crate) fn fetch_and(&self, value: u8, order: Ordering) -> u8 {
            let (Ok(old) | Err(old)) =
                self.update(order, Ordering::Relaxed, |old| Some(old & value));
            old
        }

        #[track_caller]
        fn update(
            &self,
            order: Ordering,
            failure: Ordering,
            mut update: impl FnMut(u8) -> Option<u8>,
        ) -> Result<u8, u8> {
            match hook() {
                None => self.0.fetch_update(order, failure, update),
                Some(hook) => hook.rmw_byte(&self.0, &mut update, order, SourceLocation::caller()),
            }
        }
    }

    #[track_caller]
    pub(crate) fn fence(order: Ordering) {
        match hook() {
            None => native::fence(order),
            Some(hook) => hook.fence(order, SourceLocation::caller()),
        }
    }
}
