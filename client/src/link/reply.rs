//! What a reply does to the leases, and what its caller is told. Decides and never waits.

use crate::clock::Moment;
use crate::error::{Error, Loss};
use crate::info::{self, Holder, KeyState, LockInfo, PageOf, SessionInfo, Stat};
use crate::limits::RENEW_RETRY_FRACTION;
use crate::link::call::{Answer, Ask, Call, Sent, Sink, Wish};
use crate::link::pool::Pool;
use crate::session::grant::{EndedHold, Grant, Releaser};
use crate::session::lease::{Lease, SessionLife, Terms};
use protocol::{ErrorCode, Fence, Reply};
use std::sync::Arc;
use std::time::Duration;

/// Where and when a reply came: on a connection of which session.
pub(crate) struct Arrival<'a> {
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) epoch: u64,
    pub(crate) life: &'a Arc<SessionLife>,
    pub(crate) now: Moment,
}

impl Arrival<'_> {
    /// The request `call` was answered with `reply`.
    pub(crate) fn apply(&self, call: Call, reply: &Reply<'_>) {
        let sent = call.sent.expect("what was not sent cannot be answered");
        match (call.ask, call.lease, reply) {
            (Ask::Acquire(wish), _, reply @ Reply::Granted { .. }) => {
                self.granted(&wish, sent, reply, call.sink);
            }
            (
                ask @ (Ask::Renew { .. } | Ask::Claim { .. } | Ask::Downgrade { .. }),
                Some(lease),
                _,
            ) => {
                let is_downgrade = matches!(ask, Ask::Downgrade { .. });
                if let Ask::Renew { .. } = ask {
                    let is_confirmed = matches!(reply, Reply::Renewed { .. });
                    self.pool.session.counters.count_renewal(is_confirmed);
                }
                self.about_lease(&lease, is_downgrade, sent, reply, call.sink);
            }
            (Ask::KeepAlive, _, Reply::KeptAlive { ttl_ms }) => {
                self.life.kept(sent.first, millis(*ttl_ms));
            }
            // The server forgot whether it was done. Doing it again does no harm: a fence is
            // released once.
            (ask @ Ask::Release { is_last: true, .. }, _, reply) if is_forgotten(reply) => {
                let again = Call::new(self.pool.next_id(), ask, call.sink);
                self.pool.open_lane_near(0).push(again);
            }
            (ask, _, reply) => call.sink.send(owned(ask.name(), reply)),
        }
    }

    fn granted(&self, wish: &Wish, sent: Sent, reply: &Reply<'_>, sink: Sink) {
        let Reply::Granted {
            fence,
            ttl_ms,
            hold_count,
        } = *reply
        else {
            unreachable!("the caller looked");
        };
        let granted = millis(ttl_ms);
        let terms = Terms {
            key: Arc::clone(&wish.key),
            fence,
            mode: wish.mode,
            ttl: match wish.lease {
                protocol::Lease::Ttl { ttl_ms } => millis(ttl_ms),
                protocol::Lease::Session => granted,
            },
            granted,
            // A lock that was held already keeps the kind of lease that it had. If we know it, its
            // entry says which; if not, the time that the server gave is right for either kind.
            is_session_bound: wish.lease == protocol::Lease::Session && hold_count == 1,
            is_auto_renewed: wish.is_auto_renewed && !wish.is_detached,
            metadata: Arc::clone(&wish.metadata),
            trace_id: wish.trace_id.clone(),
            sent: sent.first,
        };
        let lease = if wish.is_detached {
            Arc::new(Lease::detached(&terms))
        } else {
            let leases = &self.pool.leases;
            leases.admit(&terms, self.epoch, self.life, self.now)
        };
        let pool: Arc<Pool> = Arc::clone(self.pool);
        let grant = Grant::new(Arc::clone(&lease), pool);
        // A repeated acquire may be answered from memory, with a grant that was lost in the
        // meantime.
        let is_repeated = sent.first != sent.last;
        match sink {
            Sink::Caller(caller) if is_repeated || lease.is_stale(self.now) => {
                self.pool.post_renewal(&lease, Sink::Confirm(grant, caller));
            }
            sink => {
                self.schedule(&lease);
                sink.send(Ok(Answer::Granted(grant)));
            }
        }
    }

    /// A renewal, a claim or a downgrade was answered.
    fn about_lease(
        &self,
        lease: &Arc<Lease>,
        is_downgrade: bool,
        sent: Sent,
        reply: &Reply<'_>,
        sink: Sink,
    ) {
        if matches!(sink, Sink::Nowhere) {
            lease.stop_renewing();
        }
        let outcome = match *reply {
            Reply::Renewed { ttl_ms } => self.confirmed(lease, sent, None, ttl_ms),
            Reply::Granted { fence, ttl_ms, .. } => {
                if is_downgrade {
                    self.pool.leases.downgrade(lease, fence);
                }
                self.confirmed(lease, sent, Some(fence), ttl_ms)
            }
            Reply::NotHeld { reason } => {
                let loss = lease.lose(Loss::from(reason), self.now);
                self.pool.leases.forget(lease);
                Err(Error::Lost(loss))
            }
            // Not now, or not understood: it holds as long as it did before.
            _ => {
                if lease.is_renewable() && !lease.is_session_bound {
                    let later = self.now + lease.granted() / RENEW_RETRY_FRACTION;
                    self.pool.leases.schedule(lease, later);
                }
                Err(match owned("a renewal", reply) {
                    Err(error) => error,
                    Ok(_) => Error::Unexpected {
                        request: "a renewal",
                    },
                })
            }
        };
        match (sink, outcome) {
            (Sink::Confirm(grant, caller), Ok(())) => {
                Sink::Caller(caller).send(Ok(Answer::Granted(grant)));
            }
            (Sink::Confirm(grant, caller), Err(error)) => {
                drop(grant);
                Sink::Caller(caller).send(match error {
                    Error::Lost(loss) => Ok(Answer::Lost(loss)),
                    error => Err(error),
                });
            }
            (sink, Ok(())) => sink.send(Ok(Answer::Done)),
            (sink, Err(error)) => sink.send(Err(error)),
        }
    }

    fn confirmed(
        &self,
        lease: &Arc<Lease>,
        sent: Sent,
        granted: Option<Fence>,
        ttl_ms: u32,
    ) -> Result<(), Error> {
        lease.note_answer(sent.first, millis(ttl_ms));
        match lease.loss() {
            Some(loss) => {
                // The guard was dropped while a claim or a downgrade was under way: its release
                // may have come before the claim, or have named the old fence.
                if let (Loss::Released, Some(fence)) = (loss, granted) {
                    let hold = EndedHold {
                        key: Arc::clone(&lease.key),
                        fence,
                        is_last: true,
                    };
                    self.pool.post_release(hold);
                }
                Err(Error::Lost(loss))
            }
            None => {
                self.schedule(lease);
                Ok(())
            }
        }
    }

    fn schedule(&self, lease: &Arc<Lease>) {
        if let Some(due) = lease.renewal_due() {
            self.pool.leases.schedule(lease, due);
        }
    }
}

fn is_forgotten(reply: &Reply<'_>) -> bool {
    matches!(
        reply,
        Reply::Error {
            code: ErrorCode::FORGOTTEN,
            ..
        }
    )
}

/// The answer as a caller gets it.
fn owned(request: &'static str, reply: &Reply<'_>) -> Result<Answer, Error> {
    Ok(match *reply {
        Reply::Pong | Reply::KeptAlive { .. } | Reply::Bye => Answer::Done,
        Reply::Refused(contention) | Reply::TimedOut(contention) => {
            Answer::Contended(contention.into())
        }
        Reply::Cancelled => Answer::Cancelled,
        Reply::Released { .. } => Answer::Released,
        Reply::NotHeld { reason } => Answer::NotHeld(reason),
        Reply::QueryResult {
            last_fence,
            holder_count,
            queue_length,
            holders,
            recovering_ms,
        } => Answer::Key(KeyState {
            last_fence,
            holder_count,
            queue_length,
            holders: holders.iter().map(Holder::from).collect(),
            recovering: info::millis(recovering_ms),
        }),
        Reply::ListPage {
            next,
            entries,
            recovering_ms,
        } => Answer::Locks(PageOf {
            entries: entries.iter().map(LockInfo::from).collect(),
            next: next.as_bytes().to_vec(),
            recovering: info::millis(recovering_ms),
        }),
        Reply::SessionsPage { next, entries } => Answer::Sessions(PageOf {
            entries: entries.iter().map(SessionInfo::from).collect(),
            next: next.as_bytes().to_vec(),
            recovering: None,
        }),
        Reply::Stats { entries } => Answer::Stats(entries.iter().map(Stat::from).collect()),
        Reply::Busy {
            bound,
            retry_after_ms,
        } => {
            return Err(Error::Busy {
                bound,
                retry_after: guess(retry_after_ms),
            });
        }
        Reply::Unavailable {
            reason,
            retry_after_ms,
        } => {
            return Err(Error::Unavailable {
                reason,
                retry_after: guess(retry_after_ms),
            });
        }
        Reply::Error { code, message, .. } => {
            return Err(Error::Refused {
                code,
                message: message.as_str().to_owned(),
            });
        }
        Reply::Welcome(_)
        | Reply::HelloRefused { .. }
        | Reply::Granted { .. }
        | Reply::NotWaiting
        | Reply::Renewed { .. }
        | Reply::Unknown { .. } => return Err(Error::Unexpected { request }),
    })
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

fn guess(retry_after_ms: u32) -> Option<Duration> {
    (retry_after_ms > 0).then(|| millis(retry_after_ms))
}

#[cfg(test)]
mod tests;
