//! A server's view: any stream of bytes. What decodes must encode to a frame that decodes to the
//! same.

use bytes::BytesMut;
use protocol::{Frame, Request, limits};

/// See the module.
pub fn run(stream: &[u8]) {
    let mut unread = stream;
    while let Ok(Some(frame)) = Frame::split(&mut unread, limits::REQUEST_FRAME_BYTES_MAX) {
        let Ok(request) = Request::decode(&frame) else {
            continue;
        };
        let mut out = BytesMut::new();
        if frame.is_repeated() {
            request.append_repeat(frame.request_id, &mut out);
        } else {
            request.append(frame.request_id, &mut out);
        }
        let again = Frame::split(&mut &out[..], limits::REQUEST_FRAME_BYTES_MAX)
            .expect("our own frames keep the limits")
            .expect("our own frames are complete");
        assert_eq!(again.request_id, frame.request_id);
        assert_eq!(Request::decode(&again), Ok(request));
        // Only what is skipped can be missing from our own version.
        assert!(out.len() <= frame.frame_bytes());
    }
}
