//! `CLUSTER` and its relatives, for clients in cluster mode: all slots belong to the leader. A
//! server by itself answers as a Redis without cluster mode does.

use super::{Call, integer, is, unknown, unknown_subcommand, wrong_arity};
use crate::redis::refusal::Refusal;
use crate::redis::slot::{self, SLOTS};
use crate::redis::topology::{RedisNode, Topology};
use protocol::resp::Writer;
use std::fmt::Write as _;

/// Redis gives the port of its bus so much above the one for clients. Clients read past it.
const BUS_PORT_ABOVE: u32 = 10_000;

fn topology(call: &Call<'_, '_>) -> Result<Topology, Refusal> {
    let view = call.section.core().shared.cluster.as_ref();
    let view =
        view.ok_or_else(|| Refusal::text("ERR This instance has cluster support disabled"))?;
    Ok(Topology::now(view))
}

pub(super) fn cluster(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let topology = topology(call)?;
    call.client.follows_moves = true;
    let (subcommand, args) = (call.args[1], &call.args[2..]);
    let exactly = |count: usize, name: &str| match args.len() == count {
        true => Ok(()),
        false => Err(wrong_arity(&format!("cluster|{name}"))),
    };
    if is(subcommand, "SLOTS") {
        exactly(0, "slots")?;
        slots(&topology, out);
    } else if is(subcommand, "SHARDS") {
        exactly(0, "shards")?;
        shards(&topology, out);
    } else if is(subcommand, "NODES") {
        exactly(0, "nodes")?;
        let lines: String = topology
            .nodes
            .iter()
            .map(|node| line(&topology, node))
            .collect();
        out.verbatim_text(&lines);
    } else if is(subcommand, "REPLICAS") || is(subcommand, "SLAVES") {
        exactly(1, "replicas")?;
        let is_master = |master: &&RedisNode| args[0].eq_ignore_ascii_case(master.name.as_bytes());
        if topology.master().filter(is_master).is_none() {
            return Err(Refusal::text("ERR The specified node is not a master"));
        }
        out.array(topology.replicas().count());
        for replica in topology.replicas() {
            out.bulk(line(&topology, replica).trim_end().as_bytes());
        }
    } else if is(subcommand, "INFO") {
        exactly(0, "info")?;
        out.verbatim_text(&info(&topology));
    } else if is(subcommand, "MYID") {
        exactly(0, "myid")?;
        let own = topology.nodes.iter().find(|node| node.id == topology.own);
        out.bulk(own.map_or("", |own| &own.name).as_bytes());
    } else if is(subcommand, "KEYSLOT") {
        exactly(1, "keyslot")?;
        out.integer(slot::of(args[0]).into());
    } else {
        return Err(unknown_subcommand(subcommand, "CLUSTER"));
    }
    Ok(())
}

/// `READONLY`, `READWRITE` and `ASKING`: only clients in cluster mode send them. Followers answer
/// no reads, so there is nothing to allow.
pub(super) fn mode(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    topology(call)?;
    call.client.follows_moves = true;
    out.simple("OK");
    Ok(())
}

/// `WAIT replicas timeout`. The answer to every command before this one leaves together with this
/// one's or earlier, when a majority has confirmed its effects. So the answer is how many followers
/// a majority has at least, at once, and the timeout is never waited for.
pub(super) fn wait(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let Some(view) = &call.section.core().shared.cluster else {
        return Err(unknown(call.args));
    };
    integer(call.args[1])?;
    if integer(call.args[2])? < 0 {
        return Err(Refusal::text("ERR timeout is negative"));
    }
    out.integer(Topology::now(view).sure_copies() as i64);
    Ok(())
}

fn slots(topology: &Topology, out: &mut Writer<'_>) {
    let Some(master) = topology.master() else {
        return out.array(0);
    };
    out.array(1);
    out.array(3 + topology.replicas().count());
    out.integer(0);
    out.integer((SLOTS - 1).into());
    for node in [master].into_iter().chain(topology.replicas()) {
        out.array(4);
        out.bulk(node.host.as_bytes());
        out.integer(node.port.into());
        out.bulk(node.name.as_bytes());
        out.map(0);
    }
}

fn shards(topology: &Topology, out: &mut Writer<'_>) {
    let Some(master) = topology.master() else {
        return out.array(0);
    };
    out.array(1);
    out.map(2);
    out.bulk(b"slots");
    out.array(2);
    out.integer(0);
    out.integer((SLOTS - 1).into());
    out.bulk(b"nodes");
    out.array(topology.nodes.len());
    for node in [master].into_iter().chain(topology.replicas()) {
        let role = if node.id == master.id {
            "master"
        } else {
            "replica"
        };
        let health = if node.is_up { "online" } else { "fail" };
        out.map(7);
        for (field, value) in [
            ("id", &*node.name),
            ("ip", &node.host),
            ("endpoint", &node.host),
            ("role", role),
            ("health", health),
        ] {
            out.bulk(field.as_bytes());
            out.bulk(value.as_bytes());
        }
        for (field, value) in [
            ("port", i64::from(node.port)),
            ("replication-offset", node.index as i64),
        ] {
            out.bulk(field.as_bytes());
            out.integer(value);
        }
    }
}

/// A node's line in `CLUSTER NODES`.
fn line(topology: &Topology, node: &RedisNode) -> String {
    let master = topology.master();
    let is_master = master.is_some_and(|master| master.id == node.id);
    let mut flags = String::new();
    if node.id == topology.own {
        flags += "myself,";
    }
    flags += if is_master { "master" } else { "slave" };
    if !node.is_up {
        flags += ",fail";
    }
    let of = match master {
        Some(master) if !is_master => &*master.name,
        _ => "-",
    };
    let link = if node.is_up {
        "connected"
    } else {
        "disconnected"
    };
    let (name, host, port, term) = (&node.name, &node.host, node.port, topology.term);
    let bus_port = u32::from(port) + BUS_PORT_ABOVE;
    let mut line = format!("{name} {host}:{port}@{bus_port} {flags} {of} 0 0 {term} {link}");
    if is_master {
        // Writing to a string does not fail.
        let _ = write!(line, " 0-{}", SLOTS - 1);
    }
    line.push('\n');
    line
}

fn info(topology: &Topology) -> String {
    let (state, slots_ok) = match topology.leader() {
        Some(_) => ("ok", SLOTS),
        None => ("fail", 0),
    };
    let fields = [
        ("cluster_state", state.to_owned()),
        ("cluster_slots_assigned", SLOTS.to_string()),
        ("cluster_slots_ok", slots_ok.to_string()),
        ("cluster_slots_pfail", "0".to_owned()),
        ("cluster_slots_fail", (SLOTS - slots_ok).to_string()),
        ("cluster_known_nodes", topology.nodes.len().to_string()),
        ("cluster_size", "1".to_owned()),
        ("cluster_current_epoch", topology.term.to_string()),
        ("cluster_my_epoch", topology.term.to_string()),
    ];
    let lines = fields.map(|(field, value)| format!("{field}:{value}\r\n"));
    lines.concat()
}
