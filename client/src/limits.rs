//! Every bound and every chosen number of the client.

use std::time::Duration;

/// Where a server is that the environment does not name.
pub(crate) const ADDRESS_DEFAULT: &str = "127.0.0.1:7400";
/// The lease of a lock whose `ttl` was not set.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// How long `acquire` waits where `wait` was not set.
pub(crate) const WAIT_DEFAULT: Duration = Duration::from_secs(10);
/// How long opening a connection may take, from the first packet to the server's welcome.
pub(crate) const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
/// How long a request may take, from the call to the answer.
pub(crate) const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Nothing that takes longer is a timeout.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// An acquire without a connection ends with its wait, but not before this: a break that is over at
/// once, or a server that is restarted, is not worth an error.
pub(crate) const DISCONNECTED_MIN: Duration = Duration::from_millis(250);
/// Connections of a client. Requests for one key take the same one and keep their order; a second
/// one keeps a large batch from delaying all other requests.
pub(crate) const CONNECTIONS_DEFAULT: usize = 2;
/// A server has a bounded number of connections for all its clients.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Addresses that a user may give.
pub(crate) const ADDRESSES_MAX: usize = 64;
/// Addresses of other nodes that a leader may tell of: more than any cluster has.
pub(crate) const NODES_TOLD_MAX: usize = 16;
/// Addresses that one attempt to connect goes through: those given, those told, and as many that
/// nodes name on the way.
pub(crate) const NODES_MAX: usize = ADDRESSES_MAX + 2 * NODES_TOLD_MAX;
/// Where there are several addresses, the next one is dialled so long after the last, if neither
/// is heard of.
pub(crate) const DIAL_STAGGER: Duration = Duration::from_millis(100);
/// Where there are several addresses, an answer that takes longer than this makes the client ask
/// elsewhere.
pub(crate) const OVERDUE: Duration = Duration::from_secs(1);
/// The same for the welcome of a node that was silent before.
pub(crate) const DOUBTED_OVERDUE: Duration = Duration::from_millis(250);

/// Requests of one kind (waiting in line at the server, or answered at once) that stand in one
/// connection's queue. A caller that finds it full waits for a place, within the request's own
/// time.
pub(crate) const QUEUED_CALLS_MAX: usize = 4096;
/// Requests that go into one write.
pub(crate) const BATCH_CALLS_MAX: usize = 256;
/// Bytes that may lie in the out-buffer before more requests are added: the socket must take them
/// first.
pub(crate) const OUT_BYTES_MAX: usize = 64 * 1024;
/// Room made in the in-buffer before each read.
pub(crate) const READ_BYTES: usize = 16 * 1024;

/// The first wait between two attempts to connect; the very first attempt after a break is made at
/// once.
pub(crate) const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// The longest wait between two attempts to connect.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// The first wait before the nodes of a cluster are asked again who leads, when none does. Half of
/// it is random, as of all waits: it is 25 ms at least.
pub(crate) const ELECTION_FIRST: Duration = Duration::from_millis(50);
/// The longest such wait. An election takes about a second.
pub(crate) const ELECTION_MAX: Duration = Duration::from_millis(250);
/// Wait before an acquire is asked again where the server grants nothing at the moment and gave no
/// guess.
pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(20);

/// A connection may be silent for this long at least: every server pauses now and then.
pub(crate) const SILENCE_MIN: Duration = Duration::from_millis(100);

/// Leases are renewed when this fraction of them has passed.
pub(crate) const RENEW_FRACTION: u32 = 3;
/// Renewals come early by up to this part of their interval, so that locks taken together are not
/// renewed together.
pub(crate) const RENEW_JITTER: f64 = 0.2;
/// A renewal that was answered by "not now" is tried again after this fraction of the lease.
pub(crate) const RENEW_RETRY_FRACTION: u32 = 10;

/// The server counts in milliseconds and may have begun the current one before it read the request.
pub(crate) const MARGIN_TICKS: Duration = Duration::from_millis(2);
/// This part of a lease is given up for clocks that do not run equally fast. A hundredth is fifty
/// times what a quartz disciplined by NTP may be off.
pub(crate) const MARGIN_FRACTION: u32 = 100;

/// A server that allows fewer unanswered requests, or remembers fewer outcomes, is taken to allow
/// this many: one request of each kind must be able to go out.
pub(crate) const IN_FLIGHT_MIN: usize = 4;

const _: () = assert!(IN_FLIGHT_MIN / 2 * 3 / 4 >= 1);
