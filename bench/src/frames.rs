//! One request and its answer over a plain connection: for what is asked once, and not measured.

use bytes::BytesMut;
use protocol::{ClientName, Frame, Hello, Reply, Request, RequestId, limits};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection with a session of its own.
pub(crate) struct Line {
    stream: TcpStream,
    next_id: u64,
    out: BytesMut,
    unread: Vec<u8>,
}

impl Line {
    /// Says hello. The session outlives its connection by `session_ttl_ms`; 0 leaves that to the
    /// server.
    pub(crate) fn open(address: SocketAddr, name: &str, session_ttl_ms: u32) -> io::Result<Line> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut line = Line {
            stream,
            next_id: 1,
            out: BytesMut::new(),
            unread: Vec::new(),
        };
        let hello = Hello {
            session_ttl_ms,
            ..Hello::new(ClientName::clipped(name))
        };
        line.ask(&Request::Hello(hello), |reply| match reply {
            Reply::Welcome(_) => Ok(()),
            other => Err(io::Error::other(format!("no welcome: {other:?}"))),
        })??;
        Ok(line)
    }

    /// Asks, and looks at the answer.
    pub(crate) fn ask<T>(
        &mut self,
        request: &Request<'_>,
        look: impl FnOnce(Reply<'_>) -> T,
    ) -> io::Result<T> {
        self.out.clear();
        request.append(RequestId::new(self.next_id), &mut self.out);
        self.next_id += 1;
        self.stream.write_all(&self.out)?;
        self.unread.clear();
        loop {
            let mut rest = &self.unread[..];
            let frame = Frame::split(&mut rest, limits::FRAME_BYTES_MAX);
            if let Some(frame) = frame.map_err(io::Error::other)? {
                return Ok(look(Reply::decode(&frame).map_err(io::Error::other)?));
            }
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.unread.extend_from_slice(&chunk[..read]),
            }
        }
    }
}
