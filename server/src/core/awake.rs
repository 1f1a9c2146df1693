//! Staying awake. A core that sleeps takes longer to wake than a hand-off does, so one that served
//! a client that waits for each answer looks around for a while before it sleeps.

use super::Core;
use super::delivery::MAIL_BATCH;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::Notify;

/// A batch of so few requests comes from a client that waits for each answer.
const STIRRING_MAX: u64 = 2;

#[derive(Default)]
pub(super) struct Awake {
    /// Something happened: stay awake for a while.
    stir: Notify,
    stirred: Cell<bool>,
}

impl Core {
    /// So many requests of one connection were decided at once.
    #[inline]
    pub(crate) fn note_served(&self, requests: u64) {
        // A client with one request in flight waits for it. One that sends many at once keeps the
        // core awake anyway.
        if (1..=STIRRING_MAX).contains(&requests) {
            self.stir();
        }
        if requests > 0 {
            self.quicken_wheels();
        }
    }

    /// There was something to do here, and there may be more in a moment.
    #[inline]
    pub(super) fn stir(&self) {
        if !self.shared.config.spin.is_zero() && !self.awake.stirred.replace(true) {
            self.awake.stir.notify_one();
        }
    }

    /// Keeps this core awake for a while after it had something to do. Other threads and tasks that
    /// want the processor get it at every turn.
    pub(crate) async fn stay_awake(self: Rc<Self>) {
        let awake = &self.awake;
        loop {
            awake.stir.notified().await;
            let mailbox = &self.shared.engine.host().posts[self.id].mailbox;
            mailbox.attend();
            while awake.stirred.replace(false) {
                let begun = Instant::now();
                while begun.elapsed() < self.shared.config.spin && !awake.stirred.get() {
                    std::thread::yield_now();
                    tokio::task::yield_now().await;
                    self.hand_over();
                }
            }
            mailbox.begin();
            while self.open_some() == MAIL_BATCH {
                tokio::task::yield_now().await;
            }
        }
    }
}
