//! How an embedded server is put together.

use crate::config::Config;
use crate::core::pauses::{Pause, PauseHook};
use crate::core::shared::AdmissionHook;
use crate::core::wakeup::SyncHook;
use crate::durability::LogSizes;
use crate::system::panics::OnPanic;
use cluster::entry::Format;
use std::net::SocketAddr;
use std::sync::Arc;
use wal::Disk;

/// Puts the settings of an embedded server together.
#[derive(Clone, Default)]
pub struct Builder {
    pub(crate) config: Config,
    pub(crate) disk: Option<Arc<dyn Disk>>,
    pub(crate) log_sizes: LogSizes,
    pub(crate) reads: Option<Format>,
    pub(crate) late_acks: Option<SyncHook>,
    pub(crate) on_panic: OnPanic,
    pub(crate) on_admission: Option<AdmissionHook>,
    pub(crate) on_pause: Option<PauseHook>,
}

impl Builder {
    /// Starts from these settings.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Where clients connect. Port 0 takes a free one.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.config.listen = address;
        self
    }

    /// Where metrics, health and the view of locks are served over HTTP. Port 0 takes a free one.
    pub fn http(mut self, address: SocketAddr) -> Self {
        self.config.http = Some(address);
        self
    }

    /// Serves no HTTP.
    pub fn http_off(mut self) -> Self {
        self.config.http = None;
        self
    }

    /// How many I/O threads; 0 is one per core.
    pub fn threads(mut self, threads: u32) -> Self {
        self.config.threads = threads;
        self
    }

    /// Keeps the log on this disk, which should be in the data directory. For tests of what happens
    /// when a disk fails.
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = Some(disk);
        self
    }

    /// Writes a snapshot whenever the log has grown by so much. For tests that want many of them.
    pub fn snapshot_every(mut self, log_bytes: u64) -> Self {
        self.log_sizes.snapshot_log_bytes = Some(log_bytes);
        self
    }

    /// Keeps the log in files of this length. For tests that want many of them.
    #[doc(hidden)]
    pub fn segments_of(mut self, bytes: u64) -> Self {
        self.log_sizes.segment_bytes = Some(bytes);
        self
    }

    /// Has a node of a cluster say that it reads this format of the log, and refuse later ones. For
    /// tests of upgrades, in which one build poses as several.
    #[doc(hidden)]
    pub fn reads_format(mut self, version: u16) -> Self {
        self.reads = Some(Format(version));
        self
    }

    /// What becomes of the server if one of its threads panics. Unless told otherwise it stops
    /// serving, and the program that it is part of goes on;
    /// [`Server::failure`](crate::Server::failure) says what happened.
    pub fn on_panic(mut self, on_panic: OnPanic) -> Self {
        self.on_panic = on_panic;
        self
    }

    /// For tests of what a panic does: called by a core's thread for every connection that it lets
    /// in.
    #[doc(hidden)]
    pub fn on_admission(mut self, hook: Arc<dyn Fn() + Send + Sync>) -> Self {
        self.on_admission = Some(hook);
        self
    }

    /// For tests of what two cores do at once: called by a core's thread between two of its steps,
    /// and by a thread that waits for the cores.
    #[doc(hidden)]
    pub fn on_pause(mut self, hook: impl Fn(Pause) + Send + Sync + 'static) -> Self {
        self.on_pause = Some(Arc::new(hook));
        self
    }

    /// Calls this between a sync of the log and the cores that hear of it, so that replies leave
    /// late. For tests.
    #[doc(hidden)]
    pub fn late_acks(mut self, wait: impl Fn() + Send + Sync + 'static) -> Self {
        self.late_acks = Some(Arc::new(wait));
        self
    }

    /// Changes any other setting.
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }
}
