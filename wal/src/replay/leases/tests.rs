//! What remains of several holders of one key, rule by rule. Histories are in `state/tests.rs`.

use super::*;

fn lease(fence: u64, mode: Mode) -> Lease<'static> {
    Lease {
        key: b"key",
        fence,
        session: 0,
        mode,
        is_session_bound: false,
        count: 1,
        until_unix_ms: fence * 100,
        granted_unix_ms: fence,
        note: b"",
    }
}

const EXCLUSIVE: Mode = Mode::Exclusive;
const SHARED: Mode = Mode::Shared;

fn holders(leases: &mut Leases) -> Vec<(u64, Mode)> {
    let owner = LiveOwner {
        session: 9,
        deadline_unix_ms: 0,
    };
    leases.settle([Some(owner)].into());
    leases
        .iter()
        .map(|lease| (lease.fence, lease.mode))
        .collect()
}

fn after(grants: &[(u64, Mode)]) -> Vec<(u64, Mode)> {
    let mut leases = Leases::default();
    for &(fence, mode) in grants {
        leases.grant(&lease(fence, mode), 0);
    }
    holders(&mut leases)
}

#[test]
fn of_two_grants_the_same_remains_in_both_orders() {
    for (lower, higher, remains) in [
        (EXCLUSIVE, EXCLUSIVE, vec![(2, EXCLUSIVE)]),
        (SHARED, EXCLUSIVE, vec![(2, EXCLUSIVE)]),
        // The exclusive one is gone or was downgraded, and nothing says which.
        (EXCLUSIVE, SHARED, vec![(1, SHARED), (2, SHARED)]),
        (SHARED, SHARED, vec![(1, SHARED), (2, SHARED)]),
    ] {
        assert_eq!(after(&[(1, lower), (2, higher)]), remains);
        assert_eq!(after(&[(2, higher), (1, lower)]), remains);
    }
}

#[test]
fn an_exclusive_grant_ends_every_crowd_before_it() {
    let crowd = [(1, SHARED), (2, SHARED), (4, SHARED)];
    let grants = [&crowd[..], &[(5, EXCLUSIVE)]].concat();
    assert_eq!(after(&grants), [(5, EXCLUSIVE)]);
    let grants = [&crowd[..], &[(3, EXCLUSIVE)]].concat();
    assert_eq!(after(&grants), [(3, SHARED), (4, SHARED)]);
    // Heard of once more, it still does.
    let grants = [&crowd[..], &[(4, EXCLUSIVE)]].concat();
    assert_eq!(after(&grants), [(4, SHARED)]);
}

#[test]
fn release_renewal_and_downgrade_are_for_one_fence_only() {
    let mut leases = Leases::default();
    leases.grant(&lease(5, EXCLUSIVE), 0);
    for fence in [4, 6] {
        leases.release(b"key", fence, 0);
        leases.renew(b"key", fence, 7);
        leases.downgrade(b"key", fence);
    }
    leases.release(b"other", 5, 0);
    assert_eq!(holders(&mut leases), [(5, EXCLUSIVE)]);
    assert_eq!(leases.iter().next().unwrap().until_unix_ms, 500);
    leases.downgrade(b"key", 5);
    leases.renew(b"key", 5, 700);
    assert_eq!(holders(&mut leases), [(5, SHARED)]);
    assert_eq!(leases.iter().next().unwrap().until_unix_ms, 700);
    leases.release(b"key", 5, 0);
    assert!(leases.is_empty());
    leases.grant(&lease(7, EXCLUSIVE), 0);
    assert_eq!(holders(&mut leases), [(7, EXCLUSIVE)]);
}

/// Whatever was granted is over once its end was heard of, in whichever order.
#[test]
fn an_end_is_final() {
    for (mode, rivals) in [(EXCLUSIVE, vec![]), (SHARED, vec![3, 5, 9])] {
        for ends_first in [false, true] {
            let mut leases = Leases::default();
            for &rival in &rivals {
                leases.grant(&lease(rival, SHARED), 0);
            }
            let grant = lease(6, mode);
            match ends_first {
                true => leases.release(b"key", 6, 0),
                false => leases.grant(&grant, 0),
            }
            leases.renew(b"key", 6, 7);
            leases.release(b"key", 6, 0);
            leases.grant(&grant, 0);
            leases.grant(&Lease { count: 2, ..grant }, 0);
            let left: Vec<_> = rivals.iter().map(|&fence| (fence, SHARED)).collect();
            assert_eq!(holders(&mut leases), left);
        }
    }
}

/// A grant of a slow thread comes when its key has long been granted to others and released by
/// them.
#[test]
fn a_grant_below_one_that_was_exclusive_and_ended_is_over() {
    let mut leases = Leases::default();
    leases.grant(&lease(5, EXCLUSIVE), 0);
    leases.release(b"key", 5, 0);
    leases.grant(&lease(4, SHARED), 0);
    assert_eq!(holders(&mut leases), []);
    // Behind a shared one it is not: both held it together.
    leases.grant(&lease(9, SHARED), 0);
    leases.release(b"key", 9, 0);
    leases.grant(&lease(8, SHARED), 0);
    assert_eq!(holders(&mut leases), [(8, SHARED)]);
}

#[test]
fn an_exclusive_grant_that_is_over_has_ended_those_before_it() {
    for before in [&[(5, EXCLUSIVE)][..], &[(4, SHARED), (5, SHARED)]] {
        let mut leases = Leases::default();
        for &(fence, mode) in before {
            leases.grant(&lease(fence, mode), 0);
        }
        leases.release(b"key", 8, 0);
        leases.grant(&lease(8, EXCLUSIVE), 0);
        assert_eq!(holders(&mut leases), []);
    }
}

#[test]
fn what_is_said_of_a_grant_before_it_is_heard_of_is_kept() {
    let mut leases = Leases::default();
    leases.renew(b"key", 6, 700);
    leases.downgrade(b"key", 6);
    leases.grant(&lease(6, EXCLUSIVE), 0);
    assert_eq!(holders(&mut leases), [(6, SHARED)]);
    assert_eq!(leases.iter().next().unwrap().until_unix_ms, 700);
}

/// A native client renewed twice, since the first core stood still, and was told the second end;
/// the first core wrote the earlier end down behind that. Found by the model of a cluster.
#[test]
fn of_two_ends_of_a_native_lease_the_later_one_counts_in_every_order() {
    for order in [[900, 800], [800, 900]] {
        for grant_at in 0..=2 {
            let mut leases = Leases::default();
            for (place, until) in (0..).zip(order) {
                if place == grant_at {
                    leases.grant(&lease(6, EXCLUSIVE), 0);
                }
                leases.renew(b"key", 6, until);
            }
            if grant_at == 2 {
                leases.grant(&lease(6, EXCLUSIVE), 0);
            }
            assert_eq!(holders(&mut leases), [(6, EXCLUSIVE)]);
            assert_eq!(leases.iter().next().unwrap().until_unix_ms, 900);
        }
    }
}

/// The Redis port appends in order, so that an acknowledged `PEXPIRE` that shortens a lease
/// outlives a kill.
#[test]
fn a_lease_of_the_redis_port_ends_when_the_latest_record_says() {
    let mut leases = Leases::default();
    let of_redis = Lease {
        session: REDIS_SESSION,
        ..lease(6, EXCLUSIVE)
    };
    leases.grant(&of_redis, 0);
    for until in [900, 650, 700] {
        leases.renew(b"key", 6, until);
        assert_eq!(holders(&mut leases), [(6, EXCLUSIVE)]);
        assert_eq!(leases.iter().next().unwrap().until_unix_ms, until);
    }
    // Another session under the same number is not the port's.
    let of_native = Lease {
        session: 9,
        ..lease(7, EXCLUSIVE)
    };
    leases.grant(&of_native, 0);
    leases.renew(b"key", 7, 650);
    assert_eq!(holders(&mut leases), [(7, EXCLUSIVE)]);
    assert_eq!(leases.iter().next().unwrap().until_unix_ms, 700);
}

#[test]
fn members_of_a_crowd_come_and_go_by_themselves() {
    const LATE: u64 = 10_000_000;
    let mut leases = Leases::default();
    for fence in 1..=10_000 {
        leases.grant(&lease(fence, SHARED), 0);
    }
    for fence in (1..=10_000).rev() {
        leases.renew(b"key", fence, LATE);
    }
    assert_eq!(holders(&mut leases).len(), 10_000);
    assert!(leases.iter().all(|lease| lease.until_unix_ms == LATE));
    for fence in 2..=10_000 {
        leases.release(b"key", fence, 0);
    }
    assert_eq!(holders(&mut leases), [(1, SHARED)]);
    assert!(leases.crowds.is_empty());
}

#[test]
fn a_reentrant_lock_keeps_the_larger_count_until_a_release_says_less() {
    let mut leases = Leases::default();
    for count in [1, 3, 2] {
        leases.grant(
            &Lease {
                count,
                ..lease(1, EXCLUSIVE)
            },
            0,
        );
    }
    holders(&mut leases);
    assert_eq!(leases.iter().next().unwrap().count, 3);
    leases.release(b"key", 1, 2);
    assert_eq!(leases.iter().next().unwrap().count, 2);
}

#[test]
fn notes_stay_with_their_grants() {
    let mut leases = Leases::default();
    leases.grant(
        &Lease {
            note: b"first",
            ..lease(1, SHARED)
        },
        0,
    );
    leases.grant(&lease(2, SHARED), 0);
    holders(&mut leases);
    let notes: Vec<&[u8]> = leases.iter().map(|lease| lease.note).collect();
    assert_eq!(notes, [b"first".as_slice(), b""]);
}

#[test]
fn leases_of_sessions_that_ended_are_not_shown() {
    let mut leases = Leases::default();
    leases.grant(&lease(1, SHARED), 0);
    leases.grant(&lease(2, SHARED), 1);
    let live = LiveOwner {
        session: 77,
        deadline_unix_ms: 5,
    };
    leases.settle([None, Some(live)].into());
    let sessions: Vec<u64> = leases.iter().map(|lease| lease.session).collect();
    assert_eq!(sessions, [77]);
    assert_eq!(leases.count(), 1);
}
