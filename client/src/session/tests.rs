use super::*;
use crate::session::lease::certain;
use crate::session::lease::tests::terms;
use protocol::{NodeAddresses, ServerName, SessionId, SessionSecret};

fn key(number: u64) -> SessionKey {
    SessionKey {
        session_id: SessionId::new(number),
        secret: SessionSecret::new([3; 16]),
    }
}

fn welcome(number: u64, is_resumed: bool) -> Welcome<'static> {
    Welcome {
        version: 1,
        is_resumed,
        session: key(number),
        session_ttl_ms: 10_000,
        frame_bytes_max: 4096,
        in_flight_max: 1024,
        remembered_max: 256,
        server_name: ServerName::default(),
        grace_ms: None,
        addresses: NodeAddresses::default(),
    }
}

struct World {
    session: Session,
    leases: Leases,
    settings: Settings,
}

impl World {
    fn new() -> Self {
        Self {
            session: Session::default(),
            leases: Leases::default(),
            settings: Settings {
                addresses: Vec::new(),
                name: String::new(),
                token: Vec::new(),
                connection_count: 2,
                session_ttl_ms: 0,
                connect_timeout: Duration::from_secs(1),
                request_timeout: Duration::from_secs(1),
                ttl: Duration::from_secs(1),
                wait: Duration::from_secs(1),
                trace_context: None,
                security: None,
            },
        }
    }

    fn next_opening(&self, broken: Option<Broken>) -> Opening {
        self.session.state.lock().next_opening("nowhere:1", broken)
    }

    /// Opens a connection as the session would, to a server that knows session `number`.
    fn open(&self, broken: Option<Broken>, number: u64) -> Welcomed {
        let opening = self.next_opening(broken);
        let is_resumed = match opening {
            Opening::New => false,
            Opening::Resume(known) | Opening::Join(known) => known == key(number),
        };
        let welcome = welcome(number, is_resumed);
        let sent = Moment::now();
        self.hear(opening, &welcome, sent, sent)
            .expect("the session lives")
    }

    /// Takes note of a welcome to a hello sent at `sent`.
    fn hear(
        &self,
        opening: Opening,
        welcome: &Welcome<'_>,
        sent: Moment,
        now: Moment,
    ) -> Option<Welcomed> {
        match self.hear_as(opening, None, welcome, sent, now) {
            Heard::Welcomed(welcomed) => Some(welcomed),
            Heard::TooLate => None,
            Heard::MustResume(key) => panic!("no reason to resume {key:?}"),
        }
    }

    fn hear_as(
        &self,
        opening: Opening,
        broken: Option<Broken>,
        welcome: &Welcome<'_>,
        sent: Moment,
        now: Moment,
    ) -> Heard {
        let greeting = Greeting {
            address: &Arc::from("nowhere:1"),
            settings: &self.settings,
            opening,
            broken,
        };
        let moments = Moments { sent, now };
        self.session
            .welcomed(&greeting, welcome, moments, &self.leases)
    }
}

/// A connection of this era broke and left something unanswered.
fn unanswered(era: Era) -> Option<Broken> {
    let has_backlog = true;
    Some(Broken { era, has_backlog })
}

#[test]
fn the_first_connection_opens_and_the_others_join() {
    let world = World::new();
    assert_eq!(world.next_opening(None), Opening::New);
    let first = world.open(None, 1);
    assert_eq!(world.next_opening(None), Opening::Join(key(1)));
    let second = world.open(None, 1);
    assert_eq!(first.era, second.era);
    assert_eq!(world.session.id(), Some(1));
}

#[test]
fn after_a_break_of_all_the_first_to_come_back_resumes() {
    let world = World::new();
    let (first, second) = (world.open(None, 1), world.open(None, 1));
    world.session.disconnected(first.era);
    assert_eq!(world.next_opening(None), Opening::Join(key(1)));
    world.session.disconnected(second.era);
    assert_eq!(world.next_opening(None), Opening::Resume(key(1)));
    let back = world.open(None, 1);
    assert_eq!(back.era.epoch, first.era.epoch, "it is the same session");
    assert!(!world.session.is_current(first.era), "in a new round");
    assert_eq!(
        world.next_opening(unanswered(second.era)),
        Opening::Join(key(1))
    );
}

#[test]
fn a_connection_with_something_to_repeat_resumes_unless_another_has_since() {
    let world = World::new();
    let (broken, healthy) = (world.open(None, 1), world.open(None, 1));
    world.session.disconnected(broken.era);
    assert_eq!(
        world.next_opening(unanswered(broken.era)),
        Opening::Resume(key(1))
    );
    world.open(unanswered(broken.era), 1);
    // The server ended the healthy one too. What that one left unanswered is settled there, so it
    // may simply join.
    assert!(!world.session.is_current(healthy.era));
    world.session.disconnected(healthy.era);
    assert_eq!(
        world.next_opening(unanswered(healthy.era)),
        Opening::Join(key(1))
    );
}

/// A kill breaks both connections of a client, and the task of the second has not noticed yet.
#[test]
fn a_connection_that_joins_a_recovering_server_resumes_unless_another_has_since() {
    let world = World::new();
    let (first, second) = (world.open(None, 1), world.open(None, 1));
    world.session.disconnected(first.era);
    let has_backlog = false;
    let [first, second] = [first.era, second.era].map(|era| Broken { era, has_backlog });
    let recovering = Welcome {
        grace_ms: Some(5_000),
        ..welcome(1, true)
    };
    let now = Moment::now();
    let hear = |opening, broken| world.hear_as(opening, Some(broken), &recovering, now, now);

    let opening = world.next_opening(Some(first));
    assert_eq!(opening, Opening::Join(key(1)));
    let Heard::MustResume(same) = hear(opening, first) else {
        panic!("no connection would claim anything");
    };
    // Also the attempt after this one, should it fail.
    assert_eq!(world.next_opening(None), Opening::Resume(same));
    let Heard::Welcomed(back) = hear(Opening::Resume(same), first) else {
        panic!("the session lives");
    };
    assert!(back.must_claim);

    world.session.disconnected(second.era);
    let opening = world.next_opening(Some(second));
    assert_eq!(opening, Opening::Join(key(1)));
    let Heard::Welcomed(joined) = hear(opening, second) else {
        panic!("the first has resumed the session");
    };
    assert!(!joined.must_claim);
}

#[test]
fn a_server_that_opens_another_session_costs_all_leases() {
    let world = World::new();
    let first = world.open(None, 1);
    let now = Moment::now();
    let terms = terms("k", 1, Duration::from_secs(60), now);
    let lease = world
        .leases
        .admit(&terms, first.era.epoch - 1, &first.life, now);
    assert_eq!(
        lease.loss(),
        Some(Loss::SessionEnded),
        "an earlier session's"
    );
    let lease = world
        .leases
        .admit(&terms, first.era.epoch, &first.life, now);
    world.session.disconnected(first.era);
    let second = world.open(None, 2);
    assert_eq!(lease.loss(), Some(Loss::SessionEnded));
    assert!(second.era > first.era);
    assert!(!world.session.is_current(first.era));
}

#[test]
fn a_session_that_cannot_be_joined_is_replaced() {
    let world = World::new();
    let first = world.open(None, 1);
    let opening = world.next_opening(None);
    world.session.end_of(opening, &world.leases);
    assert!(!world.session.is_current(first.era));
    assert_eq!(world.next_opening(None), Opening::New);
    // The news of its end may come twice, or after the next one has begun.
    let second = world.open(None, 2);
    world.session.end_of(opening, &world.leases);
    world.session.end(first.era.epoch, &world.leases);
    assert!(world.session.is_current(second.era));
}

#[test]
fn a_session_past_its_life_is_not_resumed_at_a_server_that_cannot_know() {
    let after_life = Duration::from_secs(11);
    for grace_ms in [None, Some(5_000)] {
        let world = World::new();
        let first = world.open(None, 1);
        let start = first.life.deadline() - certain(first.life.ttl());
        let terms = terms("k", 1, Duration::from_secs(60), start);
        let lease = world
            .leases
            .admit(&terms, first.era.epoch, &first.life, start);
        world.session.disconnected(first.era);
        let opening = world.next_opening(None);
        let back = Welcome {
            grace_ms,
            ..welcome(1, true)
        };
        let now = start + after_life;
        let welcomed = world.hear(opening, &back, now, now);
        // Without a grace period the server knows that the session has lived on, and says so.
        assert_eq!(welcomed.is_some(), grace_ms.is_none());
        assert_eq!(
            lease.loss(),
            grace_ms.is_some().then_some(Loss::DeadlinePassed)
        );
        if grace_ms.is_some() {
            assert_eq!(world.next_opening(None), Opening::New);
        }
    }
}

#[test]
fn a_resumed_session_lives_as_long_as_the_server_says_now() {
    let world = World::new();
    let first = world.open(None, 1);
    world.session.disconnected(first.era);
    let shorter = Welcome {
        session_ttl_ms: 2_000,
        ..welcome(1, true)
    };
    let sent = Moment::now();
    let opening = world.next_opening(None);
    let back = world.hear(opening, &shorter, sent, sent).unwrap();
    let ttl = Duration::from_secs(2);
    assert_eq!(world.session.ttl(), Some(ttl));
    assert_eq!(back.life.deadline(), sent + certain(ttl));
    // The answer to an older keep-alive of the first server does not bring back its promise.
    back.life
        .kept(sent - Duration::from_millis(1), Duration::from_secs(10));
    assert_eq!(back.life.deadline(), sent + certain(ttl));
}

#[test]
fn the_bounds_leave_room_for_releases_whatever_the_server_allows() {
    for (in_flight_max, remembered_max) in
        [(0, 0), (1, 1), (4096, 256), (16, 4096), (1 << 20, 1 << 20)]
    {
        let welcome = Welcome {
            in_flight_max,
            remembered_max,
            ..welcome(1, false)
        };
        for connection_count in [1, 2, 64] {
            let bounds = Bounds::new(&welcome, connection_count);
            assert!(
                bounds.waiting_max > 0 && bounds.prompt_max > 0,
                "{bounds:?}"
            );
            assert!(bounds.answered_max > bounds.prompt_max, "{bounds:?}");
        }
    }
}

#[test]
fn a_leader_at_another_address_is_where_the_session_is_resumed() {
    let world = World::new();
    let nodes = NodeAddresses::new("nowhere:1,elsewhere:1").unwrap();
    let of_cluster = |is_resumed| Welcome {
        addresses: nodes,
        ..welcome(1, is_resumed)
    };
    let now = Moment::now();
    let opened = world.hear(Opening::New, &of_cluster(false), now, now);
    assert!(opened.expect("a session").is_cluster);
    let next = |address| world.session.state.lock().next_opening(address, None);
    // The first connection still seems to be open. At the same node another one joins it; another
    // node would not welcome us if that one still led.
    assert_eq!(next("nowhere:1"), Opening::Join(key(1)));
    assert_eq!(next("elsewhere:1"), Opening::Resume(key(1)));

    // Two addresses of a server that is none of several are the same server.
    let world = World::new();
    let opened = world.hear(Opening::New, &welcome(1, false), now, now);
    assert!(!opened.expect("a session").is_cluster);
    let opening = world.session.state.lock().next_opening("elsewhere:1", None);
    assert_eq!(opening, Opening::Join(key(1)));
}
