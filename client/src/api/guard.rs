//! The guard: a lock that is held.

use crate::clock::Moment;
use crate::error::{Error, Loss};
use crate::link::call::{Answer, Ask};
use crate::link::pool::Handle;
use crate::session::grant::Grant;
use crate::session::lease::Lease;
use protocol::{Fence, Mode};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A lock that is held. Releases it when dropped, unless it is
/// [detached](crate::LockRequest::detached).
///
/// Dropping works anywhere, outside a runtime too: the release is handed to the connection's task
/// and goes out with its next write. To know that it arrived, use [`release`](Self::release).
///
/// The watchdog renews the lease in the background unless
/// [`no_renew`](crate::LockRequest::no_renew) was asked for. A guard also keeps its client's
/// connections alive; the session ends when the last [`Client`](crate::Client) and the last guard
/// are gone.
///
/// ```no_run
/// # async fn example(client: fencepost::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let guard = client.lock("orders/42").acquire().await?;
/// // Every write carries the fence, so that the table can refuse writes that come too late.
/// let fence = guard.fence();
/// println!("UPDATE orders SET state = 'paid', fence = {fence} WHERE id = 42 AND fence < {fence}");
/// drop(guard);
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    // Dropped in this order: the release goes out before the last goodbye.
    grant: Grant,
    client: Arc<Handle>,
}

impl Guard {
    pub(crate) fn new(mut grant: Grant, client: Arc<Handle>) -> Self {
        grant.hand_over();
        Self { grant, client }
    }

    fn lease(&self) -> &Arc<Lease> {
        self.grant.lease()
    }

    /// What is locked.
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::Guard) {
    /// assert_eq!(guard.key(), b"orders/42");
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        &self.lease().key
    }

    /// The number of this grant, larger than that of every earlier grant of the key. Send it along
    /// with everything you do to the protected resource, and have that refuse smaller ones.
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::Guard) {
    /// println!("X-Fence-Token: {}", guard.fence().get());
    /// # }
    /// ```
    pub fn fence(&self) -> Fence {
        self.lease().fence()
    }

    /// The name of this grant on the server: what it takes to
    /// [release](crate::Client::release_detached) a [detached](crate::LockRequest::detached) lock.
    /// A [`downgrade`](Self::downgrade) changes it.
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::Guard) {
    /// let handle = guard.handle();
    /// assert_eq!(handle.fence, guard.fence());
    /// # }
    /// ```
    pub fn handle(&self) -> LockHandle {
        LockHandle {
            key: self.key().to_vec(),
            fence: self.fence(),
        }
    }

    /// Exclusive or shared.
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::Guard) {
    /// assert_eq!(guard.mode(), fencepost::Mode::Exclusive);
    /// # }
    /// ```
    pub fn mode(&self) -> Mode {
        self.lease().mode()
    }

    /// Until when the lock is certainly held, as things stand. Moves on as renewals succeed; once
    /// the lock is lost, it is the moment of the loss, or the deadline if that was earlier.
    ///
    /// It counts from the moment at which the acquire, or the latest renewal that was answered, was
    /// *sent*, minus a margin, on a clock that does not jump and, on Linux, goes on while the
    /// machine is suspended. The server began the lease no earlier, so the lock ends no earlier
    /// either, unless an operator takes it away by force. It is never later than the end of the
    /// session. After a long wait the client renews once before it hands the guard out, so that a
    /// guard never starts nearly used up.
    ///
    /// ```no_run
    /// # async fn example(guard: fencepost::Guard) {
    /// // Does a step that takes up to two seconds still fit in?
    /// let two_seconds = std::time::Duration::from_secs(2);
    /// let fits = guard.valid_until() > std::time::Instant::now() + two_seconds;
    /// # }
    /// ```
    pub fn valid_until(&self) -> std::time::Instant {
        self.lease().deadline().into_std()
    }

    /// How long [`valid_until`](Self::valid_until) is away; zero once the lock is lost.
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::Guard) {
    /// println!("{:?} left", guard.remaining());
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        let now = Moment::now();
        match self.lease().check(now) {
            Ok(deadline) => deadline.since(now),
            Err(_) => Duration::ZERO,
        }
    }

    /// Whether the lock is certainly held at this moment. Once `false`, always `false`.
    ///
    /// A `true` is a little old by the time you act on it: the protected resource must check the
    /// fence itself.
    ///
    /// ```no_run
    /// # fn example(guard: fencepost::Guard) {
    /// if !guard.is_valid() {
    ///     panic!("another holder may be at work");
    /// }
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        self.lease().check(Moment::now()).is_ok()
    }

    /// A future that completes as soon as the lock is gone: the server said so, a renewal was
    /// refused, the session ended, or [`valid_until`](Self::valid_until) passed without a renewal.
    /// It does not borrow the guard, so it can be moved into another task; if the guard is released
    /// first, it completes with [`Loss::Released`].
    ///
    /// Cancel safe: dropping it changes nothing, and another can be made.
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn example(guard: fencepost::Guard) {
    /// tokio::select! {
    ///     () = work() => println!("done"),
    ///     loss = guard.lost() => println!("stopped half-way: {loss}"),
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + Sync + 'static + use<> {
        let lease = Arc::clone(self.lease());
        async move { lease.gone().await }
    }

    /// Renews the lease now, for its full time, and gives the new
    /// [`valid_until`](Self::valid_until). Rarely needed: the watchdog does it.
    ///
    /// Cancel safe: if dropped, the renewal may or may not take effect, and the guard takes note if
    /// it does.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is gone. Any other error leaves the guard as valid as it was.
    ///
    /// ```no_run
    /// # async fn example(guard: fencepost::Guard) -> Result<(), fencepost::Error> {
    /// let valid_until = guard.renew().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn renew(&self) -> Result<std::time::Instant, Error> {
        let lease = self.lease();
        lease.check(Moment::now()).map_err(Error::Lost)?;
        let ask = Ask::Renew {
            key: Arc::clone(&lease.key),
            fence: lease.fence(),
            lease: lease.wanted(),
        };
        self.ask_about(ask).await?;
        Ok(self.valid_until())
    }

    /// Turns an exclusive lock into a shared one without letting go of it: others may then share
    /// it. A lock that is shared stays as it is. The fence to use from then on is returned, and is
    /// what [`fence`](Self::fence) gives.
    ///
    /// Cancel safe: if dropped, the downgrade may or may not take effect, and the guard takes note
    /// if it does.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is gone. Any other error leaves the guard as it was.
    ///
    /// ```no_run
    /// # async fn example(guard: fencepost::Guard) -> Result<(), fencepost::Error> {
    /// let fence = guard.downgrade().await?;
    /// assert_eq!(guard.mode(), fencepost::Mode::Shared);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn downgrade(&self) -> Result<Fence, Error> {
        let lease = self.lease();
        lease.check(Moment::now()).map_err(Error::Lost)?;
        let ask = Ask::Downgrade {
            key: Arc::clone(&lease.key),
            fence: lease.fence(),
        };
        self.ask_about(ask).await?;
        Ok(self.fence())
    }

    async fn ask_about(&self, ask: Ask) -> Result<(), Error> {
        let pool = self.client.pool();
        let lease = self.lease();
        let request = ask.name();
        let lane = pool.lane_of(&lease.key);
        let answer = pool.call_soon(lane, ask, Some(lease)).await;
        // The session's end or the deadline may have come first.
        if let Err(loss) = lease.check(Moment::now()) {
            return Err(Error::Lost(loss));
        }
        match answer? {
            Answer::Done => Ok(()),
            _ => Err(Error::Unexpected { request }),
        }
    }

    /// Releases the lock and waits for the server to say so.
    ///
    /// Cancel safe: the lock is released whether or not you wait for the answer.
    ///
    /// # Errors
    /// The release may not have arrived. It is sent as soon as there is a connection again; until
    /// then the lock ends with its lease.
    ///
    /// ```no_run
    /// # async fn example(guard: fencepost::Guard) -> Result<(), fencepost::Error> {
    /// match guard.release().await? {
    ///     fencepost::Release::Released => {}
    ///     // The work or the network took longer than the lease: worth a warning and a longer ttl.
    ///     fencepost::Release::AlreadyLost(loss) => eprintln!("{loss}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<Release, Error> {
        let before = self.lease().check(Moment::now());
        let Some(hold) = self.grant.give_back() else {
            let loss = self.lease().loss().unwrap_or(Loss::NotHeld);
            return Ok(Release::AlreadyLost(loss));
        };
        let pool = self.client.pool();
        let lane = pool.lane_of(&self.lease().key);
        match (pool.call_soon(lane, Ask::release(hold), None).await, before) {
            // It was reported lost, so it stays lost, even if the server had not noticed yet.
            (Ok(Answer::Released | Answer::NotHeld(_)), Err(loss)) => {
                Ok(Release::AlreadyLost(loss))
            }
            (Ok(Answer::Released), Ok(_)) => Ok(Release::Released),
            (Ok(Answer::NotHeld(reason)), Ok(_)) => Ok(Release::AlreadyLost(reason.into())),
            // The server was restarted, and nothing was claimed for a lock that is lost.
            (Err(Error::Unavailable { .. }), Err(loss)) => Ok(Release::AlreadyLost(loss)),
            (Err(Error::SessionEnded), _) => Ok(Release::AlreadyLost(Loss::SessionEnded)),
            (Ok(_), _) => Err(Error::Unexpected {
                request: "a release",
            }),
            (Err(error), _) => Err(error),
        }
    }
}

/// Key and fence of a grant, from [`Guard::handle`]: all that it takes to release a detached lock.
/// Make one of the two where they were passed on as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockHandle {
    /// What is locked.
    pub key: Vec<u8>,
    /// Under which fence.
    pub fence: Fence,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &format_args!("\"{}\"", self.key().escape_ascii()))
            .field("fence", &self.fence())
            .field("mode", &self.mode())
            .field("loss", &self.lease().loss())
            .finish_non_exhaustive()
    }
}

/// What came of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The lock was held to the end and is free now; or held once less, if it was
    /// [reentrant](crate::LockRequest::reentrant).
    Released,
    /// There was nothing to release any more. The work under the lock may have run beside that of
    /// its next holder; the resource must have refused the older fence.
    AlreadyLost(Loss),
}
