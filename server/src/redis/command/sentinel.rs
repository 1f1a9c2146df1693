//! `SENTINEL`: every node of a cluster answers for the leader, so drivers that look for their
//! master through Sentinels find it from any node. A server by itself has no such command.

use super::{Call, is, unknown, unknown_subcommand, wrong_arity};
use crate::redis::refusal::Refusal;
use crate::redis::topology::{RedisNode, Topology};
use protocol::resp::Writer;

/// What drivers read as the time within which a failover is tried again. There is no such limit.
const FAILOVER_TIMEOUT_MS: u64 = 180_000;

pub(super) fn sentinel(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let shared = &call.section.core().shared;
    let Some(view) = &shared.cluster else {
        return Err(unknown(call.args));
    };
    let (subcommand, args) = (call.args[1], &call.args[2..]);
    let about = About {
        topology: Topology::now(view),
        name: &shared.config.redis_master_name,
        silence_ms: shared.config.election_timeout.as_millis() as u64,
    };
    let topology = &about.topology;
    if is(subcommand, "MASTERS") {
        exactly(args, 0, "masters")?;
        let master = topology.master();
        out.array(usize::from(master.is_some()));
        if let Some(master) = master {
            write(out, &about.master(master));
        }
    } else if is(subcommand, "MYID") {
        exactly(args, 0, "myid")?;
        let own = topology.nodes.iter().find(|node| node.id == topology.own);
        out.bulk(own.map_or("", |own| &own.name).as_bytes());
    } else if is(subcommand, "GET-MASTER-ADDR-BY-NAME") {
        exactly(args, 1, "get-master-addr-by-name")?;
        match topology.master() {
            Some(master) if args[0] == about.name.as_bytes() => {
                out.array(2);
                out.bulk(master.host.as_bytes());
                out.bulk(master.port.to_string().as_bytes());
            }
            _ => out.null_array(),
        }
    } else if is(subcommand, "MASTER") {
        exactly(args, 1, "master")?;
        write(out, &about.master(about.named(args[0])?));
    } else if is(subcommand, "REPLICAS") || is(subcommand, "SLAVES") {
        exactly(args, 1, "replicas")?;
        let master = about.named(args[0])?;
        out.array(topology.replicas().count());
        for replica in topology.replicas() {
            write(out, &about.replica(replica, master));
        }
    } else if is(subcommand, "SENTINELS") {
        exactly(args, 1, "sentinels")?;
        about.named(args[0])?;
        out.array(topology.others().count());
        for other in topology.others() {
            write(out, &about.sentinel(other));
        }
    } else if is(subcommand, "CKQUORUM") {
        exactly(args, 1, "ckquorum")?;
        about.named(args[0])?;
        if !topology.is_led {
            return Err(Refusal::text(
                "NOQUORUM there is no leader now: a majority of the nodes must be up",
            ));
        }
        let usable = topology.nodes.iter().filter(|node| node.is_up).count();
        out.simple(&format!(
            "OK {usable} usable Sentinels. Quorum and failover authorization can be reached"
        ));
    } else {
        return Err(unknown_subcommand(subcommand, "SENTINEL"));
    }
    Ok(())
}

fn exactly(args: &[&[u8]], count: usize, name: &str) -> Result<(), Refusal> {
    match args.len() == count {
        true => Ok(()),
        false => Err(wrong_arity(&format!("sentinel|{name}"))),
    }
}

type Fields = Vec<(&'static str, String)>;

fn write(out: &mut Writer<'_>, fields: &Fields) {
    out.map(fields.len());
    for (field, value) in fields {
        out.bulk(field.as_bytes());
        out.bulk(value.as_bytes());
    }
}

/// What the answers are made from.
struct About<'a> {
    topology: Topology,
    /// What clients call the master.
    name: &'a str,
    /// How long a leader may be silent.
    silence_ms: u64,
}

impl About<'_> {
    fn named(&self, name: &[u8]) -> Result<&RedisNode, Refusal> {
        if name != self.name.as_bytes() {
            return Err(Refusal::text("ERR No such master with that name"));
        }
        self.topology.master().ok_or_else(|| {
            Refusal::text(
                "ERR No leader with a Redis port was known since this node started; ask again in a moment",
            )
        })
    }

    /// What is said of every node. `role` comes first among its flags.
    fn node(&self, name: String, node: &RedisNode, role: &str, down: &str) -> Fields {
        let flags = match node.is_up {
            true => role.to_owned(),
            false => format!("{role},{down}"),
        };
        let heard_ms = node.heard_ms.to_string();
        vec![
            ("name", name),
            ("ip", node.host.clone()),
            ("port", node.port.to_string()),
            ("runid", node.name.clone()),
            ("flags", flags),
            ("link-pending-commands", "0".to_owned()),
            ("link-refcount", "1".to_owned()),
            ("last-ping-sent", "0".to_owned()),
            ("last-ok-ping-reply", heard_ms.clone()),
            ("last-ping-reply", heard_ms),
            ("down-after-milliseconds", self.silence_ms.to_string()),
        ]
    }

    fn master(&self, master: &RedisNode) -> Fields {
        let topology = &self.topology;
        let mut fields = self.node(self.name.to_owned(), master, "master", "s_down,o_down");
        fields.extend([
            ("info-refresh", "0".to_owned()),
            ("role-reported", "master".to_owned()),
            ("role-reported-time", "0".to_owned()),
            ("config-epoch", topology.term.to_string()),
            ("num-slaves", topology.replicas().count().to_string()),
            ("num-other-sentinels", topology.others().count().to_string()),
            ("quorum", (topology.voters / 2 + 1).to_string()),
            ("failover-timeout", FAILOVER_TIMEOUT_MS.to_string()),
            ("parallel-syncs", "1".to_owned()),
        ]);
        fields
    }

    fn replica(&self, replica: &RedisNode, master: &RedisNode) -> Fields {
        let is_linked = self.topology.is_led && replica.is_up;
        let name = format!("{}:{}", replica.host, replica.port);
        let mut fields = self.node(name, replica, "slave", "s_down,disconnected");
        fields.extend([
            ("info-refresh", "0".to_owned()),
            ("role-reported", "slave".to_owned()),
            ("role-reported-time", "0".to_owned()),
            ("master-link-down-time", "0".to_owned()),
            (
                "master-link-status",
                if is_linked { "ok" } else { "err" }.to_owned(),
            ),
            ("master-host", master.host.clone()),
            ("master-port", master.port.to_string()),
            ("slave-priority", "100".to_owned()),
            ("slave-repl-offset", replica.index.to_string()),
            ("replica-announced", "1".to_owned()),
        ]);
        fields
    }

    fn sentinel(&self, node: &RedisNode) -> Fields {
        let mut fields = self.node(node.name.clone(), node, "sentinel", "s_down,disconnected");
        fields.extend([
            ("last-hello-message", node.heard_ms.to_string()),
            ("voted-leader", "?".to_owned()),
            ("voted-leader-epoch", "0".to_owned()),
        ]);
        fields
    }
}
