//! What operators look at: whether a log is sound, and what it says. Nothing here changes anything.

pub(crate) mod repair;
pub(crate) mod scan;
pub(crate) mod show;

use crate::error::BrokenRule;
use crate::error::{Blame, IoFailure, ReplayError, WalError};
use crate::files::segment::Name;
use crate::log;
use crate::record::Record;
use crate::record::frame::Position;
use crate::replay::node::NodeLog;
use crate::replay::recovered::Recovered;
use crate::replay::state::State;
use crate::replay::{self, Layout, Place, Torn, Visitor};
use disk::Disk;
use show::{Line, Utc};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// What [`verify`] found.
pub struct Report {
    /// Where.
    pub dir: PathBuf,
    /// All files of the log, in the order of their names.
    pub files: Vec<FileReport>,
    /// What a server or a node would find, or why it would not start.
    pub outcome: Result<Contents, ReplayError>,
}

/// What a sound log says.
pub enum Contents {
    /// That of a single server.
    Server(Box<Recovered>),
    /// That of a cluster's node. What its entries say is not read here.
    Node {
        /// Its id.
        node: Option<u64>,
        /// How many records were read.
        records: u64,
        /// How many entries stand in its log behind its image.
        entries: u64,
        /// The end of a write that a crash cut short.
        torn: Option<Torn>,
    },
}

/// One file.
pub struct FileReport {
    /// Its name.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
    /// How many records were read from it. Spares and obsolete files are not read, nor is what
    /// comes after damage.
    pub records: u64,
    /// What it is for.
    pub role: &'static str,
}

/// Reads the log in `dir` as the server or the node would that it belongs to, and reports. The
/// directory must not be in use.
pub fn verify(dir: &Path) -> Result<Report, WalError> {
    verify_on(&log::open_dir(dir)?)
}

pub(crate) fn verify_on(disk: &dyn Disk) -> Result<Report, WalError> {
    let _lock = log::lock(disk)?;
    let start = Instant::now();
    let mut counter = Counter::<State>::default();
    let walked = replay::walk(disk, &mut counter);
    let read = walked.and_then(|layout| {
        let recovered = Recovered::new(counter.inner, &layout, start, disk)?;
        Ok((layout, Contents::Server(Box::new(recovered))))
    });
    let mut records = counter.records;
    let read = match read {
        Err(ReplayError::OfACluster { .. }) => {
            let mut counter = Counter::default();
            let read = read_node(disk, &mut counter);
            records = counter.records;
            read
        }
        read => read,
    };
    let mut files = Vec::new();
    let mut names = disk.list().blame("list", disk, "")?;
    names.sort();
    for name in names {
        let Some(parsed) = Name::parse(&name) else {
            continue;
        };
        let is_obsolete = read
            .as_ref()
            .is_ok_and(|(layout, _)| layout.obsolete.contains(&parsed));
        let file = disk.open_read(&name).blame("open", disk, &name)?;
        files.push(FileReport {
            bytes: file.bytes().blame("read", disk, &name)?,
            records: records.get(&parsed.to_string()).copied().unwrap_or(0),
            role: match parsed {
                _ if is_obsolete => "not needed",
                Name::Snapshot(_) => "snapshot",
                Name::Segment(_) => "log",
                Name::Spare(_) => "spare",
                Name::Unfinished => "not needed",
            },
            name,
        });
    }
    Ok(Report {
        dir: disk.dir().to_owned(),
        files,
        outcome: read.map(|(_, contents)| contents),
    })
}

fn read_node(
    disk: &dyn Disk,
    counter: &mut Counter<NodeLog>,
) -> Result<(Layout, Contents), ReplayError> {
    let walked = replay::walk(disk, counter);
    let node = &mut counter.inner;
    let layout = log::check_node(disk, walked, node)?;
    let entries = node.groups.values().map(|group| group.entries.len() as u64);
    let contents = Contents::Node {
        node: node.node.map(|(node, _)| node),
        records: layout.records,
        entries: entries.sum(),
        torn: layout.torn.clone(),
    };
    Ok((layout, contents))
}

/// Counts the records that `inner` reads, by file.
#[derive(Default)]
struct Counter<V> {
    inner: V,
    records: BTreeMap<String, u64>,
}

impl<V> Counter<V> {
    fn count(&mut self, place: Place) {
        *self.records.entry(place.file.to_string()).or_default() += 1;
    }
}

impl<V: Visitor> Visitor for Counter<V> {
    fn expect(&mut self, records: u64) {
        self.inner.expect(records);
    }

    fn snapshot(&mut self, place: Place, record: &Record<'_>) -> Result<(), BrokenRule> {
        self.count(place);
        self.inner.snapshot(place, record)
    }

    fn reach(&mut self, position: Position) {
        self.inner.reach(position);
    }

    fn log(&mut self, place: Place, record: &Record<'_>) -> Result<(), BrokenRule> {
        self.count(place);
        self.inner.log(place, record)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            let FileReport {
                name,
                bytes,
                records,
                role,
            } = file;
            writeln!(
                f,
                "{name:34} {role:10} {bytes:>12} bytes {records:>10} records"
            )?;
        }
        let recovered = match &self.outcome {
            Ok(Contents::Server(recovered)) => recovered,
            Ok(Contents::Node {
                node,
                records,
                entries,
                torn,
            }) => {
                if let Some(torn) = torn {
                    writeln!(f, "{torn}")?;
                }
                writeln!(f, "sound: {records} records")?;
                match node {
                    Some(node) => writeln!(f, "it belongs to node {node} of a cluster")?,
                    None => writeln!(f, "it belongs to a node of a cluster")?,
                }
                return writeln!(f, "entries          {entries}");
            }
            Err(error) => return writeln!(f, "NOT SOUND: {error}"),
        };
        if let Some(torn) = &recovered.torn {
            writeln!(f, "{torn}")?;
        }
        let leases = recovered.leases.count();
        let sessions = recovered.sessions.len();
        writeln!(f, "sound: {} records", recovered.records)?;
        match recovered.scope {
            None => writeln!(f, "no server has used it")?,
            Some(scope) => writeln!(
                f,
                "the last server wrote down {scope} and {}",
                match recovered.was_clean {
                    true => "stopped in good order",
                    false => "did not stop in good order",
                }
            )?,
        }
        writeln!(f, "highest ceiling  {}", recovered.ceiling_max)?;
        // A log that never had one says 0.
        for (what, unix_ms) in [
            ("leases end by", recovered.horizon_unix_ms),
            ("last known time", recovered.last_clock_unix_ms),
        ] {
            match unix_ms {
                0 => writeln!(f, "{what:15}  not known")?,
                unix_ms => writeln!(f, "{what:15}  {}", Utc(unix_ms))?,
            }
        }
        writeln!(f, "sessions         {sessions}")?;
        writeln!(f, "leases           {leases}")
    }
}

/// What [`dump`] shows. Its `Display` is one line for people.
pub enum Entry<'a> {
    /// A whole record.
    Record {
        /// The name of the file it stands in.
        file: &'a str,
        /// Where in that file.
        offset: u64,
        /// What it says.
        record: &'a Record<'a>,
        /// It was found by searching, after damage had been met. A server would not believe it as
        /// part of a log.
        is_salvaged: bool,
    },
    /// Behind the last record: a write that a crash cut short, and which a server drops.
    Torn(&'a Torn),
    /// Here a server would stop reading, and not start. What follows is salvaged, and some of it
    /// was shown before.
    Damage(&'a ReplayError),
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Record {
                file,
                offset,
                record,
                ..
            } => write!(f, "{file} {offset:>9} {}", Line(record)),
            Entry::Torn(torn) => write!(f, "-- {torn}"),
            Entry::Damage(error) => {
                write!(f, "-- {error}\n-- whole records, wherever they are:")
            }
        }
    }
}

/// Shows every record in `dir`, in the order of replay. If damage is met, shows that, goes on with
/// whatever whole records can be found, and returns it. After an error of `show` it is not called
/// again. The directory must not be in use.
pub fn dump(
    dir: &Path,
    show: &mut dyn FnMut(&Entry<'_>) -> io::Result<()>,
) -> Result<Option<ReplayError>, WalError> {
    dump_on(&log::open_dir(dir)?, show)
}

pub(crate) fn dump_on(
    disk: &dyn Disk,
    show: &mut dyn FnMut(&Entry<'_>) -> io::Result<()>,
) -> Result<Option<ReplayError>, WalError> {
    let _lock = log::lock(disk)?;
    let mut shower = Shower {
        show,
        is_salvaging: false,
        result: Ok(()),
    };
    let damage = match replay::walk(disk, &mut shower) {
        Ok(layout) => {
            if let Some(torn) = &layout.torn {
                shower.entry(&Entry::Torn(torn));
            }
            None
        }
        Err(error) => {
            shower.entry(&Entry::Damage(&error));
            shower.is_salvaging = true;
            scan::scan(disk, &mut |place, _, record| shower.record(place, record))?;
            Some(error)
        }
    };
    let shown = shower.result.map_err(|error| IoFailure {
        action: "write",
        path: "the output".into(),
        source: Arc::new(error),
    });
    shown?;
    Ok(damage)
}

struct Shower<'a> {
    show: &'a mut dyn FnMut(&Entry<'_>) -> io::Result<()>,
    is_salvaging: bool,
    /// The first failure; nothing is shown after it.
    result: io::Result<()>,
}

impl Shower<'_> {
    fn entry(&mut self, entry: &Entry<'_>) {
        if self.result.is_ok() {
            self.result = (self.show)(entry);
        }
    }

    fn record(&mut self, place: Place, record: &Record<'_>) {
        self.entry(&Entry::Record {
            file: &place.file.to_string(),
            offset: place.offset,
            record,
            is_salvaged: self.is_salvaging,
        });
    }
}

impl Visitor for Shower<'_> {
    fn snapshot(&mut self, place: Place, record: &Record<'_>) -> Result<(), BrokenRule> {
        self.record(place, record);
        Ok(())
    }

    fn log(&mut self, place: Place, record: &Record<'_>) -> Result<(), BrokenRule> {
        self.record(place, record);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
