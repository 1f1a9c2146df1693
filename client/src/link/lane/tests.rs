use super::*;
use crate::clock::Moment;
use crate::link::call::{Answer, Ask, Sink, Wish};
use protocol::{Fence, Mode};
use std::time::Duration;
use tokio::sync::oneshot;

const PLENTY: Room = Room {
    urgent: 1000,
    prompt: 1000,
    waiting: 1000,
};

fn acquire(id: u64, wait: Option<Duration>) -> Call {
    let wish = Wish {
        key: Arc::from(*b"k"),
        mode: Mode::Exclusive,
        lease: protocol::Lease::Ttl { ttl_ms: 1000 },
        wait_until: wait.map(|wait| Moment::now() + wait),
        waits_since: None,
        is_reentrant: false,
        is_detached: false,
        is_auto_renewed: true,
        metadata: Arc::default(),
        trace_id: None,
    };
    Call::new(RequestId::new(id), Ask::Acquire(wish), Sink::Nowhere)
}

fn release(id: u64) -> Call {
    let ask = Ask::Release {
        key: Arc::from(*b"k"),
        fence: Fence::new(1).unwrap(),
        is_last: true,
    };
    Call::new(RequestId::new(id), ask, Sink::Nowhere)
}

fn take(lane: &Lane, room: Room) -> Vec<u64> {
    let mut batch = Batch::default();
    lane.take(room, &mut batch);
    batch.calls.iter().map(|call| call.id.get()).collect()
}

fn open_lane() -> Lane {
    let lane = Lane::new(Instant::now());
    lane.set_open();
    lane
}

#[test]
fn a_release_goes_before_the_acquire_that_was_queued_after_it_and_before_it() {
    let lane = open_lane();
    lane.push(acquire(1, None));
    lane.push(release(2));
    lane.push(acquire(3, Some(Duration::from_secs(1))));
    lane.push(release(4));
    assert_eq!(take(&lane, PLENTY), [2, 4, 1, 3]);
    assert!(take(&lane, PLENTY).is_empty());
}

#[test]
fn waiters_that_fill_their_part_hold_up_neither_releases_nor_quick_questions() {
    let lane = open_lane();
    lane.push(acquire(1, Some(Duration::from_secs(1))));
    lane.push(release(2));
    lane.push(acquire(3, None));
    let no_waiting = Room {
        waiting: 0,
        ..PLENTY
    };
    assert_eq!(take(&lane, no_waiting), [2, 3]);
    let urgent_only = Room {
        prompt: 0,
        ..no_waiting
    };
    lane.push(acquire(4, None));
    lane.push(release(5));
    assert_eq!(take(&lane, urgent_only), [5]);
    assert_eq!(take(&lane, PLENTY), [4, 1]);
}

#[test]
fn a_batch_has_a_bound() {
    let lane = open_lane();
    for id in 0..2000 {
        lane.push(release(id));
    }
    assert_eq!(take(&lane, PLENTY).len(), BATCH_CALLS_MAX);
}

#[tokio::test]
async fn a_full_queue_makes_callers_wait_for_a_place() {
    let lane = open_lane();
    let mut places = Vec::new();
    for _ in 0..QUEUED_CALLS_MAX {
        places.push(lane.place(Class::Prompt).await.unwrap());
    }
    let mut place = std::pin::pin!(lane.place(Class::Prompt));
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    assert!(place.as_mut().poll(&mut context).is_pending());
    assert!(
        lane.place(Class::Waiting).await.unwrap().is_some(),
        "the other kind has room"
    );
    assert!(
        lane.place(Class::Urgent).await.unwrap().is_none(),
        "urgent ones need none"
    );
    places.pop();
    assert!(place.await.unwrap().is_some());
}

#[tokio::test]
async fn closing_answers_every_caller() {
    let lane = open_lane();
    let (sink, answer) = oneshot::channel::<Result<Answer, Error>>();
    lane.push(Call::new(RequestId::new(1), Ask::Ping, Sink::Caller(sink)));
    lane.close();
    assert!(matches!(answer.await, Ok(Err(Error::Closed))));
    let (sink, answer) = oneshot::channel();
    lane.push(Call::new(RequestId::new(2), Ask::Ping, Sink::Caller(sink)));
    assert!(matches!(answer.await, Ok(Err(Error::Closed))));
    assert!(matches!(
        lane.place(Class::Prompt).await,
        Err(Error::Closed)
    ));
    lane.adopt(vec![release(3)]);
    assert!(lane.take_all().is_empty());
}

#[test]
fn an_outage_keeps_its_beginning_and_its_latest_reason() {
    let start = Instant::now();
    let lane = open_lane();
    lane.set_down(None, start);
    lane.set_down(
        Some(ConnectError::NoAddress),
        start + Duration::from_secs(1),
    );
    lane.set_down(None, start + Duration::from_secs(2));
    let Status::Down { since, why } = lane.status() else {
        panic!("it is down");
    };
    assert_eq!(since, start);
    assert_eq!(why, Some(ConnectError::NoAddress));
}

#[test]
fn everything_can_be_taken_over_in_order() {
    let lane = open_lane();
    lane.push(acquire(3, None));
    lane.push(release(2));
    lane.adopt(vec![release(1)]);
    let ids: Vec<u64> = lane.take_all().iter().map(|call| call.id.get()).collect();
    assert_eq!(ids, [1, 2, 3]);
}
