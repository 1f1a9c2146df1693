//! One holder of one key, and what two records say of it together. The rules are in `leases.rs`.

use types::Mode;

/// The number of a session in the order in which they were first mentioned.
pub(crate) type Owner = u32;

/// One holder, without the key. Packed, so that an entry has room for its floor.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
pub(super) struct Holder {
    pub(super) fence: u64,
    pub(super) until_unix_ms: u64,
    pub(super) granted_unix_ms: u64,
    pub(super) owner: Owner,
    pub(super) count: u32,
    pub(super) mode: Mode,
    pub(super) is_session_bound: bool,
    /// Written down one by one, also by a server that writes down fences only.
    pub(super) is_long: bool,
    pub(super) has_note: bool,
}

/// What was said of a grant that is not among the holders.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ahead {
    pub(super) is_over: bool,
    pub(super) mode: Mode,
    pub(super) until_unix_ms: Option<u64>,
    pub(super) count: Option<u32>,
    /// When that was said: see [`super::Leases::begin_generation`].
    pub(super) generation: u8,
}

impl Ahead {
    /// What a hold says of itself that was counted once more before its grant was heard of.
    pub(super) fn of(holder: &Holder, generation: u8) -> Ahead {
        Ahead {
            is_over: false,
            mode: holder.mode,
            until_unix_ms: Some(holder.until_unix_ms),
            count: Some(holder.count),
            generation,
        }
    }
}

impl Holder {
    /// What stands in the entry of a free key.
    pub(super) const NONE: Holder = Holder {
        fence: 0,
        until_unix_ms: 0,
        granted_unix_ms: 0,
        owner: 0,
        count: 0,
        // Says nothing of lower fences.
        mode: Mode::Shared,
        is_session_bound: false,
        is_long: false,
        has_note: false,
    };

    /// Every grant of the key up to this fence was over when this one was made.
    pub(super) fn floor(&self) -> u64 {
        match self.mode {
            Mode::Shared => 0,
            Mode::Exclusive => self.fence.saturating_sub(1),
        }
    }

    /// Something was said of this holder, perhaps before something that had happened earlier: of
    /// two ends the later one counts.
    pub(super) fn hear(&mut self, said: &Ahead) {
        let until_unix_ms = self.until_unix_ms;
        self.hear_latest(said);
        self.until_unix_ms = until_unix_ms.max(self.until_unix_ms);
    }

    /// The same if all that is said of this holder is said in the order in which it happened.
    pub(super) fn hear_latest(&mut self, said: &Ahead) {
        self.mode = self.mode.weaker(said.mode);
        self.until_unix_ms = said.until_unix_ms.unwrap_or(self.until_unix_ms);
        self.count = said.count.unwrap_or(self.count);
    }
}

/// Two records that say that one grant was made. A lock never becomes exclusive again, so if either
/// says shared, it is. Being granted once more raises the count and never shortens the lease;
/// releases and renewals say otherwise. Of a session that has ended, and whose successor claims the
/// lock, nothing is left.
pub(super) fn merged(before: &Holder, now: Holder) -> Holder {
    if before.owner != now.owner {
        return now;
    }
    let (until_before, until_now) = (before.until_unix_ms, now.until_unix_ms);
    Holder {
        mode: before.mode.weaker(now.mode),
        count: before.count.max(now.count),
        is_long: before.is_long || now.is_long,
        until_unix_ms: until_before.max(until_now),
        ..now
    }
}

/// Which of two holders of one key remain. The same for both orders of asking.
pub(super) enum Beside {
    Former,
    Latter,
    BothShared,
}

pub(super) fn beside(former: &Holder, latter: &Holder) -> Beside {
    let former_is_lower = former.fence < latter.fence;
    let higher = if former_is_lower { latter } else { former };
    match (higher.mode, former_is_lower) {
        (Mode::Shared, _) => Beside::BothShared,
        (Mode::Exclusive, true) => Beside::Latter,
        (Mode::Exclusive, false) => Beside::Former,
    }
}
