//! Taking a key away from its holders and granting it to the caller, in one step.

use super::contended::Contended;
use super::{Answer, Shard, Target};
use crate::api::{Acquire, Host, Limit, Outcome};
use crate::cell::metadata::Metadata;
use crate::cell::{Ending, Terms};
use crate::memory::slot::NONE;
use crate::table::epoch;
use types::Fence;

impl<H: Host> Shard<H> {
    /// With `from`, only if the key is held under that fence; `None` then says that it is not.
    pub(crate) fn take_over(
        &self,
        target: Target<'_>,
        request: &Acquire<'_>,
        terms: &Terms,
        from: Option<Fence>,
    ) -> Answer<Option<Outcome>> {
        let guard = epoch::pin();
        let mut room = self.room.lock();
        match self.enter_or_insert(&mut room, target, terms.now, &guard) {
            Ok(mut key) => {
                key.catch_up();
                Answer::new(key.replace_holders(request, terms, from), key.slot)
            }
            Err(limit) => Answer::new(Some(Outcome::Busy(limit)), NONE),
        }
    }
}

impl<H: Host> Contended<'_, H> {
    /// On a key that is up to date.
    fn replace_holders(
        &mut self,
        request: &Acquire<'_>,
        terms: &Terms,
        from: Option<Fence>,
    ) -> Option<Outcome> {
        let shard = self.shard;
        if let Some(fence) = from
            && !fault!(TakeOverUnchecked)
        {
            self.hold_under(fence)?;
        }
        // Everything that can be refused comes before anything that is taken away.
        if !shard.may_issue(self.next_fence()) {
            return Some(Outcome::AtCeiling);
        }
        let Some(metadata) = Metadata::try_new(request.metadata, &shard.common.metadata) else {
            return Some(Outcome::Busy(Limit::Bytes));
        };
        let word = self.cell.word();
        if self.room.record(self.slot).is_some() {
            self.drop_holders(Ending::Taken, |_, _| true);
        } else if word.is_held() {
            // Until its grantor has published the lease, that lease is the grantor's to write.
            let seen = shard.seen(self.cell, word);
            if seen.is_none() && !fault!(TakeOverRushes) {
                return Some(Outcome::Held(self.describe()));
            }
            self.remove_hold(word.fence(), Ending::Taken);
            if let Some(seen) = seen {
                shard.tell_lost(request.key, word.fence(), &seen, self.now);
            }
        }
        Some(Outcome::Granted(self.grant(terms, request.mode, metadata)))
    }
}
