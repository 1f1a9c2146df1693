use super::outcomes::{KEPT_MAX, PAST_MAX, REMEMBERED_MAX, SHARE_MIN};
use super::registry::Registry;
use super::secret::PUBLIC_ID_BITS;
use super::*;
use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const CONNECTION: ConnectionId = ConnectionId {
    core: 0,
    slot: 0,
    generation: 0,
};

fn session(number: u64, memory: &Arc<Memory>) -> Session {
    let id = SessionId::from_bits(number);
    Session::new(id, number, "", 1, 1, Tick::from_ms(0), memory.clone())
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

fn named(number: u64, public_id: u64) -> Arc<Session> {
    let id = SessionId::from_bits(number);
    let memory = Memory::new(KEPT_MAX);
    Arc::new(Session::new(
        id,
        public_id,
        "",
        1_000,
        1,
        Tick::default(),
        memory,
    ))
}

/// Once the other client's session was handed out, with its secret.
#[test]
fn a_random_name_that_is_taken_is_not_used_again() {
    let registry = Registry::new();
    assert!(registry.insert(named(1, 77)));
    let mut names = [77, 77, 78].into_iter();
    let new = registry.insert_new(|| named(2, names.next().unwrap()));
    let new = new.expect("there is a third name");
    assert_eq!((new.id.get(), new.public_id), (2, 78));
    assert_eq!(registry.find_public(77).unwrap().id.get(), 1);
    assert!(registry.insert_new(|| named(3, 77)).is_none());
}

#[test]
fn pages_have_all_sessions_once_in_the_order_of_their_public_ids() {
    let registry = Registry::new();
    // Everywhere in the range of ids, with the first, the last, and what lies beyond it.
    let mut ids: Vec<u64> = (0..1_000_u64)
        .map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PUBLIC_ID_BITS))
        .collect();
    ids.extend([1, (1 << PUBLIC_ID_BITS) - 1, 1 << 60, u64::MAX]);
    ids.retain(|&id| id != 0);
    for (number, &id) in (1..).zip(&ids) {
        assert!(registry.insert(named(number, id)));
    }
    registry.remove(SessionId::from_bits(1));
    ids.remove(0);
    ids.sort_unstable();
    for limit in [1, 7, 64, 5_000] {
        let (mut listed, mut after) = (Vec::new(), 0);
        loop {
            let page = registry.page(after, limit);
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = last.public_id;
            listed.extend(page.iter().map(|session| session.public_id));
        }
        assert_eq!(listed, ids, "{limit} at a time");
    }
    assert!(registry.page(0, 0).is_empty());
}

/// Once a page copied all sessions there were, and sorted them.
#[test]
fn a_page_looks_at_no_session_behind_those_it_shows() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let registry = Registry::new();
    for (number, id) in [(1, 1), (2, 2), (3, (1 << PUBLIC_ID_BITS) - 1)] {
        assert!(registry.insert(named(number, id)));
    }
    let (tell, told) = mpsc::channel();
    let page = thread::scope(|scope| {
        let out_of_reach = registry.lock_all_but_first();
        scope.spawn(|| tell.send(registry.page(0, 2)));
        let page = told.recv_timeout(PATIENCE);
        drop(out_of_reach);
        page
    });
    let page = page.expect("it waits for sessions that it does not show");
    let ids: Vec<u64> = page.iter().map(|session| session.public_id).collect();
    assert_eq!(ids, [1, 2]);
}

/// A keep-alive on another core that came between a grant and its mark was covered by no horizon.
#[test]
fn a_lock_that_is_to_end_with_its_session_is_marked_before_the_engine_is_asked() {
    let memory = Memory::new(1);
    let session = session(0, &memory);
    assert_eq!(session.span(Lease::Ttl { ttl_ms: 7 }), Span::Ms(7));
    assert!(!session.is_bound());
    assert_eq!(session.span(Lease::Session), Span::Session);
    assert!(session.is_bound());
}
