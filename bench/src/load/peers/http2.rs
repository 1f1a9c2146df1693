//! As much of HTTP/2 as unary gRPC calls on loopback need, without I/O: bytes for a call, finished
//! calls out of bytes.
//!
//! It exists because the generator is one loop for all peers, and the well-kept HTTP/2 crates bring
//! an asynchronous runtime of their own, which would be measured with etcd and with no other peer.
//! What is left out, and why that is safe here: the flow control of what we send (a call is some
//! fifty bytes, and far less than the window of 64 KiB is ever under way), and decoding of headers
//! (a call that failed has no message; why it failed we do not ask).

use bytes::{Buf, BufMut, BytesMut};
use std::collections::HashMap;

/// What a connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADER_BYTES: usize = 9;

/// The largest window there is: we never want to be asked to wait.
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// The window that a connection begins with.
const WINDOW_DEFAULT: u32 = 65_535;

/// Entries of HPACK's static table; ours come after.
const STATIC_ENTRIES: usize = 61;

/// Bytes before a gRPC message: compressed or not, and its length.
const PREFIX_BYTES: usize = 5;

mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const WINDOW_UPDATE: u8 = 8;
}

const FLAG_END_STREAM: u8 = 1;
const FLAG_ACK: u8 = 1;
const FLAG_END_HEADERS: u8 = 4;
const FLAG_PADDED: u8 = 8;

/// One connection. `T` is what the caller wants back with the answer.
pub(crate) struct Http2<T> {
    next_stream: u32,
    calls: HashMap<u32, Call<T>>,
    /// What the peer's HPACK table holds of us, oldest first.
    table: Vec<(&'static str, &'static str)>,
}

struct Call<T> {
    tag: T,
    message: Vec<u8>,
}

/// A call that has ended.
pub(crate) struct Ended<T> {
    pub(crate) tag: T,
    /// `None`: the call failed.
    pub(crate) message: Option<Vec<u8>>,
}

impl<T> Http2<T> {
    pub(crate) fn new() -> Self {
        Http2 {
            next_stream: 1,
            calls: HashMap::new(),
            table: Vec::new(),
        }
    }

    /// What a client says first.
    pub(crate) fn open(&self, out: &mut BytesMut) {
        out.put_slice(PREFACE);
        // HEADER_TABLE_SIZE 0, ENABLE_PUSH 0, INITIAL_WINDOW_SIZE as large as it may be.
        append_header(out, 18, kind::SETTINGS, 0, 0);
        for (setting, value) in [(1, 0), (2, 0), (4, WINDOW_MAX)] {
            out.put_u16(setting);
            out.put_u32(value);
        }
        append_header(out, 4, kind::WINDOW_UPDATE, 0, 0);
        out.put_u32(WINDOW_MAX - WINDOW_DEFAULT);
    }

    /// Appends a call of the method at `path`.
    pub(crate) fn call(&mut self, path: &'static str, message: &[u8], tag: T, out: &mut BytesMut) {
        let stream = self.next_stream;
        self.next_stream += 2;
        let start = out.len();
        append_header(out, 0, kind::HEADERS, FLAG_END_HEADERS, stream);
        // From the static table: POST, http.
        out.put_slice(&[0x83, 0x86]);
        self.append_field(":path", path, out);
        self.append_field(":authority", "127.0.0.1", out);
        self.append_field("content-type", "application/grpc", out);
        self.append_field("te", "trailers", out);
        let header_bytes = (out.len() - start - HEADER_BYTES) as u32;
        out[start..start + 3].copy_from_slice(&header_bytes.to_be_bytes()[1..]);

        let data_bytes = PREFIX_BYTES + message.len();
        append_header(out, data_bytes, kind::DATA, FLAG_END_STREAM, stream);
        out.put_u8(0);
        out.put_u32(message.len() as u32);
        out.put_slice(message);
        let message = Vec::new();
        self.calls.insert(stream, Call { tag, message });
    }

    /// Appends a header field: one byte, once the peer has seen it.
    fn append_field(&mut self, name: &'static str, value: &'static str, out: &mut BytesMut) {
        let known = self
            .table
            .iter()
            .rev()
            .position(|&entry| entry == (name, value));
        if let Some(age) = known {
            out.put_u8(0x80 | (STATIC_ENTRIES + 1 + age) as u8);
            return;
        }
        // A literal that the peer adds to its table.
        out.put_u8(0x40);
        for text in [name, value] {
            out.put_u8(text.len() as u8);
            out.put_slice(text.as_bytes());
        }
        self.table.push((name, value));
    }

    /// Takes frames off the front of `unread` until a call has ended. `None`: more bytes are
    /// needed. What the protocol wants answered is appended to `out`.
    pub(crate) fn read(
        &mut self,
        unread: &mut &[u8],
        out: &mut BytesMut,
    ) -> Result<Option<Ended<T>>, String> {
        while let Some(header) = unread.first_chunk::<HEADER_BYTES>() {
            let [l0, l1, l2, kind, flags, stream @ ..] = *header;
            let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            let stream = u32::from_be_bytes(stream) & WINDOW_MAX;
            let Some(payload) = unread[HEADER_BYTES..].get(..length) else {
                break;
            };
            unread.advance(HEADER_BYTES + length);
            if flags & FLAG_PADDED != 0 && matches!(kind, kind::DATA | kind::HEADERS) {
                return Err("a padded frame, which no gRPC server sends".to_owned());
            }
            match kind {
                kind::DATA => {
                    if let Some(call) = self.calls.get_mut(&stream) {
                        call.message.extend_from_slice(payload);
                    }
                }
                kind::SETTINGS if flags & FLAG_ACK == 0 => {
                    append_header(out, 0, kind::SETTINGS, FLAG_ACK, 0);
                }
                kind::PING if flags & FLAG_ACK == 0 => {
                    append_header(out, payload.len(), kind::PING, FLAG_ACK, 0);
                    out.put_slice(payload);
                }
                kind::GOAWAY => return Err("the peer said go away".to_owned()),
                _ => {}
            }
            let has_ended = kind == kind::RST_STREAM
                || (matches!(kind, kind::DATA | kind::HEADERS) && flags & FLAG_END_STREAM != 0);
            if has_ended && let Some(call) = self.calls.remove(&stream) {
                let message = (kind != kind::RST_STREAM)
                    .then(|| whole_message(call.message))
                    .flatten();
                let tag = call.tag;
                return Ok(Some(Ended { tag, message }));
            }
        }
        Ok(None)
    }
}

/// The message behind its prefix, if all of it is there.
fn whole_message(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let (&[_, l0, l1, l2, l3], rest) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
    let is_whole = rest.len() == u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    is_whole.then(|| bytes.split_off(PREFIX_BYTES))
}

fn append_header(out: &mut BytesMut, length: usize, kind: u8, flags: u8, stream: u32) {
    out.put_slice(&(length as u32).to_be_bytes()[1..]);
    out.put_slice(&[kind, flags]);
    out.put_u32(stream);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        append_header(&mut out, payload.len(), kind, flags, stream);
        out.put_slice(payload);
        out.to_vec()
    }

    #[test]
    fn a_message_in_pieces_is_put_together() {
        let mut http2 = Http2::new();
        let mut out = BytesMut::new();
        http2.call("/a/b", b"hello", 'x', &mut out);
        let frames = [
            frame(kind::HEADERS, FLAG_END_HEADERS, 1, &[0x88]),
            frame(kind::DATA, 0, 1, &[0, 0, 0, 0, 3]),
            frame(kind::DATA, 0, 1, b"abc"),
            frame(kind::HEADERS, FLAG_END_HEADERS | FLAG_END_STREAM, 1, &[]),
        ]
        .concat();
        let whole = frames.len();
        for end in 0..whole {
            let mut http2 = Http2::new();
            http2.call("/a/b", b"hello", 'x', &mut BytesMut::new());
            let ended = http2.read(&mut &frames[..end], &mut out).unwrap();
            assert!(ended.is_none(), "{end} of {whole} bytes");
        }
        let ended = http2.read(&mut &frames[..], &mut out).unwrap().unwrap();
        assert_eq!((ended.tag, ended.message), ('x', Some(b"abc".to_vec())));
    }

    #[test]
    fn a_call_without_a_message_has_failed() {
        let mut http2 = Http2::new();
        let mut out = BytesMut::new();
        http2.call("/a/b", b"", 1, &mut out);
        let trailers = frame(kind::HEADERS, FLAG_END_HEADERS | FLAG_END_STREAM, 1, &[]);
        let ended = http2.read(&mut &trailers[..], &mut out).unwrap().unwrap();
        assert_eq!(ended.message, None);
    }

    #[test]
    fn settings_and_pings_are_answered() {
        let mut http2 = Http2::<()>::new();
        let mut out = BytesMut::new();
        let frames = [
            frame(kind::SETTINGS, 0, 0, &[]),
            frame(kind::PING, 0, 0, b"12345678"),
            frame(kind::PING, FLAG_ACK, 0, b"12345678"),
        ]
        .concat();
        assert!(http2.read(&mut &frames[..], &mut out).unwrap().is_none());
        let expected = [
            frame(kind::SETTINGS, FLAG_ACK, 0, &[]),
            frame(kind::PING, FLAG_ACK, 0, b"12345678"),
        ];
        assert_eq!(out.to_vec(), expected.concat());
    }

    #[test]
    fn headers_are_sent_in_full_once_and_as_one_byte_each_after() {
        let mut http2 = Http2::new();
        let (mut first, mut second) = (BytesMut::new(), BytesMut::new());
        http2.call("/a/b", b"", (), &mut first);
        http2.call("/a/b", b"", (), &mut second);
        // The newest entry is the first after the static table.
        let fields = &second[HEADER_BYTES..HEADER_BYTES + 6];
        assert_eq!(
            fields,
            [0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62]
        );
        assert!(first.len() > second.len() + 40);
    }
}
