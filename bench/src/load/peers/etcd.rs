//! etcd: its lock service over gRPC. A lane stands in line at the server, under a lease; the fence
//! is the revision at which the lock became its own.
//!
//! Two lanes with one lease are one owner to etcd, so contenders for one key have a lease each.
//! Messages are written and read by hand: there are four, of two fields each.

use super::Started;
use super::child::{Process, free_address};
use super::http2::Http2;
use crate::load::speaker::{Answer, Ask, KEY_BYTES, Speaker};
use crate::load::stream::Stream;
use bytes::{BufMut, BytesMut};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;

const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const LOCK: &str = "/v3lockpb.Lock/Lock";
const UNLOCK: &str = "/v3lockpb.Lock/Unlock";

/// How long the lanes' leases last: longer than any run.
const LEASE_S: u64 = 600;

#[derive(Clone, Copy)]
enum Op {
    LeaseGrant,
    Lock,
    Unlock,
    KeepAlive,
}

pub(crate) struct Etcd {
    http2: Http2<(u32, Op)>,
    /// Whether the lanes want the same key, and so need a lease each.
    is_contended: bool,
    /// By lane.
    owners: Vec<Owner>,
}

#[derive(Clone, Default)]
struct Owner {
    lease: u64,
    /// What etcd calls the lock that the lane holds.
    key: Vec<u8>,
}

impl Etcd {
    pub(crate) fn new(is_contended: bool) -> Self {
        Etcd {
            http2: Http2::new(),
            is_contended,
            owners: Vec::new(),
        }
    }

    fn owner(&mut self, lane: u32) -> &mut Owner {
        &mut self.owners[lane as usize]
    }
}

/// Starts a server of one node.
pub(super) fn start(directory: &Path) -> io::Result<Started> {
    let (client, peer) = (free_address()?, free_address()?);
    let log = directory.join("etcd.log");
    let arguments = arguments(directory, client, peer);
    let mut process = Process::start(Path::new("etcd"), &arguments, &log)?;
    process.wait_for(client)?;
    Ok((vec![client], vec![process]))
}

/// What a server of one node is started with.
pub(crate) fn arguments(directory: &Path, client: SocketAddr, peer: SocketAddr) -> Vec<String> {
    arguments_of(0, directory, client, &[peer])
}

/// What one of several nodes is started with. `peers`: where they talk to each other, in order.
pub(super) fn arguments_of(
    index: usize,
    directory: &Path,
    client: SocketAddr,
    peers: &[SocketAddr],
) -> Vec<String> {
    let name = |index: usize| format!("bench-{index}");
    let client_url = format!("http://{client}");
    let peer_url = format!("http://{}", peers[index]);
    let members: Vec<String> = peers
        .iter()
        .enumerate()
        .map(|(index, peer)| format!("{}=http://{peer}", name(index)))
        .collect();
    let data = directory.join("data");
    let arguments = [
        ("--name", name(index).as_str()),
        ("--data-dir", &data.to_string_lossy()),
        ("--listen-client-urls", &client_url),
        ("--advertise-client-urls", &client_url),
        ("--listen-peer-urls", &peer_url),
        ("--initial-advertise-peer-urls", &peer_url),
        ("--initial-cluster", &members.join(",")),
    ]
    .map(|(name, value)| [name.to_owned(), value.to_owned()]);
    arguments.into_iter().flatten().collect()
}

impl Speaker for Etcd {
    fn open(&mut self, streams: &mut [Stream], lanes: &[u32]) -> io::Result<()> {
        let lane_count = lanes.iter().max().map_or(0, |&lane| lane as usize + 1);
        self.owners = vec![Owner::default(); lane_count];
        let wanted = match self.is_contended {
            true => lanes,
            false => &lanes[..1],
        };
        let mut out = BytesMut::new();
        self.http2.open(&mut out);
        for &lane in wanted {
            let mut message = BytesMut::new();
            append_number(&mut message, 1, LEASE_S);
            let tag = (lane, Op::LeaseGrant);
            self.http2.call(LEASE_GRANT, &message, tag, &mut out);
        }
        let (mut missing, mut bytes) = (wanted.len(), Vec::new());
        // Not only the leases: a frame whose end is still to come would be taken for the beginning
        // of another one later.
        while missing > 0 || !bytes.is_empty() {
            streams[0].write_all(&out)?;
            out.clear();
            let mut chunk = [0; 4096];
            let read_bytes = streams[0].read(&mut chunk)?;
            if read_bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(&chunk[..read_bytes]);
            let mut unread = &bytes[..];
            while let Some(ended) = self
                .http2
                .read(&mut unread, &mut out)
                .map_err(io::Error::other)?
            {
                let lease = ended.message.as_deref().and_then(|message| {
                    find(message, 2).map(|field| match field {
                        Field::Number(lease) => lease,
                        Field::Bytes(_) => 0,
                    })
                });
                self.owner(ended.tag.0).lease =
                    lease.ok_or_else(|| io::Error::other("no lease was granted"))?;
                missing -= 1;
            }
            bytes = unread.to_vec();
        }
        streams[0].write_all(&out)?;
        if !self.is_contended {
            let lease = self.owner(lanes[0]).lease;
            for &lane in lanes {
                self.owner(lane).lease = lease;
            }
        }
        Ok(())
    }

    fn acquire(&mut self, lane: u32, ask: &Ask, outs: &mut [BytesMut]) {
        let mut message = BytesMut::new();
        append_bytes(&mut message, 1, &ask.key);
        append_number(&mut message, 2, self.owner(lane).lease);
        self.http2
            .call(LOCK, &message, (lane, Op::Lock), &mut outs[0]);
    }

    fn release(&mut self, lane: u32, _: &[u8; KEY_BYTES], _: u64, outs: &mut [BytesMut]) {
        let mut message = BytesMut::new();
        append_bytes(&mut message, 1, &self.owner(lane).key);
        self.http2
            .call(UNLOCK, &message, (lane, Op::Unlock), &mut outs[0]);
    }

    fn renew(&mut self, lane: u32, _: &[u8; KEY_BYTES], _: u64, _: u32, outs: &mut [BytesMut]) {
        let mut message = BytesMut::new();
        append_number(&mut message, 1, self.owner(lane).lease);
        let tag = (lane, Op::KeepAlive);
        self.http2
            .call(LEASE_KEEP_ALIVE, &message, tag, &mut outs[0]);
    }

    const RENEWS_ALL: bool = true;

    fn read(
        &mut self,
        _: usize,
        unread: &mut &[u8],
        outs: &mut [BytesMut],
    ) -> Result<Option<Answer>, String> {
        let Some(ended) = self.http2.read(unread, &mut outs[0])? else {
            return Ok(None);
        };
        let (lane, op) = ended.tag;
        let Some(message) = ended.message else {
            return Ok(Some(Answer::Failed { lane }));
        };
        Ok(Some(match op {
            Op::Lock => match lock_response(&message) {
                Some((fence, key)) => {
                    let held = &mut self.owner(lane).key;
                    held.clear();
                    held.extend_from_slice(key);
                    Answer::Granted { lane, fence }
                }
                None => Answer::Failed { lane },
            },
            Op::Unlock => Answer::Released { lane },
            Op::KeepAlive | Op::LeaseGrant => Answer::Renewed { lane },
        }))
    }
}

/// The revision in the header, and the key that stands for the lock.
fn lock_response(message: &[u8]) -> Option<(u64, &[u8])> {
    let (Some(Field::Bytes(header)), Some(Field::Bytes(key))) =
        (find(message, 1), find(message, 2))
    else {
        return None;
    };
    match find(header, 3) {
        Some(Field::Number(revision)) => Some((revision, key)),
        _ => None,
    }
}

/// A field of a message, as far as its kind goes.
#[derive(Debug, PartialEq, Eq)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The first field with this number. `None`: there is none, or the message is damaged.
fn find(mut message: &[u8], wanted: u64) -> Option<Field<'_>> {
    while !message.is_empty() {
        let tag = read_varint(&mut message)?;
        let value = read_varint(&mut message)?;
        let field = match tag & 7 {
            0 => Field::Number(value),
            2 => {
                let (bytes, rest) = message.split_at_checked(usize::try_from(value).ok()?)?;
                message = rest;
                Field::Bytes(bytes)
            }
            _ => return None,
        };
        if tag >> 3 == wanted {
            return Some(field);
        }
    }
    None
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn append_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn append_number(out: &mut BytesMut, field: u64, value: u64) {
    append_varint(out, field << 3);
    append_varint(out, value);
}

fn append_bytes(out: &mut BytesMut, field: u64, value: &[u8]) {
    append_varint(out, field << 3 | 2);
    append_varint(out, value.len() as u64);
    out.put_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_numbers() {
        let mut header = BytesMut::new();
        append_number(&mut header, 1, u64::MAX);
        append_number(&mut header, 3, 300);
        let mut message = BytesMut::new();
        append_bytes(&mut message, 1, &header);
        append_bytes(&mut message, 2, b"key/694d");
        assert_eq!(lock_response(&message), Some((300, &b"key/694d"[..])));
        assert_eq!(find(&message, 9), None);
        assert_eq!(lock_response(&message[..5]), None);
    }
}
