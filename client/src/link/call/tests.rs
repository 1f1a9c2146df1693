use super::*;
use crate::session::lease::Terms;
use crate::session::lease::tests::{long_life, terms};
use std::time::Duration;

fn wish(wait_until: Option<Moment>) -> Wish {
    Wish {
        key: Arc::from(*b"orders/42"),
        mode: Mode::Exclusive,
        lease: protocol::Lease::Ttl { ttl_ms: 1000 },
        wait_until,
        waits_since: None,
        is_reentrant: false,
        is_detached: false,
        is_auto_renewed: true,
        metadata: Arc::default(),
        trace_id: None,
    }
}

#[test]
fn what_is_sent_late_waits_only_for_the_rest() {
    let now = Moment::now();
    let wish = wish(Some(now + Duration::from_millis(500)));
    assert_eq!(wish.wait_ms(now), 500);
    assert_eq!(wish.wait_ms(now + Duration::from_micros(100_100)), 400);
    assert_eq!(wish.wait_ms(now + Duration::from_millis(500)), 0);
    assert_eq!(wish.wait_ms(now + Duration::from_secs(5)), 0);
}

#[test]
fn a_second_sending_in_the_same_session_is_marked_and_keeps_its_first_time() {
    let now = Moment::now();
    let later = now + Duration::from_secs(1);
    let ask = Ask::Acquire(wish(None));
    let mut call = Call::new(RequestId::new(7), ask, Sink::Nowhere);
    let mut out = BytesMut::new();
    call.send(1, false, now, &mut out);
    call.send(1, false, later, &mut out);
    let sent = call.sent.expect("it was sent");
    assert_eq!((sent.first, sent.last), (now, later));
    // In another session it is a new request: the first sending cannot have granted anything there.
    call.send(2, false, later, &mut out);
    let sent = call.sent.expect("it was sent");
    assert_eq!((sent.first, sent.epoch), (later, 2));

    let mut unread = &out[..];
    let mut is_repeated = Vec::new();
    while let Some(frame) =
        protocol::Frame::split(&mut unread, protocol::limits::REQUEST_FRAME_BYTES_MAX).unwrap()
    {
        assert_eq!(frame.request_id, RequestId::new(7));
        is_repeated.push(frame.is_repeated());
    }
    assert_eq!(is_repeated, [false, true, false]);
}

#[test]
fn a_release_is_sent_even_if_no_caller_waits_for_its_answer() {
    let (sink, answer) = oneshot::channel();
    let ask = Ask::Release {
        key: Arc::from(*b"k"),
        fence: Fence::new(1).unwrap(),
        is_last: true,
    };
    let release = Call::new(RequestId::new(1), ask, Sink::Caller(sink));
    let (sink, other_answer) = oneshot::channel();
    let ping = Call::new(RequestId::new(2), Ask::Ping, Sink::Caller(sink));
    assert!(!release.is_abandoned() && !ping.is_abandoned());
    drop((answer, other_answer));
    assert!(!release.is_abandoned() && ping.is_abandoned());
}

#[test]
fn requests_about_existing_locks_never_stand_behind_others() {
    let key: Arc<[u8]> = Arc::from(*b"k");
    let fence = Fence::new(1).unwrap();
    let class = |ask: Ask| ask.class();
    assert_eq!(
        class(Ask::Release {
            key: Arc::clone(&key),
            fence,
            is_last: true
        }),
        Class::Urgent
    );
    assert_eq!(class(Ask::KeepAlive), Class::Urgent);
    assert_eq!(class(Ask::Acquire(wish(None))), Class::Prompt);
    assert_eq!(
        class(Ask::Acquire(wish(Some(Moment::now())))),
        Class::Waiting
    );
    let forced = Ask::ForceRelease {
        key,
        fence,
        trace_id: None,
    };
    assert_eq!(class(forced), Class::Prompt);
}

#[test]
fn a_leader_is_told_how_long_a_request_has_stood_in_line_elsewhere() {
    fn waited_ms(out: &mut BytesMut) -> u32 {
        let mut unread = &out[..];
        let frame = protocol::Frame::split(&mut unread, protocol::limits::REQUEST_FRAME_BYTES_MAX);
        let Ok(Request::Acquire(acquire)) = Request::decode(&frame.unwrap().unwrap()) else {
            panic!("an acquire");
        };
        let waited_ms = acquire.waited_ms;
        out.clear();
        waited_ms
    }
    let now = Moment::now();
    let later = now + Duration::from_millis(1_500);
    let mut out = BytesMut::new();
    let new = |wish| Call::new(RequestId::new(7), Ask::Acquire(wish), Sink::Nowhere);
    let in_line = || wish(Some(now + Duration::from_secs(60)));

    let mut call = new(in_line());
    call.send(1, true, now, &mut out);
    assert_eq!(waited_ms(&mut out), 0);
    call.send(1, true, later, &mut out);
    assert_eq!(waited_ms(&mut out), 1_500);
    // A server of its own has no line that moved.
    call.send(1, false, later, &mut out);
    assert_eq!(waited_ms(&mut out), 0);
    call.send(1, true, now + Duration::from_secs(86_400 * 2), &mut out);
    assert_eq!(waited_ms(&mut out), WAIT_MS_MAX);

    // Asked anew under another id, by a caller that has been waiting since.
    let mut again = new(Wish {
        waits_since: Some(now),
        ..in_line()
    });
    again.send(1, true, later, &mut out);
    assert_eq!(waited_ms(&mut out), 1_500);
    let mut impatient = new(wish(None));
    impatient.send(1, true, now, &mut out);
    out.clear();
    impatient.send(1, true, later, &mut out);
    assert_eq!(waited_ms(&mut out), 0);
}

#[test]
fn a_claim_names_the_trace_of_its_acquire() {
    let now = Moment::now();
    let ttl = Duration::from_secs(10);
    let traced = Terms {
        trace_id: Some("4bf92f3577b34da6".into()),
        ..terms("orders/42", 7, ttl, now)
    };
    let claimed = Ask::Claim {
        lease: Arc::new(Lease::new(1, &traced, long_life(now))),
        wanted: protocol::Lease::Ttl { ttl_ms: 1000 },
        hold_count: 1,
    };
    let Request::Claim(claim) = claimed.as_request(now, 0) else {
        panic!("a claim");
    };
    assert_eq!(claim.trace_id.as_str(), "4bf92f3577b34da6");
}
