//! What a request needs of its sender's entitlement. Asked only for senders that have bounds.

use crate::rights::{Entitlement, Role};
use protocol::Request;

/// What is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Forbidden {
    /// What was asked for.
    needs: Role,
    /// The role is there, but not for this key, or not for all keys.
    has_role: bool,
}

/// Whether the sender may ask for this.
pub(super) fn check(entitlement: &Entitlement, request: &Request<'_>) -> Result<(), Forbidden> {
    let (needs, is_allowed) = match request {
        Request::Acquire(acquire) => (Role::Lock, entitlement.may_lock(acquire.key.as_bytes())),
        Request::Renew { key, .. }
        | Request::Release { key, .. }
        | Request::Downgrade { key, .. } => (Role::Lock, entitlement.may_lock(key.as_bytes())),
        Request::Claim(claim) => (Role::Lock, entitlement.may_lock(claim.key.as_bytes())),
        Request::Query { key } => (Role::Read, entitlement.may_read(key.as_bytes())),
        // What it may not see is left out of the page.
        Request::List { prefix, .. } => (Role::Read, entitlement.may_list(prefix.as_bytes())),
        Request::Sessions { .. } => (Role::Read, entitlement.may_read_all()),
        Request::Stats => (Role::Read, entitlement.has(Role::Read)),
        Request::ForceRelease { key, .. } => (Role::Operate, entitlement.may_force(key.as_bytes())),
        Request::EndSession { .. } => (Role::Operate, entitlement.may_operate()),
        // About the sender's own session, or refused anyway.
        Request::Hello(_)
        | Request::Ping
        | Request::KeepAlive
        | Request::Goodbye
        | Request::Cancel { .. }
        | Request::Unknown { .. } => return Ok(()),
    };
    match is_allowed {
        true => Ok(()),
        false => Err(Forbidden {
            needs,
            has_role: entitlement.has(needs),
        }),
    }
}

impl Forbidden {
    /// The same for the sender.
    #[cold]
    pub(super) fn message(self, entitlement: &Entitlement) -> String {
        let (name, role) = (entitlement.name(), self.needs.name());
        match self.has_role {
            true => format!(
                "{name:?} has the role {role}, but not for this: its prefixes do not reach so far"
            ),
            false => format!("{name:?} does not have the role {role}"),
        }
    }
}

/// What a request is called in the audit log, and its key.
pub(super) fn described<'a>(request: &Request<'a>) -> (&'static str, Option<&'a [u8]>) {
    match request {
        Request::Acquire(acquire) => ("acquire", Some(acquire.key.as_bytes())),
        Request::Renew { key, .. } => ("renew", Some(key.as_bytes())),
        Request::Release { key, .. } => ("release", Some(key.as_bytes())),
        Request::Downgrade { key, .. } => ("downgrade", Some(key.as_bytes())),
        Request::Claim(claim) => ("claim", Some(claim.key.as_bytes())),
        Request::Query { key } => ("query", Some(key.as_bytes())),
        Request::ForceRelease { key, .. } => ("force_release", Some(key.as_bytes())),
        Request::List { .. } => ("list", None),
        Request::Sessions { .. } => ("sessions", None),
        Request::Stats => ("stats", None),
        Request::EndSession { .. } => ("end_session", None),
        _ => ("request", None),
    }
}

/// Whether a request gives back or keeps, so that a full quota is no reason to refuse it.
pub(super) fn must_be_done(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Renew { .. }
            | Request::Release { .. }
            | Request::Downgrade { .. }
            | Request::Claim(_)
            | Request::Cancel { .. }
            | Request::KeepAlive
            | Request::Goodbye
            | Request::Ping
    )
}
