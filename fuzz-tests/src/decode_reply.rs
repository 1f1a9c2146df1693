//! A client's view: any stream of bytes, read as replies and pushes down to the last record.

use bytes::BytesMut;
use protocol::{Direction, Frame, Push, Reply, limits};

/// See the module.
pub fn run(stream: &[u8]) {
    let mut unread = stream;
    while let Ok(Some(frame)) = Frame::split(&mut unread, limits::FRAME_BYTES_MAX) {
        let mut out = BytesMut::new();
        match frame.direction() {
            // A client that meets a request has lost its way; it must not lose its footing.
            Direction::Request | Direction::Reply => {
                let Ok(reply) = Reply::decode(&frame) else {
                    continue;
                };
                reply.append(frame.request_id, &mut out);
                // Comparing goes through all records of a list.
                assert_eq!(Reply::decode(&only_frame(&out)), Ok(reply));
            }
            Direction::Push => {
                let Ok(push) = Push::decode(&frame) else {
                    continue;
                };
                push.append(&mut out);
                assert_eq!(Push::decode(&only_frame(&out)), Ok(push));
            }
        }
        // Only what is skipped can be missing from our own version.
        assert!(out.len() <= frame.frame_bytes());
    }
}

fn only_frame(out: &[u8]) -> Frame<'_> {
    Frame::split(&mut &out[..], limits::FRAME_BYTES_MAX)
        .expect("our own frames keep the limits")
        .expect("our own frames are complete")
}
