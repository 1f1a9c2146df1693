//! Requests that look and change nothing: for clients and for operators.

use crate::core::shared::Shared;
use crate::native::reply;
use crate::report::stats;
use crate::rights::Entitlement;
use bytes::BytesMut;
use engine::{HOLDERS_PER_LOOK, Key, SessionId, Tick};
use protocol::{
    Address, ClientName, Contention, Cursor, Fence, LockEntry, Records, Reply, RequestId,
    SessionEntry, StatEntry, StatName, limits,
};

const _: () = assert!(
    HOLDERS_PER_LOOK >= limits::HOLDERS_MAX as usize,
    "one look shows as many holders as a reply has room for"
);

pub(crate) fn query(
    shared: &Shared,
    key: Key<'_>,
    you: SessionId,
    now: Tick,
    id: RequestId,
    out: &mut BytesMut,
) {
    let recovering_ms = shared.recovery.recovering_ms(now);
    let Some(state) = shared.engine.query(key, now) else {
        let holders = Records::new(&[]).expect("none is not too many");
        return Reply::QueryResult {
            last_fence: None,
            holder_count: 0,
            queue_length: 0,
            holders,
            recovering_ms,
        }
        .append(id, out);
    };
    let shown = state.holders.iter().take(usize::from(limits::HOLDERS_MAX));
    let sessions: Vec<_> = shown
        .clone()
        .map(|holder| holder.owner.and_then(|owner| shared.registry().find(owner)))
        .collect();
    let holders: Vec<_> = shown
        .zip(&sessions)
        .filter_map(|(holder, session)| reply::wire_holder(holder, session.as_deref(), you, now))
        .collect();
    let reply = Reply::QueryResult {
        last_fence: Fence::new(state.fence.get()),
        holder_count: state.holder_count,
        queue_length: state.queue_length,
        holders: Records::new(&holders).expect("taken up to the limit"),
        recovering_ms,
    };
    reply.append(id, out);
}

#[expect(
    clippy::too_many_arguments,
    reason = "a request taken apart, plus what every verb needs"
)]
pub(crate) fn list(
    shared: &Shared,
    bounds: Option<&Entitlement>,
    prefix: &[u8],
    cursor: Cursor<'_>,
    limit: u16,
    you: SessionId,
    now: Tick,
    id: RequestId,
    out: &mut BytesMut,
) {
    let limit = page_limit(limit, limits::LIST_PAGE_MAX);
    let from = cursor.as_bytes().try_into().map_or(0, u32::from_le_bytes);
    let page = shared
        .engine
        .list(prefix, engine::Cursor::from_bits(from), limit, now);
    let owner = |state: &engine::KeyState| state.holders.first().and_then(|holder| holder.owner);
    let sessions: Vec<_> = page
        .keys
        .iter()
        .map(|(_, state)| owner(state).and_then(|owner| shared.registry().find(owner)))
        .collect();
    let entries: Vec<_> = page
        .keys
        .iter()
        .zip(&sessions)
        .filter(|((key, _), _)| bounds.is_none_or(|bounds| bounds.may_read(key)))
        .filter_map(|((key, state), session)| {
            Some(LockEntry {
                key: Key::new(key).ok()?,
                contention: Contention {
                    holder_count: state.holder_count,
                    queue_length: state.queue_length,
                    holder: state.holders.first().and_then(|holder| {
                        reply::wire_holder(holder, session.as_deref(), you, now)
                    }),
                    recovering_ms: None,
                },
                last_fence: Fence::new(state.fence.get()),
            })
        })
        .collect();
    let next = page.next.map(|next| next.bits().to_le_bytes());
    let next = next.as_ref().map_or(&[][..], |bytes| &bytes[..]);
    let reply = Reply::ListPage {
        next: Cursor::new(next).expect("four bytes are a cursor"),
        entries: Records::new(&entries).expect("asked for up to the limit"),
        recovering_ms: shared.recovery.recovering_ms(now),
    };
    reply.append(id, out);
}

pub(crate) fn sessions(
    shared: &Shared,
    cursor: Cursor<'_>,
    limit: u16,
    now: Tick,
    id: RequestId,
    out: &mut BytesMut,
) {
    let limit = page_limit(limit, limits::SESSIONS_PAGE_MAX);
    let after = cursor.as_bytes().try_into().map_or(0, u64::from_le_bytes);
    let page = shared.registry().page(after, limit);
    let addresses: Vec<String> = page
        .iter()
        .map(|session| {
            session
                .address()
                .map_or(String::new(), |address| address.to_string())
        })
        .collect();
    let entries: Vec<_> = page
        .iter()
        .zip(&addresses)
        .map(|(session, address)| {
            let deadline = shared.engine.session_deadline(session.id);
            SessionEntry {
                session_id: protocol::SessionId::new(session.public_id),
                age_ms: session.opened.ms_until(now),
                ttl_ms: session.ttl_ms,
                remaining_ms: reply::left_ms((deadline < Tick::MAX).then_some(deadline), now),
                connection_count: session.connections().len() as u32,
                lock_count: session.held(),
                waiter_count: session.waiting(),
                client_name: ClientName::clipped(&session.client_name),
                address: Address::clipped(address),
            }
        })
        .collect();
    let next = (page.len() == limit)
        .then(|| page.last().map(|session| session.public_id.to_le_bytes()))
        .flatten();
    let next = next.as_ref().map_or(&[][..], |bytes| &bytes[..]);
    let reply = Reply::SessionsPage {
        next: Cursor::new(next).expect("eight bytes are a cursor"),
        entries: Records::new(&entries).expect("asked for up to the limit"),
    };
    reply.append(id, out);
}

pub(crate) fn stats(shared: &Shared, id: RequestId, out: &mut BytesMut) {
    let numbers = stats::collect(shared);
    let entries: Vec<_> = numbers
        .iter()
        .take(usize::from(limits::STATS_MAX))
        .map(|(name, value)| StatEntry {
            name: StatName::clipped(name),
            value: *value,
        })
        .collect();
    Reply::Stats {
        entries: Records::new(&entries).expect("taken up to the limit"),
    }
    .append(id, out);
}

fn page_limit(asked: u16, most: u16) -> usize {
    usize::from(if asked == 0 { most } else { asked.min(most) })
}
