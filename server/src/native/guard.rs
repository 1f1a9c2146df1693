//! What stands between a request and its verb: the sender's rights and quotas. And an operator's
//! end of a session.

use super::dispatch::Batch;
use super::permission::{self, Forbidden};
use super::reply;
use crate::rights::{Bound, Entitlement, Exceeded, Whose};
use bytes::BytesMut;
use engine::Tick;
use protocol::{BusyBound, ErrorCode, Reply, Request, RequestId};

impl Batch {
    /// Whether a sender with these bounds may ask for this. `false`: it was told why not.
    pub(super) fn is_allowed(
        &self,
        bounds: &Entitlement,
        id: RequestId,
        request: &Request<'_>,
        now: Tick,
        out: &mut BytesMut,
    ) -> bool {
        if let Err(why) = permission::check(bounds, request) {
            self.refuse(why, request, id, out);
            return false;
        }
        match bounds.charge(now, permission::must_be_done(request)) {
            Ok(()) => true,
            Err(exceeded) => {
                self.refuse_quota(&exceeded, id, out);
                false
            }
        }
    }

    /// Says which right is missing. Counted and audited.
    #[cold]
    fn refuse(&self, why: Forbidden, request: &Request<'_>, id: RequestId, out: &mut BytesMut) {
        let shared = &self.core.shared;
        shared.rights.count_refused();
        let message = why.message(&self.connection.entitlement());
        reply::error(ErrorCode::FORBIDDEN, &message).append(id, out);
        if let Some(audit) = shared.audit() {
            let (what, key) = permission::described(request);
            audit.refused(self.connection.actor(), key, what, message);
        }
    }

    /// Says which quota is used up.
    #[cold]
    pub(super) fn refuse_quota(&self, exceeded: &Exceeded, id: RequestId, out: &mut BytesMut) {
        self.core.shared.rights.count_exceeded();
        let bound = match (exceeded.bound, &exceeded.whose) {
            (Bound::Held, Whose::Token(_)) => BusyBound::QUOTA_HELD,
            (Bound::Held, Whose::Prefix(_)) => BusyBound::PREFIX_HELD,
            (Bound::Waiters, Whose::Token(_)) => BusyBound::QUOTA_WAITERS,
            (Bound::Waiters, Whose::Prefix(_)) => BusyBound::PREFIX_WAITERS,
            (Bound::Rate, _) => BusyBound::QUOTA_OPERATIONS,
        };
        let reply = Reply::Busy {
            bound,
            retry_after_ms: exceeded.retry_after_ms,
        };
        reply.append(id, out);
    }

    /// Ends a session for an operator. The server's own, of the Redis port and of detached locks,
    /// do not end.
    pub(super) fn end_session(&self, id: RequestId, public_id: u64, out: &mut BytesMut) {
        let shared = &self.core.shared;
        let session = shared.registry().find_public(public_id);
        let session = session.filter(|session| !session.is_ending());
        match session {
            Some(session) if session.ttl_ms == u32::MAX => {
                let message = "this session is the server's own; take its locks away one by one";
                reply::error(ErrorCode::FORBIDDEN, message).append(id, out);
            }
            Some(session) => {
                let by = &*self.connection.session.client_name;
                let client = &*session.client_name;
                tracing::info!(
                    session = public_id,
                    client,
                    by,
                    "session ended by an operator"
                );
                shared.end_session(session.id);
                self.core.books.session_ended(&session);
                Reply::Bye.append(id, out);
            }
            None => {
                let message = "there is no such session";
                reply::error(ErrorCode::SESSION_UNKNOWN, message).append(id, out);
            }
        }
    }
}
