use super::*;

fn frame(kind: u8, body: &[u8]) -> Frame<'_> {
    Frame {
        kind,
        flags: 0,
        request_id: RequestId::new(1),
        body,
    }
}

#[test]
fn grant_has_26_bytes() {
    let mut out = BytesMut::new();
    Reply::Granted {
        fence: Fence::new(0x0102_0304).unwrap(),
        ttl_ms: 30_000,
        hold_count: 1,
    }
    .append(RequestId::new(1), &mut out);
    assert_eq!(
        out[..],
        [
            0x16, 0, 0, 0, 0x90, 0, 1, 0, 0, 0, 0, 0, 0, 0, // header
            4, 3, 2, 1, 0, 0, 0, 0, 0x30, 0x75, 0, 0, // fence, ttl_ms
        ]
    );
    assert_eq!(out.len(), GRANTED_FRAME_BYTES);
}

#[test]
fn hold_count_is_sent_only_when_it_says_something() {
    let body = [4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5, 4, 0, 2, 0, 0, 0];
    let granted = Reply::decode(&frame(kind::GRANTED, &body)).unwrap();
    assert_eq!(
        granted,
        Reply::Granted {
            fence: Fence::new(4).unwrap(),
            ttl_ms: 1,
            hold_count: 2
        }
    );
    let mut zero = body;
    zero[15] = 0;
    assert_eq!(
        Reply::decode(&frame(kind::GRANTED, &zero)),
        Err(DecodeError::Zero {
            field: "hold_count"
        })
    );
}

#[test]
fn unknown_replies_fields_and_flags_are_let_pass() {
    for kind in [0xb0, 0xbf] {
        assert_eq!(
            Reply::decode(&frame(kind, &[1, 2])),
            Ok(Reply::Unknown { kind })
        );
    }
    let mut pong = frame(kind::PONG, &[77, 1, 0, 0]);
    pong.flags = 0xff;
    assert_eq!(Reply::decode(&pong), Ok(Reply::Pong));
}

#[test]
fn unknown_codes_survive() {
    let body = [0xff, 0xff, 0, 0];
    let Ok(Reply::Error { code, .. }) = Reply::decode(&frame(kind::ERROR, &body)) else {
        panic!("an error");
    };
    assert_eq!(code, ErrorCode(0xffff));
    assert_eq!(code.to_string(), "unknown (65535)");
    assert_eq!(ErrorCode::FORGOTTEN.to_string(), "forgotten");
}

#[test]
fn free_key_has_no_holders_and_may_have_no_fence() {
    let body = [0; 18];
    assert_eq!(
        Reply::decode(&frame(kind::QUERY_RESULT, &body)),
        Ok(Reply::QueryResult {
            last_fence: None,
            holder_count: 0,
            queue_length: 0,
            holders: Records::new(&[]).unwrap(),
            recovering_ms: None,
        })
    );
}
