use super::*;

fn frame(kind: u8, body: &[u8]) -> Frame<'_> {
    Frame {
        kind,
        flags: 0,
        request_id: RequestId::NONE,
        body,
    }
}

#[test]
fn unknown_pushes_are_values_to_skip() {
    for kind in [kind::EVENT, 0xff] {
        assert_eq!(
            Push::decode(&frame(kind, &[1, 2, 3])),
            Ok(Push::Unknown { kind })
        );
    }
}

#[test]
fn lost_lock_names_key_fence_and_reason() {
    let body = [9, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, b'k'];
    let lost = Push::Lost {
        key: Key::new(b"k").unwrap(),
        fence: Fence::new(9).unwrap(),
        reason: LostReason::FORCED,
    };
    assert_eq!(Push::decode(&frame(kind::LOST, &body)), Ok(lost));

    let mut out = BytesMut::new();
    lost.append(&mut out);
    assert_eq!(out[frame::HEADER_BYTES..], body);
    assert_eq!(
        out[6..14],
        [0; 8],
        "a push answers nothing, so it has no request id"
    );
}

#[test]
fn fields_added_to_a_push_later_are_skipped() {
    assert_eq!(
        Push::decode(&frame(kind::SHUTDOWN, &[1, 0, 0, 0, 90, 0, 0])),
        Ok(Push::Shutdown {
            grace_ms: 1,
            leader: NodeAddress::default(),
        })
    );
}
