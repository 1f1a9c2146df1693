//! One connection to a server that speaks Redis, over TCP or a Unix socket. The protocol is written
//! by hand, so that a test can also write it badly.

use crate::reply::Reply;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// No answer within this is a failure. No test asserts how much sooner it comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Where a server listens.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

pub(crate) struct Peer {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
}

impl Peer {
    /// Connects. `None`: no server listens there.
    pub(crate) fn try_connect(address: &Address) -> Option<Peer> {
        let timeout = Some(PATIENCE);
        let stream: Box<dyn Stream> = match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).ok()?;
                stream.set_read_timeout(timeout).expect("a socket option");
                stream.set_write_timeout(timeout).expect("a socket option");
                stream.set_nodelay(true).expect("a socket option");
                Box::new(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).ok()?;
                stream.set_read_timeout(timeout).expect("a socket option");
                stream.set_write_timeout(timeout).expect("a socket option");
                Box::new(stream)
            }
        };
        Some(Peer {
            stream,
            unread: Vec::new(),
        })
    }

    pub(crate) fn connect(address: &Address) -> Peer {
        Peer::try_connect(address).unwrap_or_else(|| panic!("no server listens on {address:?}"))
    }

    /// Connects and chooses the newer version of the protocol.
    pub(crate) fn connect_v3(address: &Address) -> Peer {
        let mut peer = Peer::connect(address);
        assert!(matches!(peer.call(["HELLO", "3"]), Reply::Map(_)));
        peer
    }

    /// Sends one command and waits for its reply.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, command: impl IntoIterator<Item = A>) -> Reply {
        self.send_command(command);
        self.receive()
    }

    /// Sends several commands at once and waits for all replies.
    pub(crate) fn call_all<'a>(
        &mut self,
        commands: impl IntoIterator<Item = &'a [Vec<u8>]>,
    ) -> Vec<Reply> {
        let encoded: Vec<Vec<u8>> = commands.into_iter().map(encode).collect();
        self.send(&encoded.concat());
        encoded.iter().map(|_| self.receive()).collect()
    }

    /// As `call`, with the words of the command in one line.
    pub(crate) fn say(&mut self, command: &str) -> Reply {
        self.call(command.split_whitespace())
    }

    pub(crate) fn send_command<A: AsRef<[u8]>>(&mut self, command: impl IntoIterator<Item = A>) {
        self.send(&encode(command));
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the server takes it");
    }

    /// Sends bytes as they are. An error: the server has closed the connection.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn receive(&mut self) -> Reply {
        self.try_receive().expect("a reply, not the end")
    }

    /// `None`: the server closed the connection.
    pub(crate) fn try_receive(&mut self) -> Option<Reply> {
        loop {
            if let Some((reply, used)) = Reply::parse(&self.unread) {
                self.unread.drain(..used);
                return Some(reply);
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    assert!(self.unread.is_empty(), "the server closed inside a reply");
                    return None;
                }
                Ok(bytes) => self.unread.extend(&chunk[..bytes]),
                // The server closed with replies that were not read yet.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply within {PATIENCE:?}: {error}"),
            }
        }
    }
}

/// A command as clients send it.
pub(crate) fn encode<A: AsRef<[u8]>>(command: impl IntoIterator<Item = A>) -> Vec<u8> {
    let mut body = Vec::new();
    let mut count = 0;
    for arg in command {
        let arg = arg.as_ref();
        body.extend(format!("${}\r\n", arg.len()).bytes());
        body.extend(arg);
        body.extend(b"\r\n");
        count += 1;
    }
    let mut bytes = format!("*{count}\r\n").into_bytes();
    bytes.extend(body);
    bytes
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({} bytes unread)", self.unread.len())
    }
}
