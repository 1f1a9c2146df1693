//! decode(encode(x)) = x, and nothing shorter than x is anything.

use crate::messages::{parts, reply_index, request_index};
use bytes::BytesMut;
use proptest::prelude::*;
use protocol::frame::{HEADER_BYTES, LENGTH_BYTES};
use protocol::limits::{FRAME_BYTES_MAX, REQUEST_FRAME_BYTES_MAX};
use protocol::{
    Acquire, DecodeError, Direction, Frame, NodeAddress, Push, Reply, Request, RequestId,
};

/// The only frame in `bytes`.
fn only_frame(bytes: &[u8], frame_bytes_max: u32) -> Frame<'_> {
    let mut unread = bytes;
    let frame = Frame::split(&mut unread, frame_bytes_max).unwrap().unwrap();
    assert!(unread.is_empty(), "{} bytes too many", unread.len());
    assert_eq!(frame.frame_bytes(), bytes.len());
    frame
}

/// Cuts the stream at every byte, then the body at every byte with a length that fits again.
fn cut_everywhere(bytes: &[u8], decodes: impl Fn(&Frame<'_>) -> bool) {
    for end in 0..bytes.len() {
        assert_eq!(
            Frame::split(&mut &bytes[..end], FRAME_BYTES_MAX),
            Ok(None),
            "{end} of {} bytes are a frame",
            bytes.len()
        );
    }
    for end in HEADER_BYTES..bytes.len() {
        let mut cut = bytes[..end].to_vec();
        cut[..LENGTH_BYTES].copy_from_slice(&((end - LENGTH_BYTES) as u32).to_le_bytes());
        let frame = only_frame(&cut, FRAME_BYTES_MAX);
        assert!(
            !decodes(&frame),
            "{end} of {} bytes are a message",
            bytes.len()
        );
    }
}

proptest! {
    #![proptest_config(crate::config())]

    #[test]
    fn requests_survive_the_wire(parts in parts()) {
        let requests = parts.requests();
        for (index, request) in requests.iter().enumerate() {
            prop_assert_eq!(request_index(request), index, "every request once, in order");
            let mut out = BytesMut::new();
            request.append(parts.request_id(), &mut out);
            let frame = only_frame(&out, REQUEST_FRAME_BYTES_MAX);
            prop_assert_eq!(frame.request_id, parts.request_id());
            prop_assert_eq!(frame.direction(), Direction::Request);
            prop_assert!(!frame.is_repeated());
            prop_assert_eq!(Request::decode(&frame), Ok(*request));
            let key = match *request {
                Request::Acquire(Acquire { key, .. })
                | Request::Renew { key, .. }
                | Request::Release { key, .. } => Some(key),
                _ => None,
            };
            prop_assert_eq!(Request::peek_key(&frame), key);

            let mut again = BytesMut::new();
            request.append_repeat(parts.request_id(), &mut again);
            let frame = only_frame(&again, REQUEST_FRAME_BYTES_MAX);
            prop_assert!(frame.is_repeated());
            prop_assert_eq!(Request::decode(&frame), Ok(*request));
        }
    }

    #[test]
    fn replies_survive_the_wire(parts in parts()) {
        let lists = parts.lists();
        for (index, reply) in parts.replies(&lists).iter().enumerate() {
            prop_assert_eq!(reply_index(reply), index, "every reply once, in order");
            let mut out = BytesMut::new();
            reply.append(parts.request_id(), &mut out);
            let frame = only_frame(&out, FRAME_BYTES_MAX);
            prop_assert_eq!(frame.request_id, parts.request_id());
            prop_assert_eq!(frame.direction(), Direction::Reply);
            prop_assert_eq!(Reply::decode(&frame), Ok(*reply));
        }
    }

    #[test]
    fn pushes_survive_the_wire(parts in parts()) {
        for push in parts.pushes() {
            let mut out = BytesMut::new();
            push.append(&mut out);
            let frame = only_frame(&out, FRAME_BYTES_MAX);
            prop_assert_eq!(frame.request_id, RequestId::NONE);
            prop_assert_eq!(frame.direction(), Direction::Push);
            prop_assert_eq!(Push::decode(&frame), Ok(push));
        }
    }

    /// Lists that came off the wire can be passed on as they are: a slice and its bytes are the
    /// same list.
    #[test]
    fn decoded_replies_encode_to_the_bytes_they_came_from(parts in parts()) {
        let lists = parts.lists();
        for reply in parts.replies(&lists) {
            let (mut first, mut second) = (BytesMut::new(), BytesMut::new());
            reply.append(parts.request_id(), &mut first);
            let frame = only_frame(&first, FRAME_BYTES_MAX);
            Reply::decode(&frame).unwrap().append(frame.request_id, &mut second);
            prop_assert_eq!(&first, &second);
        }
    }

    /// Optional fields may be missing, so a body cut just before one is a message, but never one
    /// that says something else: it is the message without that field.
    #[test]
    fn truncated_messages_are_incomplete_or_refused(parts in parts()) {
        for request in parts.requests() {
            if matches!(request, Request::Unknown { .. }) {
                continue;
            }
            let mut out = BytesMut::new();
            request.append(parts.request_id(), &mut out);
            cut_everywhere(&out, |frame| match Request::decode(frame) {
                Ok(decoded) => !is_without_some_options(decoded, request),
                Err(error) => error.loses_framing(),
            });
        }
        let lists = parts.lists();
        for reply in parts.replies(&lists) {
            if matches!(reply, Reply::Welcome(_) | Reply::Granted { .. }) {
                continue;
            }
            let mut out = BytesMut::new();
            reply.append(parts.request_id(), &mut out);
            cut_everywhere(&out, |frame| {
                let whole = reply;
                Reply::decode(frame).is_ok_and(|cut| cut == whole || cut != without_option(whole))
            });
        }
        for push in parts.pushes() {
            let mut out = BytesMut::new();
            push.append(&mut out);
            cut_everywhere(&out, |frame| {
                Push::decode(frame).is_ok_and(|cut| cut == push || cut != without_leader(push))
            });
        }
    }
}

/// The same push of a server of its own.
fn without_leader(whole: Push<'_>) -> Push<'_> {
    match whole {
        Push::Shutdown { grace_ms, .. } => Push::Shutdown {
            grace_ms,
            leader: NodeAddress::default(),
        },
        whole => whole,
    }
}

/// The same reply of a server that does not recover and of which no other leads.
fn without_option(whole: Reply<'_>) -> Reply<'_> {
    let certain = |contention| protocol::Contention {
        recovering_ms: None,
        ..contention
    };
    match whole {
        Reply::Error { code, message, .. } => Reply::Error {
            code,
            message,
            leader: NodeAddress::default(),
        },
        Reply::HelloRefused {
            code,
            version_min,
            version_max,
            message,
            ..
        } => Reply::HelloRefused {
            code,
            version_min,
            version_max,
            message,
            leader: NodeAddress::default(),
        },
        Reply::Refused(contention) => Reply::Refused(certain(contention)),
        Reply::TimedOut(contention) => Reply::TimedOut(certain(contention)),
        Reply::QueryResult {
            last_fence,
            holder_count,
            queue_length,
            holders,
            ..
        } => Reply::QueryResult {
            last_fence,
            holder_count,
            queue_length,
            holders,
            recovering_ms: None,
        },
        Reply::ListPage { next, entries, .. } => Reply::ListPage {
            next,
            entries,
            recovering_ms: None,
        },
        whole => whole,
    }
}

fn is_without_some_options(cut: Request<'_>, whole: Request<'_>) -> bool {
    use protocol::{Metadata, Opening, Token, TraceId};
    match (cut, whole) {
        (Request::Acquire(cut), Request::Acquire(mut whole)) => {
            whole.waited_ms = 0;
            if cut != whole {
                whole.trace_id = TraceId::default();
            }
            if cut != whole {
                whole.metadata = Metadata::default();
            }
            cut == whole
        }
        (Request::Claim(cut), Request::Claim(mut whole)) => {
            whole.hold_count = 1;
            if cut != whole {
                whole.trace_id = TraceId::default();
            }
            if cut != whole {
                whole.metadata = Metadata::default();
            }
            cut == whole
        }
        (
            Request::ForceRelease {
                key,
                fence,
                trace_id,
            },
            Request::ForceRelease {
                key: whole_key,
                fence: whole_fence,
                ..
            },
        ) => (key, fence, trace_id) == (whole_key, whole_fence, TraceId::default()),
        (Request::Hello(cut), Request::Hello(mut whole)) => {
            whole.opening = Opening::New;
            if cut != whole {
                whole.token = Token::default();
            }
            cut == whole
        }
        _ => false,
    }
}

#[test]
fn oversized_request_is_refused_by_its_length_alone() {
    let length = REQUEST_FRAME_BYTES_MAX - 3;
    assert!(matches!(
        Frame::split(&mut &length.to_le_bytes()[..], REQUEST_FRAME_BYTES_MAX),
        Err(DecodeError::FrameTooLong { .. })
    ));
}
