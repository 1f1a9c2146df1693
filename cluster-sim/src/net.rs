//! The network: streams of bytes, as TCP has them, between nodes of one process. Bytes of a stream
//! come in order, each write after a time of its own. A link that is cut in one direction holds
//! bytes back until it heals. A connection that breaks loses what is under way, its two ends hear
//! of it at different times, and so a peer may get what was sent once more on the next connection
//! beside or before the first.

use crate::chance::{Dice, between};
use bytes::{Buf, Bytes, BytesMut};
use cluster::peer::Transport;
use cluster::types::NodeId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of one stream and direction that may be under way or unread.
const WINDOW_BYTES: usize = 256 << 10;

/// How often a connection that cannot be opened is tried again, until its caller gives up.
const CONNECT_AGAIN: Duration = Duration::from_millis(50);

/// One direction between two nodes.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    /// Nothing gets through.
    pub is_cut: bool,
    /// How long a write is under way.
    pub us: (u64, u64),
}

/// The network of all nodes. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Net(Arc<Mutex<State>>);

struct State {
    now_us: u64,
    dice: Dice,
    links: BTreeMap<(NodeId, NodeId), Link>,
    pipes: BTreeMap<u64, Pipe>,
    last_pipe: u64,
    listeners: BTreeMap<NodeId, Listening>,
}

/// One direction of a connection.
struct Pipe {
    from: NodeId,
    to: NodeId,
    under_way: VecDeque<(u64, Bytes)>,
    under_way_bytes: usize,
    last_due_us: u64,
    ready: BytesMut,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The writer has said that this was all.
    ends_us: Option<u64>,
    is_ended: bool,
    /// The connection breaks then.
    breaks_us: Option<u64>,
    is_broken: bool,
    has_reader: bool,
    has_writer: bool,
}

#[derive(Default)]
struct Listening {
    /// The node's process runs.
    is_up: bool,
    /// It lost its power: its peers hear nothing, not even that it is gone.
    is_silent: bool,
    arriving: VecDeque<(u64, Stream)>,
    waker: Option<Waker>,
}

impl Net {
    /// A network of these nodes, in which writes take this long.
    pub(crate) fn new(nodes: &[NodeId], us: (u64, u64), dice: Dice) -> Net {
        let pairs = nodes
            .iter()
            .flat_map(|from| nodes.iter().map(move |to| (*from, *to)));
        let is_cut = false;
        Net(Arc::new(Mutex::new(State {
            now_us: 0,
            dice,
            links: pairs.map(|pair| (pair, Link { is_cut, us })).collect(),
            pipes: BTreeMap::new(),
            last_pipe: 0,
            listeners: nodes
                .iter()
                .map(|node| (*node, Listening::default()))
                .collect(),
        })))
    }

    /// Changes one direction.
    pub(crate) fn change(&self, from: NodeId, to: NodeId, change: impl FnOnce(&mut Link)) {
        let mut state = self.0.lock();
        change(state.links.get_mut(&(from, to)).expect("a pair of nodes"));
    }

    /// A node's process starts. Connections of the one before break.
    pub(crate) fn start(&self, node: NodeId) -> SimTransport {
        let mut state = self.0.lock();
        let state = &mut *state;
        for pipe in state.pipes.values_mut() {
            if pipe.from == node || pipe.to == node {
                let us = state.links[&(pipe.from, pipe.to)].us;
                let due_us = state.now_us + between(&mut state.dice, us.0, us.1);
                pipe.breaks_us.get_or_insert(due_us);
            }
        }
        let listening = Listening {
            is_up: true,
            ..Listening::default()
        };
        state.listeners.insert(node, listening);
        SimTransport {
            node,
            net: self.clone(),
        }
    }

    /// A node's process is about to end. Silent: its machine ends with it.
    pub(crate) fn stop(&self, node: NodeId, is_silent: bool) {
        let arriving = {
            let mut state = self.0.lock();
            let listening = state.listeners.get_mut(&node).expect("a node");
            listening.is_up = false;
            listening.is_silent = is_silent;
            std::mem::take(&mut listening.arriving)
        };
        drop(arriving);
    }

    /// Breaks the connections between two nodes. Their ends hear of it within this time.
    pub(crate) fn break_all(&self, a: NodeId, b: NodeId, within_us: u64) {
        let mut state = self.0.lock();
        let state = &mut *state;
        for pipe in state.pipes.values_mut() {
            if [(a, b), (b, a)].contains(&(pipe.from, pipe.to)) {
                let due_us = state.now_us + state.dice.below(within_us);
                pipe.breaks_us.get_or_insert(due_us);
            }
        }
    }

    /// Time goes on: brings what is due.
    pub(crate) fn deliver(&self, now_us: u64) {
        let mut wakers = Vec::new();
        {
            let mut state = self.0.lock();
            let state = &mut *state;
            state.now_us = now_us;
            for pipe in state.pipes.values_mut() {
                let link = state.links[&(pipe.from, pipe.to)];
                pipe.deliver(now_us, link.is_cut, &mut wakers);
            }
            (state.pipes).retain(|_, pipe| pipe.has_reader || pipe.has_writer);
            for listening in state.listeners.values_mut() {
                let first = listening.arriving.front();
                if first.is_some_and(|(due_us, _)| *due_us <= now_us) {
                    wakers.extend(listening.waker.take());
                }
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Pipe {
    fn new(from: NodeId, to: NodeId) -> Pipe {
        Pipe {
            from,
            to,
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            last_due_us: 0,
            ready: BytesMut::new(),
            reader: None,
            writer: None,
            ends_us: None,
            is_ended: false,
            breaks_us: None,
            is_broken: false,
            has_reader: true,
            has_writer: true,
        }
    }

    fn deliver(&mut self, now_us: u64, is_cut: bool, wakers: &mut Vec<Waker>) {
        if self.is_broken {
            return;
        }
        let mut is_news = false;
        while !is_cut
            && let Some((due_us, _)) = self.under_way.front()
            && *due_us <= now_us
        {
            let (_, bytes) = self.under_way.pop_front().expect("it is the front");
            self.under_way_bytes -= bytes.len();
            self.ready.extend_from_slice(&bytes);
            is_news = true;
        }
        if !is_cut && self.under_way.is_empty() && self.ends_us.is_some_and(|at| at <= now_us) {
            is_news |= !self.is_ended;
            self.is_ended = true;
        }
        if self.breaks_us.is_some_and(|at| at <= now_us) {
            self.is_broken = true;
            self.under_way.clear();
            is_news = true;
        }
        if is_news {
            wakers.extend(self.reader.take());
            wakers.extend(self.writer.take());
        }
    }
}

impl State {
    fn due_us(&mut self, from: NodeId, to: NodeId) -> u64 {
        let us = self.links[&(from, to)].us;
        self.now_us + between(&mut self.dice, us.0, us.1)
    }

    fn open(&mut self, from: NodeId, to: NodeId, net: &Net) -> Stream {
        let (out, back) = (self.last_pipe + 1, self.last_pipe + 2);
        self.last_pipe = back;
        self.pipes.insert(out, Pipe::new(from, to));
        self.pipes.insert(back, Pipe::new(to, from));
        let due_us = self.due_us(from, to);
        let accepted = Stream {
            node: to,
            read: out,
            write: back,
            net: net.clone(),
        };
        let listening = self.listeners.get_mut(&to).expect("a node");
        listening.arriving.push_back((due_us, accepted));
        Stream {
            node: from,
            read: back,
            write: out,
            net: net.clone(),
        }
    }
}

/// How one node reaches the others. Their addresses are their numbers.
#[derive(Clone)]
pub(crate) struct SimTransport {
    node: NodeId,
    net: Net,
}

impl Transport for SimTransport {
    type Stream = Stream;
    type Listener = ();

    async fn connect(&self, address: &str) -> io::Result<Stream> {
        let to: NodeId = address.parse().map_err(io::Error::other)?;
        loop {
            let (opened, pause) = {
                let mut state = self.net.0.lock();
                let is_cut = [(self.node, to), (to, self.node)]
                    .iter()
                    .any(|pair| state.links[pair].is_cut);
                let listening = &state.listeners[&to];
                let is_unheard = is_cut || !listening.is_up && listening.is_silent;
                let is_up = listening.is_up;
                let round_us = state.due_us(self.node, to) - state.now_us;
                let pause = Duration::from_micros(2 * round_us);
                match (is_unheard, is_up) {
                    (true, _) => (None, CONNECT_AGAIN),
                    (false, true) => (Some(state.open(self.node, to, &self.net)), pause),
                    (false, false) => return Err(io::ErrorKind::ConnectionRefused.into()),
                }
            };
            tokio::time::sleep(pause).await;
            if let Some(stream) = opened {
                return Ok(stream);
            }
        }
    }

    async fn accept(&self, _: &mut ()) -> io::Result<(Stream, String)> {
        std::future::poll_fn(|context| {
            let mut state = self.net.0.lock();
            let now_us = state.now_us;
            let listening = state.listeners.get_mut(&self.node).expect("a node");
            match listening.arriving.front() {
                Some((due_us, _)) if *due_us <= now_us => {
                    let (_, stream) = listening.arriving.pop_front().expect("it is the front");
                    Poll::Ready(Ok((stream, "peer".to_owned())))
                }
                _ => {
                    listening.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// One end of a connection.
pub(crate) struct Stream {
    node: NodeId,
    read: u64,
    write: u64,
    net: Net,
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.net.0.lock();
        let pipe = state.pipes.get_mut(&self.read).expect("it has a reader");
        if !pipe.ready.is_empty() {
            let bytes = pipe.ready.len().min(buffer.remaining());
            buffer.put_slice(&pipe.ready[..bytes]);
            pipe.ready.advance(bytes);
            if let Some(waker) = pipe.writer.take() {
                waker.wake();
            }
            return Poll::Ready(Ok(()));
        }
        if pipe.is_broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if pipe.is_ended {
            return Poll::Ready(Ok(()));
        }
        pipe.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.net.0.lock();
        let pipe = &state.pipes[&self.write];
        let (from, to) = (pipe.from, pipe.to);
        let due_us = state.due_us(from, to);
        let is_silent = state.listeners[&to].is_silent;
        let is_back_broken = (state.pipes.get(&self.read)).is_some_and(|back| back.is_broken);
        let pipe = state.pipes.get_mut(&self.write).expect("it has a writer");
        let is_unread = !pipe.has_reader && !is_silent;
        if is_back_broken || pipe.is_broken || is_unread {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = WINDOW_BYTES.saturating_sub(pipe.under_way_bytes + pipe.ready.len());
        if room == 0 {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let taken = bytes.len().min(room);
        pipe.last_due_us = pipe.last_due_us.max(due_us);
        let chunk = Bytes::copy_from_slice(&bytes[..taken]);
        pipe.under_way.push_back((pipe.last_due_us, chunk));
        pipe.under_way_bytes += taken;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.net.0.lock();
        let pipe = state.pipes.get_mut(&self.write).expect("it has a writer");
        pipe.ends_us.get_or_insert(pipe.last_due_us);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.net.0.lock();
        let is_silent = state.listeners[&self.node].is_silent;
        if let Some(pipe) = state.pipes.get_mut(&self.read) {
            pipe.has_reader = false;
            pipe.ready.clear();
        }
        if let Some(pipe) = state.pipes.get_mut(&self.write) {
            pipe.has_writer = false;
            if !is_silent {
                pipe.ends_us.get_or_insert(pipe.last_due_us);
            }
        }
    }
}
