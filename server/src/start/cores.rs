//! The thread of one core: its tasks, from the first to the last.

use super::pinning;
use crate::core::Core;
use crate::core::shared::Shared;
use crate::native;
use crate::redis::{self, Port};
use crate::serve::{listener, stopping};
use engine::{Seat, SessionId};
use hashbrown::HashMap;
use std::io;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

/// Where one core lets clients in.
pub(crate) struct Doors {
    pub(crate) native: std::net::TcpListener,
    pub(crate) redis: Option<RedisDoors>,
}

pub(crate) struct RedisDoors {
    pub(crate) port: Arc<Port>,
    pub(crate) tcp: Option<std::net::TcpListener>,
    pub(crate) unix: Option<std::os::unix::net::UnixListener>,
}

/// Runs a core until the server stops and the last of its connections has gone. `seats` are those
/// of sessions that outlived a restart.
pub(crate) fn run_core(
    id: usize,
    runtime: &Runtime,
    shared: Arc<Shared>,
    doors: Doors,
    seats: HashMap<SessionId, Seat>,
) {
    let _watch = shared.failure.watch();
    if shared.config.pin
        && let Err(error) = pinning::pin(id)
    {
        tracing::warn!("core {id} goes where the system puts it: {error}");
    }
    let local = LocalSet::new();
    local.block_on(runtime, async move {
        let core = Core::new(id, shared.clone(), seats);
        spawn_watched(&shared, core.clone().take_mail());
        spawn_watched(&shared, core.clone().turn_wheels());
        if !shared.config.spin.is_zero() {
            spawn_watched(&shared, core.clone().stay_awake());
        }
        if let Some(RedisDoors { port, tcp, unix }) = doors.redis {
            if let Some(listener) = tcp {
                let accepting = redis::accept_tcp(core.clone(), port.clone(), listener);
                spawn_accepting(&shared, id, accepting);
            }
            if let Some(listener) = unix {
                let accepting = redis::accept_unix(core.clone(), port, listener);
                spawn_accepting(&shared, id, accepting);
            }
        }
        tokio::select! {
            result = listener::accept(core.clone(), doors.native, native::serve) => {
                if let Err(error) = result {
                    tracing::error!("core {id} cannot accept connections: {error}");
                }
            }
            () = shared.stop.cancelled() => {}
        }
        stopping::drain(&core).await;
    });
}

/// Runs a task of a core that must not end by a panic unnoticed.
fn spawn_watched(shared: &Arc<Shared>, task: impl Future<Output = ()> + 'static) {
    let watch = shared.failure.watch();
    tokio::task::spawn_local(async move {
        let _watch = watch;
        task.await;
    });
}

/// Lets clients of Redis in until the server stops.
fn spawn_accepting(
    shared: &Arc<Shared>,
    core: usize,
    accepting: impl Future<Output = io::Result<()>> + 'static,
) {
    let stop = shared.stop.clone();
    spawn_watched(shared, async move {
        if let Some(Err(error)) = stop.run_until_cancelled(accepting).await {
            tracing::error!("core {core} cannot accept clients of Redis: {error}");
        }
    });
}
