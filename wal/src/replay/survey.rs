//! What is in the directory: which snapshot counts, which segments are needed, and whether one is
//! missing.

use crate::error::{Blame, ReplayError};
use crate::files::key::KEY_FILE;
use crate::files::segment::{Header, Name, SEQUENCE_AT, Sort};
use crate::record::frame::{Flaw, Position};
use disk::Disk;
use std::fmt;
use std::path::PathBuf;

/// The end of a write that a crash cut short. It was never reported as synced, and has been
/// dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Torn {
    /// In which file.
    pub file: PathBuf,
    /// Where in it the log ends now.
    pub offset: u64,
    /// Where in the log.
    pub position: Position,
    /// What is there instead of a record.
    pub flaw: Flaw,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a write was cut short and is dropped: in {} at offset {}, where {}. It was never acknowledged",
            self.file.display(),
            self.offset,
            self.flaw
        )
    }
}

/// A segment that is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) sequence: u64,
    pub(crate) begin: Position,
    pub(crate) bytes: u64,
}

/// What is in the directory.
#[derive(Default)]
pub(crate) struct Layout {
    /// The newest snapshot.
    pub(crate) snapshot: Option<Name>,
    /// Where replay begins.
    pub(crate) begin: Position,
    /// The snapshot's length.
    pub(crate) snapshot_bytes: u64,
    /// So much of the log was on the disk when the snapshot was completed.
    pub(crate) synced: Position,
    /// The segments from there on.
    pub(crate) chain: Vec<Link>,
    pub(crate) spares: Vec<Name>,
    /// Snapshots, segments and beginnings of snapshots that are not needed.
    pub(crate) obsolete: Vec<Name>,
    /// Where the log ends.
    pub(crate) end: Position,
    pub(crate) torn: Option<Torn>,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// Sorts the files, reads the first pages of those that are needed, and sees whether one is
/// missing.
pub(super) fn survey(disk: &dyn Disk) -> Result<Layout, ReplayError> {
    let names = disk.list().blame("list", disk, "")?;
    let has_key = names.iter().any(|name| name == KEY_FILE);
    let mut names: Vec<Name> = names.iter().filter_map(|name| Name::parse(name)).collect();
    names.sort();
    let mut layout = Layout::default();
    let mut segments = Vec::new();
    for name in names {
        match name {
            Name::Snapshot(_) => layout.obsolete.extend(layout.snapshot.replace(name)),
            Name::Segment(sequence) => segments.push(sequence),
            Name::Spare(_) => layout.spares.push(name),
            Name::Unfinished => layout.obsolete.push(name),
        }
    }
    if let Some(Name::Snapshot(position)) = layout.snapshot {
        layout.begin = Position::new(position);
    }
    survey_segments(disk, &segments, &mut layout)?;
    if has_key && layout.chain.is_empty() {
        return Err(ReplayError::MissingLog {
            file: disk.dir().join(KEY_FILE),
        });
    }
    layout.end = match layout.chain.first() {
        Some(first) => first.begin,
        None => layout.begin,
    };
    Ok(layout)
}

/// Finds the segments that are needed, newest first.
fn survey_segments(
    disk: &dyn Disk,
    segments: &[u64],
    layout: &mut Layout,
) -> Result<(), ReplayError> {
    let path = |name: Name| disk.dir().join(name.to_string());
    let mut segments = segments.iter().rev().copied();
    for sequence in segments.by_ref() {
        if let Some(next) = layout.chain.last().copied()
            && next.sequence - 1 != sequence
        {
            return Err(ReplayError::MissingSegment {
                file: path(Name::Segment(next.sequence)),
                sequence: next.sequence - 1,
            });
        }
        let link = read_link(disk, sequence)?;
        layout.chain.push(link);
        if link.begin <= layout.begin {
            break;
        }
    }
    layout.obsolete.extend(segments.map(Name::Segment));
    layout.chain.reverse();
    match (layout.chain.first(), layout.snapshot) {
        (Some(first), _) if first.begin <= layout.begin => Ok(()),
        (Some(first), Some(_)) => Err(ReplayError::MissingSegment {
            file: path(Name::Segment(first.sequence)),
            sequence: first.sequence.saturating_sub(1),
        }),
        (Some(first), None) => Err(ReplayError::MissingSnapshot {
            file: path(Name::Segment(first.sequence)),
            position: first.begin,
        }),
        (None, Some(snapshot)) => Err(ReplayError::Snapshot {
            file: path(snapshot),
            what: "the log that should go on from it is missing",
        }),
        (None, None) => Ok(()),
    }
}

fn read_link(disk: &dyn Disk, sequence: u64) -> Result<Link, ReplayError> {
    let name = Name::Segment(sequence).to_string();
    let file = disk.open_read(&name).blame("open", disk, &name)?;
    let header = Header::read(disk, &name, &*file, Sort::Segment)?;
    if header.sequence != sequence {
        return Err(ReplayError::Header {
            file: disk.dir().join(name),
            offset: SEQUENCE_AT,
            expected: "the sequence number of its name",
        });
    }
    let bytes = file.bytes().blame("read", disk, &name)?;
    if bytes != header.bytes {
        return Err(ReplayError::Size {
            file: disk.dir().join(name),
            bytes,
            bytes_expected: header.bytes,
        });
    }
    Ok(Link {
        sequence,
        begin: header.begin,
        bytes,
    })
}
