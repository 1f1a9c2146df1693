//! `+switch-master`: what clients of Sentinel listen to. Some drivers (Jedis, go-redis, ioredis)
//! drop their connections to a master only when they hear that there is another one, and a leader
//! that is paused or cut off does not close them.

use super::port::Port;
use super::topology::{RedisNode, Topology};
use crate::core::shared::Shared;
use std::sync::Arc;

const CHANNEL: &[u8] = b"+switch-master";

/// Tells listeners of this node when another one begins to lead, until this node's office ends.
/// When this node itself begins to lead, its connections are closed, and clients ask again.
pub(crate) async fn announce(shared: Arc<Shared>, port: Arc<Port>) {
    let Some(view) = &shared.cluster else {
        return;
    };
    let address = |node: &RedisNode| format!("{} {}", node.host, node.port);
    let mut leadership = view.node.leadership();
    let mut told = Topology::now(view).master().map(address);
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            changed = leadership.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        let topology = Topology::now(view);
        let leader = topology.leader().filter(|leader| leader.id != topology.own);
        let Some(leader) = leader.map(address) else {
            continue;
        };
        if let Some(before) = told.replace(leader.clone())
            && before != leader
        {
            let name = &shared.config.redis_master_name;
            let message = format!("{name} {before} {leader}");
            let host = shared.engine.host();
            port.space
                .channels
                .publish(host, CHANNEL, message.as_bytes());
        }
    }
}
