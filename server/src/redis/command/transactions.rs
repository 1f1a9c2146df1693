//! `MULTI`, `EXEC`, `WATCH`: several commands with no other command in between. `redis/talk.rs`
//! queues them and opens one section for all their keys when `EXEC` comes.

use super::Call;
use crate::redis::client::{Stamp, Transaction, WATCHED_MAX};
use crate::redis::name::Name;
use crate::redis::refusal::Refusal;
use crate::redis::section::Section;
use protocol::resp::Writer;

pub(super) fn multi(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    if call.client.transaction.is_some() {
        return Err(Refusal::text("ERR MULTI calls can not be nested"));
    }
    call.client.transaction = Some(Transaction::default());
    out.simple("OK");
    Ok(())
}

/// `EXEC` outside a transaction. Inside one, `redis/talk.rs` executes it.
pub(super) fn exec(_: &mut Call<'_, '_>, _: &mut Writer<'_>) -> Result<(), Refusal> {
    Err(Refusal::text("ERR EXEC without MULTI"))
}

pub(super) fn discard(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    if call.client.transaction.take().is_none() {
        return Err(Refusal::text("ERR DISCARD without MULTI"));
    }
    call.client.watched.clear();
    out.simple("OK");
    Ok(())
}

pub(super) fn watch(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    if call.client.transaction.is_some() {
        return Err(Refusal::text("ERR WATCH inside MULTI is not allowed"));
    }
    if call.client.watched.len() + call.names.len() > WATCHED_MAX {
        return Err(Refusal::text(format!(
            "OOM a connection may watch {WATCHED_MAX} keys"
        )));
    }
    for name in call.names {
        if call
            .client
            .watched
            .iter()
            .all(|(watched, _)| watched != name)
        {
            let stamp = stamp(call.section, name)?;
            call.client.watched.push((name.clone().into_owned(), stamp));
        }
    }
    out.simple("OK");
    Ok(())
}

pub(super) fn unwatch(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    call.client.watched.clear();
    out.simple("OK");
    Ok(())
}

/// The state of a key, to be compared later.
pub(crate) fn stamp(section: &mut Section<'_>, name: &Name<'_>) -> Result<Stamp, Refusal> {
    let now = section.now;
    let list_change = section.signals(name)?.change(name.bytes(), now);
    let state = section.core().shared.engine.query(name.key(), now);
    let holder = state.as_ref().and_then(|state| state.holders.first());
    Ok(match holder {
        Some(holder) => Stamp {
            fence: holder.fence.get(),
            until: holder.until,
            count: holder.count,
            list_change,
        },
        None => Stamp {
            list_change,
            ..Stamp::default()
        },
    })
}
