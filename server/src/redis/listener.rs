//! Accepting Redis clients. Over TCP every core has a listener of its own, as for native clients.
//! There is only one Unix socket, from which all cores accept.

use super::port::Port;
use super::serve::serve;
use crate::conn::socket::Socket;
use crate::core::Core;
use crate::serve::entrance;
use crate::serve::listener::{self, admit_or_pause, bind_all};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use tokio::net::UnixListener;

/// The listeners of all cores, before the cores have them.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) tcp: Vec<std::net::TcpListener>,
    pub(crate) unix: Vec<std::os::unix::net::UnixListener>,
    /// The socket's file, which is removed at the end.
    unix_path: Option<PathBuf>,
}

impl Listeners {
    pub(crate) fn bind_tcp(&mut self, address: SocketAddr, core_count: usize) -> io::Result<()> {
        self.tcp = bind_all(address, core_count)?;
        Ok(())
    }

    /// Replaces the socket that a killed server left behind. A socket with a listener stays, and so
    /// does any other kind of file: then binding fails.
    pub(crate) fn bind_unix(&mut self, path: &Path, core_count: usize) -> io::Result<()> {
        let is_socket = path
            .symlink_metadata()
            .is_ok_and(|file| file.file_type().is_socket());
        if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
            std::fs::remove_file(path)?;
        }
        let listener = std::os::unix::net::UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        self.unix_path = Some(path.to_owned());
        for _ in 1..core_count {
            self.unix.push(listener.try_clone()?);
        }
        self.unix.push(listener);
        Ok(())
    }

    /// Whether there is a Redis port at all.
    pub(crate) fn is_open(&self) -> bool {
        !self.tcp.is_empty() || !self.unix.is_empty()
    }

    /// The file to remove when the server has stopped.
    pub(crate) fn unix_path(&mut self) -> Option<PathBuf> {
        self.unix_path.take()
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.tcp
            .first()
            .and_then(|listener| listener.local_addr().ok())
    }
}

impl Drop for Listeners {
    /// A server that does not start leaves no socket behind.
    fn drop(&mut self) {
        if let Some(path) = self.unix_path.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Accepts until the server stops.
pub(crate) async fn accept_tcp(
    core: Rc<Core>,
    port: Arc<Port>,
    listener: std::net::TcpListener,
) -> io::Result<()> {
    listener::accept(core, listener, move |core, stream, address, stranger| {
        let port = port.clone();
        async move {
            let certificates = core.shared.certificates_of(|ports| ports.redis);
            let entered = entrance::enter(&core, stream, address, &stranger, certificates).await;
            if let Some(socket) = entered {
                serve(core, port, socket, address.to_string(), stranger).await;
            }
        }
    })
    .await
}

/// Accepts until the server stops. The first core that wakes takes the connection.
pub(crate) async fn accept_unix(
    core: Rc<Core>,
    port: Arc<Port>,
    listener: std::os::unix::net::UnixListener,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    loop {
        let accepted = listener.accept().await.map(|(stream, _)| {
            let port = port.clone();
            let address = "unix".to_owned();
            move |core, stranger| serve(core, port, Socket::Unix(stream), address, stranger)
        });
        admit_or_pause(&core, accepted).await;
    }
}
