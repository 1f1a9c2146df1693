//! Channels. Redisson and Spring wake their waiters with them.

use super::Call;
use crate::redis::channels::{self, SUBSCRIPTIONS_MAX, Topic};
use crate::redis::glob;
use crate::redis::refusal::Refusal;
use protocol::resp::Writer;

pub(super) fn subscribe(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    listen(call, Topic::Channel, "subscribe", out)
}

pub(super) fn psubscribe(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    listen(call, Topic::Pattern, "psubscribe", out)
}

pub(super) fn unsubscribe(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    stop(call, Topic::Channel, "unsubscribe", out)
}

pub(super) fn punsubscribe(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    stop(call, Topic::Pattern, "punsubscribe", out)
}

fn listen(
    call: &mut Call<'_, '_>,
    topic: Topic,
    word: &str,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let subscriptions = &call.section.space.channels;
    let new = &call.args[1..];
    if call.client.subscriptions() + new.len() > SUBSCRIPTIONS_MAX {
        return Err(Refusal::text(format!(
            "OOM a connection may listen to {SUBSCRIPTIONS_MAX} channels and patterns"
        )));
    }
    for name in new {
        match topic {
            Topic::Channel => channels::check_name(name)?,
            Topic::Pattern => glob::check(name)?,
        }
    }
    for name in new {
        if !call.client.topics(topic).contains(*name) {
            subscriptions.subscribe(topic, name, call.connection.id)?;
            call.client.topics(topic).insert((*name).into());
        }
        out.push(3);
        out.bulk(word.as_bytes());
        out.bulk(name);
        out.integer(call.client.subscriptions() as i64);
    }
    Ok(())
}

fn stop(
    call: &mut Call<'_, '_>,
    topic: Topic,
    word: &str,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    let channels = &call.section.space.channels;
    let names: Vec<Box<[u8]>> = match &call.args[1..] {
        [] => call.client.topics(topic).iter().cloned().collect(),
        names => names.iter().map(|name| (*name).into()).collect(),
    };
    for name in &names {
        if call.client.topics(topic).remove(name) {
            channels.unsubscribe(topic, name, call.connection.id);
        }
        out.push(3);
        out.bulk(word.as_bytes());
        out.bulk(name);
        out.integer(call.client.subscriptions() as i64);
    }
    if names.is_empty() {
        out.push(3);
        out.bulk(word.as_bytes());
        out.null();
        out.integer(call.client.subscriptions() as i64);
    }
    Ok(())
}

pub(super) fn publish(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let (channel, payload) = (call.args[1], call.args[2]);
    channels::check_message(channel, payload)?;
    let count = call.section.publish(channel, payload);
    out.integer(count as i64);
    Ok(())
}
