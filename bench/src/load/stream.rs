//! A connection of the generator's, plain or behind TLS.
//!
//! Which peers speak TLS is written down when they start, by address. So neither a workload nor a
//! speaker has to know.

use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tls::rustls::{ClientConfig, ClientConnection};

/// What the peers that speak TLS are spoken to with.
static SECURED: LazyLock<Mutex<HashMap<SocketAddr, Arc<ClientConfig>>>> =
    LazyLock::new(Mutex::default);

/// From now on connections to this address speak TLS.
pub(crate) fn secure(address: SocketAddr, config: Arc<ClientConfig>) {
    SECURED.lock().insert(address, config);
}

pub(crate) struct Stream {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Stream {
    /// Connects. A handshake is done with the first read or write, while the socket still blocks.
    pub(crate) fn connect(address: &SocketAddr, timeout: Duration) -> io::Result<Stream> {
        let socket = TcpStream::connect_timeout(address, timeout)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(timeout))?;
        let config = SECURED.lock().get(address).cloned();
        let tls = match config {
            None => None,
            Some(config) => {
                let name = tls::server_name("localhost").expect("it is a name");
                let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
                Some(Box::new(session))
            }
        };
        let mut stream = Stream { socket, tls };
        if let Some(session) = &mut stream.tls {
            while session.is_handshaking() {
                session.complete_io(&mut stream.socket)?;
            }
        }
        Ok(stream)
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        self.socket.set_nonblocking(true)
    }

    /// Sends what was encrypted and has not left. `false`: the kernel's buffer is full.
    pub(crate) fn send_rest(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.tls else {
            return Ok(true);
        };
        while session.wants_write() {
            match session.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.tls else {
            return self.socket.read(bytes);
        };
        loop {
            match session.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if session.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            session.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.send_rest()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match &mut self.tls {
            None => self.socket.write(bytes),
            Some(session) => {
                let written = session.writer().write(bytes)?;
                self.send_rest()?;
                Ok(written)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
