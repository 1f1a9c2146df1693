//! The command line of the load tool.

use super::peers::PeerName;
use clap::Args;
use server::config::parse_time;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Who is measured when nobody says.
const PEERS: [PeerName; 3] = [PeerName::Fencepost, PeerName::Redis, PeerName::Etcd];

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Many contenders want one key.
    #[arg(long, help_heading = "Workloads")]
    pub(crate) hot_key: bool,
    /// Everybody takes and gives back random keys out of many.
    #[arg(long, help_heading = "Workloads")]
    pub(crate) many_keys: bool,
    /// From one holder's release to the next one's grant.
    #[arg(long, help_heading = "Workloads")]
    pub(crate) handoff: bool,
    /// Very many leases run out within ten seconds.
    #[arg(long, help_heading = "Workloads")]
    pub(crate) expiry: bool,
    /// Very many locks are held by few sessions and kept alive.
    #[arg(long, help_heading = "Workloads")]
    pub(crate) renew: bool,
    /// A few seconds of each, to see that it works.
    #[arg(long, help_heading = "Workloads")]
    pub(crate) smoke: bool,

    /// Who is measured, all in one run. By default fencepost, redis and etcd, and for --many-keys redis-fenced and echo too.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PEERS",
        help_heading = "Peers"
    )]
    pub(crate) peer: Vec<PeerName>,
    /// Measures a running server of Fencepost as well.
    #[arg(long, value_name = "ADDRESS", help_heading = "Peers")]
    pub(crate) server: Option<SocketAddr>,
    /// How long a client of Redis sleeps on average before it tries again. 1 ms and publish-subscribe are always tried too.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "10",
        value_name = "MS",
        help_heading = "Peers"
    )]
    pub(crate) redis_retry_ms: Vec<u64>,

    /// Connections.
    #[arg(long, default_value_t = 50, value_name = "N", help_heading = "Load")]
    pub(crate) connections: u32,
    /// Requests under way on each connection, one after another. For --many-keys.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,16,128",
        value_name = "N",
        help_heading = "Load"
    )]
    pub(crate) pipeline: Vec<u32>,
    /// How many want the key, one after another; they share the connections. For --hot-key.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "50,200,1000",
        value_name = "N",
        help_heading = "Load"
    )]
    pub(crate) contenders: Vec<u32>,
    /// Open loop: so many operations a second, whatever the answers; latency counts from when each should have been sent.
    /// Without it every contender waits for its answer before it asks again.
    #[arg(long, value_name = "OPS", help_heading = "Load")]
    pub(crate) rate: Option<f64>,
    /// How long a holder works before it gives the lock back.
    #[arg(long, default_value = "0ms", value_parser = parse_time, value_name = "TIME", help_heading = "Load")]
    pub(crate) work: Duration,
    /// The lease.
    #[arg(long, default_value = "30s", value_parser = parse_time, value_name = "TIME", help_heading = "Load")]
    pub(crate) ttl: Duration,
    /// How many keys there are. By default a million for --many-keys and ten million for --expiry and --renew.
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub(crate) keys: Option<u64>,
    /// Keys and times are the same for the same seed.
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Load")]
    pub(crate) seed: u64,

    /// How long one measurement takes.
    #[arg(
        long,
        default_value_t = 2.0,
        value_name = "S",
        help_heading = "Measurement"
    )]
    pub(crate) seconds: f64,
    /// How long the load runs before it is measured.
    #[arg(long, default_value = "500ms", value_parser = parse_time, value_name = "TIME", help_heading = "Measurement")]
    pub(crate) warmup: Duration,
    /// How often everything is measured, in turns; the medians are reported.
    #[arg(
        long,
        default_value_t = 3,
        value_name = "N",
        help_heading = "Measurement"
    )]
    pub(crate) rounds: u32,

    /// Writes one JSON object per line, peer and setting.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) json: Option<PathBuf>,
    /// Where the plots go.
    #[arg(
        long,
        default_value = "target/bench",
        value_name = "DIRECTORY",
        help_heading = "Output"
    )]
    pub(crate) plots: PathBuf,
}

impl Options {
    /// The lease in the unit of all protocols.
    pub(crate) fn ttl_ms(&self) -> u32 {
        u32::try_from(self.ttl.as_millis()).unwrap_or(u32::MAX)
    }

    /// Who is to be measured, in the order in which they are.
    pub(crate) fn peers(&self) -> Vec<PeerName> {
        let mut peers = self.peer.clone();
        if peers.is_empty() && self.server.is_none() {
            peers.extend(PEERS);
            if self.many_keys {
                peers.extend([PeerName::RedisFenced, PeerName::Echo]);
            }
        }
        let mut seen = Vec::new();
        peers.retain(|peer| {
            let is_new = !seen.contains(peer);
            seen.push(*peer);
            is_new
        });
        peers
    }

    /// What is wrong with the numbers, if anything is.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_zero = |numbers: &[u32]| numbers.contains(&0);
        if self.connections == 0 || is_zero(&self.pipeline) || is_zero(&self.contenders) {
            return Err("connections, pipelines and contenders are counted from 1 on".to_owned());
        }
        if self.rounds == 0 || self.seconds.is_nan() || self.seconds <= 0.0 {
            return Err("nothing is measured in no time".to_owned());
        }
        if self.rate.is_some_and(|rate| rate.is_nan() || rate <= 0.0) {
            return Err("a rate is more than nothing".to_owned());
        }
        if self.ttl.is_zero() || self.redis_retry_ms.contains(&0) {
            return Err("a lease and a pause take a millisecond at least".to_owned());
        }
        Ok(())
    }
}
