//! The wheel against a plain `BTreeMap`, and the corners by name.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// Links in plain memory. Counts how often it is asked or told something: that is the wheel's work,
/// without a clock.
struct Slab {
    cells: Vec<[Cell<u32>; 2]>,
    due: Vec<Cell<Tick>>,
    touched: Cell<u64>,
}

impl Slab {
    fn new(entry_max: u32) -> Slab {
        let len = entry_max as usize + 1;
        Slab {
            cells: vec![Default::default(); len],
            due: vec![Default::default(); len],
            touched: Cell::new(0),
        }
    }

    fn touch(&self, entry: u32) -> &[Cell<u32>; 2] {
        self.touched.set(self.touched.get() + 1);
        &self.cells[entry as usize]
    }
}

impl Links for Slab {
    fn next(&self, entry: u32) -> u32 {
        self.touch(entry)[0].get()
    }
    fn prev(&self, entry: u32) -> u32 {
        self.touch(entry)[1].get()
    }
    fn set_next(&self, entry: u32, next: u32) {
        self.touch(entry)[0].set(next);
    }
    fn set_prev(&self, entry: u32, prev: u32) {
        self.touch(entry)[1].set(prev);
    }
    fn due(&self, entry: u32) -> Tick {
        self.due[entry as usize].get()
    }
}

/// A wheel, its links, and what we know must be true of them.
struct Bench {
    wheel: Wheel,
    links: Slab,
    /// The entries that are armed, and when each is due.
    model: BTreeMap<u32, Tick>,
}

impl Bench {
    fn new(entry_max: u32, now_ms: u64) -> Bench {
        Bench {
            wheel: Wheel::new(Tick::from_ms(now_ms)),
            links: Slab::new(entry_max),
            model: BTreeMap::new(),
        }
    }

    fn insert(&mut self, entry: u32, at: Tick) {
        self.links.due[entry as usize].set(at);
        self.wheel.insert(&self.links, entry, at);
        self.model.insert(entry, at);
    }

    fn insert_ms(&mut self, entry: u32, at_ms: u64) {
        self.insert(entry, Tick::from_ms(at_ms));
    }

    fn remove(&mut self, entry: u32) {
        self.wheel.remove(&self.links, entry);
        self.model.remove(&entry).expect("the wheel had it");
    }

    /// What a renewal does: the wheel is not told.
    fn postpone(&mut self, entry: u32, due: Tick) {
        self.links.due[entry as usize].set(due);
        self.model.insert(entry, due);
    }

    /// One call of `pop_due`: never early, and nothing is left when it says so.
    fn pop(&mut self, now: Tick, budget: &mut u32) -> Due {
        let (hand, budget_before) = (self.wheel.now(), *budget);
        let due = self.wheel.pop_due(&self.links, now, budget);
        assert!(
            self.wheel.now() >= hand && self.wheel.now() <= now.max(hand),
            "the hand goes forward, not past now"
        );
        match due {
            Due::Entry(entry) => {
                assert!(*budget < budget_before, "an entry costs something");
                assert!(!Wheel::is_linked(&self.links, entry));
                let at = self
                    .model
                    .remove(&entry)
                    .expect("what comes out was armed, and comes out once");
                assert!(
                    at <= now.max(hand),
                    "entry {entry} came out at {now:?}, due {at:?}"
                );
            }
            Due::Done => {
                assert_eq!(self.wheel.now(), now.max(hand));
                let left = self.model.iter().find(|&(_, &at)| at <= self.wheel.now());
                assert_eq!(left, None, "left behind at {now:?}");
            }
            Due::OutOfBudget => assert_eq!(*budget, 0),
        }
        due
    }

    /// Everything due by then, sorted, with all the budget it takes.
    fn drain(&mut self, now_ms: u64) -> Vec<u32> {
        let (mut out, mut budget) = (Vec::new(), u32::MAX);
        while let Due::Entry(entry) = self.pop(Tick::from_ms(now_ms), &mut budget) {
            out.push(entry);
        }
        out.sort_unstable();
        out
    }

    /// Walks every list: links agree in both directions, bits say which slots are in use, nothing
    /// lies too late.
    fn check(&self) {
        let mut seen = BTreeSet::new();
        for (list, &head) in self.wheel.heads.iter().enumerate() {
            let (mut prev, mut entry) = (HEAD_FLAG | list as u32, head);
            while entry != NONE {
                assert_eq!(self.links.prev(entry), prev);
                assert!(seen.insert(entry), "entry {entry} is linked twice");
                let (level, slot) = (list / SLOT_COUNT, list % SLOT_COUNT);
                if list != PENDING {
                    let start = Tick::from_ms(slot_start(self.wheel.now.as_ms(), level, slot));
                    assert!(start >= self.wheel.now, "behind the hand");
                    // Holds for postponed entries too, which lie earlier than they must.
                    assert!(
                        start <= self.model[&entry].max(self.wheel.now),
                        "entry {entry} lies too late"
                    );
                }
                (prev, entry) = (entry, self.links.next(entry));
            }
            if list != PENDING {
                let bit = self.wheel.occupied[list / SLOT_COUNT] >> (list % SLOT_COUNT) & 1;
                assert_eq!(bit == 1, head != NONE, "the bit of list {list}");
            }
        }
        assert!(
            seen.iter().eq(self.model.keys()),
            "{seen:?} is not {:?}",
            self.model
        );
        assert_eq!(self.wheel.len(), seen.len());
        assert_eq!(self.wheel.is_empty(), seen.is_empty());
        match self.wheel.next_due() {
            None => assert!(seen.is_empty()),
            Some(tick) => assert!(
                self.model
                    .values()
                    .all(|&at| tick <= at.max(self.wheel.now()))
            ),
        }
    }
}

/// What may happen to a wheel. Times are relative to the caller's clock.
#[derive(Clone, Debug)]
enum Step {
    Insert {
        entry: u32,
        in_ms: u64,
    },
    InsertLate {
        entry: u32,
        by_ms: u64,
    },
    Remove {
        entry: u32,
    },
    Postpone {
        entry: u32,
        by_ms: u64,
    },
    Advance {
        by_ms: u64,
        budget: u32,
    },
    GoBack {
        by_ms: u64,
        budget: u32,
    },
    /// To the tick the wheel itself names, as a sleeping caller would.
    AdvanceToNext {
        budget: u32,
    },
}

const ENTRY_MAX: u32 = 60;

fn step() -> impl Strategy<Value = Step> {
    let entry = 1..=ENTRY_MAX;
    // Every magnitude up to a year is equally likely, so all levels take part.
    let span_ms = || (0u32..36, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1));
    let budget = prop_oneof![0u32..8, 0u32..200];
    prop_oneof![
        6 => (entry.clone(), span_ms()).prop_map(|(entry, in_ms)| Step::Insert { entry, in_ms }),
        1 => (entry.clone(), span_ms()).prop_map(|(entry, by_ms)| Step::InsertLate { entry, by_ms }),
        2 => entry.clone().prop_map(|entry| Step::Remove { entry }),
        1 => (entry, span_ms()).prop_map(|(entry, by_ms)| Step::Postpone { entry, by_ms }),
        3 => (span_ms(), budget.clone()).prop_map(|(by_ms, budget)| Step::Advance { by_ms, budget }),
        1 => (span_ms(), budget.clone()).prop_map(|(by_ms, budget)| Step::GoBack { by_ms, budget }),
        2 => budget.prop_map(|budget| Step::AdvanceToNext { budget }),
    ]
}

proptest! {
    // A failure prints the shortest history found, and keeps its seed in `proptest-regressions/`.
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_history_is_never_early_never_late_and_loses_nothing(
        start_ms in prop_oneof![Just(0), 0..Tick::MAX.as_ms()],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut bench = Bench::new(ENTRY_MAX, start_ms);
        let mut clock = Tick::from_ms(start_ms);
        for step in steps {
            let advance = |bench: &mut Bench, now: Tick, mut budget: u32| {
                while let Due::Entry(_) = bench.pop(now, &mut budget) {
                    bench.check();
                }
            };
            match step {
                Step::Insert { entry, in_ms } if !bench.model.contains_key(&entry) => {
                    bench.insert(entry, clock.plus_ms(in_ms));
                }
                Step::InsertLate { entry, by_ms } if !bench.model.contains_key(&entry) => {
                    bench.insert_ms(entry, clock.as_ms().saturating_sub(by_ms));
                }
                Step::Remove { entry } if bench.model.contains_key(&entry) => bench.remove(entry),
                Step::Postpone { entry, by_ms } if bench.model.contains_key(&entry) => {
                    bench.postpone(entry, bench.model[&entry].plus_ms(by_ms));
                }
                Step::Advance { by_ms, budget } => {
                    clock = clock.plus_ms(by_ms);
                    advance(&mut bench, clock, budget);
                }
                Step::GoBack { by_ms, budget } => {
                    advance(&mut bench, Tick::from_ms(clock.as_ms().saturating_sub(by_ms)), budget);
                }
                Step::AdvanceToNext { budget } => {
                    clock = clock.max(bench.wheel.next_due().unwrap_or(clock));
                    advance(&mut bench, clock, budget);
                }
                // The entry is armed already, or not at all.
                _ => {}
            }
            bench.check();
        }
        bench.drain(Tick::MAX.as_ms());
        prop_assert!(bench.wheel.is_empty() && bench.model.is_empty());
    }
}

/// Around every tick where a digit carries.
fn boundary_ticks() -> Vec<u64> {
    let powers = [6, 12, 18, 24, 30, 36].map(|bits| 1u64 << bits);
    let near = powers
        .iter()
        .flat_map(|&power| [power - 1, power, power + 1, 3 * power - 1, 3 * power]);
    [0, 1, 62]
        .into_iter()
        .chain(near)
        .chain([Tick::MAX.as_ms() - 1, Tick::MAX.as_ms()])
        .collect()
}

#[test]
fn boundary_ticks_fire_on_the_tick_and_not_one_before() {
    for now_ms in boundary_ticks() {
        for at_ms in boundary_ticks().into_iter().filter(|&at_ms| at_ms > now_ms) {
            let mut bench = Bench::new(1, now_ms);
            bench.insert_ms(1, at_ms);
            bench.check();
            assert_eq!(bench.drain(at_ms - 1), [], "armed at {now_ms} for {at_ms}");
            bench.check();
            assert_eq!(bench.drain(at_ms), [1], "armed at {now_ms} for {at_ms}");
        }
    }
}

#[test]
fn boundary_ticks_fire_in_order_when_all_are_reached_in_one_jump() {
    let mut bench = Bench::new(64, 0);
    for (i, at_ms) in boundary_ticks().into_iter().enumerate() {
        bench.insert_ms(i as u32 + 1, at_ms);
    }
    let mut order: Vec<_> = bench
        .model
        .iter()
        .map(|(&entry, &at)| (at, entry))
        .collect();
    order.sort_unstable();
    let mut budget = u32::MAX;
    for (_, entry) in order {
        assert_eq!(bench.pop(Tick::MAX, &mut budget), Due::Entry(entry));
    }
    assert_eq!(bench.pop(Tick::MAX, &mut budget), Due::Done);
}

#[test]
fn a_jump_of_years_costs_what_there_is_to_do_and_not_what_lies_between() {
    let mut bench = Bench::new(2, 17);
    bench.insert_ms(1, 1 << 37);
    let mut budget = 100;
    assert_eq!(bench.pop(Tick::MAX, &mut budget), Due::Entry(1));
    assert_eq!(bench.pop(Tick::MAX, &mut budget), Due::Done);
    assert!(
        budget >= 100 - 14,
        "at most a slot and an entry per level: {budget}"
    );

    // Time has ended, and the wheel still works.
    bench.insert(2, Tick::MAX);
    assert_eq!(bench.pop(Tick::MAX, &mut budget), Due::Entry(2));
}

#[test]
fn an_empty_wheel_is_done_without_a_budget() {
    let mut bench = Bench::new(1, 0);
    assert_eq!(bench.pop(Tick::from_ms(1 << 30), &mut 0), Due::Done);
    assert_eq!(bench.wheel.next_due(), None);
    bench.insert_ms(1, (1 << 30) + 1);
    assert_eq!(bench.pop(Tick::from_ms(1 << 30), &mut 0), Due::Done);
    assert_eq!(
        bench.pop(Tick::from_ms((1 << 30) + 1), &mut 0),
        Due::OutOfBudget
    );
}

#[test]
fn a_tick_that_has_passed_fires_at_the_next_call_though_the_clock_stands() {
    for at_ms in [0, 4999, 5000] {
        let mut bench = Bench::new(1, 5000);
        bench.insert_ms(1, at_ms);
        assert_eq!(bench.wheel.next_due(), Some(Tick::from_ms(5000)));
        assert_eq!(bench.drain(5000), [1]);
    }
}

#[test]
fn a_clock_that_runs_backwards_is_taken_for_the_hand() {
    let mut bench = Bench::new(2, 0);
    assert_eq!(bench.drain(1000), []);
    bench.insert_ms(1, 1000);
    bench.insert_ms(2, 1001);
    assert_eq!(bench.drain(10), [1]);
    assert_eq!(bench.wheel.now(), Tick::from_ms(1000));
    assert_eq!(bench.drain(1001), [2]);
}

#[test]
fn a_million_entries_in_one_slot_drain_in_small_steps() {
    const COUNT: u32 = 1_000_000;
    const BUDGET: u32 = 50;
    // All in slot 1 of level 3: a slot of 4.4 minutes.
    let slot_ms = level::slot_width_ms(3);
    let mut bench = Bench::new(COUNT, 0);
    for entry in 1..=COUNT {
        bench.insert_ms(entry, slot_ms + u64::from(entry) * 7919 % slot_ms);
    }
    assert_eq!(
        bench
            .wheel
            .heads
            .iter()
            .filter(|&&head| head != NONE)
            .count(),
        1
    );

    let now = Tick::from_ms(2 * slot_ms);
    let (mut popped, mut spent) = (0, 0u64);
    loop {
        let touched_before = bench.links.touched.get();
        let mut budget = BUDGET;
        let due = bench.wheel.pop_due(&bench.links, now, &mut budget);
        let (used, touched) = (
            u64::from(BUDGET - budget),
            bench.links.touched.get() - touched_before,
        );
        assert!(
            touched <= 10 * used,
            "a unit of budget is a few links: {touched} for {used}"
        );
        spent += used;
        match due {
            Due::Entry(entry) => popped += u32::from(bench.model.remove(&entry).is_some()),
            Due::OutOfBudget => {}
            Due::Done => break,
        }
    }
    assert_eq!(popped, COUNT);
    // Three cascades and one exit for each entry, and each tick, 64 ticks and 4096 ticks of the
    // slot reached once.
    assert!(
        spent <= 4 * u64::from(COUNT) + slot_ms + slot_ms / 64 + slot_ms / 4096 + 1,
        "{spent}"
    );
}

/// A hundred entries of one slot of level 2, ten of them cascaded, the rest pending.
fn half_cascaded() -> Bench {
    let mut bench = Bench::new(200, 0);
    for entry in 1..=100 {
        bench.insert_ms(entry, 4096 + 1000 + u64::from(entry));
    }
    assert_eq!(bench.pop(Tick::from_ms(9000), &mut 11), Due::OutOfBudget);
    assert_eq!(
        bench.wheel.now(),
        Tick::from_ms(4096),
        "the hand waits for the cascade"
    );
    assert_eq!(bench.wheel.next_due(), Some(Tick::from_ms(4096)));
    bench.check();
    bench
}

#[test]
fn entries_armed_during_a_cascade_fire_on_their_tick() {
    let mut bench = half_cascaded();
    // Late already; under the hand; between hand and clock, before, among and after the others; at
    // the clock and beyond.
    let ticks = [
        0, 4095, 4096, 4097, 4160, 5100, 5150, 5197, 8192, 8999, 9000, 9001, 20_000,
    ];
    for (entry, at_ms) in (101..).zip(ticks) {
        bench.insert_ms(entry, at_ms);
        bench.check();
    }
    // Small budgets from here on, with a look at every list after each.
    let mut order = Vec::new();
    loop {
        match bench.pop(Tick::from_ms(9000), &mut 3) {
            Due::Entry(entry) => order.push(bench.links.due(entry)),
            Due::OutOfBudget => {}
            Due::Done => break,
        }
        bench.check();
    }
    assert_eq!(order.len(), 100 + 11);
    let (late, in_time) = order.split_at(3);
    assert!(
        late.iter().all(|&at| at <= Tick::from_ms(4096)),
        "what was late comes first: {late:?}"
    );
    assert!(
        in_time.is_sorted(),
        "the rest comes in the order of its ticks: {in_time:?}"
    );
    assert_eq!(bench.drain(9001), [112]);
    assert_eq!(bench.drain(20_000), [113]);
}

#[test]
fn a_pending_entry_can_be_removed_and_armed_again() {
    let mut bench = half_cascaded();
    let pending_first = bench.wheel.heads[PENDING];
    let pending_second = bench.links.next(pending_first);
    for entry in [pending_second, pending_first] {
        bench.remove(entry);
        assert!(!Wheel::is_linked(&bench.links, entry));
        bench.check();
    }
    bench.insert_ms(pending_first, 8000);
    bench.check();
    assert_eq!(bench.drain(7999).len(), 98);
    assert_eq!(bench.drain(8000), [pending_first]);
}

#[test]
fn removing_all_that_is_pending_lets_the_hand_move_on() {
    let mut bench = half_cascaded();
    (1..=100).for_each(|entry| bench.remove(entry));
    bench.check();
    assert_eq!(bench.wheel.next_due(), None);
    assert_eq!(bench.pop(Tick::from_ms(9000), &mut 0), Due::Done);
    assert_eq!(bench.wheel.now(), Tick::from_ms(9000));
}

#[test]
fn removal_from_front_middle_and_end_keeps_the_rest() {
    for gone in 1..=3 {
        let mut bench = Bench::new(3, 0);
        (1..=3).for_each(|entry| bench.insert_ms(entry, 500));
        bench.remove(gone);
        bench.check();
        let rest: Vec<u32> = (1..=3).filter(|&entry| entry != gone).collect();
        assert_eq!(bench.drain(500), rest);
    }
}

#[test]
fn a_popped_entry_may_be_armed_again_in_the_same_loop() {
    let mut bench = Bench::new(1, 0);
    bench.insert_ms(1, 10);
    let (now, mut budget, mut fired_ms) = (Tick::from_ms(50), u32::MAX, Vec::new());
    while let Due::Entry(entry) = bench.pop(now, &mut budget) {
        fired_ms.push(bench.wheel.now().as_ms());
        bench.insert(entry, bench.wheel.now().plus_ms(15));
    }
    assert_eq!(fired_ms, [10, 25, 40]);
    assert_eq!(bench.wheel.next_due(), Some(Tick::from_ms(55)));
}

#[test]
fn an_entry_armed_for_now_over_and_over_is_stopped_by_the_budget() {
    let mut bench = Bench::new(2, 0);
    bench.insert_ms(1, 10);
    let (now, mut budget) = (Tick::from_ms(10), 1000);
    while let Due::Entry(entry) = bench.pop(now, &mut budget) {
        bench.insert(entry, now);
    }
    assert_eq!(budget, 0);
}

#[test]
fn an_entry_armed_for_now_over_and_over_does_not_keep_its_neighbours_waiting() {
    let mut bench = Bench::new(10, 0);
    (1..=10).for_each(|entry| bench.insert_ms(entry, 10));
    let (now, mut budget, mut seen) = (Tick::from_ms(10), 40, BTreeSet::new());
    while let Due::Entry(entry) = bench.pop(now, &mut budget) {
        seen.insert(entry);
        bench.insert(entry, now);
    }
    assert_eq!(seen.len(), 10);
}

#[test]
fn a_renewed_entry_waits_on_without_being_moved() {
    for (armed_ms, renewed_ms) in [(10, 11), (10, 4096), (5000, 5001), (5000, 1 << 30)] {
        let mut bench = Bench::new(1, 0);
        bench.insert_ms(1, armed_ms);
        bench.postpone(1, Tick::from_ms(renewed_ms));
        assert_eq!(bench.drain(renewed_ms - 1), []);
        assert_eq!(bench.drain(renewed_ms), [1]);
    }
}

#[test]
fn an_entry_whose_deadline_was_lifted_comes_out_for_its_owner_to_decide() {
    let mut bench = Bench::new(1, 0);
    bench.insert_ms(1, 10);
    bench.links.due[1].set(Tick::NEVER);
    assert_eq!(bench.drain(9), []);
    assert_eq!(bench.drain(10), [1]);
}

#[test]
fn next_due_is_exact_on_level_0_and_the_start_of_the_slot_above() {
    let mut bench = Bench::new(3, 0);
    bench.insert_ms(1, 5000);
    assert_eq!(bench.wheel.next_due(), Some(Tick::from_ms(4096)));
    bench.insert_ms(2, 130);
    assert_eq!(bench.wheel.next_due(), Some(Tick::from_ms(128)));
    bench.insert_ms(3, 63);
    assert_eq!(bench.wheel.next_due(), Some(Tick::from_ms(63)));
}

#[test]
#[should_panic(expected = "armed already")]
fn arming_twice_is_our_mistake() {
    let mut bench = Bench::new(1, 0);
    bench.insert_ms(1, 10);
    bench.insert_ms(1, 20);
}

#[test]
#[should_panic(expected = "not armed")]
fn disarming_what_is_not_armed_is_our_mistake() {
    Bench::new(1, 0).remove(1);
}

#[test]
#[should_panic(expected = "for never")]
fn never_cannot_be_armed() {
    Bench::new(1, 0).insert(1, Tick::NEVER);
}

#[test]
#[should_panic(expected = "another wheel")]
fn disarming_in_the_wrong_wheel_is_our_mistake() {
    let mut bench = Bench::new(1, 0);
    bench.insert_ms(1, 10);
    Wheel::new(Tick::default()).remove(&bench.links, 1);
}
