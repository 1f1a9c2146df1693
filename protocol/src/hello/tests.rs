use super::*;
use crate::field::{RequestId, SessionId, SessionSecret};
use crate::frame::Frame;
use crate::request::{Request, op};

fn frame(op: u8, flags: u8, body: &[u8]) -> Frame<'_> {
    Frame {
        kind: op,
        flags,
        request_id: RequestId::new(1),
        body,
    }
}

#[test]
fn hello_of_another_protocol_is_told_apart() {
    let error = Request::decode(&frame(op::HELLO, 0, b"GET / HTTP/1.1\r\n")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the peer does not speak Fencepost: its hello starts with \"GET \""
    );
}

#[test]
fn joining_needs_a_session() {
    let mut body = b"FNCP\x01\0\x01\0\0\0\0\0\0\0".to_vec();
    assert_eq!(
        Request::decode(&frame(op::HELLO, FLAG_JOIN, &body)),
        Err(DecodeError::MissingField {
            field: "the session to join"
        })
    );
    body.extend_from_slice(&[tag::SESSION_KEY, 24, 0]);
    body.extend_from_slice(&[9; 24]);
    let Ok(Request::Hello(hello)) = Request::decode(&frame(op::HELLO, FLAG_JOIN, &body)) else {
        panic!("a hello");
    };
    assert_eq!(
        hello.opening,
        Opening::Join(SessionKey {
            session_id: SessionId::new(0x0909_0909_0909_0909),
            secret: SessionSecret::new([9; 16]),
        })
    );
}

#[test]
fn session_key_of_another_size_is_refused() {
    let mut body = b"FNCP\x01\0\x01\0\0\0\0\0\0\0".to_vec();
    body.extend_from_slice(&[tag::SESSION_KEY, 3, 0, 1, 2, 3]);
    let error = Request::decode(&frame(op::HELLO, 0, &body)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "optional field 2 has 3 bytes instead of 24"
    );
}

#[test]
fn versions_meet_at_the_newest_both_speak() {
    use crate::{PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, choose_version};
    assert_eq!(choose_version(1, u16::MAX), Some(PROTOCOL_VERSION));
    assert_eq!(
        choose_version(PROTOCOL_VERSION, PROTOCOL_VERSION),
        Some(PROTOCOL_VERSION)
    );
    assert_eq!(choose_version(PROTOCOL_VERSION + 1, u16::MAX), None);
    assert_eq!(choose_version(0, PROTOCOL_VERSION_MIN - 1), None);
    assert_eq!(
        choose_version(2, 1),
        None,
        "a range the wrong way round is empty"
    );
}
