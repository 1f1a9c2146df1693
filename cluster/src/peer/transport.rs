//! How nodes reach each other: TCP in production, with TLS or without (`tls.rs`), a simulated
//! network in tests.

use std::future::Future;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// Opens and accepts streams of bytes.
pub trait Transport: Clone + Send + Sync + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// What accepts connections.
    type Listener: Send + 'static;

    /// Opens a connection to a host and port.
    fn connect(&self, address: &str) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Accepts the next connection; with it the address it comes from, for the log.
    fn accept(
        &self,
        listener: &mut Self::Listener,
    ) -> impl Future<Output = io::Result<(Self::Stream, String)>> + Send;
}

/// TCP without Nagle's delay: frames are gathered before they are written.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tcp;

impl Transport for Tcp {
    type Stream = TcpStream;
    type Listener = TcpListener;

    async fn connect(&self, address: &str) -> io::Result<TcpStream> {
        TcpStream::connect(address).await.map(no_delay)
    }

    async fn accept(&self, listener: &mut TcpListener) -> io::Result<(TcpStream, String)> {
        let (stream, address) = listener.accept().await?;
        Ok((no_delay(stream), address.to_string()))
    }
}

/// Without Nagle's delay. Asking for that fails only if the peer is gone already, which reading
/// will show.
pub(super) fn no_delay(stream: TcpStream) -> TcpStream {
    let _ = stream.set_nodelay(true);
    stream
}
