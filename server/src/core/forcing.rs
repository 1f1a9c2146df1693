//! Locks that an operator takes away over HTTP. The HTTP thread is no core, so it asks one: only a
//! core's books know how to audit such a release and to write it down.

use super::Core;
use super::mail::{ForceOrder, Forced, Mail};
use super::shared::Shared;
use crate::session::operator::Operator;
use engine::{Fence, Key};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Asks a core to take a lock away. Nothing is answered if the server stops, or a node stops to
/// lead, before that is settled.
pub(crate) fn force_release(
    shared: &Shared,
    key: Key<'_>,
    fence: Fence,
    operator: Arc<Operator>,
) -> oneshot::Receiver<Forced> {
    let (answer, answered) = oneshot::channel();
    let order = ForceOrder {
        key: key.bytes().into(),
        fence,
        operator,
        answer,
    };
    // Any core can.
    shared.engine.host().posts[0].send(Mail::Force(Box::new(order)));
    answered
}

impl Core {
    pub(super) fn force(&self, order: ForceOrder) {
        let ForceOrder {
            key,
            fence,
            operator,
            answer,
        } = order;
        let (engine, now) = (&self.shared.engine, self.shared.clock.now());
        let name = Key::new(&key).expect("it was one when it was posted");
        let forced = match engine.force_release(name, fence, now) {
            true => {
                self.books.forced_over_http(operator, &key, fence, now);
                Forced::Done
            }
            false => Forced::NotHeld(engine.why_not_held(name, fence)),
        };
        self.replies.once_settled(move || {
            // A peer that has gone wants no answer.
            let _ = answer.send(forced);
        });
    }
}
