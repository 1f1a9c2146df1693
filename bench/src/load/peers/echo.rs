//! The floor: a server that reads frames of the same size, answers each with one of the same size,
//! and does nothing else. It stands on the runtime that the server stands on: one current-thread
//! runtime per core, each with its own listener.
//!
//! It grants every request, always under the same fence, so the checker is tested on it too.

use bytes::{Buf, BytesMut};
use protocol::frame::{HEADER_BYTES, LENGTH_BYTES};
use protocol::request::op;
use protocol::{
    Fence, NodeAddresses, PROTOCOL_VERSION, Reply, RequestId, ServerName, SessionId, SessionKey,
    SessionSecret, Welcome, limits,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// As much as the server takes from a socket at a time.
const READ_BYTES: usize = 64 * 1024;

/// Runs until it is killed, and announces its address first.
pub(super) fn serve(announce: impl FnOnce(SocketAddr) -> io::Result<()>) -> io::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut listeners = Vec::new();
    for _ in 0..threads {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(4096)?;
        let listener = TcpListener::from(socket);
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    announce(address)?;
    let serving: Vec<_> = listeners
        .into_iter()
        .map(|listener| std::thread::spawn(move || accept(listener)))
        .collect();
    for thread in serving {
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a panic")))?;
    }
    Ok(())
}

fn accept(listener: TcpListener) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::task::spawn_local(echo(stream));
        }
    })
}

/// Answers one connection until it ends.
async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let [welcome, granted, released] = templates();
    let mut input = BytesMut::with_capacity(READ_BYTES);
    let mut output = BytesMut::with_capacity(READ_BYTES);
    loop {
        input.reserve(READ_BYTES);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        while let Some(length) = input.first_chunk::<LENGTH_BYTES>() {
            let frame_bytes = u32::from_le_bytes(*length) as usize + LENGTH_BYTES;
            if input.len() < frame_bytes || frame_bytes < HEADER_BYTES {
                break;
            }
            let template = match input[LENGTH_BYTES] {
                op::HELLO => &welcome,
                op::RELEASE => &released,
                _ => &granted,
            };
            let start = output.len() + LENGTH_BYTES + 2;
            output.extend_from_slice(template);
            output[start..start + 8].copy_from_slice(&input[LENGTH_BYTES + 2..HEADER_BYTES]);
            input.advance(frame_bytes);
        }
        stream.write_all(&output).await?;
        output.clear();
    }
}

/// What a hello, an acquire and a release are answered with: always the same, but for the id.
fn templates() -> [BytesMut; 3] {
    let welcome = Reply::Welcome(Welcome {
        version: PROTOCOL_VERSION,
        is_resumed: false,
        session: SessionKey {
            session_id: SessionId::new(1),
            secret: SessionSecret::new([0; SessionSecret::BYTES]),
        },
        session_ttl_ms: 0,
        frame_bytes_max: limits::REQUEST_FRAME_BYTES_MAX,
        in_flight_max: u32::MAX,
        remembered_max: 0,
        server_name: ServerName::default(),
        grace_ms: None,
        addresses: NodeAddresses::default(),
    });
    let granted = Reply::Granted {
        fence: Fence::new(1).expect("not zero"),
        ttl_ms: 0,
        hold_count: 1,
    };
    let released = Reply::Released { remaining_count: 0 };
    [welcome, granted, released].map(|reply| {
        let mut bytes = BytesMut::new();
        reply.append(RequestId::NONE, &mut bytes);
        bytes
    })
}
