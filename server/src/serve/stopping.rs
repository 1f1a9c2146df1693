//! The end: how a core lets its connections go.

use crate::conn::dialect::News;
use crate::core::Core;
use protocol::ErrorCode;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a core looks whether its last connection has gone.
const POLL: Duration = Duration::from_millis(5);

/// How long clients are answered while the server stops if their protocol, that of Redis, cannot
/// tell them so. Many ask again as soon as they have an answer: they would go on until the end of
/// the grace period.
const UNTOLD_DRAIN: Duration = Duration::from_millis(100);

/// How long the connections of a node that does not lead any more may take to close.
const DEPOSED_MAX: Duration = Duration::from_millis(100);

/// What a peer hears last.
pub(crate) const MESSAGE: &str = "the server is shutting down";

/// Tells every connection that it is over and answers its waiters; answers what is under way, for
/// half of the grace period at most, except that nothing new is granted; and gives the peers the
/// rest of it to read what is left. What has been decided is in the out-buffers already: nothing
/// acknowledged is lost.
pub(crate) async fn drain(core: &Rc<Core>) {
    let cluster = core.shared.cluster.as_ref();
    if let Some(cluster) = cluster.filter(|cluster| cluster.is_deposed()) {
        return depose(core, &cluster.not_leader()).await;
    }
    let grace = core.shared.config.shutdown_grace;
    let begin = Instant::now();
    let grace_ms = (grace / 2).as_millis() as u32;
    core.is_stopping.set(true);
    for connection in core.all() {
        connection.tell(&News::Stopping { grace_ms });
        core.end_waits(&connection);
    }
    // The grants that were on their way to waiters whose wait could not be ended.
    core.open_all();
    for connection in core.all() {
        connection.drain();
    }
    wait_for_sockets(core, begin + UNTOLD_DRAIN.min(grace / 2)).await;
    for connection in core.all() {
        if !connection.voice.announces_stop() {
            connection.close_with(ErrorCode::SHUTTING_DOWN, MESSAGE);
        }
    }
    wait_for_sockets(core, begin + grace / 2).await;
    for connection in core.all() {
        connection.close_with(ErrorCode::SHUTTING_DOWN, MESSAGE);
    }
    wait_for_sockets(core, begin + grace).await;
    // For the audit log: the last of what was decided may have been settled only now.
    core.replies.hear_of_sync();
}

/// This node does not lead any more: what was decided and not settled is never told, and every peer
/// hears where to go.
async fn depose(core: &Rc<Core>, message: &str) {
    let begin = Instant::now();
    core.is_stopping.set(true);
    // What was settled is told and audited, though it is late.
    core.replies.hear_of_sync();
    for connection in core.all() {
        connection.out.drop_held();
        connection.close_with(ErrorCode::NOT_LEADER, message);
    }
    wait_for_sockets(core, begin + DEPOSED_MAX).await;
}

/// Waits until the last socket is closed. One that goes while its peer is still sending is reset,
/// and takes with it what the peer has not read; so those that are closing count.
async fn wait_for_sockets(core: &Core, deadline: Instant) {
    while core.sockets.get() > 0 && Instant::now() < deadline {
        tokio::time::sleep(POLL).await;
    }
}
