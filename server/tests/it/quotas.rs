//! Quotas of tokens and prefixes, on both ports.

use crate::common::{LONG_MS, Peer, acquire, encode, force_release, granted, until};
use crate::guarded::{Guarded, entry};
use protocol::{BusyBound, Reply, Request, RequestId};

#[test]
fn quotas_bound_what_a_name_and_a_prefix_hold() {
    let small = "roles = [\"lock\"]\nheld_max = 2\nwaiters_max = 1";
    let text = entry("small", small)
        + &entry("all", "roles = [\"lock\", \"read\", \"operate\"]")
        + "[[prefix]]\nprefix = \"p/\"\nheld_max = 1\n";
    let guarded = Guarded::start(&text);
    let bound = |peer: &mut Peer, key: &str, wait_ms: u32| {
        peer.ask(&acquire(key, LONG_MS, wait_ms), |reply| match reply {
            Reply::Busy { bound, .. } => Some(bound),
            Reply::Granted { .. } => None,
            other => panic!("neither granted nor busy but {other:?}"),
        })
    };
    let mut first = guarded.native("small");
    let mut second = guarded.native("small");
    let mut redis = guarded.redis("small");
    let fence = first.acquire("a", LONG_MS);
    assert_eq!(redis.say("SET b mine NX PX 60000"), "OK");
    // All connections of a name count together, on both ports.
    assert_eq!(bound(&mut second, "c", 0), Some(BusyBound::QUOTA_HELD));
    let refused = redis.say("SET c mine NX PX 60000");
    assert!(
        refused.starts_with("OOM the quota held_max = 2 of small is used up"),
        "{refused}"
    );
    assert!(first.release("a", fence));
    // However a lock ends, it counts no more: released, expired, forced, or with its session.
    let short = second.acquire("c", 1);
    until("the lease has ended", || {
        bound(&mut second, "d", 0).is_none()
    });
    assert!(short > 0);
    let mut all = guarded.native("all");
    let (fences, _) = all.query("d");
    all.ask(&force_release("d", fences[0]), |reply| {
        assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
    });
    assert_eq!(bound(&mut second, "e", 0), None);
    second.ask(&Request::Goodbye, |reply| assert_eq!(reply, Reply::Bye));
    until("the session's lock counts no more", || {
        bound(&mut first, "f", 0).is_none()
    });
    assert_eq!(redis.say("DELEX b IFEQ mine"), "1");

    // One that waits counts as held, and as waiting.
    let taken = all.acquire("w", LONG_MS);
    let waiting = first.stand_in_line("w", 0, &mut all);
    assert_eq!(bound(&mut first, "g", 0), Some(BusyBound::QUOTA_HELD));
    assert!(all.release("w", taken));
    let granted = first.reply(waiting, granted);
    assert!(first.release("w", granted));
    let again = all.acquire("w", LONG_MS);
    let waiting = first.stand_in_line("w", 0, &mut all);
    let (fences, _) = all.query("f");
    assert!(first.release("f", fences[0]));
    assert_eq!(
        bound(&mut first, "w", LONG_MS),
        Some(BusyBound::QUOTA_WAITERS)
    );
    let cancel = Request::Cancel {
        acquire_id: RequestId::new(waiting),
    };
    first.ask(&cancel, |reply| assert_eq!(reply, Reply::Cancelled));
    assert_eq!(bound(&mut first, "h", 0), None);
    assert_eq!(bound(&mut first, "i", 0), None);
    assert!(all.release("w", again));

    // A prefix counts for all clients together.
    let under = all.acquire("p/1", LONG_MS);
    assert_eq!(bound(&mut all, "p/2", 0), Some(BusyBound::PREFIX_HELD));
    let refused = guarded.redis("all").say("SET p/2 t NX PX 60000");
    assert!(
        refused.starts_with("OOM the quota held_max = 1 of the prefix p/"),
        "{refused}"
    );
    assert!(all.release("p/1", under));
    assert_eq!(bound(&mut all, "p/2", 0), None);
    assert!(all.stat("refused_quota_total") >= 6);
}

#[test]
fn a_quota_of_operations_refuses_new_ones_and_keeps_what_is_held() {
    let guarded = Guarded::start(&entry(
        "slow",
        "roles = [\"lock\"]\noperations_per_second = 1",
    ));
    let mut peer = guarded.native("slow");
    let fence = peer.acquire("a", LONG_MS);
    // In one piece, so that they are decided at one moment.
    let requests: Vec<u8> = (100..103)
        .flat_map(|id| encode(id, &acquire("b", LONG_MS, 0)))
        .collect();
    peer.send_bytes(&requests);
    let refused = (100..103).filter(|id| {
        peer.reply(*id, |reply| match reply {
            Reply::Busy {
                bound,
                retry_after_ms,
            } => {
                assert_eq!(bound, BusyBound::QUOTA_OPERATIONS);
                assert!((1..=2_000).contains(&retry_after_ms), "{retry_after_ms}");
                true
            }
            _ => false,
        })
    });
    assert!(refused.count() >= 2);
    peer.start_ids_at(200);
    assert!(peer.release("a", fence), "giving back is never refused");
}
