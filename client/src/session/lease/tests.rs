use super::*;
use crate::clock::tests::suspend_for;
use std::pin::pin;
use std::task::Poll;

pub(crate) fn fence(number: u64) -> Fence {
    Fence::new(number).expect("tests use fences above 0")
}

pub(crate) fn terms(key: &str, number: u64, ttl: Duration, sent: Moment) -> Terms {
    Terms {
        key: Arc::from(key.as_bytes()),
        fence: fence(number),
        mode: Mode::Exclusive,
        ttl,
        granted: ttl,
        is_session_bound: false,
        is_auto_renewed: true,
        metadata: Arc::default(),
        trace_id: None,
        sent,
    }
}

const TTL: Duration = Duration::from_secs(10);

/// A session that outlives the test.
pub(crate) fn long_life(sent: Moment) -> Arc<SessionLife> {
    Arc::new(SessionLife::new(Duration::from_secs(86_400), sent))
}

fn lease(sent: Moment) -> Lease {
    Lease::new(1, &terms("k", 7, TTL, sent), long_life(sent))
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    let waker = std::task::Waker::noop();
    future.poll(&mut std::task::Context::from_waker(waker))
}

#[test]
fn the_deadline_counts_from_the_sending_and_keeps_a_margin() {
    let sent = Moment::now();
    let lease = lease(sent);
    assert!(lease.deadline() < sent + TTL);
    assert_eq!(
        lease.deadline(),
        sent + TTL - Duration::from_millis(2) - TTL / 100
    );
}

#[test]
fn a_lease_shorter_than_its_margin_is_over_at_once() {
    let sent = Moment::now();
    let terms = terms("k", 7, Duration::from_millis(1), sent);
    let lease = Lease::new(1, &terms, long_life(sent));
    assert_eq!(lease.check(sent), Err(Loss::DeadlinePassed));
}

/// A lock of 30 s whose session had 10 s was lost when the server hung for ten, and the advice was
/// a longer `ttl()`, which does nothing there.
#[test]
fn a_loss_names_the_setting_that_would_have_helped() {
    let sent = Moment::now();
    let short_life = Arc::new(SessionLife::new(TTL / 3, sent));
    let lease = Lease::new(1, &terms("k", 7, TTL, sent), short_life);
    assert_eq!(lease.check(sent + TTL), Err(Loss::SessionDeadlinePassed));
    let advice = Loss::SessionDeadlinePassed.to_string();
    assert!(advice.contains("session_ttl()"), "{advice}");

    let mut bound = terms("k", 7, TTL, sent);
    bound.is_session_bound = true;
    let lease = Lease::new(1, &bound, long_life(sent));
    let much_later = lease.deadline() + TTL;
    assert_eq!(lease.check(much_later), Err(Loss::SessionDeadlinePassed));

    let lease = Lease::new(1, &terms("k", 7, TTL, sent), long_life(sent));
    assert_eq!(lease.check(sent + TTL), Err(Loss::DeadlinePassed));
    let advice = Loss::DeadlinePassed.to_string();
    assert!(advice.contains(" ttl()"), "{advice}");
}

#[test]
fn no_lease_outlives_its_session() {
    let sent = Moment::now();
    let life = Arc::new(SessionLife::new(Duration::from_secs(3), sent));
    let lease = Lease::new(1, &terms("k", 7, TTL, sent), Arc::clone(&life));
    assert_eq!(lease.deadline(), life.deadline());
    let later = sent + Duration::from_secs(2);
    life.kept(later, Duration::from_secs(3));
    assert_eq!(lease.deadline(), later + certain(Duration::from_secs(3)));
    life.kept(later + TTL, Duration::from_secs(30));
    assert_eq!(
        lease.deadline(),
        sent + certain(TTL),
        "its own is the earlier one now"
    );
}

#[test]
fn a_session_bound_lease_lives_as_long_as_its_session() {
    let sent = Moment::now();
    let life = Arc::new(SessionLife::new(Duration::from_secs(3), sent));
    let terms = Terms {
        is_session_bound: true,
        granted: Duration::from_secs(1),
        ..terms("k", 7, TTL, sent)
    };
    let lease = Lease::new(1, &terms, Arc::clone(&life));
    assert_eq!(lease.wanted(), protocol::Lease::Session);
    life.kept(sent + TTL, Duration::from_secs(3));
    assert_eq!(
        lease.deadline(),
        sent + TTL + certain(Duration::from_secs(3))
    );
    assert_eq!(
        lease.renewal_due(),
        None,
        "the session is kept alive instead"
    );
}

#[test]
fn the_answer_to_the_newest_request_decides_even_if_it_shortens_the_lease() {
    let sent = Moment::now();
    let lease = lease(sent);
    let later = sent + Duration::from_secs(1);
    let short = Duration::from_secs(2);
    lease.note_answer(later, short);
    assert_eq!(lease.deadline(), later + certain(short));
}

#[test]
fn the_answer_to_an_older_request_never_lengthens_the_lease() {
    let sent = Moment::now();
    let lease = lease(sent + Duration::from_secs(5));
    let deadline = lease.deadline();
    lease.note_answer(sent, Duration::from_secs(3600));
    assert_eq!(lease.deadline(), deadline);
    lease.note_answer(sent, Duration::from_secs(1));
    assert_eq!(lease.deadline(), sent + certain(Duration::from_secs(1)));
}

#[test]
fn a_deadline_that_was_seen_to_pass_is_final() {
    let sent = Moment::now();
    let lease = lease(sent);
    assert!(lease.check(sent + Duration::from_secs(5)).is_ok());
    assert_eq!(lease.check(sent + TTL), Err(Loss::DeadlinePassed));
    lease.note_answer(sent + TTL, TTL);
    assert_eq!(lease.check(sent + TTL), Err(Loss::DeadlinePassed));
    assert!(!lease.start_renewing());
}

#[test]
fn a_deadline_that_passed_unseen_may_still_be_renewed() {
    let sent = Moment::now();
    let lease = lease(sent);
    // The process slept, but the server says that the lease was renewed in time.
    lease.note_answer(sent + Duration::from_secs(9), TTL);
    assert!(lease.check(sent + TTL).is_ok());
}

#[test]
fn valid_until_is_never_in_the_future_of_a_loss() {
    let sent = Moment::now();
    let lease = lease(sent);
    let now = sent + Duration::from_secs(1);
    assert_eq!(lease.lose(Loss::Forced, now), Loss::Forced);
    assert_eq!(lease.deadline(), now);
    assert_eq!(
        lease.lose(Loss::Expired, now),
        Loss::Forced,
        "the first reason stands"
    );
}

#[test]
fn a_grant_that_comes_late_in_its_lease_is_stale() {
    let sent = Moment::now();
    let lease = lease(sent);
    assert!(!lease.is_stale(sent + TTL / 4));
    assert!(lease.is_stale(sent + TTL / 3));
}

#[test]
fn renewals_are_due_at_a_third_or_a_little_earlier() {
    let sent = Moment::now();
    let lease = lease(sent);
    let mut distinct = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let due = lease.renewal_due().expect("it renews itself");
        assert!(due <= sent + TTL / 3 && due >= sent + (TTL / 3).mul_f64(0.8));
        distinct.insert(due);
    }
    assert!(distinct.len() > 50, "they are spread");
}

#[test]
fn reentrant_guards_share_one_lease_until_the_last_has_left() {
    let sent = Moment::now();
    let lease = lease(sent);
    let longer = terms("k", 7, TTL * 2, sent + Duration::from_secs(1));
    assert!(lease.join(&longer));
    assert_eq!(
        lease.wanted(),
        protocol::Lease::Ttl { ttl_ms: 20_000 },
        "a renewal for one guard must not shorten the other's lease"
    );
    let first = lease.leave(sent);
    assert!(!first.is_last && first.loss.is_none() && lease.loss().is_none());
    let last = lease.leave(sent);
    assert!(last.is_last && last.loss.is_none());
    assert_eq!(lease.loss(), Some(Loss::Released));
    assert!(!lease.join(&longer), "over is over");
}

#[tokio::test(start_paused = true)]
async fn gone_completes_at_the_deadline_and_not_before() {
    let start = Moment::now();
    let lease = lease(start);
    assert_eq!(lease.gone().await, Loss::DeadlinePassed);
    assert_eq!(
        Moment::now().since(start).as_millis(),
        certain(TTL).as_millis()
    );
}

/// Counted on an `Instant`, it was valid for as long again when the machine woke up.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ended_while_the_machine_was_suspended_is_over() {
    let lease = lease(Moment::now());
    assert!(lease.check(Moment::now()).is_ok());
    suspend_for(TTL);
    assert_eq!(lease.check(Moment::now()), Err(Loss::DeadlinePassed));
}

#[tokio::test(start_paused = true)]
async fn gone_looks_at_the_clock_again_while_it_sleeps() {
    let lease = Arc::new(lease(Moment::now()));
    let waiting = tokio::spawn({
        let lease = Arc::clone(&lease);
        async move { lease.gone().await }
    });
    // It sleeps by now, and its sleep stands still with the machine.
    tokio::task::yield_now().await;
    suspend_for(TTL);
    let woken_up = Moment::now();
    assert_eq!(waiting.await.unwrap(), Loss::DeadlinePassed);
    assert!(Moment::now().since(woken_up) <= 2 * clock::LOOK_MAX);
}

#[tokio::test(start_paused = true)]
async fn gone_follows_a_deadline_that_moves_on() {
    let start = Moment::now();
    let lease = Arc::new(lease(start));
    let waiting = tokio::spawn({
        let lease = Arc::clone(&lease);
        async move { lease.gone().await }
    });
    tokio::time::sleep(TTL / 2).await;
    lease.note_answer(start + TTL / 2, TTL);
    assert_eq!(waiting.await.unwrap(), Loss::DeadlinePassed);
    assert!(Moment::now() >= start + TTL / 2 + certain(TTL));
}

#[tokio::test(start_paused = true)]
async fn gone_completes_at_once_for_every_waiter_when_the_lock_is_lost() {
    let lease = lease(Moment::now());
    let mut first = pin!(lease.gone());
    let mut second = pin!(lease.gone());
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    lease.lose(Loss::Forced, Moment::now());
    assert_eq!(poll_once(first), Poll::Ready(Loss::Forced));
    assert_eq!(poll_once(second), Poll::Ready(Loss::Forced));
}
