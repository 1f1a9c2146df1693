//! The life of an exclusive lock: taken, renewed, given back, expired, taken away.

use crate::common::*;
use engine::{
    Acquire, Alone, Downgrade, Engine, Fence, Key, Lost, Mode, NotHeld, Release, Renewal, Seat,
    Span,
};

#[test]
fn a_released_key_is_granted_again_under_a_higher_fence() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let first = take(&engine, &mut a, "k", 100, at(1));
    assert!(first.fence > Fence::ZERO);
    assert_eq!((first.until, first.count), (at(101), 1));
    held(acquire(&engine, &mut b, "k", 100, at(2)));
    give_back(&engine, &mut a, "k", first.fence, at(3));
    let second = take(&engine, &mut b, "k", 100, at(4));
    assert!(second.fence > first.fence);
    assert_eq!(engine.host().take(), [], "nothing was lost");
}

#[test]
fn keys_do_not_know_of_each_other() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    take(&engine, &mut a, "k", 100, at(0));
    for other in ["K", "k\0", "kk", "\0k", " k"] {
        take(&engine, &mut b, other, 100, at(0));
    }
    assert_eq!(
        held(acquire(&engine, &mut b, "k", 1, at(1))).queue_length,
        0
    );
}

#[test]
fn a_refusal_says_who_holds_the_key_since_when_until_when_and_how_many_wait() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    let grant = take(&engine, &mut a, "k", 500, at(100));

    let holder = held(acquire(&engine, &mut b, "k", 100, at(130)));
    assert_eq!(holder.owner, Some(a.session()));
    assert_eq!(holder.fence, grant.fence);
    assert_eq!(holder.mode, Mode::Exclusive);
    assert_eq!(holder.held_ms, 30);
    assert_eq!(holder.until, at(600));
    assert!(!holder.is_session_bound);
    assert_eq!(
        (holder.count, holder.holders, holder.queue_length),
        (1, 1, 0)
    );
    assert_eq!(*holder.metadata, *b"");

    wait(&engine, &mut c, "k", 100, 1, at(140));
    wait(&engine, &mut c, "k", 100, 2, at(140));
    let holder = held(acquire(&engine, &mut b, "k", 100, at(150)));
    assert_eq!((holder.held_ms, holder.queue_length), (50, 2));
}

#[test]
fn asking_again_for_what_one_holds_is_refused_and_names_oneself() {
    let engine = locks();
    let mut a = seat(&engine);
    let grant = take(&engine, &mut a, "k", 100, at(0));
    let holder = held(acquire(&engine, &mut a, "k", 100, at(1)));
    assert_eq!(holder.owner, Some(a.session()));
    assert_eq!(holder.until, grant.until, "the lease was not touched");
    give_back(&engine, &mut a, "k", grant.fence, at(2));
}

#[test]
fn a_lease_lasts_to_its_last_millisecond_and_not_one_longer() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let first = take(&engine, &mut a, "k", 100, at(0));
    held(acquire(&engine, &mut b, "k", 100, at(100)));
    // The wheel was not turned: the next session in need expires it itself.
    let second = take(&engine, &mut b, "k", 100, at(101));
    assert!(second.fence > first.fence);
    let lost = Event::Lost {
        key: b"k".into(),
        fence: first.fence,
        owner: a.session(),
        why: Lost::Expired,
        held_ms: 101,
        late_ms: 0,
    };
    assert_eq!(engine.host().take(), [lost]);
}

#[test]
fn the_wheel_expires_a_lease_that_no_session_asks_for() {
    let engine = locks();
    let mut a = seat(&engine);
    let grant = take(&engine, &mut a, "k", 100, at(0));
    advance(&engine, at(100));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(101));
    let lost = Event::Lost {
        key: b"k".into(),
        fence: grant.fence,
        owner: a.session(),
        why: Lost::Expired,
        held_ms: 101,
        late_ms: 0,
    };
    assert_eq!(engine.host().take(), [lost]);
    assert_eq!(engine.query(key("k"), at(101)).unwrap().holders, []);
}

#[test]
fn a_loser_is_told_once_and_how_late() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    take(&engine, &mut a, "k", 100, at(0));
    take(&engine, &mut b, "k", 100, at(108));
    advance(&engine, at(108));
    let events = engine.host().take();
    assert!(
        matches!(events[..], [Event::Lost { late_ms: 7, .. }]),
        "{events:?}"
    );
}

#[test]
fn a_renewal_moves_the_deadline_and_keeps_the_fence() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let grant = take(&engine, &mut a, "k", 100, at(0));
    assert_eq!(
        engine.renew(&a, key("k"), grant.fence, 100, at(60)),
        Renewal::Renewed { until: at(160) }
    );
    advance(&engine, at(160));
    let holder = held(acquire(&engine, &mut b, "k", 100, at(160)));
    assert_eq!((holder.fence, holder.until), (grant.fence, at(160)));
    take(&engine, &mut b, "k", 100, at(161));
}

#[test]
fn a_renewal_may_shorten_a_lease_which_then_expires_on_time() {
    let engine = locks();
    let mut a = seat(&engine);
    let grant = take(&engine, &mut a, "k", 10_000, at(0));
    advance(&engine, at(1));
    assert_eq!(
        engine.renew(&a, key("k"), grant.fence, 20, at(10)),
        Renewal::Renewed { until: at(30) }
    );
    advance(&engine, at(30));
    assert_eq!(engine.host().take(), []);
    advance(&engine, at(31));
    assert_eq!(engine.host().take().len(), 1);
}

#[test]
fn a_renewal_after_the_end_is_refused_though_the_key_is_free() {
    let engine = locks();
    let mut a = seat(&engine);
    let grant = take(&engine, &mut a, "k", 100, at(0));
    assert_not_renewed(
        engine.renew(&a, key("k"), grant.fence, 100, at(101)),
        NotHeld::Expired,
    );
    assert_eq!(engine.host().take().len(), 1, "and counts as a loss");
    assert_not_renewed(
        engine.renew(&a, key("k"), grant.fence, 100, at(102)),
        NotHeld::Expired,
    );
    assert_not_held(
        engine.release(&mut a, key("k"), grant.fence, at(103)),
        NotHeld::Expired,
    );
}

#[test]
fn a_release_after_the_end_is_told_that_it_came_too_late() {
    let engine = locks();
    let mut a = seat(&engine);
    let grant = take(&engine, &mut a, "k", 100, at(0));
    assert_not_held(
        engine.release(&mut a, key("k"), grant.fence, at(101)),
        NotHeld::Expired,
    );
    assert_eq!(engine.host().take().len(), 1);
}

/// The timeline that unsafe releases get wrong: A's lease ends, B takes the lock, then A's release
/// arrives.
#[test]
fn a_stale_release_or_renewal_leaves_the_new_holder_untouched() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let first = take(&engine, &mut a, "k", 5000, at(0));
    let second = take(&engine, &mut b, "k", 5000, at(5001));
    let before = engine.query(key("k"), at(5100));
    assert_not_held(
        engine.release(&mut a, key("k"), first.fence, at(5100)),
        NotHeld::OtherFence,
    );
    assert_not_renewed(
        engine.renew(&a, key("k"), first.fence, 5000, at(5100)),
        NotHeld::OtherFence,
    );
    assert_eq!(engine.query(key("k"), at(5100)), before);
    give_back(&engine, &mut b, "k", second.fence, at(5101));
}

#[test]
fn the_right_fence_from_another_session_is_refused() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let grant = take(&engine, &mut a, "k", 100, at(0));
    let before = engine.query(key("k"), at(1));
    assert_not_held(
        engine.release(&mut b, key("k"), grant.fence, at(1)),
        NotHeld::OtherOwner,
    );
    assert_not_renewed(
        engine.renew(&b, key("k"), grant.fence, 100, at(1)),
        NotHeld::OtherOwner,
    );
    assert_eq!(engine.query(key("k"), at(1)), before);
    give_back(&engine, &mut a, "k", grant.fence, at(2));
}

#[test]
fn a_second_release_is_a_reported_no_op() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let first = take(&engine, &mut a, "k", 100, at(0));
    give_back(&engine, &mut a, "k", first.fence, at(1));
    assert_not_held(
        engine.release(&mut a, key("k"), first.fence, at(2)),
        NotHeld::Released,
    );
    let second = take(&engine, &mut b, "k", 100, at(3));
    assert_not_held(
        engine.release(&mut a, key("k"), first.fence, at(4)),
        NotHeld::OtherFence,
    );
    give_back(&engine, &mut b, "k", second.fence, at(5));
}

#[test]
fn a_lock_may_be_released_through_another_seat_of_its_session() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let mut other_seat = Seat::new(a.session());
    let grant = take(&engine, &mut a, "k", 100, at(0));
    give_back(&engine, &mut other_seat, "k", grant.fence, at(1));
    take(&engine, &mut b, "k", 100, at(2));
}

#[test]
fn a_query_shows_the_holder_and_the_last_fence() {
    let engine = locks();
    let mut a = seat(&engine);
    assert_eq!(engine.query(key("k"), at(0)), None, "never locked");
    let grant = take(&engine, &mut a, "k", 100, at(5));

    let state = engine.query(key("k"), at(15)).unwrap();
    assert_eq!((state.fence, state.queue_length), (grant.fence, 0));
    let [holder] = &state.holders[..] else {
        panic!("{state:?}")
    };
    assert_eq!(holder.owner, Some(a.session()));
    assert_eq!(
        (holder.fence, holder.held_ms, holder.until),
        (grant.fence, 10, at(105))
    );

    give_back(&engine, &mut a, "k", grant.fence, at(20));
    let state = engine.query(key("k"), at(20)).unwrap();
    assert_eq!(state.holders, []);
    assert_eq!(state.fence, grant.fence, "remembered for a while");
}

#[test]
fn a_query_does_not_show_a_lease_that_is_over() {
    let engine = locks();
    let mut a = seat(&engine);
    take(&engine, &mut a, "k", 100, at(0));
    assert_eq!(engine.query(key("k"), at(100)).unwrap().holders.len(), 1);
    assert_eq!(engine.query(key("k"), at(101)).unwrap().holders, []);
    assert_eq!(engine.host().take().len(), 1, "the query expired it");
}

/// "Not held", and not a word about why, was all that a holder heard when it came too late. How the
/// last grant of a key ended stands in the words of its cell, however it was held and whichever
/// core waited for a while.
#[test]
fn a_holder_that_comes_too_late_hears_how_its_grant_ended() {
    // In the words, with short metadata, with a long one, shared, as long as its session, for
    // hours.
    type Change = fn(&mut Acquire<'_>);
    let ways: [(&str, Change); 6] = [
        ("plain", |_| {}),
        ("noted", |request| request.metadata = b"short"),
        ("long metadata", |request| request.metadata = &[7; 500]),
        ("shared", |request| request.mode = Mode::Shared),
        ("by session", |request| request.span = Span::Session),
        ("for hours", |request| request.span = Span::Ms(5 * LONG_MS)),
    ];
    for (name, change) in ways {
        for has_waited in [false, true] {
            for (end, why) in [
                ("released", NotHeld::Released),
                ("expired", NotHeld::Expired),
                ("forced", NotHeld::Forced),
            ] {
                let engine = locks();
                let [mut a, mut b] = seats(&engine);
                let mut request = Acquire::exclusive(key("k"), 100);
                change(&mut request);
                let grant = granted(engine.acquire(&mut a, &request, at(0)));
                if has_waited {
                    let ticket = wait(&engine, &mut b, "k", 100, 1, at(0));
                    assert!(engine.cancel(ticket, at(0)).is_some());
                }
                let late = grant.until.plus_ms(1);
                // With its session goes the one that lives by it, and no session is left to ask.
                let now = match end {
                    "expired" if request.span == Span::Session => continue,
                    "expired" => late,
                    _ => at(1),
                };
                match end {
                    "released" => give_back(&engine, &mut a, "k", grant.fence, now),
                    "forced" => assert!(engine.force_release(key("k"), grant.fence, now)),
                    _ => advance(&engine, now),
                }
                let story = format!("{name}, {end}, has waited: {has_waited}");
                let renewal = engine.renew(&a, key("k"), grant.fence, 100, now);
                assert_eq!(renewal, Renewal::NotHeld(why), "{story}");
                let downgrade = engine.downgrade(&a, key("k"), grant.fence, now);
                assert_eq!(downgrade, Downgrade::NotHeld(why), "{story}");
                let release = engine.release(&mut a, key("k"), grant.fence, now);
                assert_eq!(release, Release::NotHeld(why), "{story}");
                assert_eq!(engine.why_not_held(key("k"), grant.fence), why, "{story}");
                // Once the key is granted again, that is the answer; and of what it was before
                // nothing is claimed.
                let next = take(&engine, &mut b, "k", 100, now);
                let why = engine.why_not_held(key("k"), grant.fence);
                assert_eq!(why, NotHeld::OtherFence, "{story}");
                give_back(&engine, &mut b, "k", next.fence, now);
                let why = engine.why_not_held(key("k"), grant.fence);
                assert_eq!(why, NotHeld::Free, "{story}");
            }
        }
    }
}

/// Of several sessions that held a key together only one is the last, and the cell has no room for
/// more.
#[test]
fn nothing_is_claimed_of_holders_who_were_not_the_last() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let one = granted(share(&engine, &mut a, "k", 100, at(0)));
    let two = granted(share(&engine, &mut b, "k", 50, at(0)));
    advance(&engine, at(60));
    give_back(&engine, &mut a, "k", one.fence, at(61));
    assert_eq!(engine.why_not_held(key("k"), one.fence), NotHeld::Free);
    assert_eq!(engine.why_not_held(key("k"), two.fence), NotHeld::Free);
}

#[test]
fn an_operator_takes_a_lock_away_by_its_fence() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let first = take(&engine, &mut a, "k", 100, at(0));
    assert!(!engine.force_release(key("k"), fence(first.fence.get() + 1), at(1)));
    assert!(!engine.force_release(key("other"), first.fence, at(1)));
    assert_eq!(engine.host().take(), []);
    assert!(engine.force_release(key("k"), first.fence, at(1)));
    let lost = Event::Lost {
        key: b"k".into(),
        fence: first.fence,
        owner: a.session(),
        why: Lost::Forced,
        held_ms: 1,
        late_ms: 0,
    };
    assert_eq!(engine.host().take(), [lost]);
    assert_not_renewed(
        engine.renew(&a, key("k"), first.fence, 100, at(2)),
        NotHeld::Forced,
    );
    assert!(!engine.force_release(key("k"), first.fence, at(2)), "once");
    let second = take(&engine, &mut b, "k", 100, at(3));
    assert!(second.fence > first.fence);
}

#[test]
fn a_lock_taken_away_goes_to_the_next_in_line() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let first = take(&engine, &mut a, "k", 100, at(0));
    wait(&engine, &mut b, "k", 50, 1, at(1));
    assert!(engine.force_release(key("k"), first.fence, at(10)));
    let events = engine.host().take();
    assert!(
        matches!(events[..], [Event::Lost { why: Lost::Forced, .. }, Event::Granted { waiter: 1, grant }]
            if grant.until == at(60) && grant.fence > first.fence),
        "{events:?}"
    );
}

#[test]
fn calls_within_a_batch_do_what_they_do_outside() {
    let engine = locks();
    let mut a = seat(&engine);
    let batch = engine.batch();
    for round in 0..10_000 {
        let name = format!("{round}");
        let grant = take(&engine, &mut a, &name, 100, at(round));
        give_back(&engine, &mut a, &name, grant.fence, at(round));
    }
    drop(batch);
    assert_eq!(engine.keys(), 10_000);
}

#[test]
fn an_engine_alone_is_a_lock_table() {
    let engine = Engine::new(small(), Alone);
    let mut a = Seat::new(engine.open_session(1000, at(0)).unwrap());
    let grant = granted(engine.acquire(&mut a, &Acquire::exclusive(key("k"), 10), at(0)));
    assert_eq!(
        engine.release(&mut a, key("k"), grant.fence, at(1)),
        Release::Released { count: 0 }
    );
}

#[test]
fn the_table_grows_to_a_million_keys_and_finds_them_all() {
    let engine = locks_with(engine::Settings {
        shards: 4,
        ..small()
    });
    let mut a = seat(&engine);
    let mut fences = Vec::new();
    for i in 0..1_000_000u64 {
        let bytes = i.to_le_bytes();
        let request = Acquire::exclusive(Key::new(&bytes).unwrap(), 500_000);
        fences.push(granted(engine.acquire(&mut a, &request, at(1))).fence);
    }
    assert_eq!(engine.keys(), 1_000_000);
    for (i, &fence) in (0u64..).zip(&fences) {
        let bytes = i.to_le_bytes();
        assert_eq!(
            engine.release(&mut a, Key::new(&bytes).unwrap(), fence, at(2)),
            Release::Released { count: 0 }
        );
    }
}
