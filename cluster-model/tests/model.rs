//! The model holds within bounds that a minute is enough for, and every planted mistake is found.

use clap::ValueEnum;
use cluster_model::properties::*;
use cluster_model::{Cluster, Fault, Rules};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

fn cluster(fault: Option<Fault>, bounds: &str) -> Cluster {
    Cluster {
        rules: Rules(fault),
        bounds: bounds.parse().expect("bounds are names and numbers"),
        keeps_numbers: false,
    }
}

/// Looks at every state within the bounds: all rules hold, and what is at stake happens.
fn holds(bounds: &str, stakes: &[&'static str]) {
    let checker = cluster(None, bounds).checker().spawn_dfs().join();
    for property in checker.model().properties() {
        match property.expectation {
            Expectation::Sometimes if !stakes.contains(&property.name) => {}
            Expectation::Sometimes => drop(checker.assert_any_discovery(property.name)),
            _ => checker.assert_no_discovery(property.name),
        }
    }
    println!("{} states: {bounds}", checker.unique_state_count());
}

/// Looks at states until this property is broken.
fn breaks(fault: Option<Fault>, bounds: &str, property: &'static str) {
    let until = HasDiscoveries::AnyOf([property].into());
    let checker = cluster(fault, bounds).checker().finish_when(until);
    let checker = checker.spawn_bfs().join();
    let found = checker.discovery(property);
    assert!(found.is_some(), "{fault:?} does not break \"{property}\"");
    println!("{} states: {fault:?}", checker.unique_state_count());
}

#[test]
fn a_lock_outlives_two_failovers_and_a_crash() {
    let stakes = [FAILOVER, EXPIRY, SAME_FENCE];
    holds("requests 2 elections 2 ticks 2 restarts 1", &stakes);
}

#[test]
fn clocks_may_drift_as_far_as_the_margin_and_no_further() {
    let stakes = [FAILOVER, EXPIRY];
    holds(
        "requests 2 elections 1 ticks 2 drifts 1 restarts 1",
        &stakes,
    );
    breaks(None, "requests 2 ticks 2 drifts 2", ONE_HOLDER);
}

#[test]
fn messages_may_be_late_doubled_and_lost() {
    let stakes = [FAILOVER, SAME_FENCE, IGNORED];
    holds(
        "keys 2 requests 2 elections 1 late 1 doubles 1 refusals 1",
        &stakes,
    );
    let stakes = [FAILOVER, IGNORED];
    holds("requests 2 elections 2 doubles 1 snapshots 1", &stakes);
}

#[test]
fn records_may_stand_in_another_order() {
    let stakes = [FAILOVER, SAME_FENCE, DISORDER];
    holds("requests 4 elections 1 late 1", &stakes);
}

#[test]
fn every_planted_mistake_is_found() {
    for &fault in Fault::value_variants() {
        let (bounds, property) = broken_by(fault);
        breaks(Some(fault), bounds, property);
    }
}

/// Within which bounds a mistake breaks what.
fn broken_by(fault: Fault) -> (&'static str, &'static str) {
    match fault {
        Fault::ReplyBeforeCommit => ("requests 2 elections 1", ONE_HOLDER),
        Fault::ReplyAtLocalSync => ("requests 2 elections 1", ONE_HOLDER),
        Fault::BarrierSkipped => ("requests 2 elections 1", FRESH),
        Fault::EngineKept => ("requests 2 elections 2", ONE_HOLDER),
        Fault::SeqUnchecked => ("keys 2 requests 3 elections 1 refusals 1", ONE_HOLDER),
        Fault::StaleReignCounted => ("requests 2 elections 2 doubles 1", COMMITTED),
        Fault::ReplayTrustsOrder => ("requests 4 elections 1 late 1", ONE_HOLDER),
        Fault::EarlierEndCounts => ("requests 3 ticks 1 drifts 1 late 1", ONE_WRITER),
        Fault::ClockFromTheWall => ("requests 2 elections 1", ONE_HOLDER),
        Fault::ClockAsUpperBound => ("requests 2 elections 1", ONE_HOLDER),
        Fault::ClockOfAllReigns => ("requests 2 elections 2 ticks 2 restarts 1", ONE_HOLDER),
        Fault::CeilingUsedEarly => ("requests 2 elections 2", FENCE_ONCE),
        Fault::FloorTooOld => ("requests 2 elections 1", FENCE_ONCE),
        Fault::AckBeforeSync => ("requests 2 elections 1 restarts 1", ONE_HOLDER),
        Fault::RequestIdDropped => ("requests 2 elections 1 late 1", REPEATS),
        Fault::RepeatUnwritten => ("requests 3 elections 1 late 1", ONE_HOLDER),
        Fault::SnapshotWithoutSessions => ("requests 2 elections 1 snapshots 1", ONE_HOLDER),
    }
}
