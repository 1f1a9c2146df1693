//! The engine's answers in the words of the wire.

use crate::core::shared::Shared;
use crate::session::Session;
use engine::{Grant, Holder, KeyState, Limit, SessionId, Tick};
use protocol::{
    BusyBound, ClientName, Contention, ErrorCode, Message, Metadata, NO_END_MS, NodeAddress, Reply,
};

/// An error, its sentence clipped to what the wire allows.
pub(crate) fn error(code: ErrorCode, message: &str) -> Reply<'_> {
    Reply::Error {
        code,
        message: Message::clipped(message),
        leader: NodeAddress::default(),
    }
}

pub(crate) fn granted(grant: &Grant, now: Tick) -> Reply<'static> {
    Reply::Granted {
        fence: grant.fence,
        ttl_ms: remaining_ms(grant.until, now),
        hold_count: grant.count,
    }
}

pub(crate) fn busy(limit: Limit) -> Reply<'static> {
    let bound = match limit {
        Limit::Keys => BusyBound::KEYS,
        Limit::WaitersPerKey => BusyBound::WAITERS_PER_KEY,
        Limit::Waiters => BusyBound::WAITERS_TOTAL,
        Limit::SharedHolders => BusyBound::SHARED_HOLDERS,
        Limit::Sessions => BusyBound::LOAD,
        Limit::Bytes => BusyBound::MEMORY,
    };
    Reply::Busy {
        bound,
        retry_after_ms: 0,
    }
}

pub(crate) fn remaining_ms(until: Tick, now: Tick) -> u32 {
    u32::try_from(now.ms_until(until)).unwrap_or(u32::MAX)
}

/// As much as is left of a life that may have no end.
pub(crate) fn left_ms(end: Option<Tick>, now: Tick) -> u32 {
    end.map_or(NO_END_MS, |end| remaining_ms(end, now).min(NO_END_MS - 1))
}

/// Builds what stands between a client and a lock, from what the engine says of the key, and hands
/// it to `write`: it borrows the holder's name from the registry.
pub(crate) fn with_contention(
    shared: &Shared,
    state: Option<&KeyState>,
    you: SessionId,
    now: Tick,
    write: impl FnOnce(Contention<'_>),
) {
    match state.and_then(|state| state.holders.first()) {
        Some(holder) => with_holder(shared, holder, you, now, write),
        None => write(Contention {
            holder_count: 0,
            queue_length: state.map_or(0, |state| state.queue_length),
            holder: None,
            recovering_ms: shared.recovery.recovering_ms(now),
        }),
    }
}

/// As above, from the holder that a refusal names.
pub(crate) fn with_holder(
    shared: &Shared,
    holder: &Holder,
    you: SessionId,
    now: Tick,
    write: impl FnOnce(Contention<'_>),
) {
    let session = holder.owner.and_then(|owner| shared.registry().find(owner));
    write(Contention {
        holder_count: holder.holders,
        queue_length: holder.queue_length,
        holder: wire_holder(holder, session.as_deref(), you, now),
        recovering_ms: shared.recovery.recovering_ms(now),
    });
}

/// One holder. `None` while its grant is so fresh that its owner is not written down. A session
/// that is just being taken down has no name and no id any more.
pub(crate) fn wire_holder<'a>(
    holder: &'a Holder,
    session: Option<&'a Session>,
    you: SessionId,
    now: Tick,
) -> Option<protocol::Holder<'a>> {
    let owner = holder.owner?;
    Some(protocol::Holder {
        fence: holder.fence,
        session_id: protocol::SessionId::new(session.map_or(0, |session| session.public_id)),
        held_ms: holder.held_ms,
        remaining_ms: left_ms(holder.end(), now),
        ends_with_session: holder.ends_with_session(),
        mode: holder.mode,
        is_session_bound: holder.is_session_bound,
        is_you: owner == you,
        hold_count: holder.count.max(1),
        client_name: ClientName::clipped(session.map_or("", |session| &session.client_name)),
        metadata: Metadata::new(&holder.metadata).unwrap_or_default(),
    })
}
