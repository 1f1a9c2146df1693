//! Scripts without Lua. What lock libraries send to `EVAL` is a handful of programs in many spellings: each is recognised, by the
//! SHA-1 of a published text or by the hash of its normal form, and what it does is done here, in the engine's own verbs.
//!
//! | file           | what                                                                                        |
//! |----------------|---------------------------------------------------------------------------------------------|
//! | `token.rs`     | Lua text in tokens; `normal.rs`: what two spellings of a script have in common              |
//! | `table.rs`     | the hashes of published scripts; `spelling.rs`: the two that people write down anew         |
//! | `call.rs`      | the keys and arguments of a call, and the numbers in them, with the errors that Redis has   |
//! | `owned.rs`     | one key whose value is compared: released, renewed, asked how long it has                   |
//! | `claimed.rs`   | one key that is taken if it is free, or kept if it is the caller's                          |
//! | `several.rs`   | many keys, all or nothing; `prefix.rs`: values that are compared in part                    |
//! | `signalled.rs` | python-redis-lock: a lock, and a list that wakes one of those who wait                      |
//! | `redisson.rs`  | Redisson's lock: a hash with one field, which the engine counts; a channel that wakes       |
//!
//! Where a Redis script would stop half-way, because a number among its arguments is none, nothing at all is done here: numbers
//! are read before anything is changed. The error is the same.
//!
//! What is decided on a look at the keys is done under the fence that was seen. If a lock ends between the two, which native
//! clients and the wheel may bring about, the script answers as if it had come a moment later.

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
pub(crate) use table::{recognise_sha, recognise_text};

use super::name::Name;
use super::plan::Naming;
use super::refusal::Refusal;
use super::section::Section;
use claimed::Claimed;
use owned::Owned;
use protocol::resp::Writer;
use redisson::Redisson;
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
    /// Whether it changes nothing, and may thus be sent by `EVAL_RO`.
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
}

/// The database that a script works in. Those of one library name it themselves; a number that is none changes nothing.
pub(crate) fn database(script: Script, db: u8, args: &[&[u8]]) -> u8 {
    match script {
        Script::Several(script) => script.database(db, args),
        _ => db,
    }
}

/// The keys that a script looks for by itself, beside those it is given.
pub(crate) fn more_names(
    script: Script,
    naming: &mut Naming<'_, '_>,
    db: u8,
) -> Result<Vec<Name<'static>>, Refusal> {
    match script {
        Script::Signalled(Signalled::ResetAll) => signalled::all_names(naming, db),
        _ => Ok(Vec::new()),
    }
}

/// Does what the script does, and writes what it would return. An error leaves everything as it was.
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
