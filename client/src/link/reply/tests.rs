use super::*;
use crate::link::lane::Room;
use crate::settings::Settings;
use protocol::{LostReason, Mode, NotHeldReason, RequestId};
use tokio::sync::oneshot;

const TTL: Duration = Duration::from_secs(9);

struct World {
    pool: Arc<Pool>,
    life: Arc<SessionLife>,
    start: Moment,
}

type Caller = oneshot::Receiver<Result<Answer, Error>>;

impl World {
    fn new() -> Self {
        let start = Moment::now();
        let settings = Settings {
            addresses: vec!["nowhere:1".to_owned()],
            name: String::new(),
            token: Vec::new(),
            connection_count: 1,
            session_ttl_ms: 0,
            connect_timeout: TTL,
            request_timeout: TTL,
            ttl: TTL,
            wait: TTL,
            trace_context: None,
            security: None,
        };
        let pool = Arc::new(Pool::new(settings));
        pool.lanes()[0].set_open();
        Self {
            pool,
            life: Arc::new(SessionLife::new(Duration::from_secs(3600), start)),
            start,
        }
    }

    fn at(&self, after: Duration) -> Arrival<'_> {
        Arrival {
            pool: &self.pool,
            epoch: 0,
            life: &self.life,
            now: self.start + after,
        }
    }

    /// An acquire that was sent at the start.
    fn acquire(&self, lease: protocol::Lease) -> (Call, Caller) {
        let wish = Wish {
            key: Arc::from(*b"k"),
            mode: Mode::Exclusive,
            lease,
            wait_until: Some(self.start + TTL * 100),
            waits_since: None,
            is_reentrant: false,
            is_detached: false,
            is_auto_renewed: true,
            metadata: Arc::default(),
            trace_id: None,
        };
        let (sink, caller) = oneshot::channel();
        let mut call = Call::new(self.pool.next_id(), Ask::Acquire(wish), Sink::Caller(sink));
        call.sent = Some(sent(self.start));
        (call, caller)
    }

    /// What the lane would send now.
    fn outgoing(&self) -> Vec<Call> {
        let mut batch = crate::link::lane::Batch::default();
        let room = Room {
            urgent: 100,
            prompt: 100,
            waiting: 100,
        };
        self.pool.lanes()[0].take(room, &mut batch);
        batch.calls
    }

    /// As `outgoing`, for the one request that must be there, sent at `after`.
    fn only_outgoing(&self, after: Duration) -> Call {
        let mut calls = self.outgoing();
        assert_eq!(calls.len(), 1, "{calls:?}");
        let mut call = calls.remove(0);
        call.sent = Some(sent(self.start + after));
        call
    }
}

fn sent(at: Moment) -> Sent {
    Sent {
        first: at,
        last: at,
        epoch: 0,
    }
}

fn ttl_lease() -> protocol::Lease {
    protocol::Lease::Ttl {
        ttl_ms: TTL.as_millis() as u32,
    }
}

fn granted(number: u64) -> Reply<'static> {
    Reply::Granted {
        fence: Fence::new(number).unwrap(),
        ttl_ms: TTL.as_millis() as u32,
        hold_count: 1,
    }
}

fn renewed() -> Reply<'static> {
    Reply::Renewed {
        ttl_ms: TTL.as_millis() as u32,
    }
}

fn grant_of(caller: &mut Caller) -> Grant {
    match caller.try_recv() {
        Ok(Ok(Answer::Granted(grant))) => grant,
        other => panic!("no grant but {other:?}"),
    }
}

#[test]
fn a_quick_grant_is_handed_over_at_once_and_released_when_dropped() {
    let world = World::new();
    let (call, mut caller) = world.acquire(ttl_lease());
    world.at(TTL / 10).apply(call, &granted(5));
    let grant = grant_of(&mut caller);
    assert!(world.outgoing().is_empty());
    drop(grant);
    let call = world.only_outgoing(TTL / 5);
    assert!(matches!(call.ask, Ask::Release { fence, .. } if fence.get() == 5));
}

#[test]
fn a_grant_after_a_long_wait_is_renewed_first_and_counts_from_that() {
    let world = World::new();
    let (call, mut caller) = world.acquire(ttl_lease());
    world.at(TTL * 5).apply(call, &granted(5));
    assert!(caller.try_recv().is_err(), "not before it is confirmed");
    let renewal = world.only_outgoing(TTL * 5);
    assert!(matches!(renewal.ask, Ask::Renew { .. }));
    let lease = Arc::clone(renewal.lease.as_ref().unwrap());
    world.at(TTL * 5 + TTL / 20).apply(renewal, &renewed());
    let grant = grant_of(&mut caller);
    assert_eq!(
        lease.deadline(),
        world.start + TTL * 5 + crate::session::lease::certain(TTL)
    );
    std::mem::forget(grant);
}

#[test]
fn a_grant_that_is_gone_before_it_is_confirmed_is_told_as_lost() {
    let world = World::new();
    let (call, mut caller) = world.acquire(ttl_lease());
    world.at(TTL * 5).apply(call, &granted(5));
    let renewal = world.only_outgoing(TTL * 5);
    let not_held = Reply::NotHeld {
        reason: NotHeldReason::EXPIRED,
    };
    world.at(TTL * 6).apply(renewal, &not_held);
    assert!(matches!(
        caller.try_recv(),
        Ok(Ok(Answer::Lost(Loss::Expired)))
    ));
    assert!(world.outgoing().is_empty(), "there is nothing to release");
}

#[test]
fn a_repeated_acquire_is_confirmed_even_if_it_was_quick() {
    let world = World::new();
    let (mut call, mut caller) = world.acquire(ttl_lease());
    let sent = call.sent.as_mut().unwrap();
    sent.last = sent.last + Duration::from_millis(1);
    world.at(Duration::from_millis(2)).apply(call, &granted(5));
    assert!(caller.try_recv().is_err());
    let renewal = world.only_outgoing(Duration::from_millis(2));
    world
        .at(Duration::from_millis(3))
        .apply(renewal, &renewed());
    drop(grant_of(&mut caller));
}

#[test]
fn a_grant_without_a_caller_is_released_at_once() {
    let world = World::new();
    let (call, caller) = world.acquire(ttl_lease());
    drop(caller);
    world.at(TTL / 10).apply(call, &granted(5));
    let call = world.only_outgoing(TTL / 10);
    assert!(matches!(call.ask, Ask::Release { .. }));
}

#[test]
fn a_grant_left_in_the_channel_is_released_when_the_caller_goes() {
    let world = World::new();
    let (call, caller) = world.acquire(ttl_lease());
    world.at(TTL / 10).apply(call, &granted(5));
    assert!(world.outgoing().is_empty());
    drop(caller);
    let call = world.only_outgoing(TTL / 10);
    assert!(matches!(call.ask, Ask::Release { .. }));
}

#[test]
fn a_lock_that_the_server_took_away_is_not_released() {
    let world = World::new();
    let (call, mut caller) = world.acquire(ttl_lease());
    world.at(TTL / 10).apply(call, &granted(5));
    let grant = grant_of(&mut caller);
    let loss = Loss::from(LostReason::FORCED);
    let fence = Fence::new(5).unwrap();
    world.pool.leases.lose(b"k", fence, loss, world.start);
    drop(grant);
    assert!(world.outgoing().is_empty());
}

#[test]
fn a_refused_renewal_is_a_loss_and_a_busy_server_is_not() {
    let world = World::new();
    let (call, mut caller) = world.acquire(ttl_lease());
    world.at(TTL / 10).apply(call, &granted(5));
    let grant = grant_of(&mut caller);
    let renewal = |reply: &Reply<'_>| {
        let lease = world.pool.leases.all().remove(0);
        assert!(lease.start_renewing());
        world.pool.post_renewal(&lease, Sink::Nowhere);
        let call = world.only_outgoing(TTL / 3);
        world.at(TTL / 3).apply(call, reply);
        lease
    };
    let lease = renewal(&Reply::Busy {
        bound: protocol::BusyBound::LOAD,
        retry_after_ms: 0,
    });
    assert_eq!(lease.loss(), None);
    let mut due = Vec::new();
    let later = world.start + TTL / 2;
    world.pool.leases.take_due(later, later, &mut due);
    assert_eq!(due.len(), 1, "it is tried again soon");
    let lease = renewal(&Reply::NotHeld {
        reason: NotHeldReason::OTHER_FENCE,
    });
    assert_eq!(lease.loss(), Some(Loss::NotHeld));
    drop(grant);
}

/// A claim that was answered yes turned its lease into a shared one, and after a second restart
/// the client claimed an exclusive lock as shared.
#[test]
fn a_claim_keeps_the_mode_and_a_downgrade_changes_it() {
    let world = World::new();
    let (call, mut caller) = world.acquire(ttl_lease());
    world.at(TTL / 10).apply(call, &granted(5));
    let grant = grant_of(&mut caller);
    let lease = grant.lease();
    let answer = |ask: Ask, fence| {
        let mut call = Call::new(world.pool.next_id(), ask, Sink::Nowhere).about(lease);
        call.sent = Some(sent(world.start + TTL / 5));
        world.at(TTL / 5).apply(call, &granted(fence));
    };
    answer(claim(lease), 5);
    assert_eq!((lease.mode(), lease.fence().get()), (Mode::Exclusive, 5));
    answer(downgrade(lease), 6);
    assert_eq!((lease.mode(), lease.fence().get()), (Mode::Shared, 6));
}

#[test]
fn what_is_granted_to_a_guard_that_has_gone_is_released() {
    for (ask, fence) in [(claim as fn(&Arc<Lease>) -> Ask, 5), (downgrade, 6)] {
        let world = World::new();
        let (call, mut caller) = world.acquire(ttl_lease());
        world.at(TTL / 10).apply(call, &granted(5));
        let grant = grant_of(&mut caller);
        let lease = Arc::clone(grant.lease());
        let mut call = Call::new(world.pool.next_id(), ask(&lease), Sink::Nowhere).about(&lease);
        call.sent = Some(sent(world.start + TTL / 5));
        drop(grant);
        world.only_outgoing(TTL / 5);
        world.at(TTL / 5).apply(call, &granted(fence));
        let again = world.only_outgoing(TTL / 5);
        assert!(
            matches!(again.ask, Ask::Release { fence: released, .. } if released.get() == fence)
        );
    }
}

fn claim(lease: &Arc<Lease>) -> Ask {
    Ask::Claim {
        lease: Arc::clone(lease),
        wanted: lease.wanted(),
        hold_count: lease.hold_count(),
    }
}

fn downgrade(lease: &Arc<Lease>) -> Ask {
    Ask::Downgrade {
        key: Arc::clone(&lease.key),
        fence: lease.fence(),
    }
}

#[test]
fn only_a_keep_alive_moves_the_sessions_deadline() {
    let world = World::new();
    let before = world.life.deadline();
    let mut ping = Call::new(RequestId::new(1), Ask::Ping, Sink::Nowhere);
    ping.sent = Some(sent(world.start + TTL));
    world.at(TTL).apply(ping, &Reply::Pong);
    assert_eq!(world.life.deadline(), before);
    let mut keep_alive = Call::new(RequestId::new(2), Ask::KeepAlive, Sink::Nowhere);
    keep_alive.sent = Some(sent(world.start + TTL));
    let kept = Reply::KeptAlive { ttl_ms: 3_600_000 };
    world.at(TTL).apply(keep_alive, &kept);
    assert_eq!(world.life.deadline(), before + TTL);
}

#[test]
fn a_session_bound_acquire_of_a_lock_held_otherwise_goes_by_the_time_it_was_given() {
    let world = World::new();
    let (call, mut caller) = world.acquire(protocol::Lease::Session);
    let reply = Reply::Granted {
        fence: Fence::new(5).unwrap(),
        ttl_ms: TTL.as_millis() as u32,
        hold_count: 2,
    };
    world.at(Duration::ZERO).apply(call, &reply);
    let grant = grant_of(&mut caller);
    let lease = world.pool.leases.all().remove(0);
    assert_eq!(
        lease.deadline(),
        world.start + crate::session::lease::certain(TTL)
    );
    assert_eq!(lease.wanted(), ttl_lease());
    drop(grant);
}

#[test]
fn an_answer_that_makes_no_sense_fails_the_request_and_nothing_else() {
    let world = World::new();
    let (call, mut caller) = world.acquire(ttl_lease());
    world.at(TTL).apply(call, &Reply::Unknown { kind: 0xaf });
    assert!(matches!(
        caller.try_recv(),
        Ok(Err(Error::Unexpected { .. }))
    ));
}
