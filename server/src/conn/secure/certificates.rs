//! What the server shows its clients and asks of them, exchanged at a reload.

use crate::config::{ClientAuth, Config};
use parking_lot::RwLock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tls::rustls::ServerConfig;
use tls::{Clients, Facts, Identity, TlsError, VersionMin, read_roots, server_config};

/// A certificate that ends within this is warned of.
const ENDS_SOON: Duration = Duration::from_secs(14 * 86_400);

/// What the ports of one server that speak TLS have in common.
pub(crate) struct Certificates {
    files: Files,
    current: RwLock<Current>,
    done: AtomicU64,
    failed: AtomicU64,
}

/// Where they come from, as the settings say.
struct Files {
    cert: PathBuf,
    key: PathBuf,
    clients: Option<(PathBuf, ClientAuth)>,
    version_min: VersionMin,
}

struct Current {
    config: Arc<ServerConfig>,
    facts: Facts,
}

impl Certificates {
    /// Reads them for the first time. `None`: the settings name none.
    pub(crate) fn load(config: &Config) -> Result<Option<Arc<Self>>, TlsError> {
        let (Some(cert), Some(key)) = (&config.tls_cert_file, &config.tls_key_file) else {
            return Ok(None);
        };
        let clients = config.tls_client_ca_file.clone();
        let files = Files {
            cert: cert.clone(),
            key: key.clone(),
            clients: clients.map(|file| (file, config.tls_client_auth)),
            version_min: config.tls_version_min,
        };
        let current = files.read()?;
        Ok(Some(Arc::new(Certificates {
            files,
            current: RwLock::new(current),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })))
    }

    /// Reads them again. Connections that are open go on with what they have; what cannot be used
    /// changes nothing.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let current = self.files.read()?;
        *self.current.write() = current;
        Ok(())
    }

    /// Logs which certificate is in use, and a warning if it ends soon.
    pub(crate) fn announce(&self) {
        let facts = self.current.read().facts.clone();
        let names: Vec<&str> = facts.names.iter().collect();
        announce(&self.files.cert, &names.join(", "), facts.not_after);
    }

    /// What the next handshake goes by.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.current.read().config.clone()
    }

    /// In how many seconds the certificate expires; negative, if it has.
    pub(crate) fn seconds_left(&self, now: SystemTime) -> i64 {
        seconds_until(self.current.read().facts.not_after, now)
    }

    /// A handshake was completed. Counted in one place for all threads: they are few.
    pub(crate) fn count_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// How many handshakes were completed, and how many failed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.done), count(&self.failed))
    }
}

impl Files {
    fn read(&self) -> Result<Current, TlsError> {
        let identity = Identity::read(&self.cert, &self.key)?;
        let facts = Facts::of(&identity, SystemTime::now())?;
        let clients = match &self.clients {
            None | Some((_, ClientAuth::Off)) => Clients::Unasked,
            Some((file, ClientAuth::Optional)) => Clients::MayShow(read_roots(file)?),
            Some((file, ClientAuth::Required)) => Clients::MustShow(read_roots(file)?),
        };
        let config = server_config(identity, clients, self.version_min)?;
        Ok(Current { config, facts })
    }
}

/// Logs that a certificate is in use, and a warning if it ends soon.
pub(crate) fn announce(file: &Path, names: &str, not_after: SystemTime) {
    let (file, until) = (file.display(), humantime::format_rfc3339_seconds(not_after));
    match not_after.duration_since(SystemTime::now()) {
        Ok(left) if left > ENDS_SOON => {
            tracing::info!(%until, names, "the certificate in {file} is in use");
        }
        _ => tracing::warn!(
            %until,
            names,
            "the certificate in {file} ends soon: renew it, and send SIGHUP"
        ),
    }
}

/// Negative, if that time is over.
pub(crate) fn seconds_until(time: SystemTime, now: SystemTime) -> i64 {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(now) {
        Ok(left) => seconds(left),
        Err(past) => -seconds(past.duration()),
    }
}
