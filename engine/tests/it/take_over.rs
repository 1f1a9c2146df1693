//! Taking a key from its holders.

use crate::common::*;
use engine::{
    Acquire, Fence, Grant, Lost, Mode, NotHeld, Outcome, Release, Renewal, Seat, Span, Tick,
};

fn take_over(engine: &Locks, seat: &mut Seat, from: Option<Fence>, now: Tick) -> Option<Grant> {
    let request = Acquire {
        metadata: b"mine now",
        ..Acquire::exclusive(key("k"), 100)
    };
    match engine.take_over(seat, &request, from, now)? {
        Outcome::Granted(grant) => Some(grant),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_holder_loses_the_key_and_is_told() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let old = take(&engine, &mut a, "k", 500, at(1));
    let new = take_over(&engine, &mut b, None, at(2)).unwrap();
    assert!(new.fence > old.fence);
    assert_eq!(new.until, at(102));
    let holder = held(acquire(&engine, &mut a, "k", 1, at(3)));
    assert_eq!(
        (holder.owner, &*holder.metadata),
        (Some(b.session()), &b"mine now"[..])
    );
    let lost = engine.host().take();
    assert!(
        matches!(&lost[..], [Event::Lost { fence, why: Lost::Forced, .. }] if *fence == old.fence),
        "{lost:?}"
    );
    assert_eq!(
        engine.release(&mut a, key("k"), old.fence, at(3)),
        Release::NotHeld(NotHeld::OtherFence)
    );
    assert_eq!(
        engine.renew(&a, key("k"), old.fence, 5, at(3)),
        Renewal::NotHeld(NotHeld::OtherFence)
    );
}

#[test]
fn a_free_key_is_simply_taken() {
    let engine = locks();
    let [mut a] = seats(&engine);
    let grant = take_over(&engine, &mut a, None, at(1)).unwrap();
    assert_eq!(grant.count, 1);
    assert_eq!(engine.host().take(), []);
}

#[test]
fn nothing_changes_unless_the_key_is_held_under_the_fence_that_is_named() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let old = take(&engine, &mut a, "k", 500, at(1));
    let other = Fence::new(old.fence.get() + 1);
    assert_eq!(take_over(&engine, &mut b, other, at(2)), None);
    assert_eq!(engine.query(key("k"), at(2)).unwrap().fence, old.fence);
    let new = take_over(&engine, &mut b, Some(old.fence), at(2)).unwrap();
    assert_eq!(take_over(&engine, &mut a, Some(old.fence), at(3)), None);
    give_back(&engine, &mut b, "k", new.fence, at(3));
    assert_eq!(take_over(&engine, &mut a, Some(new.fence), at(4)), None);
}

#[test]
fn those_in_line_stay_in_line_and_come_after_it() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    take(&engine, &mut a, "k", 500, at(1));
    wait(&engine, &mut c, "k", 100, 1, at(1));
    let new = take_over(&engine, &mut b, None, at(2)).unwrap();
    assert_eq!(engine.query(key("k"), at(2)).unwrap().queue_length, 1);
    engine.host().take();
    give_back(&engine, &mut b, "k", new.fence, at(3));
    let told = engine.host().take();
    assert!(
        matches!(&told[..], [Event::Granted { waiter: 1, .. }]),
        "{told:?}"
    );
}

#[test]
fn all_who_share_a_key_lose_it() {
    let engine = locks();
    let [mut a, mut b, mut c] = seats(&engine);
    granted(share(&engine, &mut a, "k", 100, at(1)));
    granted(share(&engine, &mut b, "k", 100, at(1)));
    let new = take_over(&engine, &mut c, None, at(2)).unwrap();
    assert_eq!(engine.host().take().len(), 2);
    let state = engine.query(key("k"), at(2)).unwrap();
    assert_eq!(state.holders.len(), 1);
    assert_eq!(
        (state.holders[0].fence, state.holders[0].mode),
        (new.fence, Mode::Exclusive)
    );
}

#[test]
fn a_lease_without_an_end_ends_when_it_is_released_or_given_one() {
    let engine = locks();
    let [mut a, mut b] = seats(&engine);
    let request = Acquire {
        span: Span::Forever,
        ..Acquire::exclusive(key("k"), 1)
    };
    let Outcome::Granted(grant) = engine.acquire(&mut a, &request, at(1)) else {
        panic!("it was free")
    };
    assert_eq!(grant.until, Tick::NEVER);
    let later = at(100 * 24 * 3_600 * 1_000);
    engine.keep_alive(a.session(), u64::MAX, at(1));
    engine.keep_alive(b.session(), u64::MAX, at(1));
    while engine.advance(later, 1_000).more {}
    held(acquire(&engine, &mut b, "k", 1, later));
    let renewed = engine.renew_for(&a, key("k"), grant.fence, Span::Ms(10), later);
    assert_eq!(
        renewed,
        Renewal::Renewed {
            until: later.plus_ms(10)
        }
    );
    take(&engine, &mut b, "k", 1, later.plus_ms(11));
}

#[test]
fn a_key_that_was_held_without_an_end_is_forgotten_like_any_other() {
    let engine = locks();
    let [mut a] = seats(&engine);
    engine.keep_alive(a.session(), u64::MAX, at(1));
    let request = Acquire {
        span: Span::Forever,
        ..Acquire::exclusive(key("k"), 1)
    };
    let Outcome::Granted(grant) = engine.acquire(&mut a, &request, at(1)) else {
        panic!("it was free")
    };
    give_back(&engine, &mut a, "k", grant.fence, at(2));
    let mut now = at(2);
    for _ in 0..3 {
        now = now.plus_ms(100_000);
        while engine.advance(now, 1_000).more {}
    }
    assert_eq!(engine.keys(), 0);
}
