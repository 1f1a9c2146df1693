//! The mistakes that the simulation must find.

use cluster::simulation::Mistake;

/// A mistake in what stands above the nodes, or in the nodes themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Bug {
    ReplyBeforeCommit,
    ReplyAtLocalSync,
    EngineKept,
    SeqUnchecked,
    StaleReignCounted,
    ClockFromTheWall,
    ClockAsUpperBound,
    ClockOfAllReigns,
    CeilingUsedEarly,
    FloorTooOld,
    AckBeforeSync,
    VoteBeforeSync,
    RequestIdDropped,
    SnapshotWithoutSessions,
}

impl Bug {
    /// The mistake in the nodes themselves, if it is one there.
    pub(crate) fn mistake(self) -> Option<Mistake> {
        Some(match self {
            Bug::SeqUnchecked => Mistake::SeqUnchecked,
            Bug::StaleReignCounted => Mistake::StaleReignCounted,
            Bug::ClockAsUpperBound => Mistake::ClockAsUpperBound,
            Bug::ClockOfAllReigns => Mistake::ClockOfAllReigns,
            Bug::AckBeforeSync => Mistake::AckBeforeSync,
            Bug::VoteBeforeSync => Mistake::VoteBeforeSync,
            Bug::SnapshotWithoutSessions => Mistake::SnapshotWithoutSessions,
            Bug::ReplyBeforeCommit
            | Bug::ReplyAtLocalSync
            | Bug::EngineKept
            | Bug::ClockFromTheWall
            | Bug::CeilingUsedEarly
            | Bug::FloorTooOld
            | Bug::RequestIdDropped => return None,
        })
    }
}
