use super::*;
use bytes::BytesMut;
use protocol::{ClientName, Frame, Hello, Request, RequestId, limits};

#[test]
fn other_protocols_are_recognised_by_four_bytes() {
    for bytes in [
        &b"GET /metrics HTTP/1.1\r\n"[..],
        b"HEAD / HTTP/1.0\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PUT ",
    ] {
        assert_eq!(Stray::recognise(bytes), Some(Stray::Http), "{bytes:?}");
    }
    for bytes in [&b"*1\r\n$4\r\nPING\r\n"[..], b"*12\r\n", b"PING\r\n"] {
        assert_eq!(Stray::recognise(bytes), Some(Stray::Redis), "{bytes:?}");
    }
    for bytes in [&b""[..], b"GET", b"get /", b"\x16\x03\x01\x02", b"*x\r\n"] {
        assert_eq!(Stray::recognise(bytes), None, "{bytes:?}");
    }
}

/// Were one of them the beginning of a frame that is allowed, its client would be turned away.
#[test]
fn no_frame_is_taken_for_a_stray() {
    let redis: [&[u8; 4]; 3] = [b"*0\r\n", b"PING", b"AUTH"];
    for first in METHODS.into_iter().chain(redis) {
        let mut rest = &first[..];
        Frame::split(&mut rest, limits::FRAME_BYTES_MAX).unwrap_err();
    }
    let mut hello = BytesMut::new();
    let name = ClientName::new("GET ").unwrap();
    Request::Hello(Hello::new(name)).append(RequestId::new(1), &mut hello);
    assert_eq!(Stray::recognise(&hello), None);
}
