//! Every setting of the server: what it is called, what it means, what it may be and what it is by
//! default.
//!
//! The table below is the one place that knows a setting. From it come the fields of [`Config`],
//! the flags and their help, the environment variables, the keys of the TOML file, `--print-config`
//! and the checks. A new setting is a new entry there and nothing else.
//!
//! `load.rs` puts a [`Config`] together from flags, environment and file; `value.rs` reads and
//! writes single values.

mod load;
mod peers;
mod tls;
mod value;

pub use self::tls::{ClientAuth, TlsPorts};
pub use load::{ConfigError, Loaded, Origin, Sources};
pub use peers::Peers;
pub use value::{parse_time, show_time};

use cluster::address::check_advertised;
use protocol::limits;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use value::{
    ADDRESS, ADDRESS_OR_OFF, CLIENT_AUTH, DURABILITY, HOST, Kind, LOG_FORMAT, LOG_LEVEL,
    MASTER_NAME, ON_OFF, PATH, PATH_OR_OFF, PEERS, SERVER_NAME, SHORT_TIME, SWITCH, TIME,
    TLS_PORTS, TLS_VERSION, count, size,
};

/// Shards are spread over the I/O threads, and the engine numbers them with one byte.
const SHARDS_MAX: u32 = 256;
/// Enough that threads seldom meet at a shard's mutex, and that shards share out evenly over an odd
/// number of threads.
const SHARDS_PER_THREAD: u32 = 32;
/// What the engine can number of sessions, waiters and the like.
const ENTRIES_MAX: u32 = (1 << 24) - 1;

/// What survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Durability {
    /// Nothing; fences stay monotonic by the clock.
    None,
    /// Every fence.
    Fence,
    /// Every fence and every lease that was acknowledged.
    Lease,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The least important log lines that are still written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[allow(missing_docs, reason = "named after the usual levels")]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// One line of the table of settings, with the types of the values rubbed out.
pub struct Setting {
    /// As in the TOML file; with dashes it is the flag, in capitals after `FENCEPOST_` the
    /// environment variable.
    pub name: &'static str,
    /// The group it is listed in.
    pub heading: &'static str,
    /// What stands for its value in the help.
    pub metavar: &'static str,
    /// What it means: its doc comment, line by line.
    doc: &'static [&'static str],
    set: fn(&mut Config, &str) -> Result<(), String>,
    check: fn(&Config) -> Result<(), String>,
    show: fn(&Config) -> String,
    to_toml: fn(&Config) -> String,
}

impl Setting {
    /// `--session-ttl`, without its dashes.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// `FENCEPOST_SESSION_TTL`.
    pub fn variable(&self) -> String {
        format!("FENCEPOST_{}", self.name.to_ascii_uppercase())
    }

    /// What it means, as one paragraph.
    pub fn doc(&self) -> String {
        let lines: Vec<&str> = self.doc.iter().map(|line| line.trim()).collect();
        lines.join(" ")
    }

    /// Its value, as people read it.
    pub fn show(&self, config: &Config) -> String {
        (self.show)(config)
    }

    /// Whether the flag may stand without a value, which then is `true`.
    pub fn is_switch(&self) -> bool {
        self.metavar == SWITCH.metavar
    }
}

/// A setting that cannot be used as it is. The operator acts on it: the server does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// Its name.
    pub setting: &'static str,
    /// What is wrong and what is allowed.
    pub problem: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.problem)
    }
}

impl std::error::Error for SettingError {}

/// Makes `Config`, its defaults and `SETTINGS` out of one table.
///
/// An entry reads: its meaning, its name and type, its default, the kind of text it is written as,
/// and perhaps its range, and why it has that one.
macro_rules! settings {
    ($(
        $heading:literal {
            $(
                $(#[doc = $doc:literal])+
                $name:ident: $type:ty = $default:expr, $kind:expr
                    $(, in $range:expr $(, because $why:literal)?)?;
            )+
        }
    )+) => {
        /// All settings of a server. Made by hand for a server inside another program, where
        /// [`Config::default`] is a good start; by [`Sources::load`] for the program `fencepost`.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $($($(#[doc = $doc])+ pub $name: $type,)+)+
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($($name: $default,)+)+ }
            }
        }

        /// The settings, in the order in which they are shown.
        pub static SETTINGS: &[Setting] = &[$($({
            const KIND: Kind<$type> = $kind;
            Setting {
                name: stringify!($name),
                heading: $heading,
                metavar: KIND.metavar,
                doc: &[$($doc),+],
                set: |config, text| {
                    config.$name = (KIND.parse)(text)?;
                    Ok(())
                },
                check: |config| {
                    let checked = KIND.check(&config.$name, settings!(@option $($range)?));
                    let why: Option<&str> = settings!(@option $($($why)?)?);
                    checked.map_err(|problem| match why {
                        Some(why) => format!("{problem}: {why}"),
                        None => problem,
                    })
                },
                show: |config| (KIND.show)(&config.$name),
                to_toml: |config| KIND.to_toml(&config.$name),
            }
        },)+)+];
    };
    (@option $what:expr) => { Some($what) };
    (@option) => { None };
}

settings! {
    "Network" {
        /// Where clients connect. An address that other machines can reach needs auth_token_file or
        /// auth_file as well. Port 0 takes a free one.
        listen: SocketAddr = loopback(7400), ADDRESS;
        /// Where metrics, health and a view of the locks are served over HTTP; operators also take
        /// locks away and change the cluster there. An address that other machines can reach needs
        /// auth_token_file or auth_file as well.
        http: Option<SocketAddr> = Some(loopback(7401)), ADDRESS_OR_OFF;
        /// A file with the tokens that clients may show, one per line; lines that start with # are
        /// comments. Several at once let you rotate them. Each of them has all rights.
        auth_token_file: Option<PathBuf> = None, PATH_OR_OFF;
        /// A file that says who may do what: tokens, by their hashes, and names of certificates,
        /// with roles, key prefixes and quotas. See docs/security.md; `fencepost auth check` checks
        /// it.
        auth_file: Option<PathBuf> = None, PATH_OR_OFF;
        /// What the server calls itself to its clients.
        server_name: String = concat!("fencepost ", env!("CARGO_PKG_VERSION")).to_owned(), SERVER_NAME;
    }
    "TLS" {
        /// The server's certificate in PEM, its own first, then those that signed it. With it the
        /// ports in tls_ports speak TLS and nothing else. SIGHUP reads it again.
        tls_cert_file: Option<PathBuf> = None, PATH_OR_OFF;
        /// The private key of that certificate in PEM, without a passphrase.
        tls_key_file: Option<PathBuf> = None, PATH_OR_OFF;
        /// The ports that speak TLS once there is a certificate. The others stay plain.
        tls_ports: TlsPorts = TlsPorts::ALL, TLS_PORTS;
        /// The authorities that sign the certificates of clients, in PEM.
        tls_client_ca_file: Option<PathBuf> = None, PATH_OR_OFF;
        /// Whether clients may, or must, show a certificate of those authorities.
        tls_client_auth: ClientAuth = ClientAuth::Off, CLIENT_AUTH;
        /// The oldest version of TLS that is spoken.
        tls_version_min: ::tls::VersionMin = ::tls::VersionMin::Tls12, TLS_VERSION;
    }
    "Redis port" {
        /// Where clients of Redis connect, unchanged: see docs/redis.md. An address that other
        /// machines can reach needs auth_token_file or auth_file as well; tokens are the passwords.
        redis_listen: Option<SocketAddr> = None, ADDRESS_OR_OFF;
        /// A Unix socket for clients of Redis. Any process that may open it may connect.
        redis_unix: Option<PathBuf> = None, PATH_OR_OFF;
        /// The longest time that a lock taken through this port lives without being renewed; one
        /// taken without a time gets this one. 0 is no limit, and locks without an end are
        /// possible.
        redis_max_ttl: Duration = Duration::ZERO, TIME, in Duration::ZERO..=DAY * 366;
        /// Refuse commands that end or take a lock without showing that it is the caller's: DEL,
        /// SET over a held key, FLUSHDB and their like.
        redis_strict: bool = false, SWITCH;
        /// What clients that look for the leader of a cluster through Sentinel call it.
        redis_master_name: String = "mymaster".to_owned(), MASTER_NAME;
    }
    "Storage" {
        /// The directory for what has to survive a restart.
        data_dir: PathBuf = PathBuf::from("./fencepost-data"), PATH;
        /// What survives a crash: nothing (fences still rise, by the clock), every fence, or every
        /// lease as well.
        durability: Durability = Durability::Fence, DURABILITY;
        /// After a stop without notice and with durability "fence": wait until all leases from
        /// before have ended, so that their holders can claim them. Off, locks are granted at once,
        /// and only resources that check fences are safe.
        grace: bool = true, ON_OFF;
        /// The longest grace period that a crash may cost with durability "fence". Leases and
        /// sessions longer than this are written down one by one, and their replies wait for the
        /// disk; shorter ones are not, and the grace period covers them.
        grace_max: Duration = Duration::from_secs(30), TIME, in Duration::from_secs(1)..=DAY;
    }
    "Cluster" {
        /// The number of this node in a cluster. 0 is a server by itself. A number is never used
        /// again, not even for a node that lost its disk.
        node_id: u64 = 0, count(), in 0..=1 << 32;
        /// All nodes of the cluster and where they reach each other, this one included:
        /// 1=10.0.0.1:7500,2=10.0.0.2:7500,3=10.0.0.3:7500. A node that joins later names itself
        /// and any others.
        peers: Peers = Peers::default(), PEERS;
        /// Where this node listens for the others. Off: at its own address in peers.
        peer_listen: Option<SocketAddr> = None, ADDRESS_OR_OFF;
        /// Where clients reach this node, host and port, as other nodes tell them. Empty: listen,
        /// or its host in peers where it listens on all addresses.
        advertise: String = String::new(), HOST;
        /// The same for clients of Redis. Empty: redis_listen.
        advertise_redis: String = String::new(), HOST;
        /// A file with the key that nodes prove to each other that they belong together: 64
        /// hexadecimal digits. `(umask 077; openssl rand -hex 32 > FILE)` makes one.
        cluster_key_file: Option<PathBuf> = None, PATH_OR_OFF;
        /// The authorities that sign the certificates of nodes, in PEM. With it nodes speak TLS
        /// with each other, and each verifies the other.
        peer_tls_ca_file: Option<PathBuf> = None, PATH_OR_OFF;
        /// This node's certificate for the other nodes. It must name the host by which they reach
        /// this one. Off: tls_cert_file.
        peer_tls_cert_file: Option<PathBuf> = None, PATH_OR_OFF;
        /// The private key of that certificate. Off: tls_key_file.
        peer_tls_key_file: Option<PathBuf> = None, PATH_OR_OFF;
        /// Make a new cluster of the nodes in peers, if this node's directory is empty. Without it
        /// an empty node waits to be added to a cluster that there is.
        bootstrap: bool = false, SWITCH;
        /// How long a silent leader is waited for before another node stands for election: between
        /// this and twice this. Leaders show themselves five times as often, and one that is silent
        /// for 2s is not counted as leading, so this is 5s at most.
        election_timeout: Duration = Duration::from_millis(400), TIME,
            in Duration::from_millis(100)..=ELECTION_TIMEOUT_MAX,
            because "leaders show themselves five times as often, and one that is silent for 2s is not counted as leading";
    }
    "Threads" {
        /// I/O threads. 0 is one per core.
        threads: u32 = 0, count(), in 0..=SHARDS_MAX;
        /// Keep every I/O thread on a core of its own. For machines that do nothing else.
        pin: bool = false, SWITCH;
        /// How long an I/O thread stays awake after it had something to do for a client that waits
        /// for it: a core that sleeps takes longer to wake than a hand-off does. 0 is off. Nodes of
        /// a cluster never do: their clients wait for commits.
        spin: Duration = Duration::from_micros(40), SHORT_TIME, in Duration::ZERO..=Duration::from_millis(10);
        /// Parts of the lock table, a power of two. 0 is 32 per thread.
        shards: u32 = 0, count(), in 0..=SHARDS_MAX;
    }
    "Times" {
        /// How long a session outlives the last sign of its client, unless the client asks for
        /// another time.
        session_ttl: Duration = Duration::from_secs(10), TIME,
            in Duration::from_millis(100)..=Duration::from_millis(limits::SESSION_TTL_MS_MAX as u64);
        /// The longest time that clients may ask for, native and of Redis: for a lease, and for a
        /// session. A request for more gets an error that names this bound, and so does a lock
        /// without an end. 0 is no bound beyond the protocols' own: a day for native clients, and
        /// locks without an end for those of Redis.
        lease_max: Duration = Duration::ZERO, TIME, in Duration::ZERO..=DAY * 366;
        /// How long a key without a holder is remembered. Its fences keep rising all the same.
        idle: Duration = Duration::from_secs(10), TIME, in Duration::ZERO..=DAY;
        /// How long a new connection may take to introduce itself: to say hello, or on the Redis
        /// port to send a command, and to show a token where one is needed.
        hello_timeout: Duration = Duration::from_secs(2), TIME, in SHORTEST..=HOUR;
        /// How long a request may take to arrive, from its first byte to its last; over HTTP, its
        /// head.
        frame_timeout: Duration = Duration::from_secs(5), TIME, in SHORTEST..=HOUR;
        /// How long a client may leave its replies unread before it is cut off.
        write_stall_timeout: Duration = Duration::from_secs(5), TIME, in SHORTEST..=HOUR;
        /// How long a shutdown may take to answer what is in flight.
        shutdown_grace: Duration = Duration::from_secs(5), TIME, in Duration::ZERO..=HOUR;
    }
    "Limits" {
        /// Connections at the same time, on both ports, once they have introduced themselves. Four
        /// more are kept for operators: for the commands of this program that look and ask, from
        /// the server's own machine.
        connections_max: u32 = 10_000, count(), in 1..=ENTRIES_MAX;
        /// Sessions at the same time.
        sessions_max: u32 = 100_000, count(), in 1..=ENTRIES_MAX;
        /// Acquires that one connection may have waiting.
        in_flight_max: u32 = 4_096, count(), in 1..=1 << 20;
        /// Acquires that may wait for one key.
        waiters_per_key_max: u32 = 10_000, count(), in 1..=ENTRIES_MAX;
        /// Acquires that may wait altogether.
        waiters_max: u32 = 1_000_000, count(), in 1..=ENTRIES_MAX;
        /// Keys that are held, waited for or still remembered. A key of 16 bytes takes about 80
        /// bytes.
        keys_max: u64 = 16_777_216, count(), in 1..=1 << 32;
        /// Bytes of keys and metadata altogether, those of acquires that wait included.
        bytes_max: u64 = 4 << 30, size(), in 1 << 20..=1 << 44;
        /// Holders that may share one key.
        shared_holders_max: u32 = 10_000, count(), in 1..=ENTRIES_MAX;
        /// Replies kept for one client that does not read them. When it is full, the client is cut
        /// off.
        out_buffer_bytes_max: usize = 1 << 20, size(), in limits::FRAME_BYTES_MAX as usize..=1 << 30;
    }
    "Logs" {
        /// Log lines for people or for machines. They go to standard error.
        log_format: LogFormat = LogFormat::Text, LOG_FORMAT;
        /// The least important lines that are still logged.
        log_level: LogLevel = LogLevel::Info, LOG_LEVEL;
        /// A file that gets one JSON line for every grant, release and loss.
        audit_log: Option<PathBuf> = None, PATH_OR_OFF;
        /// The size at which the server renames that file and begins a new one. 0 leaves it to
        /// others: move the file away and send SIGHUP.
        audit_rotate_bytes: u64 = 256 << 20, size(), in 0..=1 << 44;
        /// How many files of the audit log stay, the one that is written included; the oldest that
        /// the server renamed are removed. 0 keeps all.
        audit_files_max: u32 = 0, count(), in 0..=10_000;
    }
}

/// With this, leaders show themselves every second. More rarely, and the others would often take a
/// healthy leader for gone: `node/server.rs` has the assertion.
pub(crate) const ELECTION_TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// Below this a timeout would cut off honest clients.
const SHORTEST: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

impl Config {
    /// Checks every setting for itself and with the others. [`Sources::load`] has done it already.
    pub fn check(&self) -> Result<(), SettingError> {
        for setting in SETTINGS {
            (setting.check)(self).map_err(|problem| SettingError {
                setting: setting.name,
                problem,
            })?;
        }
        self.check_together()
    }

    /// The rules that no range can express, or that concern several settings.
    fn check_together(&self) -> Result<(), SettingError> {
        self.check_node()?;
        self.check_tls()?;
        let refuse = |setting, problem| Err(SettingError { setting, problem });
        if self.shards != 0 && !self.shards.is_power_of_two() {
            return refuse(
                "shards",
                format!(
                    "{} is not a power of two, 0 (32 per thread), 1, 2, 4, ... 256 are allowed",
                    self.shards
                ),
            );
        }
        if self.server_name.len() > limits::SERVER_NAME_BYTES_MAX {
            return refuse(
                "server_name",
                format!(
                    "has {} bytes, at most {} are allowed",
                    self.server_name.len(),
                    limits::SERVER_NAME_BYTES_MAX
                ),
            );
        }
        if self.http == Some(self.listen) && self.listen.port() != 0 {
            return refuse(
                "http",
                format!(
                    "{} is what listen has too, give it another port or \"off\"",
                    self.listen
                ),
            );
        }
        if !self.lease_max.is_zero() && self.lease_max < self.session_ttl {
            return refuse(
                "lease_max",
                format!(
                    "{} is shorter than session_ttl, which is {}: no client could open a session; set session_ttl as well",
                    show_time(self.lease_max),
                    show_time(self.session_ttl)
                ),
            );
        }
        let taken = [Some(self.listen), self.http];
        if let Some(address) = self.redis_listen
            && address.port() != 0
            && taken.contains(&Some(address))
        {
            return refuse(
                "redis_listen",
                format!(
                    "{address} is taken by another port of this server, give it another one or \"off\""
                ),
            );
        }
        let addresses = [
            ("listen", Some(self.listen)),
            ("http", self.http),
            ("redis_listen", self.redis_listen),
        ];
        for (setting, address) in addresses {
            if let Some(address) = address
                && !address.ip().to_canonical().is_loopback()
                && self.auth_token_file.is_none()
                && self.auth_file.is_none()
            {
                return refuse(
                    setting,
                    format!(
                        "{address} can be reached from other machines and no token protects it; \
                         give a file of tokens with --auth-token-file, or of rights with --auth-file, or use a loopback address like 127.0.0.1:{}",
                        address.port()
                    ),
                );
            }
        }
        Ok(())
    }

    /// Whether this server is to be a node of a cluster.
    pub fn is_node(&self) -> bool {
        self.node_id != 0
    }

    /// The rules for nodes of a cluster.
    fn check_node(&self) -> Result<(), SettingError> {
        let refuse = |setting, problem: &str| {
            let problem = problem.to_owned();
            Err(SettingError { setting, problem })
        };
        if !self.is_node() {
            return match self.peers.is_empty() {
                true => Ok(()),
                false => refuse(
                    "peers",
                    "this names the nodes of a cluster, but node_id does not say which one this server is; give --node-id too",
                ),
            };
        }
        let told = [
            ("peers", self.peers.check()),
            ("advertise", check_advertised(&self.advertise, "--listen")),
            (
                "advertise_redis",
                check_advertised(&self.advertise_redis, "--redis-listen"),
            ),
        ];
        for (setting, checked) in told {
            checked.or_else(|problem| refuse(setting, &problem))?;
        }
        if self.durability != Durability::Lease {
            return refuse(
                "durability",
                "a node of a cluster keeps every lease: give --durability lease",
            );
        }
        if self.peers.address_of(self.node_id).is_none() {
            return refuse(
                "peers",
                "this node's own id and address must be among them, as in 1=10.0.0.1:7500",
            );
        }
        if self.cluster_key_file.is_none() {
            return refuse(
                "cluster_key_file",
                "the nodes of a cluster prove to each other that they belong together; make a key with \
                 `(umask 077; openssl rand -hex 32 > cluster.key)` and give the same file to each with --cluster-key-file",
            );
        }
        Ok(())
    }

    /// What `lease_max` comes to; beyond all counting if there is no bound.
    pub(crate) fn lease_max_ms(&self) -> u64 {
        match self.lease_max.as_millis() as u64 {
            0 => u64::MAX,
            lease_max_ms => lease_max_ms,
        }
    }

    /// How many I/O threads `threads` comes to on this machine.
    pub fn thread_count(&self) -> u32 {
        match self.threads {
            0 => std::thread::available_parallelism()
                .map_or(1, |cores| cores.get().min(SHARDS_MAX as usize) as u32),
            threads => threads,
        }
    }

    /// How many shards `shards` comes to on this machine.
    pub fn shard_count(&self) -> u32 {
        match self.shards {
            0 => (self.thread_count() * SHARDS_PER_THREAD)
                .next_power_of_two()
                .min(SHARDS_MAX),
            shards => shards,
        }
    }
}

#[cfg(test)]
mod tests;
