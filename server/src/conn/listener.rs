//! Listeners: one per core on the same port, so that the kernel spreads connections and no core hands sockets to another.

use crate::conn::connection;
use crate::conn::places::{InLine, strangers_max};
use crate::core::Core;
use crate::observe::notices::Notice;
use crate::redis;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How many connections may stand in the kernel's queue.
const BACKLOG: i32 = 4096;

/// How long to wait after an accept failed for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Binds one listener per core. With port 0 the first one gets a free port and the others the same.
///
/// Listeners that share a port are not told apart by the kernel, whoever opened them: two servers started on one port would
/// each get half of the connections and grant the same locks. So the first one takes the port for itself, which fails if
/// anybody has it, and lets the others in after that.
pub(crate) fn bind_all(
    address: SocketAddr,
    count: usize,
) -> io::Result<Vec<std::net::TcpListener>> {
    let mut listeners: Vec<std::net::TcpListener> = Vec::with_capacity(count);
    let mut address = address;
    for _ in 0..count {
        let listener = bind(address, listeners.is_empty())?;
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn bind(address: SocketAddr, is_first: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(!is_first)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_reuse_port(true)?;
    Ok(socket.into())
}

/// Accepts until the server stops.
pub(crate) async fn accept(core: Rc<Core>, listener: std::net::TcpListener) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let accepted = listener.accept().await;
        let native = |(stream, address)| Arrival::Native(stream, address);
        admit_or_pause(&core, accepted.map(native)).await;
    }
}

/// Somebody who has just connected, to one port or another.
pub(crate) enum Arrival {
    Native(TcpStream, SocketAddr),
    Redis(redis::Stream),
}

impl Arrival {
    async fn serve(self, core: Rc<Core>, stranger: InLine) {
        match self {
            Arrival::Native(stream, address) => {
                // Replies are whole batches already; waiting for more would only delay them.
                let _ = stream.set_nodelay(true);
                connection::serve(core, stream, address, stranger).await;
            }
            Arrival::Redis(stream) => redis::serve(core, stream, stranger).await,
        }
    }
}

/// Lets in who was accepted; waits a moment if nobody could be.
pub(crate) async fn admit_or_pause(core: &Rc<Core>, accepted: io::Result<Arrival>) {
    match accepted {
        Ok(arrival) => admit(core, arrival),
        Err(error) => {
            // Mostly: out of file descriptors. The connections that there are go on.
            core.shared.notices.say(Notice::AcceptFailed, |unsaid| {
                tracing::warn!(unsaid, "accept failed: {error}");
            });
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

fn admit(core: &Rc<Core>, arrival: Arrival) {
    let shared = &core.shared;
    let (stranger, must_one_go) = core.strangers.enter();
    if must_one_go {
        core.metrics().connections_too_slow.bump();
        shared.notices.say(Notice::GaveWay, |unsaid| {
            tracing::warn!(
                unsaid,
                "more than {} connections of a core have not introduced themselves: the oldest gives way",
                strangers_max(&shared.config)
            );
        });
    }
    let served = Served::open(core);
    let watch = shared.failure.watch();
    let core = core.clone();
    tokio::task::spawn_local(async move {
        let _held = (served, watch);
        if let Some(hook) = &core.shared.on_admission {
            hook();
        }
        arrival.serve(core, stranger).await;
    });
}

/// A socket that a core serves, counted until it is dropped.
struct Served(Rc<Core>);

impl Served {
    fn open(core: &Rc<Core>) -> Self {
        core.metrics().connections_opened.bump();
        core.sockets.update(|sockets| sockets + 1);
        Served(core.clone())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.sockets.update(|sockets| sockets - 1);
        self.0.metrics().connections_closed.bump();
    }
}
