//! Requests that come again because their answer was lost: what has taken effect is answered from
//! memory.

use crate::native::dispatch::Batch;
use crate::native::reply;
use crate::session::Session;
use crate::session::outcomes::{Recollection, Remembered};
use engine::{Grant, Tick};
use protocol::{Acquire, ErrorCode, Reply, Request, RequestId};

impl Batch {
    /// The answer to a repeated request that has taken effect before, or may have. `None`: decide
    /// it as a new one.
    pub(super) fn recall(
        &self,
        id: RequestId,
        request: &Request<'_>,
        now: Tick,
    ) -> Option<Reply<'static>> {
        match (self.connection.session.recall(id.get()), request) {
            (Recollection::Outcome(Remembered::Granted(grant)), Request::Acquire(acquire)) => {
                // The lease may have been renewed since, or be over: then nothing is left of it.
                let you = Some(self.owner(acquire).id);
                let engine = &self.core.shared.engine;
                let holder = engine.holder(acquire.key, grant.fence, now);
                let holder = holder.filter(|holder| holder.owner == you);
                let until = holder.as_ref().map_or(now, |holder| holder.until);
                if let Some(holder) = holder {
                    let (owner, key) = (self.owner(acquire), acquire.key.as_bytes());
                    self.core.books.write_again(owner, key, &holder, now);
                }
                Some(reply::granted(&Grant { until, ..grant }, now))
            }
            (Recollection::Outcome(Remembered::Released { count }), Request::Release { .. }) => {
                // Its record was appended before the outcome could be seen: `Batch::decide`.
                self.core.replies.await_appended();
                Some(Reply::Released {
                    remaining_count: count,
                })
            }
            // A lock that admits its own holder once more would be counted twice, and an exclusive
            // one would wait for itself. Without a wait it is refused, and nothing happens.
            (Recollection::Forgotten, Request::Acquire(acquire))
                if acquire.is_reentrant
                    || acquire.mode.admits(acquire.mode)
                    || acquire.wait_ms > 0
                        && self.is_held_by(self.owner(acquire).id, acquire.key, now) =>
            {
                Some(forgotten())
            }
            (Recollection::Forgotten, Request::Release { key, fence }) => {
                // Still held: perhaps because the first sending did nothing, perhaps because it
                // gave back one hold of several. To do it again might give back one too many.
                let engine = &self.core.shared.engine;
                let holder = engine.holder(*key, *fence, now);
                holder.is_some().then(forgotten)
            }
            _ => None,
        }
    }

    /// The session to which what is granted belongs.
    fn owner(&self, acquire: &Acquire<'_>) -> &Session {
        let detached = self.core.shared.detached().filter(|_| acquire.is_detached);
        detached.unwrap_or(&self.connection.session)
    }
}

fn forgotten() -> Reply<'static> {
    reply::error(
        ErrorCode::FORGOTTEN,
        "what became of this request has been forgotten; ask for what is held",
    )
}
