//! What the engine answered to an acquire: counted, recorded, and turned into the client's answer.

use super::Section;
use crate::redis::refusal::Refusal;
use crate::session::waiter::Terms;
use engine::{Acquire, Grant, Outcome};

impl Section<'_> {
    /// Counts and records a grant. `None`: another holder has the key.
    pub(super) fn granted(
        &self,
        request: &Acquire<'_>,
        outcome: Outcome,
    ) -> Result<Option<Grant>, Refusal> {
        let (core, session) = (self.core, &self.space.session);
        let metrics = core.metrics();
        match outcome {
            Outcome::Granted(grant) => {
                let terms = Terms {
                    key: request.key.bytes(),
                    mode: request.mode,
                    span: request.span,
                    note: request.metadata,
                    trace_id: "",
                };
                (core.books).granted(session, self.connection, &terms, &grant, 0, self.now);
                Ok(Some(grant))
            }
            Outcome::Held(_) | Outcome::UpgradeRefused(_) => {
                metrics.acquire_refusals.bump();
                core.note_contended(request.key.bytes(), self.now);
                Ok(None)
            }
            outcome => Err(self.refused(&outcome)),
        }
    }

    /// Turns an outcome that is neither a grant nor a holder into a refusal.
    pub(crate) fn refused(&self, outcome: &Outcome) -> Refusal {
        let metrics = self.core.metrics();
        match outcome {
            Outcome::Busy(limit) => {
                metrics.count_busy(*limit);
                Refusal::Busy(*limit)
            }
            Outcome::AtCeiling => {
                metrics.at_ceiling.bump();
                let recovery = &self.core.shared.recovery;
                match recovery.is_on() {
                    true => Refusal::Recovering {
                        left_ms: recovery.remaining_ms(self.now).unwrap_or(1),
                    },
                    false => Refusal::AtCeiling,
                }
            }
            Outcome::Invalid(invalid) => Refusal::text(format!("ERR {invalid:?}")),
            outcome => Refusal::text(format!("ERR the server cannot do that now: {outcome:?}")),
        }
    }
}
