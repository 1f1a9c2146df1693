//! Starting a client: its first connections, and the tasks that keep it going.

use crate::backoff::Backoff;
use crate::error::ConnectError;
use crate::link::connection::Connection;
use crate::link::pool::{Handle, Pool};
use crate::link::watchdog;
use crate::session::Opened;
use crate::settings::Settings;
use std::sync::Arc;
use tokio::time::{Instant, sleep, timeout_at};

/// Opens the session, then spawns one task per connection and the watchdog on the current runtime.
/// Dropping it half-way closes what was opened.
pub(crate) async fn connect(settings: Settings) -> Result<Arc<Handle>, ConnectError> {
    let pool = Arc::new(Pool::new(settings));
    // Dropped early, it closes what is open.
    let handle = Arc::new(Handle::new(Arc::clone(&pool)));
    let mut first = Some(open_first(&pool).await?);
    for index in 0..pool.lanes().len() {
        let opened = match first.take() {
            Some(opened) => Some(opened),
            // One connection is enough to begin with; the task of this one goes on trying.
            None => open(&pool).await.ok(),
        };
        if opened.is_some() {
            pool.lanes()[index].set_open();
        }
        tokio::spawn(Connection::new(Arc::clone(&pool), index).run(opened));
    }
    tokio::spawn(watchdog::run(Arc::clone(&pool)));
    Ok(handle)
}

/// Goes through all addresses once, and again for as long as a request may take while nodes answer
/// that none of them leads: a program may start in the middle of an election.
async fn open_first(pool: &Pool) -> Result<Opened, ConnectError> {
    let deadline = Instant::now() + pool.settings.request_timeout;
    let mut backoff = Backoff::default();
    let mut result = open(pool).await;
    while let Err(error) = &result
        && error.is_electing()
        && Instant::now() < deadline
    {
        backoff.note_failure(true);
        sleep(backoff.next()).await;
        // What the last round came to says more than that the time is up in the middle of this one.
        match timeout_at(deadline, open(pool)).await {
            Ok(next) => result = next,
            Err(_elapsed) => break,
        }
    }
    result
}

async fn open(pool: &Pool) -> Result<Opened, ConnectError> {
    pool.session
        .open(&pool.settings, &pool.leases, None, || pool.next_id())
        .await
}
