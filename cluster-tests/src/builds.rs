//! The two builds of a rolling upgrade, and which formats of the log they say that they read.

use crate::nodes::Build;
use cluster::entry::Format;

/// What the older build reads.
pub(crate) const OLDER_FORMAT: Format = Format::FIRST;

/// What the newer one reads in the end. It is made up: no version writes it.
pub(crate) const NEWER_FORMAT: Format = Format(Format::NEWEST.0 + 1);

/// The two builds, and which of them all nodes run.
pub(crate) struct Builds {
    older: Build,
    newer: Build,
    is_newer: bool,
}

impl Builds {
    /// `older` may be the same: then only the formats differ.
    pub(crate) fn new(mut older: Build, mut newer: Build) -> Builds {
        older.reads = Some(OLDER_FORMAT);
        newer.reads = Some(OLDER_FORMAT);
        Builds {
            older,
            newer,
            is_newer: false,
        }
    }

    /// What the nodes run at first.
    pub(crate) fn older(&self) -> &Build {
        &self.older
    }

    /// What the nodes run next.
    pub(crate) fn other(&mut self) -> Build {
        self.is_newer = !self.is_newer;
        match self.is_newer {
            true => self.newer.clone(),
            false => self.older.clone(),
        }
    }

    /// Whether that is the newer build.
    pub(crate) fn is_newer(&self) -> bool {
        self.is_newer
    }

    /// The newer build, when it reads the format that the older one does not.
    pub(crate) fn reading_newer(&self) -> Build {
        Build {
            reads: Some(NEWER_FORMAT),
            ..self.newer.clone()
        }
    }
}
