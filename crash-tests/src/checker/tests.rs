//! The checker itself is checked: what a correct server does is accepted, however answers are
//! delayed; what none does is found.

use super::*;
use crate::history::{Life, Probe, Sighting};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const KEEPING: [Kept; 2] = [Kept::Fence, Kept::Lease];
const LOSING: [Kept; 2] = [Kept::None, Kept::FenceWithoutGrace];
const ALL: [Kept; 4] = [
    Kept::None,
    Kept::FenceWithoutGrace,
    Kept::Fence,
    Kept::Lease,
];

/// A grant of the key `k`, asked for and answered then, promised until then.
fn grant(fence: u64, begun: Time, answered: Time, promised: Time) -> Grant {
    Grant {
        key: "k".into(),
        fence,
        is_shared: false,
        holder: format!("holder of {fence}").into(),
        ttl_us: 1_000,
        begun,
        answered,
        promises: vec![promised],
        end: End::Open,
    }
}

fn ending(mut grant: Grant, end: End) -> Grant {
    grant.end = end;
    grant
}

fn released(grant: Grant, begun: Time, answered: Time) -> Grant {
    ending(grant, End::Released { begun, answered })
}

fn lost(grant: Grant, at: Time, by_server: bool) -> Grant {
    let why = "for a reason".to_owned();
    ending(grant, End::Lost { at, by_server, why })
}

fn sighting(fence: u64, begun: Time, answered: Time) -> Sighting {
    Sighting {
        key: "k".into(),
        fence,
        is_shared: false,
        begun,
        answered,
    }
}

fn shared(mut grant: Grant) -> Grant {
    grant.is_shared = true;
    grant
}

fn killed(ended: Time) -> Life {
    Life {
        ready: Some(0),
        ended,
        gone: ended,
        end: LifeEnd::Killed,
    }
}

/// A life that was told to stop, and went on answering until it was gone.
fn stopped(ended: Time, gone: Time) -> Life {
    Life {
        gone,
        end: LifeEnd::Stopped,
        ..killed(ended)
    }
}

fn of(grants: Vec<Grant>) -> History {
    History {
        grants,
        ..History::default()
    }
}

#[track_caller]
fn accepted(history: &History, mode: Kept) {
    let (_, violations) = check(history, mode);
    assert_eq!(violations, [], "{mode:?}");
}

/// Exactly one thing is wrong. Says which.
#[track_caller]
fn rejected(history: &History, mode: Kept) -> Violation {
    let (_, mut violations) = check(history, mode);
    assert_eq!(violations.len(), 1, "{mode:?}: {violations:?}");
    let violation = violations.remove(0);
    assert!(violation.to_string().starts_with("k: "), "{violation}");
    violation
}

#[test]
fn a_repeated_fence_is_found_in_every_mode() {
    let first = released(grant(7, 0, 10, 500), 20, 30);
    // Even where the calls overlap and either may have come first.
    for (begun, answered) in [(40, 50), (0, 20)] {
        let second = released(grant(7, begun, answered, 600), 60, 70);
        let history = of(vec![first.clone(), second]);
        for mode in ALL {
            let (_, violations) = check(&history, mode);
            let is_found =
                |violation: &Violation| matches!(violation, Violation::FenceTwice { .. });
            assert!(violations.iter().any(is_found), "{violations:?}");
        }
    }
}

#[test]
fn a_fence_that_falls_is_found_in_every_mode() {
    let before = released(grant(7, 0, 10, 500), 20, 30);
    let history = |begun| {
        // It was over before it came, so that nothing but its fence can be wrong.
        let mut history = of(vec![grant(6, begun, begun + 10, begun + 5), before.clone()]);
        history.lives = vec![killed(35)];
        history
    };
    for mode in ALL {
        let violation = rejected(&history(11), mode);
        assert!(matches!(violation, Violation::FenceFell { .. }));
        // Calls that overlap may have any order.
        accepted(&history(10), mode);
    }
}

#[test]
fn a_fence_below_one_that_was_only_seen_is_found() {
    let mut history = of(vec![grant(7, 50, 60, 100)]);
    history.sightings = vec![sighting(8, 10, 20)];
    let violation = rejected(&history, Kept::None);
    assert!(matches!(violation, Violation::FenceFell { .. }));
    history.sightings = vec![sighting(6, 10, 20)];
    accepted(&history, Kept::None);
}

#[test]
fn a_double_grant_is_found_over_a_kill_where_leases_survive_it() {
    let mut history = of(vec![grant(7, 0, 10, 1_000), grant(8, 600, 650, 1_600)]);
    history.lives = vec![killed(500)];
    for mode in KEEPING {
        let violation = rejected(&history, mode);
        assert!(matches!(
            violation,
            Violation::DoubleGrant {
                fence: 8,
                end: 1_000,
                ..
            }
        ));
    }
    for mode in LOSING {
        accepted(&history, mode);
    }
    // In one life it is wrong in every mode.
    history.lives = vec![killed(2_000)];
    for mode in ALL {
        let violation = rejected(&history, mode);
        assert!(matches!(violation, Violation::DoubleGrant { .. }));
    }
}

#[test]
fn what_a_server_grants_after_sigterm_is_not_counted_to_the_next_life() {
    let asked_before_it_was_gone = lost(grant(7, 510, 520, 1_000), 700, true);
    let asked_afterwards = lost(grant(7, 531, 540, 1_000), 700, true);
    let history = |first| {
        let mut history = of(vec![first, grant(8, 600, 650, 1_600)]);
        history.lives = vec![stopped(500, 530), killed(2_000)];
        history
    };
    for mode in LOSING {
        accepted(&history(asked_before_it_was_gone.clone()), mode);
        let (_, violations) = check(&history(asked_afterwards.clone()), mode);
        assert_eq!(
            violations.len(),
            2,
            "given twice and lost early: {violations:?}"
        );
    }
    // Where promises outlive a server, it does not matter which one gave them.
    for mode in KEEPING {
        let (_, violations) = check(&history(asked_before_it_was_gone.clone()), mode);
        assert_eq!(violations.len(), 2, "{violations:?}");
    }
}

#[test]
fn a_double_grant_is_found_in_what_the_server_told_a_third() {
    let mut history = of(vec![grant(7, 0, 10, 1_000)]);
    history.sightings = vec![sighting(8, 600, 700)];
    let violation = rejected(&history, Kept::Lease);
    assert!(matches!(violation, Violation::DoubleGrant { fence: 8, .. }));
    // It was told late, and may have happened at any time before.
    history.sightings = vec![sighting(8, 600, 1_001)];
    accepted(&history, Kept::Lease);
    // That is the holder itself, and its predecessor.
    history.sightings = vec![sighting(7, 600, 700), sighting(6, 0, 5)];
    accepted(&history, Kept::Lease);
}

#[test]
fn a_double_grant_is_found_through_a_third_grant() {
    // Fence 8 was answered late, but 9 came after it and was answered in time.
    let history = of(vec![
        grant(7, 0, 10, 1_000),
        released(grant(8, 500, 1_100, 1_500), 1_200, 1_210),
        grant(9, 600, 700, 1_600),
    ]);
    let (_, violations) = check(&history, Kept::Lease);
    let of_seven = violations.iter().find(|violation| {
        matches!(violation, Violation::DoubleGrant { promised, .. } if promised.contains("fence 7"))
    });
    assert!(of_seven.is_some(), "{violations:?}");
}

#[test]
fn sharers_may_have_it_together_and_no_one_else() {
    let (seven, eight) = (grant(7, 0, 10, 1_000), grant(8, 600, 650, 1_600));
    let both = of(vec![shared(seven.clone()), shared(eight.clone())]);
    ALL.iter().for_each(|mode| accepted(&both, *mode));
    for pair in [
        vec![shared(seven.clone()), eight.clone()],
        vec![seven.clone(), shared(eight.clone())],
    ] {
        let violation = rejected(&of(pair), Kept::Lease);
        assert!(matches!(violation, Violation::DoubleGrant { .. }));
    }
    // An exclusive one between them, heard of late; but the shared one behind it shows by when it
    // was granted.
    let late = released(grant(8, 500, 1_100, 1_050), 1_200, 1_210);
    let history = of(vec![shared(seven), late, shared(grant(9, 600, 700, 1_600))]);
    let violation = rejected(&history, Kept::Lease);
    assert!(matches!(
        violation,
        Violation::DoubleGrant { answered: 700, .. }
    ));
}

#[test]
fn a_renewal_counts_whenever_it_was_answered() {
    let mut renewed = grant(7, 0, 10, 1_000);
    renewed.promises.push(1_500);
    let history = of(vec![renewed, grant(8, 1_100, 1_200, 2_000)]);
    let violation = rejected(&history, Kept::Lease);
    assert!(matches!(
        violation,
        Violation::DoubleGrant { end: 1_500, .. }
    ));
}

#[test]
fn a_client_that_lets_go_holds_nothing_more() {
    let second = grant(8, 600, 650, 1_600);
    let let_go = [
        released(grant(7, 0, 10, 1_000), 640, 700),
        ending(grant(7, 0, 10, 1_000), End::Abandoned { begun: 640 }),
        // Gave up by itself, at the end of the promise.
        lost(grant(7, 0, 10, 640), 640, false),
    ];
    for first in let_go {
        accepted(&of(vec![first, second.clone()]), Kept::Lease);
    }
    let too_late = released(grant(7, 0, 10, 1_000), 651, 700);
    let violation = rejected(&of(vec![too_late, second]), Kept::Lease);
    assert!(matches!(violation, Violation::DoubleGrant { .. }));
}

#[test]
fn a_lock_that_is_lost_too_early_is_found() {
    let mut history = of(vec![lost(grant(7, 0, 10, 1_000), 700, true)]);
    history.lives = vec![killed(500)];
    for mode in KEEPING {
        let violation = rejected(&history, mode);
        assert!(matches!(violation, Violation::EarlyLoss { at: 700, .. }));
    }
    for mode in LOSING {
        accepted(&history, mode);
    }
    history.grants = vec![lost(grant(7, 0, 10, 1_000), 700, false)];
    accepted(&history, Kept::Lease);
    history.grants = vec![lost(grant(7, 0, 10, 1_000), 1_000, true)];
    accepted(&history, Kept::Lease);
}

#[test]
fn a_lock_that_was_released_and_is_valid_again_is_found_in_every_mode() {
    let mut history = of(vec![released(grant(7, 0, 10, 1_000), 20, 30)]);
    history.lives = vec![killed(40)];
    let probe = Probe {
        key: "k".into(),
        fence: 7,
        ask: "a renewal",
        begun: 50,
        is_accepted: true,
    };
    for mode in ALL {
        history.sightings = vec![sighting(7, 31, 60)];
        let violation = rejected(&history, mode);
        assert!(matches!(violation, Violation::Resurrected { fence: 7, .. }));
        // Asked before the release was answered: it may have been told before it happened.
        history.sightings = vec![sighting(7, 30, 60)];
        accepted(&history, mode);

        history.sightings.clear();
        history.probes = vec![probe.clone()];
        let violation = rejected(&history, mode);
        assert!(matches!(
            violation,
            Violation::Resurrected {
                shown_by: "a renewal",
                ..
            }
        ));
        history.probes[0].is_accepted = false;
        accepted(&history, mode);
        let (summary, _) = check(&history, mode);
        assert_eq!(summary.probes_refused, 1);
        history.probes.clear();
    }
}

/// A second connection deletes a key while the server is busy with the request that took it: the
/// deletion is answered first.
#[test]
fn a_lock_that_was_deleted_before_its_grant_was_answered_stays_deleted() {
    let mut history = of(vec![released(grant(7, 0, 40, 500), 10, 20)]);
    history.lives = vec![killed(50)];
    for mode in ALL {
        accepted(&history, mode);
    }
    // Named in an answer that was asked for before the deletion was answered, it may have been seen
    // before.
    history.sightings = vec![sighting(7, 19, 30)];
    for mode in ALL {
        accepted(&history, mode);
    }
    history.sightings = vec![sighting(7, 60, 65)];
    for mode in ALL {
        let violation = rejected(&history, mode);
        assert!(matches!(violation, Violation::Resurrected { .. }));
    }
}

/// What a client of the Redis port may rely on, renewals that shorten a lease included.
#[test]
fn a_lock_of_the_redis_port_that_is_given_away_before_its_renewed_end_is_found() {
    let recorder = crate::history::Recorder::default();
    let index = recorder.granted(grant(7, 0, 10, 500));
    recorder.promised_anew(index, 200);
    recorder.granted(grant(8, 210, 220, 900));
    accepted(&recorder.history(), Kept::Lease);
    recorder.promised_anew(index, 230);
    let violation = rejected(&recorder.history(), Kept::Lease);
    assert!(matches!(violation, Violation::DoubleGrant { .. }));
}

#[test]
fn keys_have_nothing_to_do_with_each_other() {
    let mut other = grant(7, 20, 30, 1_000);
    other.key = "other".into();
    accepted(&of(vec![grant(8, 0, 10, 1_000), other]), Kept::Lease);
}

#[test]
fn a_wall_clock_that_moved_is_no_fault_of_the_servers() {
    let mut history = of(vec![grant(7, 0, 10, 1_000), grant(8, 900, 950, 2_000)]);
    history.lives = vec![killed(500)];
    rejected(&history, Kept::Lease);
    history.clock_drift_us = 50;
    accepted(&history, Kept::Lease);
}

#[test]
fn a_run_in_which_nothing_was_at_stake_proves_nothing() {
    let rich = Summary {
        kills: 1,
        lives_with_grants: 1,
        grants: 1,
        redis_grants: 1,
        keys: 1,
        holds: 1,
        leases_over_a_kill: 1,
        leases_survived: 1,
        releases: 1,
        probes_refused: 1,
        ..Summary::default()
    };
    for mode in ALL {
        rich.demand(mode).unwrap();
        assert!(Summary::default().demand(mode).is_err());
        let (summary, _) = check(&History::default(), mode);
        assert!(summary.demand(mode).is_err());
    }
    let without = |change: fn(&mut Summary)| {
        let mut summary = rich.clone();
        change(&mut summary);
        summary
    };
    for poor in [
        without(|summary| summary.kills = 0),
        without(|summary| summary.grants = 0),
        without(|summary| summary.redis_grants = 0),
        without(|summary| summary.holds = 0),
    ] {
        ALL.iter()
            .for_each(|mode| assert!(poor.demand(*mode).is_err()));
    }
    for poor in [
        without(|summary| summary.leases_over_a_kill = 0),
        without(|summary| summary.leases_survived = 0),
        without(|summary| summary.probes_refused = 0),
    ] {
        KEEPING
            .iter()
            .for_each(|mode| assert!(poor.demand(*mode).is_err()));
        LOSING.iter().for_each(|mode| poor.demand(*mode).unwrap());
    }
}

#[test]
fn a_lease_survives_if_a_later_life_is_seen_to_know_it() {
    let leases = |history: &History| {
        let (summary, violations) = check(history, Kept::Lease);
        assert_eq!(violations, []);
        (summary.leases_over_a_kill, summary.leases_survived)
    };
    let mut history = of(vec![grant(7, 0, 10, 1_000)]);
    history.lives = vec![killed(500)];
    assert_eq!(leases(&history), (1, 0), "no client heard of it again");
    // This may have been sent before the kill.
    history.grants[0].promises.push(1_500);
    assert_eq!(leases(&history), (1, 0));
    history.grants[0].promises.push(1_501);
    assert_eq!(leases(&history), (1, 1));
    history.grants[0].promises.truncate(1);
    history.sightings = vec![sighting(7, 400, 600)];
    assert_eq!(leases(&history), (1, 0), "asked before the kill");
    history.sightings = vec![sighting(7, 501, 600)];
    assert_eq!(leases(&history), (1, 1));
    history.grants[0] = released(grant(7, 0, 10, 1_000), 490, 495);
    history.sightings.clear();
    assert_eq!(leases(&history), (0, 0), "given back before");
}

// ---- what a correct server does, however slowly it is heard of

/// One grant as it happens at the server, and how long everything travels.
#[derive(Clone, Debug)]
struct Step {
    key: usize,
    /// The time that the key is free before.
    pause: Time,
    fence_gap: u64,
    ttl: Time,
    sent: Time,
    heard: Time,
    /// How much of the lease has passed, in percent, and how long the request was under way.
    renewals: Vec<(u64, Time)>,
    end: StepEnd,
    /// A client asks for the holder, in percent of the lease; for how long the question and the
    /// answer are under way.
    look: Option<(u64, Time, Time)>,
    /// The server is gone, in percent of the lease, and for how long it had been about to end.
    kill: Option<(u64, Time)>,
}

#[derive(Clone, Copy, Debug)]
enum StepEnd {
    /// Released, in percent of the lease; for how long the request and its answer are under way.
    Released(u64, Time, Time),
    /// Let go of in percent of the lease, and the server does not hear of it.
    Abandoned(u64),
    /// Ends by itself; how long it takes the client to hear of it.
    Expired(Time),
    /// No client says anything.
    Silent,
}

fn step() -> impl Strategy<Value = Step> {
    let travel = || 0..400_u64;
    let percent = || 0..100_u64;
    let end = prop_oneof![
        (percent(), travel(), travel())
            .prop_map(|(at, sent, heard)| StepEnd::Released(at, sent, heard)),
        percent().prop_map(StepEnd::Abandoned),
        travel().prop_map(StepEnd::Expired),
        Just(StepEnd::Silent),
    ];
    let times = (
        0..3_usize,
        0..300_u64,
        1..4_u64,
        100..2_000_u64,
        travel(),
        travel(),
    );
    let events = (
        vec((percent(), travel()), 0..3),
        end,
        option::of((percent(), travel(), travel())),
        option::weighted(0.2, (percent(), travel())),
    );
    (times, events).prop_map(|(times, (renewals, end, look, kill))| {
        let (key, pause, fence_gap, ttl, sent, heard) = times;
        Step {
            key,
            pause,
            fence_gap,
            ttl,
            sent,
            heard,
            renewals,
            end,
            look,
            kill,
        }
    })
}

/// What the clients of a correct server see. If `keeps` is not set, a kill frees the lock that it
/// happens under; there is one key only then, since it would free all.
fn live(steps: &[Step], keeps: bool) -> History {
    let mut history = History::default();
    // Late enough that no request was sent before the beginning.
    let mut free = [(10_000, 100); 3];
    for step in steps {
        let key = if keeps { step.key } else { 0 };
        let name: Arc<str> = format!("key/{key}").into();
        let (free_since, last_fence) = &mut free[key];
        let granted = *free_since + step.pause;
        let fence = *last_fence + step.fence_gap;
        let sent = granted - step.sent;
        let mut lease_end = granted + step.ttl;
        let mut promises = vec![sent + step.ttl];
        let mut last_renewal = granted;
        let mut dies = Time::MAX;
        if let Some((percent, lingered)) = step.kill {
            let gone = granted + step.ttl * percent / 100;
            history.lives.push(stopped(gone - lingered, gone));
            if !keeps {
                dies = gone;
            }
        }
        for (percent, under_way) in &step.renewals {
            let renewed = last_renewal + (lease_end - last_renewal) * percent / 100;
            if renewed >= dies {
                break;
            }
            last_renewal = renewed;
            lease_end = renewed + step.ttl;
            promises.push(renewed - under_way + step.ttl);
        }
        // A client that renewed has not let go before.
        let at = |percent: u64| last_renewal + (lease_end - last_renewal) * percent / 100;
        let heard = granted + step.heard;
        let (end, freed) = match step.end {
            StepEnd::Released(percent, under_way, back) => {
                let begun = at(percent).max(heard);
                let carried_out = begun + under_way;
                if carried_out < lease_end.min(dies) {
                    let answered = carried_out + back;
                    (End::Released { begun, answered }, carried_out)
                } else {
                    (End::Abandoned { begun }, lease_end)
                }
            }
            StepEnd::Abandoned(percent) => {
                let begun = at(percent).max(heard);
                (End::Abandoned { begun }, lease_end)
            }
            StepEnd::Expired(under_way) => {
                let end = End::Lost {
                    at: lease_end + under_way,
                    by_server: true,
                    why: "expired".to_owned(),
                };
                (end, lease_end)
            }
            StepEnd::Silent => (End::Open, lease_end),
        };
        let freed = freed.min(dies).max(granted);
        if let Some((percent, sent, back)) = step.look {
            let looked = granted + (freed - granted) * percent / 100;
            history.sightings.push(Sighting {
                key: name.clone(),
                fence,
                is_shared: false,
                begun: looked - sent,
                answered: looked + back,
            });
        }
        history.grants.push(Grant {
            key: name,
            fence,
            is_shared: false,
            holder: "another".into(),
            ttl_us: step.ttl,
            begun: sent,
            answered: heard,
            promises,
            end,
        });
        *last_fence = fence;
        *free_since = freed;
    }
    history
}

proptest! {
    // Not every plant finds its ground.
    #![proptest_config(ProptestConfig {
        cases: 1_000,
        max_global_rejects: 100_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_a_correct_server_does_is_accepted(steps in vec(step(), 1..40)) {
        for mode in KEEPING {
            let (_, violations) = check(&live(&steps, true), mode);
            prop_assert_eq!(violations, []);
        }
        for mode in LOSING {
            let (_, violations) = check(&live(&steps, false), mode);
            prop_assert_eq!(violations, []);
        }
    }

    #[test]
    fn what_is_planted_is_found(steps in vec(step(), 1..40), pick: prop::sample::Index, plant in 0..5) {
        let mut history = live(&steps, true);
        let checker = Checker { history: &history, mode: Kept::Lease };
        let victim = pick.get(&history.grants).clone();
        let top = history.grants.iter().map(|grant| grant.fence).max().unwrap();
        let held_until = checker.held_until(&victim);
        let intruder = |fence, begun, answered| Grant {
            fence,
            begun,
            answered,
            end: End::Open,
            ..victim.clone()
        };
        let released = match victim.end {
            End::Released { answered, .. } => Some(answered),
            _ => None,
        };
        match plant {
            // Granted to another client a moment before the hold ends.
            0 => {
                prop_assume!(held_until.is_some());
                let answered = held_until.unwrap() - 1;
                history.grants.push(intruder(top + 1, answered, answered));
            }
            // Granted again, under the same fence.
            1 => history.grants.push(intruder(victim.fence, victim.begun, victim.answered)),
            // Granted below, after it was known.
            2 => {
                let begun = victim.answered + 1;
                history.grants.push(intruder(victim.fence - 1, begun, begun + 5));
            }
            // Taken away a moment before the hold ends.
            3 => {
                prop_assume!(held_until.is_some() && released.is_none());
                let grant = history.grants.iter_mut().find(|grant| grant.fence == victim.fence && grant.key == victim.key);
                let at = held_until.unwrap() - 1;
                grant.unwrap().end = End::Lost { at, by_server: true, why: "no reason".to_owned() };
            }
            // Held again after it was released.
            _ => {
                prop_assume!(released.is_some());
                history.sightings.push(Sighting {
                    key: victim.key.clone(),
                    fence: victim.fence,
                    is_shared: false,
                    begun: released.unwrap() + 1,
                    answered: released.unwrap() + 10,
                });
            }
        }
        let (_, violations) = check(&history, Kept::Lease);
        let is_found = violations.iter().any(|violation| match plant {
            0 => matches!(violation, Violation::DoubleGrant { .. }),
            1 => matches!(violation, Violation::FenceTwice { .. }),
            2 => matches!(violation, Violation::FenceFell { .. }),
            3 => matches!(violation, Violation::EarlyLoss { .. }),
            _ => matches!(violation, Violation::Resurrected { .. }),
        });
        prop_assert!(is_found, "{:?}", violations);
    }
}
