//! The load generator: one thread, one epoll, the same for every peer.
//!
//! It is kept light, since it shares the machine with what it measures: nothing is allocated per
//! request, the clock is read once per read from a socket, and all requests that follow from one
//! read leave in one write. What to send when is the [`Script`]'s business; how it looks as bytes
//! is the [`Speaker`]'s.

use super::speaker::{Answer, Ask, KEY_BYTES, Speaker};
use super::stream::Stream;
use bytes::{Buf, BytesMut};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Bytes taken from a socket at a time: the replies to some thousand requests.
const READ_BYTES: usize = 64 * 1024;

/// How long a handshake may take. A peer that is slower is not measured.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// How many sockets are looked at between two looks at the timers.
const EVENTS_MAX: usize = 256;

/// Decides what is sent when. Times are nanoseconds since the generator was made.
pub(crate) trait Script<S: Speaker> {
    /// A lane's time has come: at the start, or when a timer that it set fires.
    fn due(&mut self, lane: u32, now: u64, port: &mut Port<'_, S>);

    /// An answer came in.
    fn answer(&mut self, answer: Answer, now: u64, port: &mut Port<'_, S>);

    /// Whether nothing is left to wait for.
    fn is_done(&self) -> bool;
}

/// What a script does things with: one link, and the timers of all lanes.
pub(crate) struct Port<'a, S> {
    speaker: &'a mut S,
    outs: &'a mut [BytesMut],
    timers: &'a mut BinaryHeap<Reverse<(u64, u32)>>,
    /// The link that the answer came from or the lane belongs to.
    pub(crate) link: usize,
}

impl<S: Speaker> Port<'_, S> {
    /// Asks for a lock.
    pub(crate) fn acquire(&mut self, lane: u32, ask: &Ask) {
        self.speaker.acquire(lane, ask, self.outs);
    }

    /// Gives one back.
    pub(crate) fn release(&mut self, lane: u32, key: &[u8; KEY_BYTES], fence: u64) {
        self.speaker.release(lane, key, fence, self.outs);
    }

    /// Prolongs one, or all of the link's.
    pub(crate) fn renew(&mut self, lane: u32, key: &[u8; KEY_BYTES], fence: u64, ttl_ms: u32) {
        self.speaker.renew(lane, key, fence, ttl_ms, self.outs);
    }

    /// Wakes the lane at a given time.
    pub(crate) fn later(&mut self, lane: u32, at: u64) {
        self.timers.push(Reverse((at, lane)));
    }
}

/// One client process.
struct Link<S> {
    speaker: S,
    streams: Vec<Stream>,
    outs: Vec<BytesMut>,
    /// The beginning of an answer whose end has not come yet, per connection.
    rests: Vec<Vec<u8>>,
    /// Whether the kernel's buffer was full, per connection.
    is_blocked: Vec<bool>,
}

/// The generator with its connections.
pub(crate) struct Generator<S> {
    links: Vec<Link<S>>,
    epoll: OwnedFd,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    started: Instant,
    buffer: Box<[u8]>,
    connections_per_link: usize,
}

impl<S: Speaker> Generator<S> {
    /// Connects `link_count` links to the peer, each to all of its `addresses`, and spreads the
    /// lanes over them: lane `n` is on link `n % link_count`.
    pub(crate) fn connect(
        addresses: &[SocketAddr],
        link_count: usize,
        lane_count: u32,
        mut speaker: impl FnMut() -> S,
    ) -> io::Result<Self> {
        assert!(
            link_count > 0 && lane_count as usize >= link_count,
            "{lane_count} lanes on {link_count} links"
        );
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut links = Vec::with_capacity(link_count);
        for link in 0..link_count {
            let mut speaker = speaker();
            let mut streams = Vec::with_capacity(addresses.len());
            for address in addresses {
                streams.push(Stream::connect(address, OPEN_TIMEOUT)?);
            }
            let lanes: Vec<u32> = (link as u32..lane_count).step_by(link_count).collect();
            speaker.open(&mut streams, &lanes)?;
            for (connection, stream) in streams.iter().enumerate() {
                stream.set_nonblocking()?;
                let data = EventData::new_u64((link * addresses.len() + connection) as u64);
                epoll::add(&epoll, stream, data, EventFlags::IN)?;
            }
            links.push(Link {
                speaker,
                outs: vec![BytesMut::with_capacity(READ_BYTES); streams.len()],
                rests: vec![Vec::new(); streams.len()],
                is_blocked: vec![false; streams.len()],
                streams,
            });
        }
        Ok(Generator {
            links,
            epoll,
            timers: BinaryHeap::new(),
            started: Instant::now(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            connections_per_link: addresses.len(),
        })
    }

    /// The time on the generator's clock.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Has a lane's [`Script::due`] called at a given time.
    pub(crate) fn later(&mut self, lane: u32, at: u64) {
        self.timers.push(Reverse((at, lane)));
    }

    /// Runs the script until `until`, or until it is done.
    pub(crate) fn run(&mut self, script: &mut impl Script<S>, until: u64) -> Result<(), String> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        loop {
            let now = self.fire(script)?;
            if now >= until || script.is_done() {
                return Ok(());
            }
            let next = self.timers.peek().map_or(until, |Reverse((at, _))| *at);
            let timeout = Duration::from_nanos(next.min(until).saturating_sub(now));
            let timeout = Timespec::try_from(timeout).expect("a run is shorter than centuries");
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(format!("epoll: {error}")),
            }
            for event in &events {
                let (data, flags) = (event.data.u64() as usize, event.flags);
                let (link, connection) = (
                    data / self.connections_per_link,
                    data % self.connections_per_link,
                );
                if flags.contains(EventFlags::OUT) {
                    self.flush(link)?;
                }
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    self.receive(link, connection, script)?;
                }
            }
        }
    }

    /// Calls every lane whose time has come. Returns the time it is now.
    fn fire(&mut self, script: &mut impl Script<S>) -> Result<u64, String> {
        let now = self.now();
        let link_count = self.links.len();
        while let Some(&Reverse((at, lane))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let link = lane as usize % link_count;
            let Link { speaker, outs, .. } = &mut self.links[link];
            let mut port = Port {
                speaker,
                outs,
                timers: &mut self.timers,
                link,
            };
            script.due(lane, now, &mut port);
            // Lanes of one link that start together leave in one write: the timers give them in
            // order.
            let next_is_same = self.timers.peek().is_some_and(|&Reverse((at, lane))| {
                at <= now && lane as usize % link_count == link
            });
            if !next_is_same {
                self.flush(link)?;
            }
        }
        Ok(now)
    }

    /// Reads once from a connection, has everything in it answered, and sends what follows from it.
    fn receive(
        &mut self,
        link: usize,
        connection: usize,
        script: &mut impl Script<S>,
    ) -> Result<(), String> {
        let Link {
            speaker,
            streams,
            outs,
            rests,
            ..
        } = &mut self.links[link];
        let rest = &mut rests[connection];
        let rest_bytes = rest.len();
        self.buffer[..rest_bytes].copy_from_slice(rest);
        let read_bytes = match streams[connection].read(&mut self.buffer[rest_bytes..]) {
            Ok(0) => return Err("the peer closed a connection".to_owned()),
            Ok(read_bytes) => read_bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(format!("reading: {error}")),
        };
        rest.clear();
        let now = self.started.elapsed().as_nanos() as u64;
        let mut unread = &self.buffer[..rest_bytes + read_bytes];
        while let Some(answer) = speaker.read(connection, &mut unread, outs)? {
            let mut port = Port {
                speaker,
                outs,
                timers: &mut self.timers,
                link,
            };
            script.answer(answer, now, &mut port);
        }
        if unread.len() == self.buffer.len() {
            return Err("an answer longer than the buffer".to_owned());
        }
        rests[connection].extend_from_slice(unread);
        self.flush(link)
    }

    /// Sends what a link has to send, as far as the kernel takes it.
    fn flush(&mut self, link: usize) -> Result<(), String> {
        let connections_per_link = self.connections_per_link;
        let link_number = link;
        let link = &mut self.links[link];
        for (connection, out) in link.outs.iter_mut().enumerate() {
            let mut is_blocked = false;
            while !out.is_empty() && !is_blocked {
                match link.streams[connection].write(out) {
                    Ok(written_bytes) if written_bytes == out.len() => out.clear(),
                    Ok(written_bytes) => out.advance(written_bytes),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => is_blocked = true,
                    Err(error) => return Err(format!("writing: {error}")),
                }
            }
            if !is_blocked {
                let sent = link.streams[connection].send_rest();
                is_blocked = !sent.map_err(|error| format!("writing: {error}"))?;
            }
            if is_blocked != link.is_blocked[connection] {
                link.is_blocked[connection] = is_blocked;
                let flags = if is_blocked {
                    EventFlags::IN | EventFlags::OUT
                } else {
                    EventFlags::IN
                };
                let data = (link_number * connections_per_link + connection) as u64;
                let stream = &link.streams[connection];
                epoll::modify(&self.epoll, stream, EventData::new_u64(data), flags)
                    .map_err(|error| format!("epoll: {error}"))?;
            }
        }
        Ok(())
    }
}
