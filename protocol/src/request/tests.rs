use super::*;

fn frame(op: u8, flags: u8, body: &[u8]) -> Frame<'_> {
    Frame {
        kind: op,
        flags,
        request_id: RequestId::new(1),
        body,
    }
}

/// ttl_ms 1000, wait_ms 0, key "k".
const ACQUIRE: [u8; 11] = [0xe8, 3, 0, 0, 0, 0, 0, 0, 1, 0, b'k'];

fn acquire_with(options: &[u8]) -> Result<Request<'static>, DecodeError> {
    let body: &'static [u8] = [&ACQUIRE[..], options].concat().leak();
    Request::decode(&frame(op::ACQUIRE, 0, body))
}

fn plain() -> Acquire<'static> {
    Acquire::exclusive(Key::new(b"k").unwrap(), Lease::Ttl { ttl_ms: 1000 })
}

#[test]
fn a_detached_lock_belongs_to_no_session() {
    let key = Key::new(b"k").unwrap();
    for (is_reentrant, lease) in [(true, Lease::Ttl { ttl_ms: 1 }), (false, Lease::Session)] {
        let acquire = Acquire {
            is_reentrant,
            is_detached: true,
            ..Acquire::exclusive(key, lease)
        };
        let mut out = BytesMut::new();
        Request::Acquire(acquire).append(RequestId::new(1), &mut out);
        let frame = Frame::split(&mut &out[..], limits::REQUEST_FRAME_BYTES_MAX)
            .unwrap()
            .unwrap();
        assert_eq!(
            Request::decode(&frame),
            Err(DecodeError::DetachedWithSession)
        );
    }
}

#[test]
fn acquire_of_a_16_byte_key_has_40_bytes() {
    let mut out = BytesMut::new();
    let key = Key::new(b"orders/000000042").unwrap();
    Request::Acquire(Acquire {
        wait_ms: 5_000,
        ..Acquire::exclusive(key, Lease::Ttl { ttl_ms: 30_000 })
    })
    .append(RequestId::new(1), &mut out);
    assert_eq!(
        out[..],
        [
            &[0x24, 0, 0, 0, 0x10, 0, 1, 0, 0, 0, 0, 0, 0, 0][..],
            &[0x30, 0x75, 0, 0, 0x88, 0x13, 0, 0, 16, 0],
            b"orders/000000042",
        ]
        .concat()
    );
    assert_eq!(out.len(), 40);
}

#[test]
fn unknown_optional_fields_are_skipped() {
    let metadata = [3, 2, 0, b'm', b'd'];
    assert_eq!(
        acquire_with(&[&metadata[..], &[99, 3, 0, 1, 2, 3], &[200, 0, 0]].concat()),
        Ok(Request::Acquire(Acquire {
            metadata: Metadata::new(b"md").unwrap(),
            ..plain()
        }))
    );
    assert_eq!(
        Request::decode(&frame(op::PING, 0, &[50, 0, 0])),
        Ok(Request::Ping)
    );
}

#[test]
fn optional_fields_out_of_order_or_repeated_are_refused() {
    for options in [
        [4, 1, 0, b't', 3, 1, 0, b'm'],
        [3, 1, 0, b'a', 3, 1, 0, b'b'],
    ] {
        assert_eq!(
            acquire_with(&options),
            Err(DecodeError::OptionOutOfOrder { tag: 3 })
        );
    }
}

#[test]
fn optional_field_that_is_cut_off_is_refused() {
    for options in [&[3][..], &[3, 1], &[3, 1, 0], &[99, 4, 0, 1]] {
        assert_eq!(
            acquire_with(options),
            Err(DecodeError::BodyTooShort {
                field: "an optional field"
            })
        );
    }
}

#[test]
fn unknown_operations_are_values_whatever_they_carry() {
    for op in [0x00, op::WATCH, op::ACQUIRE_MANY, 0x7f, 0x80, 0xff] {
        assert_eq!(
            Request::decode(&frame(op, 0xff, &[1, 2, 3])),
            Ok(Request::Unknown { op })
        );
    }
}

#[test]
fn unknown_flags_are_refused() {
    assert_eq!(
        Request::decode(&frame(op::ACQUIRE, 0x50, &ACQUIRE)),
        Err(DecodeError::UnknownFlags {
            op: op::ACQUIRE,
            flags: 0x50
        })
    );
    assert_eq!(
        Request::decode(&frame(op::PING, FLAG_REPEATED, &[])),
        Ok(Request::Ping)
    );
}

#[test]
fn lease_needs_either_a_time_or_the_session() {
    let without_ttl = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, b'k'];
    assert_eq!(
        Request::decode(&frame(op::ACQUIRE, 0, &without_ttl)),
        Err(DecodeError::Zero { field: "ttl_ms" })
    );
    assert_eq!(
        Request::decode(&frame(op::ACQUIRE, FLAG_SESSION_BOUND, &without_ttl)),
        Ok(Request::Acquire(Acquire {
            lease: Lease::Session,
            ..plain()
        }))
    );
    assert_eq!(
        Request::decode(&frame(op::ACQUIRE, FLAG_SESSION_BOUND, &ACQUIRE)),
        Err(DecodeError::TtlWithSession { ttl_ms: 1000 })
    );
}

#[test]
fn numbers_beyond_their_limit_are_refused() {
    let mut long_ttl = ACQUIRE;
    long_ttl[..4].copy_from_slice(&(limits::TTL_MS_MAX + 1).to_le_bytes());
    let error = Request::decode(&frame(op::ACQUIRE, 0, &long_ttl)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ttl_ms is 86400001, at most 86400000 is allowed"
    );
    assert!(!error.loses_framing(), "only this request is at fault");

    let mut long_wait = ACQUIRE;
    long_wait[4..8].copy_from_slice(&(limits::WAIT_MS_MAX + 1).to_le_bytes());
    assert!(Request::decode(&frame(op::ACQUIRE, 0, &long_wait)).is_err());

    let long_page = [limits::LIST_PAGE_MAX as u8 + 1, 0, 0, 0, 0, 0];
    assert!(Request::decode(&frame(op::LIST, 0, &long_page)).is_err());
}

#[test]
fn request_without_id_is_refused() {
    let mut ping = frame(op::PING, 0, &[]);
    ping.request_id = RequestId::NONE;
    assert_eq!(
        Request::decode(&ping),
        Err(DecodeError::Zero {
            field: "request id"
        })
    );
}

#[test]
fn fence_zero_is_refused() {
    let body = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, b'k'];
    for op in [op::RELEASE, op::DOWNGRADE, op::FORCE_RELEASE] {
        assert_eq!(
            Request::decode(&frame(op, 0, &body)),
            Err(DecodeError::Zero { field: "fence" })
        );
    }
}

#[test]
fn repeat_differs_in_one_flag_only() {
    let request = Request::Acquire(plain());
    let (mut first, mut again) = (BytesMut::new(), BytesMut::new());
    request.append(RequestId::new(8), &mut first);
    request.append_repeat(RequestId::new(8), &mut again);
    assert_eq!(again[5], first[5] | FLAG_REPEATED);
    again[5] = first[5];
    assert_eq!(first, again);
}
