//! Turning the wheels of the shards that live on a core.
//!
//! While requests come, here or to shards that live here, the wheels turn every millisecond. A core
//! that nothing is asked of rests until the next thing is due.

use super::Core;
use engine::{Progress, Tick};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// How many steps of expiry a core does before it looks at its sockets again: a tenth of a
/// millisecond.
const ADVANCE_BUDGET: u32 = 128;

/// How often the wheels are turned while requests come: what those leave in the inboxes is taken
/// out a little at a time.
const TICK: Duration = Duration::from_millis(1);

/// The longest rest of a core. What is due earlier wakes it; this is for what is in no hurry: keys
/// that were made and never granted, memory to be given back. It also bounds how late a core
/// notices that its machine was suspended.
const REST_MS_MAX: u64 = 1_000;

/// How fast a core's wheels turn.
#[derive(Default)]
pub(super) struct Pace {
    /// Requests were served since the wheels were last turned.
    has_served: Cell<bool>,
    /// The wheels rest for longer than a tick.
    is_resting: Cell<bool>,
}

/// How far one turn of a core's wheels came.
struct Turn {
    /// More is due already.
    more: bool,
    /// Something was due, or lay in an inbox.
    has_worked: bool,
    /// Nothing that is known is due before.
    next_due: Tick,
}

impl Turn {
    fn add(&mut self, progress: Progress) {
        self.more |= progress.more;
        self.next_due = progress.next_due.unwrap_or(Tick::NEVER).min(self.next_due);
    }
}

impl Core {
    /// Requests were served: the wheels turn every tick.
    #[inline]
    pub(super) fn quicken_wheels(&self) {
        self.pace.has_served.set(true);
        if self.pace.is_resting.replace(false) {
            self.wheel_bell().notify_one();
        }
    }

    fn wheel_bell(&self) -> &Notify {
        &self.shared.engine.host().posts[self.id].wheel_bell
    }

    /// The shards that live here.
    fn shards(&self) -> impl Iterator<Item = usize> + use<> {
        (self.id..self.shared.engine.shard_count()).step_by(self.shared.core_count)
    }

    /// Turns the wheels of the shards that live here, until the server stops. Between two turns it
    /// rests until something is due; `Host::wake` rings if that is sooner than was known when it
    /// went to rest.
    pub(crate) async fn turn_wheels(self: Rc<Self>) {
        loop {
            let is_busy = self.pace.has_served.replace(false);
            let now = self.shared.clock.now();
            let turn = self.turn_once(now).await;
            self.replies.end_turn();
            self.shared.look_after_memory();
            self.hear_of_rights();
            if turn.more {
                tokio::task::yield_now().await;
                continue;
            }
            if is_busy || turn.has_worked {
                tokio::time::sleep(TICK).await;
                continue;
            }
            let until = turn.next_due.min(now.plus_ms(REST_MS_MAX));
            if self.may_rest(until) {
                self.pace.is_resting.set(true);
                let rest = self.shared.clock.left_until(until);
                let _ = tokio::time::timeout(rest, self.wheel_bell().notified()).await;
                self.pace.is_resting.set(false);
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Does what is due by `now`, in all shards of this core.
    async fn turn_once(&self, now: Tick) -> Turn {
        let engine = &self.shared.engine;
        let mut turn = Turn {
            more: self.wake_waiters(),
            has_worked: false,
            next_due: Tick::NEVER,
        };
        if self.id == 0 {
            let mut budget = ADVANCE_BUDGET;
            turn.add(engine.advance_sessions(now, &mut budget));
            turn.has_worked |= budget < ADVANCE_BUDGET;
        }
        let mut budget = ADVANCE_BUDGET;
        for shard in self.shards() {
            turn.add(engine.advance_shard(shard, now, &mut budget));
            turn.has_worked |= budget < ADVANCE_BUDGET;
            if budget == 0 {
                // Connections and waiters have their turn between two bursts of expiry. So have
                // other threads: clients may run on the same machine.
                std::thread::yield_now();
                tokio::task::yield_now().await;
                turn.more |= self.wake_waiters();
                budget = ADVANCE_BUDGET;
            }
        }
        turn
    }

    /// Serves the waiters of all shards of this core. Between any two bursts of expiry: a lock that
    /// has a waiter must not stand behind a million that have none. `true`: more may be due.
    fn wake_waiters(&self) -> bool {
        let now = self.shared.clock.now();
        let wake = |shard| {
            let engine = &self.shared.engine;
            engine.advance_waiters(shard, now, &mut { ADVANCE_BUDGET })
        };
        self.shards().fold(false, |more, shard| more | wake(shard))
    }

    /// Tells the engine that this core rests until then. `false`: something has come meanwhile.
    fn may_rest(&self, until: Tick) -> bool {
        let engine = &self.shared.engine;
        (self.id != 0 || engine.rest_sessions(until))
            && self.shards().all(|shard| engine.rest_shard(shard, until))
    }
}
