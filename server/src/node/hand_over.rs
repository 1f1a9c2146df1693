//! When a leader has another node lead: it is told to stop, or its disk confirms nothing any more.

use super::office::Lasting;
use cluster::propose::Reign;
use std::time::Duration;
use wal::Wal;

/// How long a node waits for another one to take over the leadership.
const HAND_OVER_MAX: Duration = Duration::from_secs(1);

/// A disk that confirms nothing for so long hangs. Commits do not wait for the leader's disk while
/// others are a majority, so a slow one is no reason to hand over; but what the leader logs stays
/// in its memory until its disk has it.
const HANGS_AFTER: Duration = Duration::from_secs(5);

/// Waits until the reign is over, and says why; `None`: the node is to stop.
pub(super) fn serve_until_over(lasting: &Lasting, reign: &Reign) -> Option<&'static str> {
    loop {
        let disk_hangs = lasting.runtime.block_on(async {
            tokio::select! {
                () = lasting.stop.cancelled() => Err(None),
                why = reign.ended() => Err(Some(why)),
                () = hangs(lasting.node.wal()) => Ok(()),
            }
        });
        if let Err(over) = disk_hangs {
            return over;
        }
        tracing::error!(
            node = lasting.node.id(),
            "this node's disk has confirmed nothing for {} s, so another node should lead. Look after the disk, or \
             replace this node",
            HANGS_AFTER.as_secs()
        );
        // If it does, the reign is over; otherwise this node goes on, and looks again.
        hand_over(lasting, reign);
    }
}

/// Waits until the disk hangs.
async fn hangs(wal: &Wal) {
    loop {
        let appended = wal.barrier();
        tokio::time::sleep(HANGS_AFTER).await;
        if wal.synced() < appended {
            return;
        }
    }
}

/// Has another node lead, if one can, and waits a moment for it.
pub(super) fn hand_over(lasting: &Lasting, reign: &Reign) {
    let Some(successor) = lasting.node.successor() else {
        return;
    };
    tracing::info!(to = successor, "handing the leadership over");
    let over = lasting.runtime.block_on(async {
        let handing_over = async {
            lasting.node.transfer(successor).await;
            reign.ended().await;
        };
        tokio::time::timeout(HAND_OVER_MAX, handing_over).await
    });
    if over.is_err() {
        tracing::warn!(to = successor, "no other node has taken over in time");
    }
}
