//! The watchdog: one task that renews the leases of all guards and keeps the session alive.
//!
//! Each lease is renewed when a third of it has passed, up to a fifth of that third earlier at
//! random. Renewals go out through the lanes like other requests and are answered there; the
//! watchdog waits for none of them. The session is kept alive in the same rhythm, on every
//! connection: its locks and waits live by that, and it finds out connections that died silently.

use crate::clock::{Moment, sleep_until};
use crate::link::call::{Ask, Sink};
use crate::link::pool::Pool;
use crate::session::lease::{Lease, renewal_interval};
use std::sync::Arc;
use std::time::Duration;

/// How often to look for a session while there is none.
const SESSIONLESS_INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the client closes.
pub(crate) async fn run(pool: Arc<Pool>) {
    let mut due: Vec<Arc<Lease>> = Vec::new();
    let mut keep_alive_at = Moment::now() + keep_alive_interval(&pool);
    loop {
        let now = Moment::now();
        if now >= keep_alive_at {
            keep_alive(&pool);
            keep_alive_at = now + keep_alive_interval(&pool);
        }
        let next = pool.leases.take_due(now, keep_alive_at, &mut due);
        for lease in due.drain(..) {
            renew(&pool, &lease, now);
        }
        tokio::select! {
            () = sleep_until(next) => {}
            () = pool.leases.woken() => {}
            () = pool.closing() => return,
        }
    }
}

fn renew(pool: &Pool, lease: &Arc<Lease>, now: Moment) {
    // Past its deadline it is given up, even if the server might still renew it: the owner may have
    // seen it pass.
    if lease.check(now).is_err() {
        pool.leases.forget(lease);
    } else if lease.start_renewing() {
        pool.post_renewal(lease, Sink::Nowhere);
    }
}

fn keep_alive(pool: &Pool) {
    for lane in pool.lanes().iter().filter(|lane| lane.is_open()) {
        pool.post(lane, Ask::KeepAlive);
    }
}

fn keep_alive_interval(pool: &Pool) -> Duration {
    pool.session
        .ttl()
        .map_or(SESSIONLESS_INTERVAL, renewal_interval)
}
