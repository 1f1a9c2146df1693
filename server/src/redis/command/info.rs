//! `INFO`: what clients and operators read, in Redis's sections.

use super::connection::{REDIS_VERSION, mode};
use super::{Call, is};
use crate::redis::refusal::Refusal;
use crate::redis::topology::Topology;
use protocol::resp::Writer;
use std::borrow::Cow;
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

type Fields = Vec<(Cow<'static, str>, String)>;

fn fields<const N: usize>(fields: [(&'static str, String); N]) -> Fields {
    let named = fields.map(|(field, value)| (Cow::Borrowed(field), value));
    named.into()
}

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
    fields([
        ("redis_version", REDIS_VERSION.to_owned()),
        ("redis_mode", mode(shared.cluster.as_ref()).to_owned()),
        ("server_name", shared.config.server_name.clone()),
        ("fencepost_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("os", std::env::consts::OS.to_owned()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", tcp_port.to_string()),
        ("uptime_in_seconds", up_s.to_string()),
        ("uptime_in_days", (up_s / 86_400).to_string()),
    ])
}

fn clients(call: &Call<'_, '_>) -> Fields {
    let shared = &call.section.core().shared;
    let space = call.section.space;
    let for_lists = space.list_waiters.load(Ordering::Relaxed) as u64;
    let blocked = u64::from(space.session.waiting()) + for_lists;
    fields([
        ("connected_clients", call.port.client_count().to_string()),
        ("maxclients", shared.config.connections_max.to_string()),
        ("blocked_clients", blocked.to_string()),
    ])
}

fn memory(call: &Call<'_, '_>) -> Fields {
    let shared = &call.section.core().shared;
    fields([
        ("used_memory", shared.engine.bytes().to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory_policy", "noeviction".to_owned()),
    ])
}

fn persistence(call: &Call<'_, '_>) -> Fields {
    let is_recovering = call.section.core().shared.recovery.is_on();
    fields([
        ("loading", u8::from(is_recovering).to_string()),
        ("aof_enabled", "0".to_owned()),
    ])
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
    fields([
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
    ])
}

fn replication(call: &Call<'_, '_>) -> Fields {
    let Some(view) = &call.section.core().shared.cluster else {
        return fields([
            ("role", "master".to_owned()),
            ("connected_slaves", "0".to_owned()),
        ]);
    };
    let topology = Topology::now(view);
    let mut said = match view.leads {
        true => replication_of_leader(&topology),
        false => replication_of_follower(&topology),
    };
    said.extend(fields([
        ("master_failover_state", "no-failover".to_owned()),
        ("master_replid", format!("{:040x}", topology.cluster_id)),
        ("master_repl_offset", topology.applied_index.to_string()),
    ]));
    said
}

fn replication_of_leader(topology: &Topology) -> Fields {
    let replicas: Vec<_> = topology.replicas().filter(|node| node.is_up).collect();
    let mut said = fields([
        ("role", "master".to_owned()),
        ("connected_slaves", replicas.len().to_string()),
    ]);
    for (number, replica) in replicas.iter().enumerate() {
        let (host, port, index) = (&replica.host, replica.port, replica.index);
        let lag_s = replica.heard_ms / 1_000;
        said.push((
            format!("slave{number}").into(),
            format!("ip={host},port={port},state=online,offset={index},lag={lag_s}"),
        ));
    }
    said
}

fn replication_of_follower(topology: &Topology) -> Fields {
    let master = topology.master();
    let (link, io_s) = match topology.leader() {
        Some(_) => ("up", "0"),
        None => ("down", "-1"),
    };
    fields([
        ("role", "slave".to_owned()),
        (
            "master_host",
            master.map_or(String::new(), |master| master.host.clone()),
        ),
        (
            "master_port",
            master.map_or(0, |master| master.port).to_string(),
        ),
        ("master_link_status", link.to_owned()),
        ("master_last_io_seconds_ago", io_s.to_owned()),
        ("master_sync_in_progress", "0".to_owned()),
        ("slave_read_repl_offset", topology.applied_index.to_string()),
        ("slave_repl_offset", topology.applied_index.to_string()),
        ("slave_priority", "100".to_owned()),
        ("slave_read_only", "1".to_owned()),
        ("replica_announced", "1".to_owned()),
        ("connected_slaves", "0".to_owned()),
    ])
}

fn cluster(call: &Call<'_, '_>) -> Fields {
    let is_node = call.section.core().shared.cluster.is_some();
    fields([("cluster_enabled", u8::from(is_node).to_string())])
}

fn keyspace(call: &Call<'_, '_>) -> Fields {
    match call.section.space.session.held() {
        0 => Vec::new(),
        held => fields([("db0", format!("keys={held},expires=0,avg_ttl=0"))]),
    }
}
