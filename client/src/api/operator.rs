//! What operators ask about keys, sessions and the server; and taking a lock away by force.

use crate::api::client::Client;
use crate::error::Error;
use crate::info::{KeyState, LockInfo, PageOf, SessionInfo, Stat};
use crate::link::call::{Answer, Ask};
use protocol::{ErrorCode, Fence, Key, NotHeldReason, Prefix};
use std::sync::Arc;
use std::time::Duration;

impl Client {
    /// Asks for the holders of a key, the length of its queue, and the fence of its newest grant.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// No answer came.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// let state = client.query("orders/42").await?;
    /// for holder in &state.holders {
    ///     println!("{holder}");
    /// }
    /// println!("{} waiting", state.queue_length);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn query(&self, key: impl AsRef<[u8]>) -> Result<KeyState, Error> {
        let key: Arc<[u8]> = key.as_ref().into();
        Key::new(&key)?;
        let pool = self.pool();
        let lane = pool.lane_of(&key);
        let ask = Ask::Query {
            key: Arc::clone(&key),
        };
        match pool.call_soon(lane, ask, None).await? {
            Answer::Key(state) => Ok(state),
            _ => Err(Error::Unexpected { request: "a query" }),
        }
    }

    /// Lists the held keys that begin with `prefix`, page by page; all of them for an empty one.
    ///
    /// The list is no snapshot: a key held all the while is listed once at least, others may be
    /// missed or come twice.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// let mut pages = client.list("orders/");
    /// while let Some(locks) = pages.next().await? {
    ///     for lock in locks {
    ///         println!("{}: {}", String::from_utf8_lossy(&lock.key), lock.contention);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self, prefix: impl AsRef<[u8]>) -> Pages<LockInfo> {
        Pages::new(self.clone(), prefix.as_ref().to_vec())
    }

    /// Lists all sessions, page by page.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// for session in client.sessions().all().await? {
    ///     println!("{} holds {}", session.client_name, session.lock_count);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn sessions(&self) -> Pages<SessionInfo> {
        Pages::new(self.clone(), Vec::new())
    }

    /// Asks for the server's counters.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// No answer came.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// for stat in client.stats().await? {
    ///     println!("{} {}", stat.name, stat.value);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stats(&self) -> Result<Vec<Stat>, Error> {
        match self.ask_any(Ask::Stats).await? {
            Answer::Stats(stats) => Ok(stats),
            _ => Err(Error::Unexpected {
                request: "a request for statistics",
            }),
        }
    }

    /// Takes a lock away from its holder, which is told. It names the fence, so that it cannot hit
    /// the next holder by mistake.
    ///
    /// Cancel safe: if dropped, it may or may not take effect.
    ///
    /// # Errors
    /// No answer came; the lock may or may not have been taken away.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// let state = client.query("orders/42").await?;
    /// if let Some(holder) = state.holders.first() {
    ///     client.force_release("orders/42", holder.fence).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn force_release(
        &self,
        key: impl AsRef<[u8]>,
        fence: Fence,
    ) -> Result<ForceRelease, Error> {
        let key: Arc<[u8]> = key.as_ref().into();
        Key::new(&key)?;
        let pool = self.pool();
        let lane = pool.lane_of(&key);
        let ask = Ask::ForceRelease {
            key: Arc::clone(&key),
            fence,
            trace_id: pool.settings.current_trace(),
        };
        match pool.call_soon(lane, ask, None).await? {
            Answer::Released => Ok(ForceRelease::Released),
            Answer::NotHeld(reason) => Ok(ForceRelease::NotHeld(reason)),
            _ => Err(Error::Unexpected {
                request: "a forced release",
            }),
        }
    }

    /// Ends a session, as its client's [`close`](Client::close) would: what it holds goes to
    /// those that wait for it. Its client is told and opens a new one. `false`: there is no such
    /// session.
    ///
    /// Cancel safe: if dropped, it may or may not take effect.
    ///
    /// # Errors
    /// No answer came, or the token does not allow it.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// for session in client.sessions().all().await? {
    ///     if session.client_name == "a-client-that-hangs" {
    ///         client.end_session(session.session_id).await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn end_session(&self, session_id: u64) -> Result<bool, Error> {
        match self.ask_any(Ask::EndSession { session_id }).await {
            Ok(Answer::Done) => Ok(true),
            Ok(_) => Err(Error::Unexpected {
                request: "the end of a session",
            }),
            Err(Error::Refused {
                code: ErrorCode::SESSION_UNKNOWN,
                ..
            }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// What came of [`Client::force_release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForceRelease {
    /// The lock was taken away.
    Released,
    /// No session holds the key under this fence; nothing happened.
    NotHeld(NotHeldReason),
}

/// A long list that comes in pages, from [`Client::list`] or [`Client::sessions`].
#[derive(Debug)]
#[must_use = "asks for nothing until next() or all() is awaited"]
pub struct Pages<T> {
    client: Client,
    prefix: Vec<u8>,
    /// Where the next page begins; `None` after the last.
    cursor: Option<Vec<u8>>,
    /// As the last page said.
    recovering: Option<Duration>,
    entries: std::marker::PhantomData<fn() -> T>,
}

impl<T> Pages<T> {
    fn new(client: Client, prefix: Vec<u8>) -> Self {
        Self {
            client,
            prefix,
            cursor: Some(Vec::new()),
            recovering: None,
            entries: std::marker::PhantomData,
        }
    }

    /// Takes note of where the next page begins.
    fn turn(&mut self, page: PageOf<T>) -> Vec<T> {
        self.cursor = (!page.next.is_empty()).then_some(page.next);
        self.recovering = page.recovering;
        page.entries
    }
}

impl Pages<LockInfo> {
    /// How much longer the server recovers from a restart, by the latest page; `None` when it does
    /// not, and before the first page. Until then, keys that are not listed may be held.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// let mut pages = client.list("orders/");
    /// while let Some(locks) = pages.next().await? {
    ///     println!("{} locks on this page", locks.len());
    /// }
    /// if let Some(left) = pages.recovering() {
    ///     println!("there may be more: the server is recovering for {left:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn recovering(&self) -> Option<Duration> {
        self.recovering
    }

    /// The next page; `None` after the last. A page may be empty although more follow.
    ///
    /// Cancel safe: the page is asked for again.
    ///
    /// # Errors
    /// No answer came. Calling it again asks for the same page again.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// let first_page = client.list("orders/").next().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next(&mut self) -> Result<Option<Vec<LockInfo>>, Error> {
        let Some(cursor) = self.cursor.clone() else {
            return Ok(None);
        };
        Prefix::new(&self.prefix)?;
        let ask = Ask::List {
            prefix: self.prefix.clone(),
            cursor,
            limit: 0,
        };
        match self.client.ask_any(ask).await? {
            Answer::Locks(page) => Ok(Some(self.turn(page))),
            _ => Err(Error::Unexpected { request: "a list" }),
        }
    }

    /// All pages that are left, in one. A server may hold millions of locks: mind the prefix.
    ///
    /// Cancel safe, but what was listed so far is lost.
    ///
    /// # Errors
    /// No answer came.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// println!("{} orders are locked", client.list("orders/").all().await?.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn all(mut self) -> Result<Vec<LockInfo>, Error> {
        let mut all = Vec::new();
        while let Some(page) = self.next().await? {
            all.extend(page);
        }
        Ok(all)
    }
}

impl Pages<SessionInfo> {
    /// The next page; `None` after the last. A page may be empty although more follow.
    ///
    /// Cancel safe: the page is asked for again.
    ///
    /// # Errors
    /// No answer came. Calling it again asks for the same page again.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// let first_page = client.sessions().next().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next(&mut self) -> Result<Option<Vec<SessionInfo>>, Error> {
        let Some(cursor) = self.cursor.clone() else {
            return Ok(None);
        };
        match self
            .client
            .ask_any(Ask::Sessions { cursor, limit: 0 })
            .await?
        {
            Answer::Sessions(page) => Ok(Some(self.turn(page))),
            _ => Err(Error::Unexpected {
                request: "a list of sessions",
            }),
        }
    }

    /// All pages that are left, in one.
    ///
    /// Cancel safe, but what was listed so far is lost.
    ///
    /// # Errors
    /// No answer came.
    ///
    /// ```no_run
    /// # async fn example(client: fencepost::Client) -> Result<(), fencepost::Error> {
    /// println!("{} clients", client.sessions().all().await?.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn all(mut self) -> Result<Vec<SessionInfo>, Error> {
        let mut all = Vec::new();
        while let Some(page) = self.next().await? {
            all.extend(page);
        }
        Ok(all)
    }
}
