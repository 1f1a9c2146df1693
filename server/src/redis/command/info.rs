//! `INFO`: what clients and operators read, in Redis's sections.

use super::connection::REDIS_VERSION;
use super::{Call, is};
use crate::redis::refusal::Refusal;
use protocol::resp::Writer;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

pub(super) fn info(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let wanted = &call.args[1..];
    let wants_all = wanted.is_empty()
        || wanted.iter().any(|section| {
            is(section, "all") || is(section, "default") || is(section, "everything")
        });
    let mut page = String::new();
    for (name, write) in SECTIONS {
        if wants_all || wanted.iter().any(|section| is(section, name)) {
            if !page.is_empty() {
                page += "\r\n";
            }
            page += &format!("# {name}\r\n");
            for (field, value) in write(call) {
                // Writing to a string does not fail.
                let _ = write!(page, "{field}:{value}\r\n");
            }
        }
    }
    out.verbatim_text(&page);
    Ok(())
}

type Fields = Vec<(&'static str, String)>;

type Section = fn(&Call<'_, '_>) -> Fields;

const SECTIONS: [(&str, Section); 8] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

fn server(call: &Call<'_, '_>) -> Fields {
    let shared = &call.section.core().shared;
    let tcp_port = shared
        .config
        .redis_listen
        .map_or(0, |address| address.port());
    let up_s = shared.clock.now().as_ms() / 1_000;
    vec![
        ("redis_version", REDIS_VERSION.to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("server_name", shared.config.server_name.clone()),
        ("fencepost_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("os", std::env::consts::OS.to_owned()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", tcp_port.to_string()),
        ("uptime_in_seconds", up_s.to_string()),
        ("uptime_in_days", (up_s / 86_400).to_string()),
    ]
}

fn clients(call: &Call<'_, '_>) -> Fields {
    let shared = &call.section.core().shared;
    vec![
        (
            "connected_clients",
            call.section.port.client_count().to_string(),
        ),
        ("maxclients", shared.config.connections_max.to_string()),
        (
            "blocked_clients",
            call.section.port.session.waiting().to_string(),
        ),
    ]
}

fn memory(call: &Call<'_, '_>) -> Fields {
    let shared = &call.section.core().shared;
    vec![
        ("used_memory", shared.engine.bytes().to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory_policy", "noeviction".to_owned()),
    ]
}

fn persistence(call: &Call<'_, '_>) -> Fields {
    let is_recovering = call.section.core().shared.recovery.is_on();
    vec![
        ("loading", u8::from(is_recovering).to_string()),
        ("aof_enabled", "0".to_owned()),
    ]
}

fn stats(call: &Call<'_, '_>) -> Fields {
    let shared = &call.section.core().shared;
    let totals = shared.metrics.totals();
    let expired = shared
        .engine
        .host()
        .losses
        .counters
        .expired
        .load(Ordering::Relaxed);
    vec![
        (
            "total_connections_received",
            totals.connections_opened.to_string(),
        ),
        (
            "total_commands_processed",
            totals.redis_commands.to_string(),
        ),
        ("expired_keys", expired.to_string()),
        ("evicted_keys", "0".to_owned()),
    ]
}

fn replication(_: &Call<'_, '_>) -> Fields {
    vec![
        ("role", "master".to_owned()),
        ("connected_slaves", "0".to_owned()),
    ]
}

fn cluster(_: &Call<'_, '_>) -> Fields {
    vec![("cluster_enabled", "0".to_owned())]
}

fn keyspace(call: &Call<'_, '_>) -> Fields {
    match call.section.port.session.held() {
        0 => Vec::new(),
        held => vec![("db0", format!("keys={held},expires=0,avg_ttl=0"))],
    }
}
