//! The ledger: what the records of a replicated log add up to, kept by each node for as long as it
//! runs. A pure function of the log, so every node that has applied the same entries has the same
//! ledger; [`Ledger::hash`] tells.
//!
//! Two things tell it apart from replay of a single server's log. It lives long, so it makes room
//! of what is over, part by part ([`Ledger::clear_out`]); and it can be written to an image, part
//! by part, while entries go on being applied. An image is therefore fuzzy: its parts may show
//! entries behind the one that it is named after. Those are applied once more by the node that
//! reads it, and the rules of `leases.rs` are such that this does no harm. They need what was known
//! when the image was begun: a grant that is applied once more behind the record of its end must
//! find that end. So nothing is forgotten while an [`ImageUnderWay`] lives.
//!
//! # When something is over
//!
//! A lease that ended is not written down, and its renewal may be on its way: a core that renewed
//! it in time appends the record at the end of its turn. [`Record::TurnsEnded`] says that each core
//! has ended a turn since the one before. So at the second such record, a lease that had ended by
//! the stamp of the first, and of which nothing was heard, is over for good.

use crate::error::BrokenRule;
use crate::record::{Record, Scope};
use crate::replay::leases::{Ages, Leases, LiveOwner, NotAnImage, Owner, Owners};
use crate::replay::sessions::{Answer, RecoveredSession, Sessions};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// Into so many parts the keys are split, so that no step takes long.
pub const PARTS: usize = 64;

/// Bytes of a name of a session in an image.
const NAME_BYTES_MAX: usize = crate::record::NAME_BYTES_MAX;

/// Why bytes are no image, or records no history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LedgerError {
    /// Two records cannot both be true.
    Rule(BrokenRule),
    /// These bytes are no image of a ledger.
    Image,
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LedgerError::Rule(rule) => rule.fmt(f),
            LedgerError::Image => f.write_str("these bytes are no image of a ledger"),
        }
    }
}

impl std::error::Error for LedgerError {}

impl From<NotAnImage> for LedgerError {
    fn from(_: NotAnImage) -> Self {
        LedgerError::Image
    }
}

/// All that is held, as the log says.
pub struct Ledger {
    parts: Vec<Leases>,
    sessions: Sessions,
    ceilings: BTreeMap<u16, u64>,
    ceiling_max: u64,
    /// Ceilings of this reign, and what they must all lie at or above.
    reign_ceilings: BTreeMap<u16, u64>,
    reign_floor: u64,
    /// The latest stamp of a batch.
    clock_ms: u64,
    /// That of the last [`Record::TurnsEnded`].
    turns_ended_ms: u64,
    /// What ended before this is over.
    over_before_ms: u64,
    /// How often turns were ended, as far as this ledger knows. Entries keep the low byte.
    generation: u64,
    /// The part that is cleared out next.
    next_part: usize,
    /// Has more than one owner while an image is made.
    images: Arc<()>,
}

/// An image that is being made. As long as it lives, the ledger forgets nothing.
pub struct ImageUnderWay {
    /// When its head was made.
    generation: u64,
    _ledger_keeps_all: Arc<()>,
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            parts: (0..PARTS).map(|_| Leases::default()).collect(),
            sessions: Sessions::default(),
            ceilings: BTreeMap::new(),
            ceiling_max: 0,
            reign_ceilings: BTreeMap::new(),
            reign_floor: 0,
            clock_ms: 0,
            turns_ended_ms: 0,
            over_before_ms: 0,
            generation: 0,
            next_part: 0,
            images: Arc::default(),
        }
    }
}

/// The sessions, as the leases ask for them.
struct LedgerOwners<'a> {
    sessions: &'a Sessions,
    over_before_ms: u64,
}

impl Owners for LedgerOwners<'_> {
    fn session(&self, owner: Owner) -> Option<u64> {
        self.sessions.id_unless_ended(owner)
    }

    fn may_hold(&self, owner: Owner, is_session_bound: bool, until_unix_ms: u64) -> bool {
        self.sessions.deadline(owner).is_some_and(|deadline_ms| {
            let until_ms = match is_session_bound {
                true => deadline_ms,
                false => until_unix_ms,
            };
            deadline_ms >= self.over_before_ms && until_ms >= self.over_before_ms
        })
    }
}

impl Ledger {
    /// No fence above this was ever issued: the floor of the next reign.
    pub fn ceiling_max(&self) -> u64 {
        self.ceiling_max
    }

    /// The latest stamp.
    pub fn clock_ms(&self) -> u64 {
        self.clock_ms
    }

    /// A batch of records counts, and has this stamp.
    pub fn reach(&mut self, stamp_ms: u64) {
        assert!(
            stamp_ms >= self.clock_ms,
            "the clock falls from {} to {stamp_ms}",
            self.clock_ms
        );
        self.clock_ms = stamp_ms;
    }

    /// A new leader takes over: nothing of the one before follows.
    pub fn begin_reign(&mut self) {
        self.reign_ceilings.clear();
        self.reign_floor = self.ceiling_max;
    }

    /// Applies one record of a batch that counts.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<(), LedgerError> {
        match *record {
            Record::Ceiling { shard, fence } => self.raise_ceiling(shard, fence)?,
            Record::Clock { .. } => {}
            Record::TurnsEnded => self.end_turns(),
            Record::Answered {
                session,
                request,
                fence,
                count,
            } => {
                let answer = Answer {
                    request,
                    fence,
                    count,
                };
                self.sessions.answer(session, answer);
            }
            Record::SessionOpened { .. }
            | Record::SessionKept { .. }
            | Record::SessionEnded { .. } => self.sessions.apply(record),
            Record::Granted(lease) | Record::GrantedLong(lease) => {
                if lease.fence > self.ceiling_max {
                    return Err(LedgerError::Rule(BrokenRule::FenceAboveCeilings {
                        fence: lease.fence,
                        ceiling: self.ceiling_max,
                    }));
                }
                let owner = self.sessions.mention(lease.session);
                self.part_of(lease.key).grant(&lease, owner);
            }
            Record::Renewed {
                key,
                fence,
                until_unix_ms,
            } => self.part_of(key).renew(key, fence, until_unix_ms),
            Record::Released {
                key,
                fence,
                count_left,
            } => self.part_of(key).release(key, fence, count_left),
            Record::Downgraded { key, fence } => self.part_of(key).downgrade(key, fence),
            Record::Horizon { .. }
            | Record::Started { .. }
            | Record::CleanStop { .. }
            | Record::SnapshotBegin { .. }
            | Record::SnapshotShows { .. }
            | Record::SnapshotEnd { .. }
            | Record::Continued { .. }
            | Record::Synced
            | Record::NodeIs { .. }
            | Record::Vote { .. }
            | Record::EntryBegin { .. }
            | Record::EntryPart { .. }
            | Record::Truncated { .. }
            | Record::Purged { .. }
            | Record::ImagePart { .. } => return Err(LedgerError::Rule(BrokenRule::OutOfPlace)),
        }
        Ok(())
    }

    fn raise_ceiling(&mut self, shard: u16, fence: u64) -> Result<(), LedgerError> {
        let before = self.reign_ceilings.insert(shard, fence);
        let before = before.unwrap_or(0).max(self.reign_floor);
        if fence < before {
            return Err(LedgerError::Rule(BrokenRule::CeilingFell {
                shard,
                fence,
                before,
            }));
        }
        let ceiling = self.ceilings.entry(shard).or_default();
        *ceiling = fence.max(*ceiling);
        self.ceiling_max = self.ceiling_max.max(fence);
        Ok(())
    }

    /// The next reign begins at this fence, or above.
    pub fn raise_floor(&mut self, fence: u64) {
        let ceiling = self.ceilings.entry(0).or_default();
        *ceiling = fence.max(*ceiling);
        self.ceiling_max = self.ceiling_max.max(fence);
        self.begin_reign();
    }

    fn end_turns(&mut self) {
        self.over_before_ms = self.turns_ended_ms;
        self.turns_ended_ms = self.clock_ms;
        self.generation += 1;
        let generation = self.generation as u8;
        for part in &mut self.parts {
            part.begin_generation(generation);
        }
        self.sessions
            .begin_generation(self.over_before_ms, generation);
    }

    fn part_of(&mut self, key: &[u8]) -> &mut Leases {
        &mut self.parts[part_number(key)]
    }

    /// Makes room of what is over in the next part, unless an image is being made. Returns how many
    /// keys went. May be called at any moment: what goes shows nowhere.
    pub fn clear_out(&mut self) -> usize {
        if Arc::strong_count(&self.images) > 1 {
            return 0;
        }
        let part = self.next_part;
        self.next_part = (part + 1) % PARTS;
        let owners = LedgerOwners {
            sessions: &self.sessions,
            over_before_ms: self.over_before_ms,
        };
        let gone = self.parts[part].clear_out(&owners);
        if self.next_part == 0 {
            let mut is_named = vec![false; self.sessions.slots()];
            for part in &self.parts {
                part.name_owners(&mut is_named);
            }
            self.sessions.free_unless(&is_named);
        }
        gone
    }

    /// Sessions that live, as far as the log says.
    pub fn sessions(&self) -> Vec<RecoveredSession> {
        self.sessions.live().cloned().collect()
    }

    /// How many keys are held. Looks at all of them.
    pub fn count_held(&mut self) -> usize {
        let owners = LedgerOwners {
            sessions: &self.sessions,
            over_before_ms: self.over_before_ms,
        };
        let parts = self.parts.iter_mut();
        parts.map(|part| part.count_held(&owners)).sum()
    }

    /// How many keys were mentioned and not forgotten yet.
    pub fn keys(&self) -> usize {
        self.parts.iter().map(Leases::keys).sum()
    }

    /// Bytes of everything that grows with what is applied.
    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        let parts: usize = self.parts.iter().map(Leases::kept_bytes).sum();
        parts + self.sessions.kept_bytes()
    }

    /// Makes [`Ledger::parts`] ready to be read.
    pub fn settle(&mut self) {
        let owners: Arc<[Option<LiveOwner>]> = self.sessions.owners().into();
        for part in &mut self.parts {
            part.settle(owners.clone());
        }
    }

    /// The leases, part by part. Right only behind [`Ledger::settle`], until the next record.
    pub fn parts(&self) -> &[Leases] {
        &self.parts
    }

    /// A number that is the same on every node that has applied the same entries: that of one part,
    /// and of the sessions and ceilings.
    pub fn hash(&mut self, part: usize) -> u64 {
        let owners = LedgerOwners {
            sessions: &self.sessions,
            over_before_ms: self.over_before_ms,
        };
        self.parts[part]
            .hash(&owners)
            .wrapping_add(self.sessions.hash(self.over_before_ms))
            .wrapping_add(self.ceiling_max.rotate_left(17))
    }

    /// Everything but the leases, as bytes: the beginning of an image.
    pub fn put_image_head(&self, out: &mut Vec<u8>) -> ImageUnderWay {
        for number in [
            self.clock_ms,
            self.turns_ended_ms,
            self.over_before_ms,
            self.reign_floor,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(self.generation as u8);
        for ceilings in [&self.ceilings, &self.reign_ceilings] {
            out.extend_from_slice(&(ceilings.len() as u32).to_le_bytes());
            for (shard, fence) in ceilings {
                out.extend_from_slice(&shard.to_le_bytes());
                out.extend_from_slice(&fence.to_le_bytes());
            }
        }
        let sessions: Vec<_> = self.sessions.live().collect();
        out.extend_from_slice(&(sessions.len() as u32).to_le_bytes());
        for session in sessions {
            out.extend_from_slice(&session.session.to_le_bytes());
            out.extend_from_slice(&session.ttl_ms.to_le_bytes());
            out.extend_from_slice(&session.deadline_unix_ms.to_le_bytes());
            out.extend_from_slice(&(session.name.len() as u16).to_le_bytes());
            out.extend_from_slice(&session.name);
            out.extend_from_slice(&session.answers_forgotten.to_le_bytes());
            out.extend_from_slice(&(session.answers.len() as u16).to_le_bytes());
            for answer in &session.answers {
                out.extend_from_slice(&answer.request.to_le_bytes());
                out.extend_from_slice(&answer.fence.to_le_bytes());
                out.extend_from_slice(&answer.count.to_le_bytes());
            }
        }
        ImageUnderWay {
            generation: self.generation,
            _ledger_keeps_all: self.images.clone(),
        }
    }

    /// The leases of one part, as bytes.
    pub fn put_image_part(&mut self, image: &ImageUnderWay, part: usize, out: &mut Vec<u8>) {
        let owners = LedgerOwners {
            sessions: &self.sessions,
            over_before_ms: self.over_before_ms,
        };
        // The reader goes on from the generation of the head. What is garbage only since then, it
        // may need to apply the entries since then.
        let ages = match self.generation == image.generation {
            true => Ages::Exact,
            false => Ages::AllYoung,
        };
        self.parts[part].put_image(&owners, ages, out);
    }

    /// Reads an image: its head and then [`PARTS`] parts.
    pub fn from_image(mut bytes: &[u8]) -> Result<Ledger, LedgerError> {
        let bytes = &mut bytes;
        let mut ledger = Ledger {
            clock_ms: u64::from_le_bytes(take(bytes)?),
            turns_ended_ms: u64::from_le_bytes(take(bytes)?),
            over_before_ms: u64::from_le_bytes(take(bytes)?),
            reign_floor: u64::from_le_bytes(take(bytes)?),
            generation: u64::from(take::<1>(bytes)?[0]),
            ..Ledger::default()
        };
        ledger.sessions.set_generation(ledger.generation as u8);
        ledger.ceilings = take_ceilings(bytes)?;
        ledger.reign_ceilings = take_ceilings(bytes)?;
        ledger.ceiling_max = ledger.ceilings.values().copied().max().unwrap_or(0);
        let sessions = u32::from_le_bytes(take(bytes)?);
        for _ in 0..sessions {
            let session = u64::from_le_bytes(take(bytes)?);
            let ttl_ms = u32::from_le_bytes(take(bytes)?);
            let deadline_unix_ms = u64::from_le_bytes(take(bytes)?);
            let name_bytes = usize::from(u16::from_le_bytes(take(bytes)?));
            if name_bytes > NAME_BYTES_MAX {
                return Err(LedgerError::Image);
            }
            let (name, rest) = bytes
                .split_at_checked(name_bytes)
                .ok_or(LedgerError::Image)?;
            *bytes = rest;
            (ledger.sessions).open(session, ttl_ms, deadline_unix_ms, name);
            let forgotten = u64::from_le_bytes(take(bytes)?);
            let answer_count = u16::from_le_bytes(take(bytes)?);
            let mut answers = VecDeque::new();
            for _ in 0..answer_count {
                answers.push_back(Answer {
                    request: u64::from_le_bytes(take(bytes)?),
                    fence: u64::from_le_bytes(take(bytes)?),
                    count: u32::from_le_bytes(take(bytes)?),
                });
            }
            (ledger.sessions).set_answers(session, answers, forgotten);
        }
        let Ledger {
            parts,
            sessions,
            generation,
            ..
        } = &mut ledger;
        for (number, part) in parts.iter_mut().enumerate() {
            part.begin_generation(*generation as u8);
            let belongs = |key: &[u8]| part_number(key) == number;
            part.take_image(bytes, belongs, |session| sessions.mention(session))?;
        }
        match bytes.is_empty() {
            true => Ok(ledger),
            false => Err(LedgerError::Image),
        }
    }

    /// What a single server's log had come to, as the beginning of a cluster's. `floor` is above
    /// every fence that server can have issued.
    pub fn adopt<'a>(
        clock_ms: u64,
        floor: u64,
        sessions: impl Iterator<Item = &'a RecoveredSession>,
        leases: impl Iterator<Item = crate::record::Lease<'a>>,
    ) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.reach(clock_ms);
        ledger.ceilings.insert(0, floor);
        ledger.ceiling_max = floor;
        for session in sessions {
            ledger.sessions.open(
                session.session,
                session.ttl_ms,
                session.deadline_unix_ms,
                &session.name,
            );
        }
        for lease in leases {
            let owner = ledger.sessions.mention(lease.session);
            ledger.part_of(lease.key).grant(&lease, owner);
        }
        ledger
    }

    /// What is written down in a cluster: every lease.
    pub const SCOPE: Scope = Scope::Leases;
}

/// The part that a key belongs to, the same on every node.
fn part_number(key: &[u8]) -> usize {
    crc32c::crc32c(key) as usize % PARTS
}

fn take_ceilings(bytes: &mut &[u8]) -> Result<BTreeMap<u16, u64>, LedgerError> {
    let count = u32::from_le_bytes(take(bytes)?);
    let mut ceilings = BTreeMap::new();
    for _ in 0..count {
        let shard = u16::from_le_bytes(take(bytes)?);
        ceilings.insert(shard, u64::from_le_bytes(take(bytes)?));
    }
    Ok(ceilings)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], LedgerError> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(LedgerError::Image)?;
    *bytes = rest;
    Ok(*taken)
}

#[cfg(test)]
mod tests;
