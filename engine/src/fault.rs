//! Deliberate mistakes, for the models only. A loom model that cannot fail proves nothing, so each
//! protocol has a broken variant that its model must catch. In every other build `injected` is
//! `false` at compile time and the broken branch is not there.

/// One way of getting a protocol wrong. Each is named for what the broken code does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(loom),
    expect(unreachable_pub, reason = "exported to the models only")
)]
pub enum Fault {
    /// A grant overwrites the word instead of comparing it first.
    GrantOverwrites,
    /// A release frees the word whatever it has become.
    ReleaseOverwrites,
    /// Expiry frees the word without ending the lease first.
    ExpiryLeavesLease,
    /// Expiry, having ended the lease, frees the word whatever it has become.
    ExpiryOverwrites,
    /// Expiry leaves waiters that have come between standing.
    ExpiryForgetsWaiters,
    /// A release or renewal that comes too late is told so, whether or not the lease could be
    /// ended.
    ExpiryUnproven,
    /// The room leaves a lease that is over to the core that has just changed it.
    RoomGivesUp,
    /// A lease goes into a record as it was seen before, not as it was when it was replaced.
    RecordKeepsWhatWasSeen,
    /// The cell that a seat remembers is taken for that of the key, whatever has become of it.
    RememberedCellTrusted,
    /// An acquire takes the cell that its seat remembers, whether or not another core would find
    /// it.
    UnbornCellTaken,
    /// What an index entry led to is taken for found, though the entry may have been an old one.
    OldEntryTrusted,
    /// A walk over all holds asks once whether a lease is in a record, and reads it again for its
    /// end.
    WalkReadsLeaseTwice,
    /// Release and renewal accept any fence.
    FenceUnchecked,
    /// What was read of a block is taken for the grant's metadata, whatever has become of the
    /// grant.
    MetadataUnchecked,
    /// A look takes what it has read for one grant's, whatever has become of the word meanwhile.
    LookUnchecked,
    /// Metadata is dropped before the word is taken away, by every core that tries.
    MetadataDroppedFirst,
    /// A waiter stands in line without saying so in the word.
    WaiterUnannounced,
    /// A cancellation takes out the waiter that has the place now.
    CancelUnchecked,
    /// The end of a session takes its waiters out of line, and overlooks those that have just been
    /// granted.
    VacateForgetsGranted,
    /// An acquire is refused because its session has ended meanwhile, and keeps what it was
    /// granted.
    RefusedGrantStands,
    /// A session past its deadline is ended whatever a keep-alive has made of it meanwhile.
    SessionEndOverwrites,
    /// A hand-off does not ask whether the waiter's session still lives.
    HandoffToTheDead,
    /// Eviction raises the floor after it has let go of the cell.
    FloorAfterEviction,
    /// A reused cell starts at the word it was evicted with.
    ReuseRepeatsWord,
    /// The first grant after a restored one may carry its tag.
    RestoredTagRepeats,
    /// A slot is taken off the free list whatever has happened to the list since it was read.
    FreeListUnversioned,
    /// An inserter that finds that a slab needs another piece of memory gets one, even if another
    /// inserter has.
    PieceReplaced,
    /// Two shards that need a piece of memory at once may get the same one.
    PieceTakenTwice,
    /// A piece counts as ready before it has been prefaulted.
    ReadyTooEarly,
    /// An inserter that finds no piece, ready or not, does not look at the ready ones a second
    /// time.
    ReadyLookedAtOnce,
    /// Two inserters may both believe that they filled an index entry.
    OvertakenInsertCounts,
    /// A grant does not look at the ceiling.
    CeilingUnchecked,
    /// Waiters for a higher ceiling are served before it is raised.
    CeilingServesFirst,
    /// A claim does not look whether another session has just been granted the key.
    ClaimOverlooksGrant,
    /// A claim does not look at the fences of earlier claims.
    ClaimIgnoresRivals,
    /// Taking over does not look whether the key is still held under the fence that was named.
    TakeOverUnchecked,
    /// Taking over writes its own grant beside one that is just being published.
    TakeOverRushes,
    /// The wheel reads a lease instead of taking its place in the lease's modification order.
    ArmingReadsOnly,
    /// The wheel takes in every cell it is asked to look at, introduced or not.
    WheelTakesAnyCell,
    /// The core that links a cell into the inbox overwrites what others have said there.
    LinkOverwritesFlags,
    /// An index is laid out for the entries that are moved to it, and not for those that come
    /// meanwhile.
    SuccessorForgetsInserters,
    /// The home looks whether anything asks for it before it says that it sleeps.
    SleeperLooksFirst,
    /// The core that puts a cell into the inbox of a home that sleeps goes by its own deadline,
    /// though others asked for the cell too.
    LinkerMindsItself,
    /// Migration copies an index entry and leaves empty ones open.
    MigrationLeavesOpen,
    /// A mailbox's taker lowers its flag after it has found the box empty.
    MailboxLowersFlagLast,
    /// A sleeper looks for work without a fence between raising its flag and that.
    SleeperUnfenced,
    /// A waker looks at the flag without a fence between leaving work and that.
    WakerUnfenced,
    /// A grant reads its session's deadline without a fence between marking the session and that.
    BoundUnfenced,
    /// A keep-alive looks for the mark without a fence between moving the deadline and that.
    KeptAliveUnfenced,
}

#[cfg(loom)]
std::thread_local! {
    static INJECTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Runs `model` with one mistake built in. loom runs all threads of a model on the caller's own
/// thread.
#[cfg(loom)]
pub fn inject(fault: Fault, model: impl FnOnce()) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            INJECTED.with(|injected| injected.set(None));
        }
    }
    let _reset = Reset;
    INJECTED.with(|injected| injected.set(Some(fault)));
    model();
}

/// `fault!(Name)`: whether this mistake is to be made now. `false` at compile time outside the
/// models.
macro_rules! fault {
    ($fault:ident) => {
        $crate::fault::injected($crate::fault::Fault::$fault)
    };
}

/// Whether `fault` is to be made now.
#[cfg(loom)]
pub(crate) fn injected(fault: Fault) -> bool {
    INJECTED.with(|injected| injected.get() == Some(fault))
}

/// Whether `fault` is to be made now: never, outside the models.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn injected(_: Fault) -> bool {
    false
}
