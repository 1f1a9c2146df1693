use super::*;
use std::net::Ipv4Addr;

const CONNECTION: ConnectionId = ConnectionId {
    core: 0,
    slot: 0,
    generation: 0,
};

fn session(number: u64, memory: &Arc<Memory>) -> Session {
    let secret = SessionSecret::new([0; SessionSecret::BYTES]);
    let id = SessionId::from_bits(number);
    Session::new(
        id,
        (number, secret),
        "",
        1,
        1,
        Tick::from_ms(0),
        memory.clone(),
    )
}

/// A connection comes, releases something with each of these requests, and goes.
fn release_and_go(session: &Session, ids: std::ops::Range<u64>) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let outcomes = session.attach(CONNECTION, address);
    let released = Remembered::Released { count: 0 };
    outcomes.lock().extend(ids.map(|id| (id, released)));
    session.detach(CONNECTION);
}

#[test]
fn a_crowd_of_sessions_that_remember_much_is_bounded_and_takes_nothing_from_one_that_needs_little()
{
    const KEPT_TEST_MAX: usize = 10_000;
    let memory = Memory::new(KEPT_TEST_MAX);
    let honest = session(0, &memory);
    release_and_go(&honest, 1..SHARE_MIN as u64);
    let hostile: Vec<Session> = (1..100).map(|number| session(number, &memory)).collect();
    for round in 0..2 * PAST_MAX / REMEMBERED_MAX {
        for session in &hostile {
            let first = (round * REMEMBERED_MAX) as u64 + 1;
            release_and_go(session, first..first + REMEMBERED_MAX as u64);
            for id in first..first + REMEMBERED_MAX as u64 {
                session.note_repeat(id);
            }
        }
        assert!(memory.kept.load(Ordering::Relaxed) <= 3 * KEPT_TEST_MAX);
    }
    let released = Recollection::Outcome(Remembered::Released { count: 0 });
    for id in 1..SHARE_MIN as u64 {
        assert_eq!(honest.recall(id), released);
    }
    // What a hostile one has lost it is told to be lost, and not that it never was.
    assert_eq!(hostile[0].recall(1), Recollection::Forgotten);

    drop(hostile);
    release_and_go(&honest, 100..100 + REMEMBERED_MAX as u64);
    assert_eq!(
        honest.recall(100),
        released,
        "with them goes what they kept"
    );
    drop(honest);
    assert_eq!(memory.kept.load(Ordering::Relaxed), 0);
}
