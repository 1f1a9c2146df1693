//! Requests that come again because their answer was lost: what has taken effect is answered from memory.

use crate::net::dispatch::{Batch, engine_fence, engine_key};
use crate::net::reply;
use crate::registry::{Recollection, Remembered};
use engine::{Grant, Tick};
use protocol::{ErrorCode, Mode, Reply, Request, RequestId};

impl Batch {
    /// The answer to a repeated request that has taken effect before, or may have. `None`: decide it as a new one.
    pub(super) fn recall(
        &self,
        id: RequestId,
        request: &Request<'_>,
        now: Tick,
    ) -> Option<Reply<'static>> {
        match (self.connection.session.recall(id.get()), request) {
            (Recollection::Outcome(Remembered::Granted(grant)), Request::Acquire(acquire)) => {
                // The lease may have been renewed since, or be over: then nothing is left of it.
                let you = Some(self.connection.session.id);
                let engine = &self.core.shared.engine;
                let holder = engine.holder(engine_key(acquire.key), grant.fence, now);
                let holder = holder.filter(|holder| holder.owner == you);
                let until = holder.map_or(now, |holder| holder.until);
                Some(reply::granted(&Grant { until, ..grant }, now))
            }
            (Recollection::Outcome(Remembered::Released { count }), Request::Release { .. }) => {
                Some(Reply::Released {
                    remaining_count: count,
                })
            }
            // Others than exclusive ones would be counted twice; and an exclusive one would wait for itself. Without a wait it
            // is refused, and nothing happens.
            (Recollection::Forgotten, Request::Acquire(acquire))
                if acquire.is_reentrant
                    || acquire.mode == Mode::Shared
                    || acquire.wait_ms > 0 && self.holds(acquire.key, now) =>
            {
                Some(forgotten())
            }
            (Recollection::Forgotten, Request::Release { key, fence }) => {
                let fence = engine_fence(*fence)?;
                // Still held: perhaps because the first sending did nothing, perhaps because it gave back one hold of several. To
                // do it again might give back one too many.
                let engine = &self.core.shared.engine;
                let holder = engine.holder(engine_key(*key), fence, now);
                holder.is_some().then(forgotten)
            }
            _ => None,
        }
    }
}

fn forgotten() -> Reply<'static> {
    reply::error(
        ErrorCode::FORGOTTEN,
        "what became of this request has been forgotten; ask for what is held",
    )
}
