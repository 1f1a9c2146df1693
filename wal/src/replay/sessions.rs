//! The sessions that records mention, by number.

use crate::record::Record;
use crate::replay::leases::{LiveOwner, Owner};
use hashbrown::HashMap;
use std::collections::VecDeque;

/// A session that lives, as far as the log knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveredSession {
    /// Its id.
    pub session: u64,
    /// How long it outlives its last sign of life.
    pub ttl_ms: u32,
    /// When it ends unless it is kept alive. May have passed.
    pub deadline_unix_ms: u64,
    /// What its client called itself.
    pub name: Box<[u8]>,
    /// Its latest requests that were answered with grants, as a replicated log says; at most
    /// [`ANSWERS_MAX`].
    pub answers: VecDeque<Answer>,
    /// The highest request whose answer had to make room for them.
    pub answers_forgotten: u64,
}

/// A request that was answered with a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The session's number for it.
    pub request: u64,
    /// The fence of the grant.
    pub fence: u64,
    /// How often the lock was held then.
    pub count: u32,
}

/// How many answers are known of a session: as many as a server remembers of a connection.
pub const ANSWERS_MAX: usize = 256;

/// After so many generations a session that has ended is not heard of any more.
const FORGET_AGE: u8 = 3;

/// All sessions that were mentioned. An id that comes back after its session ended is another
/// session.
#[derive(Default)]
pub(crate) struct Sessions {
    numbers: HashMap<u64, Owner>,
    all: Vec<Session>,
    /// Numbers that are used again. A ledger frees them; replay of a single server's log does not.
    free: Vec<Owner>,
    generation: u8,
}

struct Session {
    stage: Stage,
    /// When it was last heard of.
    generation: u8,
    /// No answer to a request above this is among the known ones. Requests mostly rise, so this
    /// saves looking through all of them for each new one.
    answered_max: u64,
    recovered: RecoveredSession,
}

#[derive(PartialEq, Eq)]
enum Stage {
    /// A lease names it, and it has not been opened: a snapshot's leases may come before its
    /// sessions. If it is never heard of, it had ended already.
    Mentioned,
    Open,
    Ended,
    /// Its number is free.
    Gone,
}

impl Sessions {
    /// The number of the session that has this id now. A grant that is recorded after its session's
    /// end belongs to the one that ended.
    pub(crate) fn mention(&mut self, id: u64) -> Owner {
        if let Some(&number) = self.numbers.get(&id) {
            return number;
        }
        self.add(id)
    }

    fn add(&mut self, id: u64) -> Owner {
        let session = Session {
            stage: Stage::Mentioned,
            generation: self.generation,
            answered_max: 0,
            recovered: RecoveredSession {
                session: id,
                ttl_ms: 0,
                deadline_unix_ms: 0,
                name: Box::default(),
                answers: VecDeque::new(),
                answers_forgotten: 0,
            },
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.all[number as usize] = session;
                number
            }
            None => {
                let number = u32::try_from(self.all.len());
                self.all.push(session);
                number.expect("more sessions than any memory can hold")
            }
        };
        self.numbers.insert(id, number);
        number
    }

    /// What a record says of a session; records of other things say nothing here.
    pub(crate) fn apply(&mut self, record: &Record<'_>) {
        match *record {
            Record::SessionOpened {
                session,
                ttl_ms,
                deadline_unix_ms,
                name,
            } => self.open(session, ttl_ms, deadline_unix_ms, name),
            Record::SessionKept {
                session,
                deadline_unix_ms,
            } => self.keep(session, deadline_unix_ms),
            Record::SessionEnded { session } => self.end(session),
            _ => {}
        }
    }

    pub(crate) fn open(&mut self, id: u64, ttl_ms: u32, deadline_unix_ms: u64, name: &[u8]) {
        let mut number = self.mention(id);
        if self.all[number as usize].stage == Stage::Ended {
            number = self.add(id);
        }
        let session = &mut self.all[number as usize];
        session.stage = Stage::Open;
        session.recovered.ttl_ms = ttl_ms;
        session.recovered.name = name.into();
        self.keep(id, deadline_unix_ms);
    }

    /// Signs of life of one session come from many threads, and the latest counts, whichever was
    /// written last.
    fn keep(&mut self, id: u64, deadline_unix_ms: u64) {
        if let Some(&number) = self.numbers.get(&id) {
            let deadline = &mut self.all[number as usize].recovered.deadline_unix_ms;
            *deadline = deadline_unix_ms.max(*deadline);
        }
    }

    fn end(&mut self, id: u64) {
        let number = self.mention(id);
        self.end_number(number);
    }

    fn end_number(&mut self, number: Owner) {
        let session = &mut self.all[number as usize];
        session.stage = Stage::Ended;
        session.generation = self.generation;
        session.recovered.name = Box::default();
        session.recovered.answers = VecDeque::new();
    }

    /// A request of a session was answered. Said twice, it counts once.
    pub(crate) fn answer(&mut self, id: u64, answer: Answer) {
        let number = self.mention(id);
        let session = &mut self.all[number as usize];
        if session.stage == Stage::Ended {
            return;
        }
        let recovered = &mut session.recovered;
        if answer.request <= session.answered_max {
            let known = recovered.answers.iter_mut().rev();
            let mut same = known.filter(|known| known.request == answer.request);
            if let Some(known) = same.next() {
                *known = answer;
                return;
            }
        }
        session.answered_max = session.answered_max.max(answer.request);
        recovered.answers.push_back(answer);
        if recovered.answers.len() > ANSWERS_MAX
            && let Some(first) = recovered.answers.pop_front()
        {
            recovered.answers_forgotten = recovered.answers_forgotten.max(first.request);
        }
    }

    /// What an image says of a session's answers.
    pub(crate) fn set_answers(&mut self, id: u64, answers: VecDeque<Answer>, forgotten: u64) {
        let number = self.mention(id);
        let session = &mut self.all[number as usize];
        let requests = answers.iter().map(|answer| answer.request);
        session.answered_max = requests.max().unwrap_or(0);
        session.recovered.answers = answers;
        session.recovered.answers_forgotten = forgotten;
    }

    /// Forgets what was said of the sessions that `is_needed` does not name.
    pub(crate) fn forget_unless(&mut self, is_needed: impl Fn(Owner) -> bool) {
        for (session, owner) in self.all.iter_mut().zip(0..) {
            if session.stage == Stage::Open && !is_needed(owner) {
                session.stage = Stage::Mentioned;
                session.recovered.deadline_unix_ms = 0;
            }
        }
    }

    pub(crate) fn owners(&self) -> Vec<Option<LiveOwner>> {
        let owner = |session: &Session| {
            (session.stage == Stage::Open).then_some(LiveOwner {
                session: session.recovered.session,
                deadline_unix_ms: session.recovered.deadline_unix_ms,
            })
        };
        self.all.iter().map(owner).collect()
    }

    pub(crate) fn into_live(self) -> Vec<RecoveredSession> {
        let live = self
            .all
            .into_iter()
            .filter(|session| session.stage == Stage::Open);
        live.map(|session| session.recovered).collect()
    }

    /// Those that live.
    pub(crate) fn live(&self) -> impl Iterator<Item = &RecoveredSession> {
        let live = self
            .all
            .iter()
            .filter(|session| session.stage == Stage::Open);
        live.map(|session| &session.recovered)
    }

    /// The id of a session of which no record says that it has ended.
    pub(crate) fn id_unless_ended(&self, owner: Owner) -> Option<u64> {
        let session = &self.all[owner as usize];
        match session.stage {
            Stage::Mentioned | Stage::Open => Some(session.recovered.session),
            Stage::Ended | Stage::Gone => None,
        }
    }

    /// When a session that is open ends.
    pub(crate) fn deadline(&self, owner: Owner) -> Option<u64> {
        let session = &self.all[owner as usize];
        (session.stage == Stage::Open).then_some(session.recovered.deadline_unix_ms)
    }

    /// A generation begins. Sessions whose time was up before `over_before_ms` have ended: nothing
    /// was heard of them since.
    pub(crate) fn begin_generation(&mut self, over_before_ms: u64, generation: u8) {
        self.generation = generation;
        for number in 0..self.all.len() {
            let session = &self.all[number];
            if session.stage == Stage::Open && session.recovered.deadline_unix_ms < over_before_ms {
                self.end_number(number as Owner);
            }
        }
    }

    pub(crate) fn set_generation(&mut self, generation: u8) {
        self.generation = generation;
    }

    /// How many numbers there are.
    pub(crate) fn slots(&self) -> usize {
        self.all.len()
    }

    /// Bytes of everything that is kept of sessions.
    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        let of_session = |session: &Session| {
            let recovered = &session.recovered;
            recovered.name.len() + recovered.answers.len() * size_of::<Answer>()
        };
        self.all.len() * size_of::<Session>()
            + self.all.iter().map(of_session).sum::<usize>()
            + self.numbers.len() * size_of::<(u64, Owner)>()
            + self.free.len() * size_of::<Owner>()
    }

    /// Frees the numbers of those that have ended some time ago and that no lease names.
    pub(crate) fn free_unless(&mut self, is_named: &[bool]) {
        for (number, is_named) in is_named.iter().enumerate() {
            let session = &mut self.all[number];
            let age = self.generation.wrapping_sub(session.generation);
            let is_over = matches!(session.stage, Stage::Ended | Stage::Mentioned);
            if *is_named || !is_over || age < FORGET_AGE {
                continue;
            }
            session.stage = Stage::Gone;
            let id = session.recovered.session;
            if self.numbers.get(&id) == Some(&(number as Owner)) {
                self.numbers.remove(&id);
            }
            self.free.push(number as Owner);
        }
    }

    /// The same on every node that has the same live sessions.
    pub(crate) fn hash(&self, over_before_ms: u64) -> u64 {
        let live = self
            .live()
            .filter(|session| session.deadline_unix_ms >= over_before_ms);
        live.fold(0_u64, |sum, session| {
            let id = crc32c::crc32c(&session.session.to_le_bytes());
            let both = crc32c::crc32c_append(id, &session.deadline_unix_ms.to_le_bytes());
            sum.wrapping_add(u64::from(id) << 32 | u64::from(both))
        })
    }
}
