//! The command line of the load tool.

use super::peers::PeerName;
use super::peers::nodes::NODES_DEFAULT;
use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};
use server::config::parse_time;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The peers that are measured by default.
const PEERS: [PeerName; 3] = [PeerName::Fencepost, PeerName::Redis, PeerName::Etcd];

/// Those of --cluster, and of --cluster --failover.
const CLUSTER_PEERS: [PeerName; 4] = [
    PeerName::FencepostCluster,
    PeerName::EtcdCluster,
    PeerName::RedisWait,
    PeerName::FencepostLease,
];
const FAILOVER_PEERS: [PeerName; 2] = [PeerName::FencepostCluster, PeerName::EtcdCluster];

/// Those of --tls.
const TLS_PEERS: [PeerName; 4] = [
    PeerName::Fencepost,
    PeerName::FencepostTls,
    PeerName::Redis,
    PeerName::RedisTls,
];

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Many contenders want one key.
    #[arg(long, help_heading = "Workloads")]
    pub(crate) hot_key: bool,
    /// Random keys out of many are taken and given back.
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

    /// Clusters of so many nodes beside each other, on one machine: 3 or 5. Without a workload,
    /// --many-keys and --hot-key with 200 contenders; without peers, fencepost-cluster,
    /// etcd-cluster, redis-wait and fencepost-lease, which is one node. All load goes to the
    /// leader. Ratios are to etcd-cluster. What one sync of the disk and one loopback round trip
    /// cost is measured in the same run. A peer of others that fails at a setting is reported, and
    /// does not fail the run.
    #[arg(
        long,
        value_name = "NODES",
        value_parser = parse_nodes,
        conflicts_with = "server",
        help_heading = "Clusters"
    )]
    pub(crate) cluster: Option<usize>,
    /// Instead of load: kills the leader (SIGKILL) again and again while one client takes and gives
    /// back locks, and says how long no lock was granted; then has the leader hand over (SIGTERM
    /// for Fencepost, a request to move the leader for etcd). First, what every node uses of the
    /// processor when idle.
    #[arg(long, requires = "cluster", help_heading = "Clusters")]
    pub(crate) failover: bool,
    /// How many kills, and how many hand-overs.
    #[arg(
        long,
        default_value_t = 5,
        value_name = "N",
        requires = "failover",
        help_heading = "Clusters"
    )]
    pub(crate) kills: u32,
    /// How long the idle nodes are watched.
    #[arg(long, default_value = "10s", value_parser = parse_time, value_name = "TIME", requires = "failover", help_heading = "Clusters")]
    pub(crate) idle: Duration,

    /// The peers to measure, all in one run. By default fencepost, redis and etcd, and for
    /// --many-keys redis-fenced and echo too.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PEERS",
        help_heading = "Peers"
    )]
    pub(crate) peer: Vec<PeerName>,
    /// TLS beside plain: fencepost, fencepost-tls, redis and redis-tls, unless --peer says
    /// otherwise; --many-keys, unless another workload is named.
    #[arg(long, help_heading = "Peers")]
    pub(crate) tls: bool,
    /// Measures a running server of Fencepost as well.
    #[arg(long, value_name = "ADDRESS", help_heading = "Peers")]
    pub(crate) server: Option<SocketAddr>,
    /// How long a client of Redis sleeps on average before it tries again. 1 ms and
    /// publish-subscribe are always tried too.
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
        default_value_if("cluster", ArgPredicate::IsPresent, "200"),
        value_name = "N",
        help_heading = "Load"
    )]
    pub(crate) contenders: Vec<u32>,
    /// Open loop: so many operations a second, whatever the answers; latency counts from when each
    /// should have been sent. Without it every contender waits for its answer before it asks again.
    #[arg(long, value_name = "OPS", help_heading = "Load")]
    pub(crate) rate: Option<f64>,
    /// How long a holder works before it gives the lock back.
    #[arg(long, default_value = "0ms", value_parser = parse_time, value_name = "TIME", help_heading = "Load")]
    pub(crate) work: Duration,
    /// The lease.
    #[arg(long, default_value = "30s", value_parser = parse_time, value_name = "TIME", help_heading = "Load")]
    pub(crate) ttl: Duration,
    /// How many keys there are. By default a million for --many-keys and ten million for --expiry
    /// and --renew. With --failover: how many locks are held meanwhile, by default none.
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub(crate) keys: Option<u64>,
    /// Within which time the leases of --expiry end.
    #[arg(long, default_value = "10s", value_parser = parse_time, value_name = "TIME", help_heading = "Load")]
    pub(crate) spread: Duration,
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
    /// How often everything is measured, in turns; medians are reported, and sums of what should
    /// not happen.
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
    /// Writes one HTML page with everything, the plots included, as index.html in here.
    #[arg(long, value_name = "DIRECTORY", help_heading = "Output")]
    pub(crate) report: Option<PathBuf>,
    /// Prints all figures instead of the eight columns that most people need.
    #[arg(long, help_heading = "Output")]
    pub(crate) wide: bool,
}

impl Options {
    /// What `--smoke` comes to: everything, as short as can be. Numbers of such a run mean nothing.
    pub(crate) fn for_smoke(mut self) -> Self {
        (self.hot_key, self.many_keys, self.handoff) = (true, true, true);
        (self.expiry, self.renew) = (true, true);
        if self.peer.is_empty() {
            self.peer = PeerName::value_variants().to_vec();
        }
        self.contenders = vec![20];
        self.pipeline = vec![1, 16];
        self.keys = Some(20_000);
        self.redis_retry_ms = vec![1];
        self.spread = Duration::from_secs(1);
        self.seconds = 0.2;
        self.warmup = Duration::from_millis(50);
        self.rounds = 1;
        self
    }

    /// What `--cluster` and `--tls` come to if they name no workload.
    pub(crate) fn for_cluster(mut self) -> Self {
        let has_workload =
            self.hot_key || self.many_keys || self.handoff || self.expiry || self.renew;
        if self.cluster.is_some() && !has_workload {
            (self.hot_key, self.many_keys) = (true, true);
        }
        if self.tls && !has_workload {
            self.many_keys = true;
        }
        self
    }

    /// How many nodes a cluster has.
    pub(crate) fn node_count(&self) -> usize {
        self.cluster.unwrap_or(NODES_DEFAULT)
    }

    /// The lease in the unit of all protocols.
    pub(crate) fn ttl_ms(&self) -> u32 {
        u32::try_from(self.ttl.as_millis()).unwrap_or(u32::MAX)
    }

    /// The peers to measure, in order.
    pub(crate) fn peers(&self) -> Vec<PeerName> {
        let mut peers = self.peer.clone();
        if peers.is_empty() && self.failover {
            peers.extend(FAILOVER_PEERS);
        } else if peers.is_empty() && self.cluster.is_some() {
            peers.extend(CLUSTER_PEERS);
        } else if peers.is_empty() && self.tls {
            peers.extend(TLS_PEERS);
        } else if peers.is_empty() && self.server.is_none() {
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
        if self.failover && (self.kills == 0 || self.idle.is_zero()) {
            return Err("kills are counted from 1 on, and no time is no idle time".to_owned());
        }
        let can_fail_over = |peer: &PeerName| FAILOVER_PEERS.contains(peer);
        if self.failover && !self.peer.iter().all(can_fail_over) {
            return Err(
                "--failover is for fencepost-cluster and etcd-cluster: leave out --peer, or name those"
                    .to_owned(),
            );
        }
        if self.failover && self.keys.is_some() && self.peers() != [PeerName::FencepostCluster] {
            return Err("etcd-cluster is not filled with locks: --keys with --failover needs --peer fencepost-cluster".to_owned());
        }
        if self.rate.is_some_and(|rate| rate.is_nan() || rate <= 0.0) {
            return Err("a rate is more than nothing".to_owned());
        }
        if self.spread.is_zero() || self.ttl.is_zero() || self.redis_retry_ms.contains(&0) {
            return Err("a lease, a pause and a spread take a millisecond at least".to_owned());
        }
        Ok(())
    }
}

/// Sizes that can lose a minority and are not more than is good for one machine.
fn parse_nodes(text: &str) -> Result<usize, String> {
    match text {
        "3" => Ok(3),
        "5" => Ok(5),
        _ => Err("a cluster has 3 or 5 nodes".to_owned()),
    }
}

#[cfg(test)]
impl Options {
    /// What a command line comes to.
    pub(crate) fn parsed(flags: &str) -> Result<Options, String> {
        use clap::Parser;

        #[derive(Parser, Debug)]
        struct Program {
            #[command(flatten)]
            options: Options,
        }

        let words = ["bench"].into_iter().chain(flags.split_whitespace());
        let program = Program::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(program.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &str) -> Result<Options, String> {
        Options::parsed(flags)
    }

    #[test]
    fn the_headline_run_needs_one_flag() {
        let options = parse("--hot-key").unwrap();
        assert!(options.hot_key && !options.many_keys && !options.smoke);
        assert_eq!(options.contenders, [50, 200, 1000]);
        assert_eq!(options.connections, 50);
        assert_eq!(options.peers()[0], PeerName::Fencepost);
        assert_eq!(options.check(), Ok(()));
    }

    #[test]
    fn every_peer_has_its_name() {
        let names = "fencepost,fencepost-lease,redis,redis-fenced,valkey,etcd,redlock,\
                     fencepost-cluster,etcd-cluster,redis-wait,echo";
        let options = parse(&format!("--many-keys --peer {names}")).unwrap();
        let parsed: Vec<&str> = options.peers().iter().map(|peer| peer.as_str()).collect();
        assert_eq!(parsed.join(","), names);
        assert!(parse("--peer memcached").is_err());
    }

    #[test]
    fn a_peer_named_twice_is_measured_once() {
        let options = parse("--peer redis,echo,redis").unwrap();
        assert_eq!(options.peers(), [PeerName::Redis, PeerName::Echo]);
    }

    #[test]
    fn a_running_server_is_measured_alone_unless_others_are_named() {
        let options = parse("--hot-key --server 127.0.0.1:7400").unwrap();
        assert!(options.peers().is_empty());
        let options = parse("--hot-key --server 127.0.0.1:7400 --peer redis").unwrap();
        assert_eq!(options.peers(), [PeerName::Redis]);
    }

    #[test]
    fn lists_and_times_are_read() {
        let options =
            parse("--pipeline 1,16 --work 50ms --ttl 2s --redis-retry-ms 5,20 --rate 1e4").unwrap();
        assert_eq!(options.pipeline, [1, 16]);
        assert_eq!(options.work, Duration::from_millis(50));
        assert_eq!(options.ttl_ms(), 2_000);
        assert_eq!(options.redis_retry_ms, [5, 20]);
        assert_eq!(options.rate, Some(10_000.0));
    }

    #[test]
    fn numbers_that_measure_nothing_are_refused() {
        for flags in [
            "--connections 0",
            "--pipeline 1,0",
            "--contenders 0",
            "--rounds 0",
            "--seconds 0",
            "--rate 0",
            "--ttl 0",
            "--spread 0",
            "--redis-retry-ms 0",
        ] {
            assert!(parse(flags).unwrap().check().is_err(), "{flags}");
        }
    }

    #[test]
    fn a_cluster_run_needs_one_flag() {
        let options = parse("--cluster 3").unwrap().for_cluster();
        assert!(options.many_keys && options.hot_key && !options.handoff);
        assert_eq!(options.contenders, [200]);
        assert_eq!(options.pipeline, [1, 16, 128]);
        assert_eq!(options.connections, 50);
        assert_eq!(options.peers(), CLUSTER_PEERS);
        assert_eq!(options.check(), Ok(()));
        let options = parse("--cluster 5 --many-keys --contenders 7").unwrap();
        let options = options.for_cluster();
        assert_eq!((options.node_count(), options.hot_key), (5, false));
        assert_eq!(options.contenders, [7]);
    }

    #[test]
    fn a_cluster_has_three_or_five_nodes() {
        for flags in [
            "--cluster 1",
            "--cluster 4",
            "--cluster",
            "--cluster 3 --server 127.0.0.1:1",
        ] {
            assert!(parse(flags).is_err(), "{flags}");
        }
    }

    #[test]
    fn a_failover_needs_a_cluster_that_has_leaders() {
        let options = parse("--cluster 3 --failover").unwrap();
        assert_eq!(options.peers(), FAILOVER_PEERS);
        assert_eq!((options.kills, options.idle), (5, Duration::from_secs(10)));
        assert_eq!(options.check(), Ok(()));
        assert!(parse("--failover").is_err());
        assert!(parse("--cluster 3 --kills 2").is_err());
        for flags in ["--kills 0", "--idle 0", "--peer redis-wait", "--keys 9"] {
            let options = parse(&format!("--cluster 3 --failover {flags}")).unwrap();
            assert!(options.check().is_err(), "{flags}");
        }
        let filled = parse("--cluster 3 --failover --keys 9 --peer fencepost-cluster").unwrap();
        assert_eq!(filled.check(), Ok(()));
    }

    #[test]
    fn smoke_runs_every_workload_on_every_peer() {
        let options = parse("--smoke").unwrap().for_smoke();
        assert!(options.hot_key && options.many_keys && options.handoff);
        assert!(options.expiry && options.renew);
        assert_eq!(options.peers(), PeerName::value_variants());
        assert_eq!(options.check(), Ok(()));
        let options = parse("--smoke --peer fencepost").unwrap().for_smoke();
        assert_eq!(options.peers(), [PeerName::Fencepost]);
    }
}
