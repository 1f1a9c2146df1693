//! The log of a cluster's node: its votes, the entries of its replicated logs, and the image of the
//! ledger that they begin with. What the entries say is not looked at here.
//!
//! A snapshot is fuzzy for a node too: it may show entries that are appended, or truncated, by
//! records behind its beginning. Each record names an index and takes the place of everything from
//! there on, so replaying it once more comes to the same end. A hole that is there meanwhile is
//! gone at the end; one that is not is damage, and [`NodeLog::check`] finds it.

use crate::error::{BrokenRule, Owner};
use crate::record::{EntryId, Record};
use crate::replay::{Place, Visitor};
use std::collections::BTreeMap;

/// What the log of a node says.
#[derive(Default, Debug)]
pub struct NodeLog {
    /// The node and its disk; `None` in a new directory.
    pub node: Option<(u64, u64)>,
    /// By their numbers.
    pub groups: BTreeMap<u16, GroupLog>,
    is_of_single_server: bool,
}

/// One replicated log, as this node has it.
#[derive(Default, Debug)]
pub struct GroupLog {
    /// Term, node, and whether it is committed.
    pub vote: Option<(u64, u64, bool)>,
    /// The last entry that was purged.
    pub purged: Option<EntryId>,
    /// The others, by index.
    pub entries: BTreeMap<u64, FoundEntry>,
    /// The image of the ledger; empty if there is none.
    pub image: Vec<u8>,
    /// The index of the entry that is being read.
    open: Option<u64>,
}

/// An entry that was found.
#[derive(Default, Debug)]
pub struct FoundEntry {
    /// Its place.
    pub id: EntryId,
    /// Its bytes, all of them once the log has been read.
    pub payload: Vec<u8>,
    bytes: usize,
}

impl NodeLog {
    fn apply(&mut self, record: &Record<'_>) {
        match *record {
            Record::NodeIs { node, disk } => self.node = Some((node, disk)),
            Record::Vote {
                group,
                term,
                node,
                is_committed,
            } => self.group(group).vote = Some((term, node, is_committed)),
            Record::EntryBegin {
                group,
                id,
                bytes,
                part,
            } => self.group(group).begin(id, bytes as usize, part),
            Record::EntryPart { group, part } => self.group(group).go_on(part),
            Record::Truncated { group, from } => self.group(group).truncate(from),
            Record::Purged { group, id } => self.group(group).purge(id),
            Record::ImagePart { group, part } => self.group(group).image.extend_from_slice(part),
            Record::Started { .. }
            | Record::CleanStop { .. }
            | Record::SnapshotBegin { .. }
            | Record::SnapshotShows { .. } => {}
            _ => self.is_of_single_server = true,
        }
    }

    fn group(&mut self, group: u16) -> &mut GroupLog {
        self.groups.entry(group).or_default()
    }

    /// Whose log it is, as far as it was read.
    pub(crate) fn owner(&self) -> Owner {
        match self.is_of_single_server {
            _ if self.node.is_some() || !self.groups.is_empty() => Owner::Node,
            true => Owner::Server,
            false => Owner::Unknown,
        }
    }

    /// Nothing follows: every entry must be whole, and there must be no hole among them.
    pub(crate) fn check(&mut self) -> Result<(), BrokenRule> {
        if self.is_of_single_server {
            return Err(BrokenRule::OfASingleServer);
        }
        self.groups.values_mut().try_for_each(GroupLog::check)
    }
}

impl GroupLog {
    fn begin(&mut self, id: EntryId, bytes: usize, part: &[u8]) {
        self.truncate(id.index);
        let entry = FoundEntry {
            id,
            payload: part.to_vec(),
            bytes,
        };
        self.entries.insert(id.index, entry);
        self.open = Some(id.index);
    }

    fn go_on(&mut self, part: &[u8]) {
        let open = self.open.and_then(|index| self.entries.get_mut(&index));
        if let Some(entry) = open {
            entry.payload.extend_from_slice(part);
        }
    }

    fn truncate(&mut self, from: u64) {
        self.entries.split_off(&from);
    }

    fn purge(&mut self, id: EntryId) {
        self.purged = self.purged.max(Some(id));
        self.entries = self.entries.split_off(&(id.index + 1));
    }

    fn check(&mut self) -> Result<(), BrokenRule> {
        // The crash may have cut off the end of the last write, and an entry with it. It was not
        // synced, so no leader was told that it is here.
        if let Some(last) = self.entries.last_entry()
            && last.get().payload.len() < last.get().bytes
        {
            last.remove();
        }
        let first = self.purged.map_or(0, |purged| purged.index + 1);
        for ((&index, entry), next) in self.entries.iter().zip(first..) {
            if entry.payload.len() != entry.bytes {
                return Err(BrokenRule::EntryIncomplete { index });
            }
            if index != next {
                return Err(BrokenRule::EntryMissing { index: next });
            }
        }
        Ok(())
    }
}

impl Visitor for NodeLog {
    fn snapshot(&mut self, _: Place, record: &Record<'_>) -> Result<(), BrokenRule> {
        self.apply(record);
        Ok(())
    }

    fn log(&mut self, _: Place, record: &Record<'_>) -> Result<(), BrokenRule> {
        match record {
            Record::ImagePart { .. } => Err(BrokenRule::OutOfPlace),
            _ => {
                self.apply(record);
                Ok(())
            }
        }
    }
}
