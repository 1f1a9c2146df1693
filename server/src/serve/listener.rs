//! Listeners: one per core on the same port, so that the kernel spreads connections and no core
//! hands sockets to another.

use crate::conn::places::{Stranger, strangers_max};
use crate::core::Core;
use crate::observe::notices::Notice;
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
/// The kernel does not tell listeners of one port apart, not even those of different processes: two
/// servers started on one port would each get half of the connections and grant the same locks. So
/// the first listener takes the port for itself, which fails if the port is taken, and lets the
/// others in after that.
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

/// Accepts until the server stops, and has `serve` serve each connection.
pub(crate) async fn accept<F>(
    core: Rc<Core>,
    listener: std::net::TcpListener,
    serve: impl Fn(Rc<Core>, TcpStream, SocketAddr, Stranger) -> F + Clone + 'static,
) -> io::Result<()>
where
    F: Future<Output = ()> + 'static,
{
    let listener = TcpListener::from_std(listener)?;
    loop {
        let accepted = listener.accept().await;
        let accepted = accepted.map(|(stream, address)| {
            // Replies are whole batches already; waiting for more would only delay them.
            let _ = stream.set_nodelay(true);
            let serve = serve.clone();
            move |core, stranger| serve(core, stream, address, stranger)
        });
        admit_or_pause(&core, accepted).await;
    }
}

/// Has an accepted connection served; waits a moment if there could be none.
pub(crate) async fn admit_or_pause<F>(
    core: &Rc<Core>,
    accepted: io::Result<impl FnOnce(Rc<Core>, Stranger) -> F + 'static>,
) where
    F: Future<Output = ()> + 'static,
{
    match accepted {
        Ok(serve) => admit(core, serve),
        Err(error) => {
            // Mostly: out of file descriptors. The connections that there are go on.
            core.shared.notices.say(Notice::AcceptFailed, |unsaid| {
                tracing::warn!(unsaid, "accept failed: {error}");
            });
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

fn admit<F>(core: &Rc<Core>, serve: impl FnOnce(Rc<Core>, Stranger) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let shared = &core.shared;
    let (in_line, must_one_go) = core.strangers.enter();
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
    let stranger = Stranger::new(in_line, shared.config.hello_timeout);
    let open = OpenSocket::count(core);
    let watch = shared.failure.watch();
    let core = core.clone();
    tokio::task::spawn_local(async move {
        let _held = (open, watch);
        if let Some(hook) = &core.shared.on_admission {
            hook();
        }
        serve(core, stranger).await;
    });
}

/// A socket that a core serves, counted until it is dropped.
struct OpenSocket(Rc<Core>);

impl OpenSocket {
    fn count(core: &Rc<Core>) -> Self {
        core.metrics().connections_opened.bump();
        core.sockets.update(|sockets| sockets + 1);
        OpenSocket(core.clone())
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.0.sockets.update(|sockets| sockets - 1);
        self.0.metrics().connections_closed.bump();
    }
}
