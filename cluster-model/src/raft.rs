//! Consensus as openraft gives it, taken for correct: what is checked here is what we build on it.
//!
//! - A node that is at least as far as one voter wins an election in one step: two of three are a
//!   majority. The voter steps down if it led. The third node learns nothing and may go on
//!   believing that it leads.
//! - A leader copies its log to one node in one step, unless that node has accepted a higher term.
//!   An entry of the leader's own term that two nodes have is **chosen**, with all before it, and
//!   stays so. Nodes learn that when an acknowledgement or the next copy reaches them.
//! - What was not chosen survives or vanishes, as the next leader's log has it.
//!
//! That a follower gets the whole log and not a part of it is no restriction: a copy of a part is a
//! copy that was made earlier.

use crate::record::Record;
use crate::{Fault, Index, NODES, Rules, Term, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    pub term: Term,
    pub payload: Payload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Payload {
    /// `Reign`: the leader of its term, of which there is one only, reigns from here on.
    Marker,
    Batch(Batch),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Batch {
    /// The index of the marker of the reign that made it.
    pub reign: Index,
    pub seq: u8,
    pub stamp: Time,
    pub record: Option<Record>,
}

/// What Raft keeps on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Replica {
    pub term: Term,
    /// It believes so.
    pub leads: bool,
    pub log: Vec<Entry>,
    /// So many entries are on the disk.
    pub synced: usize,
}

impl Replica {
    pub fn append(&mut self, payload: Payload) {
        assert!(self.leads, "only a leader appends");
        let term = self.term;
        self.log.push(Entry { term, payload });
        self.synced = self.log.len();
    }

    /// Whether this one would win `voter`'s vote.
    pub fn is_up_to_date(&self, voter: &Replica) -> bool {
        let reach = |replica: &Replica| {
            let last = replica.log.last().map_or(0, |entry| entry.term);
            (last, replica.log.len())
        };
        reach(self) >= reach(voter)
    }

    /// How much of this log `other` has.
    pub fn common(&self, other: &[Entry]) -> usize {
        let pairs = self.log.iter().zip(other);
        pairs.take_while(|(one, other)| one == other).count()
    }

    /// Takes over a leader's log. The index of the first entry that is new.
    pub fn accept(&mut self, term: Term, log: &[Entry], rules: Rules) -> usize {
        assert!(term >= self.term, "a lower term is refused");
        let known = self.common(log);
        self.leads &= term == self.term;
        self.term = term;
        self.log = log.to_vec();
        self.synced = if rules.has(Fault::AckBeforeSync) {
            known
        } else {
            log.len()
        };
        known
    }

    pub fn restart(&mut self) {
        self.leads = false;
        self.log.truncate(self.synced);
    }
}

/// Wins an election with one vote besides its own.
pub fn elect(winner: &mut Replica, voter: &mut Replica, term: Term) {
    assert!(winner.is_up_to_date(voter), "a voter protects what it has");
    (winner.term, winner.leads) = (term, true);
    (voter.term, voter.leads) = (term, false);
}

/// How much of a leader's log is chosen once another node has all of it.
pub fn chosen_by_copy(leader: &Replica) -> usize {
    const { assert!(NODES == 3, "a leader and one other are a majority") };
    let own = leader
        .log
        .iter()
        .rposition(|entry| entry.term == leader.term);
    own.map_or(0, |at| at + 1)
}
