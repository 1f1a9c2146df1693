//! Scripts without Lua. Lock libraries send a handful of programs to `EVAL`, in many spellings.
//! Each is recognised, by the SHA-1 of a published text or by the hash of its normal form, and
//! carried out here with the engine's verbs.
//!
//! | file           | what                                                                        |
//! |----------------|-----------------------------------------------------------------------------|
//! | `token.rs`     | Lua text in tokens; `normal.rs`: what spellings of a script have in common  |
//! | `table.rs`     | the hashes of published scripts; `spelling.rs`: the two that users retype   |
//! | `call.rs`      | a call's keys, arguments and numbers, with Redis's errors for them          |
//! | `owned.rs`     | one key whose value is compared: release it, renew it, ask for its TTL      |
//! | `claimed.rs`   | one key: take it if it is free, or keep it if it is the caller's            |
//! | `several.rs`   | many keys, all or nothing; `prefix.rs`: values that are compared in part    |
//! | `signalled.rs` | python-redis-lock: a lock, and a list that wakes one waiter                 |
//! | `redisson.rs`  | Redisson's lock: a hash of one field, and a channel that wakes its waiters  |
//!
//! Numbers are read before anything is changed. Where a Redis script would stop half-way because an
//! argument is no number, the answer here is the same error and nothing has changed.
//!
//! A script looks at its keys first and then acts under the fence that it saw. Native clients and
//! the timer wheel may end a lock in between. Then the script answers as if it had come a moment
//! later.

mod call;
mod claimed;
mod normal;
mod owned;
mod prefix;
mod redisson;
mod several;
mod signalled;
mod spelling;
mod table;
mod token;

pub(crate) use call::ScriptCall;
pub(crate) use redisson::fenced_token;
pub(crate) use table::{Recognised, Sha, recognise_sha, recognise_text};

use super::name::Name;
use super::refusal::Refusal;
use super::section::{Keyspace, Section};
use claimed::Claimed;
use owned::Owned;
use protocol::resp::Writer;
use redisson::{Redisson, Unlocking};
use several::Several;
use signalled::Signalled;

/// What a script does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Script {
    Owned(Owned),
    Claimed(Claimed),
    Several(Several),
    Signalled(Signalled),
    Redisson(Redisson),
}

impl Script {
    /// Whether it changes nothing, so that `EVAL_RO` may send it.
    pub(crate) fn is_read_only(self) -> bool {
        use Owned::{Seconds, TimeLeft, TimeLeftOrZero, ValueAndTimeLeft};
        match self {
            Script::Owned(script) => {
                matches!(
                    script,
                    Seconds | TimeLeft | TimeLeftOrZero | ValueAndTimeLeft
                )
            }
            Script::Several(script) => script == Several::TimeLeft,
            Script::Claimed(_) | Script::Signalled(_) | Script::Redisson(_) => false,
        }
    }

    /// Whether the key at `index` of those that the script was given decides what it does. The
    /// others are names of channels, of signal lists, or no keys at all.
    pub(crate) fn depends_on_key(self, index: usize) -> bool {
        match self {
            Script::Several(_) | Script::Redisson(Redisson::RenewAll) => true,
            // The latch keeps the answer of an earlier unlock.
            Script::Redisson(Redisson::Unlock(Unlocking::Latched)) => index == 0 || index == 2,
            Script::Owned(_) | Script::Claimed(_) | Script::Signalled(_) | Script::Redisson(_) => {
                index == 0
            }
        }
    }
}

/// The database that a script works in. The scripts of one library name it themselves. If that is
/// not the number of a database, the script stays in the client's.
pub(crate) fn database(script: Script, db: u8, args: &[&[u8]]) -> u8 {
    match script {
        Script::Several(script) => script.database(db, args),
        _ => db,
    }
}

/// The keys that a script finds by itself, beside those that it is given. Earlier commands of its
/// transaction may make those `in_front`.
pub(crate) fn more_names(
    script: Script,
    keyspace: &mut Keyspace<'_>,
    in_front: &[Name<'_>],
    db: u8,
) -> Result<Vec<Name<'static>>, Refusal> {
    match script {
        Script::Signalled(Signalled::ResetAll) => signalled::all_names(keyspace, in_front, db),
        _ => Ok(Vec::new()),
    }
}

/// Carries the script out and writes what it would return. An error leaves everything as it was.
pub(crate) fn run(
    script: Script,
    section: &mut Section<'_>,
    call: &ScriptCall<'_>,
    out: &mut Writer<'_>,
) -> Result<(), Refusal> {
    match script {
        Script::Owned(script) => owned::run(script, section, call, out),
        Script::Claimed(script) => claimed::run(script, section, call, out),
        Script::Several(script) => several::run(script, section, call, out),
        Script::Signalled(script) => signalled::run(script, section, call, out),
        Script::Redisson(script) => redisson::run(script, section, call, out),
    }
}
