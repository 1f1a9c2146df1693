//! What a seat remembers: little more than what its session holds, however it came by it and gave
//! it back.

use super::*;
use crate::api::{Alone, GaveUp, Grant, Loss};
use crate::session::seat::RECENT_MAX;
use std::collections::VecDeque;
use std::sync::Mutex;
use types::Mode;

const ROUNDS: u64 = 100_000;

/// Lists may be this long while a handful of locks is held: the length from which on it is worth
/// sweeping them, doubled, and what comes in while a sweep is on.
const FEW: usize = 3 * SWEEP_MIN + RECENT_MAX;

fn at(ms: u64) -> Tick {
    Tick::from_ms(ms)
}

fn open<H: Host>(engine: &Engine<H>) -> Seat {
    Seat::new(engine.open_session(1 << 40, at(0)).unwrap())
}

fn acquire<H: Host>(engine: &Engine<H>, seat: &mut Seat, name: u64) -> Fence {
    let bytes = name.to_le_bytes();
    let request = Acquire::exclusive(Key::new(&bytes).unwrap(), TTL_MS_MAX);
    match engine.acquire(seat, &request, at(1)) {
        Outcome::Granted(grant) => grant.fence,
        other => panic!("{other:?}"),
    }
}

fn release<H: Host>(engine: &Engine<H>, seat: &mut Seat, name: u64, fence: Fence) {
    let bytes = name.to_le_bytes();
    assert_eq!(
        engine.release(seat, Key::new(&bytes).unwrap(), fence, at(1)),
        Release::Released { count: 0 }
    );
}

#[track_caller]
fn assert_few(seat: &Seat) {
    let (held, waits) = (seat.remembered(), seat.waits.len());
    assert!(
        held <= FEW && waits <= FEW,
        "{held} grants and {waits} waits remembered"
    );
}

#[test]
fn a_hundred_thousand_keys_taken_and_given_back_leave_no_trace() {
    let engine = Engine::new(Settings::default(), Alone);
    let mut seat = open(&engine);
    let mut held = VecDeque::new();
    for name in 0..ROUNDS {
        held.push_back((name, acquire(&engine, &mut seat, name)));
        // First in, first out: never the one that was taken last.
        if held.len() > 3 {
            let (name, fence) = held.pop_front().unwrap();
            release(&engine, &mut seat, name, fence);
        }
        assert_few(&seat);
    }
    let three: Vec<u64> = held.iter().map(|&(name, _)| name).collect();
    engine.end_session(seat.session());
    engine.vacate(&mut seat, at(2));
    for name in three {
        let bytes = name.to_le_bytes();
        let state = engine.query(Key::new(&bytes).unwrap(), at(2)).unwrap();
        assert_eq!(state.holders, [], "key {name} was among the three held");
    }
}

/// Each look at the list found the keys held, and could not tell which of their entries were old.
#[test]
fn a_few_keys_taken_in_turn_again_and_again_are_remembered_once_each() {
    let engine = Engine::new(Settings::default(), Alone);
    let mut seat = open(&engine);
    let mut held: VecDeque<(u64, Fence)> = (0..20)
        .map(|name| (name, acquire(&engine, &mut seat, name)))
        .collect();
    for _ in 0..ROUNDS {
        let (name, fence) = held.pop_front().unwrap();
        release(&engine, &mut seat, name, fence);
        held.push_back((name, acquire(&engine, &mut seat, name)));
        assert_few(&seat);
    }
}

#[test]
fn what_is_given_back_through_another_seat_is_not_remembered_for_ever() {
    let engine = Engine::new(Settings::default(), Alone);
    let mut taker = open(&engine);
    let mut giver = Seat::new(taker.session());
    for _ in 0..ROUNDS {
        let fence = acquire(&engine, &mut taker, 7);
        release(&engine, &mut giver, 7, fence);
        assert_few(&taker);
    }
}

#[test]
fn a_popular_shared_key_is_remembered_once() {
    let engine = Engine::new(Settings::default(), Alone);
    let [mut seat, mut other] = [open(&engine), open(&engine)];
    let key = Key::new(b"popular").unwrap();
    let request = Acquire::shared(key, TTL_MS_MAX);
    let share = |seat: &mut Seat| match engine.acquire(seat, &request, at(1)) {
        Outcome::Granted(grant) => grant.fence,
        outcome => panic!("{outcome:?}"),
    };
    share(&mut other);
    let mut last = share(&mut seat);
    for _ in 0..ROUNDS {
        let next = share(&mut seat);
        let released = engine.release(&mut seat, key, last, at(1));
        assert_eq!(released, Release::Released { count: 0 });
        last = next;
        assert_few(&seat);
    }
    engine.end_session(seat.session());
    engine.vacate(&mut seat, at(2));
    let state = engine.query(key, at(2)).unwrap();
    assert_eq!(state.holders.len(), 1, "the other one still reads");
}

/// Keeps the last grant it was told of.
#[derive(Default)]
struct Last(Mutex<Option<Grant>>);

impl Host for Last {
    type Waiter = ();

    fn granted(&self, (): (), grant: Grant) {
        *self.0.lock().unwrap() = Some(grant);
    }
    fn gave_up(&self, (): (), _: GaveUp) {}
    fn lost(&self, _: &Loss<'_>) {}
    fn session_ended(&self, _: SessionId) {}
}

/// Two sessions hand one key to and fro, always through the queue, so that it never is free.
#[test]
fn a_hot_key_that_always_comes_through_the_queue_is_remembered_once() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let engine = Engine::new(Settings::default(), Last::default());
        let mut seats = [open(&engine), open(&engine)];
        let key = Key::new(b"hot").unwrap();
        let mut fence =
            match engine.acquire(&mut seats[0], &Acquire::exclusive(key, TTL_MS_MAX), at(1)) {
                Outcome::Granted(grant) => grant.fence,
                other => panic!("{other:?}"),
            };
        for round in 0..ROUNDS {
            // The next one stands in line behind a writer, so that readers have to wait as well.
            let [first, second] = &mut seats;
            let (holder, next) = match round % 2 {
                0 => (first, second),
                _ => (second, first),
            };
            let request = Acquire {
                mode,
                ..Acquire::exclusive(key, TTL_MS_MAX)
            };
            let ticket = match engine.acquire_or_wait(next, &request, 1000, || Some(()), at(1)) {
                Outcome::Queued { ticket, .. } => Some(ticket),
                Outcome::Granted(grant) => {
                    *engine.host().0.lock().unwrap() = Some(grant);
                    None
                }
                other => panic!("{other:?}"),
            };
            assert!(ticket.is_some() || mode == Mode::Shared);
            let released = engine.release(holder, key, fence, at(1));
            assert_eq!(released, Release::Released { count: 0 });
            fence = engine.host().0.lock().unwrap().take().unwrap().fence;
            assert_few(&seats[0]);
            assert_few(&seats[1]);
        }
        let holder = (ROUNDS % 2) as usize;
        engine.end_session(seats[holder].session());
        engine.vacate(&mut seats[holder], at(2));
        assert_eq!(engine.query(key, at(2)).unwrap().holders, []);
    }
}

#[test]
fn what_came_through_the_queue_is_freed_with_its_session_though_its_ticket_is_old() {
    let engine = Engine::new(Settings::default(), Alone);
    let [mut holder, mut waiter] = [open(&engine), open(&engine)];
    let fences: Vec<Fence> = (0..1000)
        .map(|name| acquire(&engine, &mut holder, name))
        .collect();
    for (name, &fence) in (0u64..).zip(&fences) {
        let bytes = name.to_le_bytes();
        let mode = match name % 2 {
            0 => Mode::Exclusive,
            _ => Mode::Shared,
        };
        let request = Acquire {
            mode,
            ..Acquire::exclusive(Key::new(&bytes).unwrap(), TTL_MS_MAX)
        };
        let outcome = engine.acquire_or_wait(&mut waiter, &request, 1000, || Some(()), at(1));
        assert!(matches!(outcome, Outcome::Queued { .. }));
        release(&engine, &mut holder, name, fence);
    }
    assert!(waiter.waits.len() + waiter.remembered() >= 1000);
    engine.end_session(waiter.session());
    engine.vacate(&mut waiter, at(2));
    for name in 0..1000u64 {
        let bytes = name.to_le_bytes();
        let state = engine.query(Key::new(&bytes).unwrap(), at(2)).unwrap();
        assert_eq!(state.holders, [], "key {name}");
    }
}
