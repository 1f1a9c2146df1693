//! What waiters keep outside the engine counts in `bytes_max` while they wait, and not a moment
//! longer.

use crate::common::{at, key, small};
use engine::{
    Acquire, Engine, Fence, GaveUp, Grant, Host, Limit, Loss, Outcome, Release, Seat, SessionId,
    Settings,
};
use std::sync::Mutex;

/// Each waiter is so many bytes.
const WAITER_BYTES: usize = 1024;

const TTL_MS: u64 = 1_000;
const WAIT_MS: u64 = 100;

/// A host whose waiters are bytes. Keeps the grants.
#[derive(Default)]
struct Heavy(Mutex<Vec<Fence>>);

impl Host for Heavy {
    type Waiter = Vec<u8>;

    fn waiter_bytes(&self, waiter: &Vec<u8>) -> u64 {
        waiter.len() as u64
    }

    fn granted(&self, _: Vec<u8>, grant: Grant) {
        self.0.lock().unwrap().push(grant.fence);
    }

    fn gave_up(&self, _: Vec<u8>, _: GaveUp) {}

    fn lost(&self, _: &Loss<'_>) {}

    fn session_ended(&self, _: SessionId) {}
}

fn wait(engine: &Engine<Heavy>, seat: &mut Seat) -> Outcome {
    let request = Acquire::exclusive(key("k"), TTL_MS);
    let waiter = || Some(vec![0; WAITER_BYTES]);
    engine.acquire_or_wait(seat, &request, WAIT_MS, waiter, at(0))
}

#[test]
fn waiters_are_refused_beyond_the_bytes_they_may_keep_until_one_of_them_goes() {
    let settings = Settings {
        bytes_max: 1 << 20,
        ..small()
    };
    let engine = Engine::new(settings, Heavy::default());
    let mut seats = [(); 2].map(|()| Seat::new(engine.open_session(1_000_000, at(0)).unwrap()));
    let [holder, waiter] = &mut seats;
    let request = Acquire::exclusive(key("k"), TTL_MS);
    let Outcome::Granted(grant) = engine.acquire(holder, &request, at(0)) else {
        panic!("the key is free");
    };
    let mut tickets = Vec::new();
    let refused = loop {
        match wait(&engine, waiter) {
            Outcome::Queued { ticket, .. } => tickets.push(ticket),
            other => break other,
        }
    };
    assert_eq!(refused, Outcome::Busy(Limit::Bytes));
    assert!(tickets.len() > 2);
    assert_eq!(engine.bytes(), (tickets.len() * WAITER_BYTES) as u64);

    // One is served, one leaves: two more may come.
    let released = engine.release(holder, key("k"), grant.fence, at(0));
    assert!(matches!(released, Release::Released { .. }));
    assert_eq!(engine.host().0.lock().unwrap().len(), 1);
    assert!(engine.cancel(tickets[1], at(0)).is_some());
    for _ in 0..2 {
        assert!(matches!(wait(&engine, waiter), Outcome::Queued { .. }));
    }
    assert_eq!(wait(&engine, waiter), Outcome::Busy(Limit::Bytes));

    // The rest give up.
    for shard in 0..engine.shard_count() {
        while engine
            .advance_shard(shard, at(2 * WAIT_MS), &mut 1_000)
            .more
        {}
    }
    assert_eq!(engine.bytes(), 0);
}
