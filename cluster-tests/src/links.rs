//! The links between nodes. In front of each node stands a proxy, and all nodes know each other by
//! the addresses of the proxies. A connection's first frame says which node it comes from
//! (`docs/cluster-wire.md`), so each direction between two nodes can be cut or slowed by itself.
//!
//! What comes into a cut direction is kept, as a network that loses packets has them sent again
//! later, and goes on when the cut is healed; or the connection is reset. New connections are
//! accepted meanwhile, and hear nothing.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Where the node's id stands in the first frame, 8 bytes in little endian: behind length, kind,
/// id, magic, version, format and cluster id.
const NODE_AT: usize = 4 + 1 + 8 + 4 + 2 + 2 + 16;

/// What is read at once.
const CHUNK_BYTES: usize = 16 << 10;

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    is_open: bool,
    delay: Duration,
    /// Connections of an earlier era are reset.
    era: u64,
}

/// By the indexes of the node that sends and of the one that receives.
type Ways = Vec<Vec<watch::Sender<Way>>>;

/// The id of the node at each place; 0 where there is none.
type Ids = Arc<Mutex<Vec<u64>>>;

/// The links of a cluster. Dropping them cuts all for good.
pub struct Links {
    ways: Arc<Ways>,
    ids: Ids,
    proxies: Vec<SocketAddr>,
    _runtime: Runtime,
}

impl Links {
    /// A proxy for each of these nodes, which listen there.
    pub fn new(nodes: &[SocketAddr]) -> Result<Links, String> {
        let system = |error: std::io::Error| format!("no links between nodes: {error}");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(system)?;
        let way = || {
            let (way, _) = watch::channel(Way {
                is_open: true,
                delay: Duration::ZERO,
                era: 0,
            });
            way
        };
        let ways: Ways = nodes
            .iter()
            .map(|_| nodes.iter().map(|_| way()).collect())
            .collect();
        let ways = Arc::new(ways);
        let ids = Ids::new(Mutex::new(vec![0; nodes.len()]));
        let mut proxies = Vec::new();
        for (index, &node) in nodes.iter().enumerate() {
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
            let listener = listener.map_err(system)?;
            proxies.push(listener.local_addr().map_err(system)?);
            runtime.spawn(stand_before(
                listener,
                node,
                index,
                ways.clone(),
                ids.clone(),
            ));
        }
        Ok(Links {
            ways,
            ids,
            proxies,
            _runtime: runtime,
        })
    }

    /// The node at this place has this id from now on.
    pub fn name(&self, index: usize, id: u64) {
        self.ids.lock()[index] = id;
    }

    /// Where the others reach each node.
    pub fn proxies(&self) -> &[SocketAddr] {
        &self.proxies
    }

    /// Cuts what one node sends to another.
    pub fn cut(&self, from: usize, to: usize) {
        self.ways[from][to].send_modify(|way| way.is_open = false);
    }

    /// Opens what one node sends to another.
    pub fn open(&self, from: usize, to: usize) {
        self.ways[from][to].send_modify(|way| way.is_open = true);
    }

    /// Slows down what one node sends to another.
    pub fn slow(&self, from: usize, to: usize, delay: Duration) {
        self.ways[from][to].send_modify(|way| way.delay = delay);
    }

    /// Opens everything. `is_reset`: connections that are there end.
    pub fn heal(&self, is_reset: bool) {
        for way in self.ways.iter().flatten() {
            way.send_modify(|way| {
                let is_whole = way.is_open && way.delay.is_zero();
                way.is_open = true;
                way.delay = Duration::ZERO;
                way.era += u64::from(is_reset && !is_whole);
            });
        }
    }
}

/// Takes the connections to one node.
async fn stand_before(
    listener: TcpListener,
    node: SocketAddr,
    index: usize,
    ways: Arc<Ways>,
    ids: Ids,
) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connect(stream, node, index, ways.clone(), ids.clone()));
        }
    }
}

async fn connect(mut stream: TcpStream, node: SocketAddr, index: usize, ways: Arc<Ways>, ids: Ids) {
    let mut first = [0; NODE_AT + 8];
    if stream.read_exact(&mut first).await.is_err() {
        return;
    }
    let id: [u8; 8] = *first[NODE_AT..]
        .first_chunk()
        .expect("eight bytes are left");
    let id = u64::from_le_bytes(id);
    // A tool is no node, and has no link; nor has a node that was taken out.
    let from = ids.lock().iter().position(|known| *known == id && id != 0);
    let Some(from) = from else {
        return;
    };
    let there = ways[from][index].subscribe();
    let back = ways[index][from].subscribe();
    let (mut era_there, mut era_back) = (there.clone(), back.clone());
    let (there_begun, back_begun) = (there.borrow().era, back.borrow().era);
    let pass = async move {
        let mut there = there;
        if there.wait_for(|way| way.is_open).await.is_err() {
            return;
        }
        let Ok(mut onward) = TcpStream::connect(node).await else {
            return;
        };
        // Both sides decide by their own settings when small frames are sent.
        let _ = (stream.set_nodelay(true), onward.set_nodelay(true));
        if onward.write_all(&first).await.is_err() {
            return;
        }
        let (near_in, near_out) = stream.into_split();
        let (far_in, far_out) = onward.into_split();
        tokio::join!(pump(near_in, far_out, there), pump(far_in, near_out, back));
    };
    tokio::select! {
        () = pass => {}
        _ = era_there.wait_for(|way| way.era != there_begun) => {}
        _ = era_back.wait_for(|way| way.era != back_begun) => {}
    }
}

/// Passes bytes on in one direction, as long as it is open.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut way: watch::Receiver<Way>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        // The end of a connection that broke reaches the other side like the end of one that was
        // closed.
        let read = from.read(&mut chunk).await.unwrap_or(0);
        let delay = way.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if way.wait_for(|way| way.is_open).await.is_err() {
            return;
        }
        if read == 0 {
            let _ = to.shutdown().await;
            return;
        }
        if to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
    }
}
