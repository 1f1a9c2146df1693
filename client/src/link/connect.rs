//! Starting a client: its first connections, and the tasks that keep it going.

use crate::error::ConnectError;
use crate::link::connection::Connection;
use crate::link::pool::{Handle, Pool};
use crate::link::watchdog;
use crate::settings::Settings;
use std::sync::Arc;

/// Opens the session, then spawns one task per connection and the watchdog on the current runtime.
/// Dropping it half-way closes what was opened.
pub(crate) async fn connect(settings: Settings) -> Result<Arc<Handle>, ConnectError> {
    let pool = Arc::new(Pool::new(settings));
    // Dropped early, it closes what is open.
    let handle = Arc::new(Handle::new(Arc::clone(&pool)));
    let open = || {
        pool.session
            .open(&pool.settings, &pool.leases, None, || pool.next_id())
    };
    let mut first = Some(open().await?);
    for index in 0..pool.lanes().len() {
        let opened = match first.take() {
            Some(opened) => Some(opened),
            // One connection is enough to begin with; the task of this one goes on trying.
            None => open().await.ok(),
        };
        if opened.is_some() {
            pool.lanes()[index].set_open();
        }
        tokio::spawn(Connection::new(Arc::clone(&pool), index).run(opened));
    }
    tokio::spawn(watchdog::run(Arc::clone(&pool)));
    Ok(handle)
}
