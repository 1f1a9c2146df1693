//! What the published lock scripts mean, in Lua of our own. Redis runs these, and ours is asked for
//! the published script by its SHA-1. Equal answers show that ours does what the library expects,
//! without a copy of the library's text.
//!
//! Every script is a body behind [`PRELUDE`]. It fails at the same point as the published one.

mod claimed;
mod owned;
mod redisson;
mod several;
mod signalled;

/// What the bodies have in common. `KEYS` and `ARGV` are numbered from 1.
pub(crate) const PRELUDE: &str = "
    local function run(...) return redis.call(...) end
    local function held(number) return run('GET', KEYS[number]) end
    local function owned() return held(1) == ARGV[1] end
    local function each(act) for _, name in ipairs(KEYS) do act(name) end end
    local function all(test)
        for _, name in ipairs(KEYS) do
            if not test(name) then return false end
        end
        return true
    end
";

/// A kind of script.
pub(crate) struct Meaning {
    /// The SHA-1 of every published text that means this.
    pub(crate) published: &'static [&'static str],
    pub(crate) body: &'static str,
    pub(crate) keys: &'static [Key],
    pub(crate) args: &'static [Value],
}

/// What stands among a script's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Lock,
    /// None to three locks, and maybe the same one twice.
    Locks,
    Signal,
    /// A list that lasts no longer than a second.
    BriefSignal,
    Channel,
    Latch,
    Millis,
}

/// What stands among a script's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Token,
    Millis,
    Seconds,
    /// Milliseconds or nothing.
    MillisOrNone,
    /// How much of the token counts.
    Length,
    /// One of a few words.
    Word(&'static [&'static str]),
    Channel,
}

/// All recognised scripts but the two that hand out Redisson's fencing tokens, which differ from
/// Redis's.
pub(crate) fn meanings() -> Vec<&'static Meaning> {
    let groups = [
        owned::MEANINGS,
        claimed::MEANINGS,
        several::MEANINGS,
        signalled::MEANINGS,
        redisson::MEANINGS,
    ];
    groups.into_iter().flatten().collect()
}
