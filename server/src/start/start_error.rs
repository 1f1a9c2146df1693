//! Why a server does not start, in words that say what to do about it.

use crate::config::SettingError;
use crate::rights::AuthError;
use engine::Limit;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use tls::TlsError;
use wal::WalError;

/// Why a server does not start. The program or the operator that started it acts on it.
#[derive(Debug)]
pub enum StartError {
    /// A setting cannot be used.
    Setting(SettingError),
    /// The tokens cannot be used.
    Auth(AuthError),
    /// The certificates cannot be used.
    Tls(TlsError),
    /// An address cannot be listened on.
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A Unix socket cannot be listened on.
    ListenUnix {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The audit log cannot be opened.
    Audit {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The key of the cluster cannot be used.
    ClusterKey(String),
    /// The node of a cluster cannot start.
    Node(String),
    /// The data directory cannot be used.
    Storage(WalError),
    /// A cluster has adopted what is in the data directory.
    Adopted(PathBuf),
    /// More was held at the last stop than the settings have room for.
    Restore(Limit),
    /// The system gave no thread or no runtime.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Setting(error) => write!(f, "{error}"),
            StartError::Auth(error) => write!(f, "{error}"),
            StartError::Tls(error) => write!(f, "{error}"),
            StartError::Listen { address, error } if error.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "cannot listen on {address}: something else does already; stop it or choose another port"
                )
            }
            StartError::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")
            }
            StartError::ListenUnix { path, error } => write!(
                f,
                "cannot listen on the Unix socket {}: {error}; is another server using it?",
                path.display()
            ),
            StartError::Audit { path, error } => {
                write!(f, "cannot write the audit log {}: {error}", path.display())
            }
            StartError::ClusterKey(error) | StartError::Node(error) => write!(f, "{error}"),
            StartError::Storage(error) => write!(f, "{error}"),
            StartError::Adopted(dir) => write!(
                f,
                "a cluster goes on with the locks of {}, and a server here would grant them a second time. Start the node \
                 that has them, or give this server another --data-dir. Only to go back for good, when no node of that \
                 cluster runs any more, delete {}",
                dir.display(),
                dir.join(cluster::founding::ADOPTED_FILE).display()
            ),
            StartError::Restore(limit) => write!(
                f,
                "what was held at the last stop does not fit: {limit:?} is at its limit; raise it to what it was then"
            ),
            StartError::System(error) => {
                write!(f, "the system refused a thread or a timer: {error}")
            }
        }
    }
}

impl std::error::Error for StartError {}
