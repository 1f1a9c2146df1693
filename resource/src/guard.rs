//! The guard: in front of anything that can be written, it refuses fences that run backwards.
//!
//! It takes the write itself, as a closure, and runs it while no other write of the key can begin.
//! A guard that only answered "this fence is good" could not be used correctly: between the answer
//! and the write a newer holder may have written.

use crate::ledger::{Bounds, Seen, WhenFull};
use crate::limits::{COMPACT_BYTES_DEFAULT, KEYS_DEFAULT, WRITES_DEFAULT};
use crate::refusal::{JournalError, Policy, Refusal};
use crate::register::{Admitted, Register, Settings};
use protocol::Fence;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Remembers per key the highest fence it has let through, and refuses those that run backwards.
///
/// A clone is the same guard.
///
/// ```
/// use fencepost_resource::{Fence, FenceGuard, Policy, Refusal};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Refusal> {
/// let guard = FenceGuard::builder().policy(Policy::FirstUse).in_memory();
/// # let (older, newer) = (Fence::new(33).unwrap(), Fence::new(34).unwrap());
///
/// guard.write("orders/42", newer, || async { /* write to what is guarded */ }).await?;
///
/// // A holder that was paused for too long comes back.
/// match guard.write("orders/42", older, || async { unreachable!("it does not get here") }).await {
///     Err(Refusal::Stale(stale)) => assert_eq!((stale.seen, stale.got), (newer, older)),
///     _ => panic!("refused"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # What it promises
///
/// - For one key, writes run one at a time, in the order in which they arrived, and with rising
///   fences: what a write does is over before a later one begins.
/// - A fence counts from before its write begins, whatever becomes of the write: if it fails,
///   panics or half happens, older fences are refused all the same, and under [`Policy::FirstUse`]
///   so is this one.
/// - With [`Builder::open`] it is on the disk by then, and a restart changes nothing.
/// - Memory has a bound: [`Builder::keys_max`] says what happens there. It may refuse too much,
///   never too little.
///
/// # Read under the guard
///
/// A write that depends on what was read before is only safe if it reads *inside*: a late write of
/// an older holder may lie between a read outside and a write inside, and its fence is in order as
/// long as the newer holder has not written.
///
/// # What it does not do
///
/// It guards against writers that come to it. Every writer of the resource must go through one
/// guard: one process, or one database (`postgres.rs`). A write that hands its work on and returns
/// before that is done is over, as far as the guard can tell. Writing a key from within a write to
/// the same key waits for itself.
#[derive(Clone)]
pub struct FenceGuard {
    shared: Arc<Shared>,
}

struct Shared {
    register: Register<()>,
    policy: Policy,
    accepted: AtomicU64,
    stale: AtomicU64,
}

/// What a guard has decided so far, for a page of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Writes that were let through.
    pub accepted: u64,
    /// Writes that were refused because their fence ran backwards. Each is a holder that did not
    /// know it had lost its lock: worth a look, and a longer lease.
    pub stale: u64,
}

impl FenceGuard {
    /// What can be set about a guard.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Runs `write` if `fence` has not run backwards on `key`, and lets no other write of the key
    /// begin meanwhile.
    ///
    /// The write is a task of its own and runs to its end even if this future is dropped: a write
    /// abandoned half-way would leave the key to the next one while its own last request may still
    /// be under way. Hence `Send + 'static`. Only the end of the runtime can stop it.
    ///
    /// Cancel safe in that sense: if dropped, the write happened, will happen, or was never begun;
    /// if it was not, its fence may have been recorded nevertheless.
    ///
    /// # Errors
    /// The write was not begun. [`Refusal::Stale`] is the one to expect.
    ///
    /// # Panics
    /// If the write does, or if the runtime stops before it is done.
    pub async fn write<T, F, W>(
        &self,
        key: impl AsRef<[u8]>,
        fence: Fence,
        write: F,
    ) -> Result<T, Refusal>
    where
        F: FnOnce() -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let policy = Some(self.shared.policy);
        let admitted = self
            .shared
            .register
            .admit(key.as_ref(), fence, (), policy)
            .await;
        let admitted = self.shared.count(admitted)?;
        let task = tokio::spawn(async move {
            // Moved in, and dropped with the task: no other write of the key begins before that.
            let _turn = admitted.turn;
            write().await
        });
        match task.await {
            Ok(value) => Ok(value),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => panic!("the runtime stopped during a write"),
        }
    }

    /// The same for code that is not async: runs `write` on this thread.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Panics
    /// On a thread that runs async tasks. Waiting there for a key that a task of the same thread
    /// holds would never end.
    ///
    /// ```
    /// use fencepost_resource::{Fence, FenceGuard};
    ///
    /// let guard = FenceGuard::builder().in_memory();
    /// let mut balance = 0;
    /// guard.write_blocking("accounts/7", Fence::new(1).unwrap(), || balance += 10)?;
    /// let older = Fence::new(1).unwrap();
    /// assert!(guard.write_blocking("accounts/7", older, || balance += 10).is_err());
    /// assert_eq!(balance, 10);
    /// # Ok::<(), fencepost_resource::Refusal>(())
    /// ```
    pub fn write_blocking<T>(
        &self,
        key: impl AsRef<[u8]>,
        fence: Fence,
        write: impl FnOnce() -> T,
    ) -> Result<T, Refusal> {
        let policy = Some(self.shared.policy);
        let admitted = self
            .shared
            .register
            .admit_blocking(key.as_ref(), fence, (), policy);
        let admitted = self.shared.count(admitted)?;
        let value = write();
        drop(admitted);
        Ok(value)
    }

    /// What is known of a key. For looking at; a decision taken on it is out of date by the time it
    /// is acted upon.
    pub fn seen(&self, key: impl AsRef<[u8]>) -> Seen {
        self.shared.register.seen(key.as_ref())
    }

    /// How many keys are remembered exactly.
    pub fn keys(&self) -> usize {
        self.shared.register.keys()
    }

    /// How many writes are under way or waiting for their turn.
    pub fn writes(&self) -> usize {
        self.shared.register.writes()
    }

    /// What it has decided so far.
    pub fn counts(&self) -> Counts {
        // They publish nothing: numbers for people.
        Counts {
            accepted: self.shared.accepted.load(Relaxed),
            stale: self.shared.stale.load(Relaxed),
        }
    }

    /// Which fences it refuses.
    pub fn policy(&self) -> Policy {
        self.shared.policy
    }
}

impl Shared {
    fn count(&self, admitted: Result<Admitted, Refusal>) -> Result<Admitted, Refusal> {
        match &admitted {
            Ok(_) => self.accepted.fetch_add(1, Relaxed),
            Err(Refusal::Stale(_)) => self.stale.fetch_add(1, Relaxed),
            Err(_) => 0,
        };
        admitted
    }
}

impl fmt::Debug for FenceGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceGuard")
            .field("policy", &self.policy())
            .field("keys", &self.keys())
            .field("writes", &self.writes())
            .finish()
    }
}

/// Everything that can be set about a guard, from [`FenceGuard::builder`].
#[derive(Clone, Debug)]
#[must_use = "makes no guard until in_memory() or open() is called"]
pub struct Builder {
    policy: Policy,
    settings: Settings,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            policy: Policy::default(),
            settings: Settings {
                bounds: Bounds {
                    keys_max: KEYS_DEFAULT,
                    bytes_max: u64::MAX,
                    when_full: WhenFull::default(),
                },
                writes_max: WRITES_DEFAULT,
                compact_bytes_min: COMPACT_BYTES_DEFAULT,
            },
        }
    }
}

impl Builder {
    /// Which fences to refuse. Without this, [`Policy::FirstUse`].
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How many keys to remember exactly, at least 1; without this, [`KEYS_DEFAULT`]. A key takes
    /// about 120 bytes and its own length. Choose it so that all keys fit that may still see a late
    /// write.
    ///
    /// Beyond, unless [`when_full`](Self::when_full) says otherwise, the key that was written
    /// longest ago is forgotten. Its fence lives on in floors, of which there is a fixed number and
    /// which keys share: a key that is not remembered is refused unless it comes with a fence above
    /// its floor. So nothing gets through that would have been refused before.
    ///
    /// # What that costs
    ///
    /// The price is paid by keys that are new, or forgotten, and come with a fence not above the
    /// one that an unrelated forgotten key left behind
    /// ([`Stale::is_floor`](crate::Stale::is_floor)): they are refused until the lock server counts
    /// past it, though their holder does hold the lock. How many new keys that
    /// are, and what to choose, depends on how the lock server counts:
    ///
    /// - Fencepost: none, or up to 1 in 1000 where busy keys fall silent. It forgets idle keys too,
    ///   after ten seconds, and new ones start above them. Forget.
    /// - One counter for all keys, as etcd's revisions: none. A new key lies above everything
    ///   before it. Forget.
    /// - A counter per key that begins at 1, as `INCR` in Redis: 4 in 10 000 once 10 000 keys have
    ///   been forgotten, 4 in 10 after 100 000, and ever more. Refuse, or keep the fence with the
    ///   data (`postgres.rs`).
    ///
    /// Behind Fencepost, that holds as long as the guard remembers keys for longer than the server
    /// does: with `keys_max` of a million, up to some 50 000 new keys a second.
    /// `tests/it/forgetting.rs` is where the numbers come from.
    pub fn keys_max(mut self, keys_max: usize) -> Self {
        self.settings.bounds.keys_max = keys_max.max(1);
        self
    }

    /// What to do about a new key beyond [`keys_max`](Self::keys_max), where it is said what each
    /// costs. Without this, [`WhenFull::Forget`], which is right for fences of Fencepost and etcd,
    /// and wrong for a counter per key.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.settings.bounds.when_full = when_full;
        self
    }

    /// How many writes may be under way or waiting; without this, [`WRITES_DEFAULT`]. Beyond,
    /// [`Refusal::Busy`].
    pub fn writes_max(mut self, writes_max: usize) -> Self {
        self.settings.writes_max = writes_max;
        self
    }

    /// How long the log is at least when it is rewritten; without this, [`COMPACT_BYTES_DEFAULT`].
    /// It is rewritten whenever it has doubled.
    pub fn compact_bytes_min(mut self, compact_bytes_min: u64) -> Self {
        self.settings.compact_bytes_min = compact_bytes_min;
        self
    }

    /// A guard that forgets everything when it is dropped. Only for resources that do not outlive
    /// it either.
    pub fn in_memory(self) -> FenceGuard {
        self.over(Register::in_memory(self.settings))
    }

    /// A guard whose fences are in a log in `dir`, which is made if need be. Each is on the disk
    /// before its write begins. One process at a time. Writes to different keys share a sync; the
    /// log is rewritten by the thread that appends to it, which then keeps writes waiting for as
    /// long as it takes to write all keys down once.
    ///
    /// # Errors
    /// The log cannot be opened, or is damaged in a way that a crash does not explain.
    pub fn open(self, dir: impl AsRef<Path>) -> Result<FenceGuard, JournalError> {
        Ok(self.over(Register::open(dir.as_ref(), self.settings)?))
    }

    fn over(&self, register: Register<()>) -> FenceGuard {
        let policy = self.policy;
        FenceGuard {
            shared: Arc::new(Shared {
                register,
                policy,
                accepted: AtomicU64::new(0),
                stale: AtomicU64::new(0),
            }),
        }
    }
}
