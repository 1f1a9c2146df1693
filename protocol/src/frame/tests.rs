use super::*;
use crate::limits::FRAME_BYTES_MAX;

const PING: [u8; 14] = [0x0a, 0, 0, 0, 0x02, 0x80, 7, 0, 0, 0, 0, 0, 0, 0];

fn split(mut bytes: &[u8]) -> Result<Option<Frame<'_>>, DecodeError> {
    Frame::split(&mut bytes, FRAME_BYTES_MAX)
}

#[test]
fn header_is_taken_apart() {
    let frame = split(&PING).unwrap().unwrap();
    assert_eq!(frame.kind, 0x02);
    assert_eq!(frame.flags, FLAG_REPEATED);
    assert!(frame.is_repeated());
    assert_eq!(frame.request_id, RequestId::new(7));
    assert_eq!(frame.body, b"");
    assert_eq!(frame.frame_bytes(), PING.len());
}

#[test]
fn frames_come_off_one_by_one_and_the_rest_stays() {
    let mut out = BytesMut::new();
    append(&mut out, 0x81, 0, RequestId::new(1), |writer| writer.u32(5));
    append(&mut out, 0x82, 1, RequestId::new(2), |_| {});
    out.put_slice(&PING[..9]);

    let mut unread = &out[..];
    let first = Frame::split(&mut unread, FRAME_BYTES_MAX).unwrap().unwrap();
    assert_eq!((first.kind, first.body), (0x81, &[5, 0, 0, 0][..]));
    let second = Frame::split(&mut unread, FRAME_BYTES_MAX).unwrap().unwrap();
    assert_eq!((second.kind, second.flags), (0x82, 1));
    assert_eq!(Frame::split(&mut unread, FRAME_BYTES_MAX), Ok(None));
    assert_eq!(unread, &PING[..9], "an incomplete frame is left in place");
}

#[test]
fn every_beginning_of_a_frame_needs_more() {
    for bytes in 0..PING.len() {
        assert_eq!(split(&PING[..bytes]), Ok(None), "{bytes} bytes");
    }
}

#[test]
fn oversized_length_is_refused_before_its_frame_arrives() {
    for length in [FRAME_BYTES_MAX - 3, 0x2054_4547, u32::MAX] {
        assert_eq!(
            split(&length.to_le_bytes()),
            Err(DecodeError::FrameTooLong {
                frame_bytes: u64::from(length) + 4,
                frame_bytes_max: FRAME_BYTES_MAX
            })
        );
    }
    assert_eq!(split(&(FRAME_BYTES_MAX - 4).to_le_bytes()), Ok(None));
}

#[test]
fn length_shorter_than_a_header_is_refused() {
    for length in 0..10_u32 {
        let error = split(&length.to_le_bytes()).unwrap_err();
        assert_eq!(
            error,
            DecodeError::FrameTooShort {
                frame_bytes: u64::from(length) + 4
            }
        );
        assert!(error.loses_framing());
    }
}

#[test]
fn limit_below_a_header_refuses_everything_without_panic() {
    for frame_bytes_max in 0..HEADER_BYTES as u32 {
        assert!(Frame::split(&mut &PING[..], frame_bytes_max).is_err());
    }
    assert!(
        Frame::split(&mut &PING[..], HEADER_BYTES as u32)
            .unwrap()
            .is_some()
    );
}

#[test]
fn direction_follows_the_kind_even_when_it_is_unknown() {
    let directions = [
        (0x00, Direction::Request),
        (0x7f, Direction::Request),
        (0x80, Direction::Reply),
        (0xbf, Direction::Reply),
        (0xc0, Direction::Push),
        (0xff, Direction::Push),
    ];
    for (kind, direction) in directions {
        let mut bytes = PING;
        bytes[4] = kind;
        assert_eq!(
            split(&bytes).unwrap().unwrap().direction(),
            direction,
            "{kind:#x}"
        );
    }
}
