//! The commands: their names, how many arguments they take, where their keys stand, and the
//! function that carries them out.
//!
//! | file             | commands                                                             |
//! |------------------|----------------------------------------------------------------------|
//! | `strings.rs`     | SET and its relatives, GET, DEL, DELEX; `set.rs`: SET's options      |
//! | `expiry.rs`      | TTL, EXPIRE and their relatives                                      |
//! | `lists.rs`       | signal lists; `hashes.rs`: what Redisson reads of its lock           |
//! | `scripts.rs`     | EVAL, EVALSHA, SCRIPT                                                |
//! | `pubsub.rs`      | channels; `transactions.rs`: MULTI, EXEC, WATCH                      |
//! | `locks.rs`       | our own: LOCK.ACQUIRE and its relatives; `listing.rs`: LOCK.LS       |
//! | `connection.rs`  | HELLO, AUTH, SELECT, CLIENT ...; `server.rs`: INFO, CONFIG, SCAN ... |
//! | `cluster.rs`     | for clients of a cluster: CLUSTER, WAIT; `sentinel.rs`: SENTINEL     |

mod cluster;
mod connection;
mod expiry;
mod hashes;
mod info;
mod listing;
mod lists;
mod locks;
mod needs;
mod pubsub;
mod scripts;
mod sentinel;
mod server;
mod set;
mod strings;
mod transactions;

pub(crate) use lists::{give_up_waiting, retry_pop};
pub(crate) use needs::Needs;
pub(crate) use set::wants_old as set_wants_old;
pub(crate) use transactions::stamp;

use super::channels;
use super::client::Client;
use super::name::{DATABASES, Name};
use super::naming::{Foreseen, Names, Naming, Target};
use super::port::Port;
use super::refusal::Refusal;
use super::script::{self, Recognised};
use super::section::{Entry, Section};
use crate::conn::connection::Connection;
use engine::Grant;
use hashbrown::HashMap;
use protocol::resp::{Writer, parse_integer};
use smallvec::smallvec;
use std::rc::Rc;
use std::sync::LazyLock;

/// One command at work.
pub(crate) struct Call<'c, 'a> {
    pub(crate) port: &'c Port,
    pub(crate) section: &'c mut Section<'a>,
    pub(crate) client: &'c mut Client,
    pub(crate) connection: &'c Rc<Connection>,
    /// The command's name comes first.
    pub(crate) args: &'c [&'c [u8]],
    /// Its keys, in the order of its arguments.
    pub(crate) names: &'c [Name<'c>],
    /// The script that it sends or calls, as its target has it.
    pub(crate) script: Option<Recognised>,
    /// `false` inside a transaction.
    pub(crate) may_block: bool,
}

pub(crate) type Run = fn(&mut Call<'_, '_>, &mut Writer<'_>) -> Result<(), Refusal>;

pub(crate) struct Command {
    /// In lower case, as errors quote it.
    pub(crate) name: &'static str,
    /// How many arguments it takes, its name included. Negative: at least so many.
    arity: i16,
    keys: Keys,
    pub(crate) when: When,
    /// What its sender must be entitled to.
    pub(crate) needs: Needs,
    pub(crate) run: Run,
}

/// Where a command's keys stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    None,
    First,
    All,
    AllButLast,
    /// Behind their number; the script may want more.
    Script,
    /// It has none, but it may send a script.
    ScriptText,
    /// All signal lists of the database. It reads them.
    Lists,
    /// As `Lists`, for the first page of `SCAN`.
    FirstPage,
    /// All signal lists of the database. It ends them.
    ListsEnded,
    /// As `ListsEnded`, in all databases.
    AllListsEnded,
}

/// When a client may send a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Once it is authenticated.
    Usual,
    /// Also while it listens to channels in version 2 of the protocol.
    Listening,
    /// As `Usual`. It runs at once, inside a transaction as well.
    Immediate,
    /// Even before it is authenticated. It runs at once, inside a transaction as well.
    Always,
}

impl Command {
    pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        BY_NAME.get(&*lower).copied()
    }

    pub(crate) fn takes(&self, args: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exactly) => args == exactly,
            Err(_) => args >= usize::from(self.arity.unsigned_abs()),
        }
    }

    /// The keys and the script of a call. Its number of arguments has been checked.
    #[inline]
    pub(crate) fn target<'a>(
        &self,
        args: &[&'a [u8]],
        naming: &mut Naming<'_, '_>,
    ) -> Result<Target<'a>, Refusal> {
        let db = naming.db;
        let keys = match self.keys {
            Keys::None => return Ok(Target::default()),
            Keys::First => {
                let names: Names<'a> = smallvec![naming.keyspace.name(db, args[1])?];
                return Ok(names.into());
            }
            Keys::All => &args[1..],
            Keys::AllButLast => &args[1..args.len() - 1],
            Keys::Script => return scripts::target(args, naming),
            Keys::ScriptText => return Ok(scripts::load_target(args, naming)),
            Keys::Lists | Keys::ListsEnded => return listing::target(naming, db..=db),
            Keys::AllListsEnded => return listing::target(naming, 0..=DATABASES - 1),
            Keys::FirstPage => return listing::first_page_target(args, naming),
        };
        let names = keys.iter().map(|key| naming.keyspace.name(db, key));
        Ok(names.collect::<Result<Names<'a>, Refusal>>()?.into())
    }

    /// Its flags and where its keys stand, as `COMMAND` says it: the first, the last (from the end
    /// if negative) and the step between them; zeros where the arguments tell.
    fn described(&self) -> (&'static [&'static str], [i64; 3]) {
        match self.keys {
            Keys::First => (&[], [1, 1, 1]),
            Keys::All => (&[], [1, -1, 1]),
            Keys::AllButLast => (&[], [1, -2, 1]),
            Keys::Script => (&["movablekeys"], [0, 0, 0]),
            _ if self.is_about_channels() => (&["pubsub"], [0, 0, 0]),
            _ => (&[], [0, 0, 0]),
        }
    }

    fn is_about_channels(&self) -> bool {
        matches!(
            self.name,
            "subscribe" | "unsubscribe" | "psubscribe" | "punsubscribe" | "publish"
        )
    }

    /// The first key among its arguments, if there is one.
    pub(crate) fn first_key<'a>(&self, args: &[&'a [u8]]) -> Option<&'a [u8]> {
        match self.keys {
            Keys::First | Keys::All | Keys::AllButLast => args.get(1).copied(),
            Keys::Script => args.get(3).copied().filter(|_| args[2] != b"0"),
            _ => None,
        }
    }

    /// Whether a node that does not lead carries it out. Everything else needs the leader.
    pub(crate) fn is_for_followers(&self, args: &[&[u8]]) -> bool {
        match self.name {
            "ping" | "echo" | "auth" | "hello" | "select" | "info" | "client" | "command"
            | "quit" | "reset" | "config" | "time" | "role" | "cluster" | "readonly"
            | "readwrite" | "asking" | "sentinel" | "unsubscribe" | "punsubscribe" => true,
            // Other channels have their listeners at the leader; here they would hear nothing.
            "subscribe" | "psubscribe" => args[1..]
                .iter()
                .all(|topic| channels::is_own_pattern(topic) || *topic == b"*"),
            _ => false,
        }
    }

    /// Whether it only reads the keys that were found for it. Their stripes are not locked, since
    /// reading them all may take long.
    pub(crate) fn is_listing(&self) -> bool {
        matches!(self.keys, Keys::Lists | Keys::FirstPage)
    }
}

/// Foresees what a command of a transaction will change for those behind it. Returns the database
/// in which they begin.
pub(crate) fn foresee(
    command: &Command,
    args: &[&[u8]],
    target: &Target<'_>,
    db: u8,
    foreseen: &mut Foreseen<'_>,
) -> u8 {
    if command.name == "select" {
        return connection::database(args).unwrap_or(db);
    }
    if let Some(recognised) = target.script {
        foreseen.load(recognised);
    }
    if command.name == "script" {
        scripts::foresee_flush(args, foreseen);
    }
    db
}

/// The longest name of a command, rounded up.
const NAME_BYTES_MAX: usize = 24;

static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Command>> = LazyLock::new(|| {
    let by_name = COMMANDS
        .iter()
        .map(|command| (command.name.as_bytes(), command));
    by_name.collect()
});

/// All commands.
fn all() -> &'static [Command] {
    COMMANDS
}

macro_rules! commands {
    ($($name:literal $arity:literal $keys:ident $when:ident $needs:ident $run:path;)*) => {
        static COMMANDS: &[Command] = &[$(Command {
            name: $name,
            arity: $arity,
            keys: Keys::$keys,
            when: When::$when,
            needs: Needs::$needs,
            run: $run,
        },)*];
    };
}

commands! {
    "set"           -3 First         Usual     Lock       set::set;
    "setnx"          3 First         Usual     Lock       strings::setnx;
    "setex"          4 First         Usual     Lock       strings::setex;
    "psetex"         4 First         Usual     Lock       strings::psetex;
    "get"            2 First         Usual     Read       strings::get;
    "mget"          -2 All           Usual     Read       strings::mget;
    "exists"        -2 All           Usual     Read       strings::exists;
    "del"           -2 All           Usual     Lock       strings::del;
    "unlink"        -2 All           Usual     Lock       strings::del;
    "delex"         -2 First         Usual     Lock       strings::delex;
    "delifeq"        3 First         Usual     Lock       strings::delifeq;
    "type"           2 First         Usual     Read       strings::type_of;

    "ttl"            2 First         Usual     Read       expiry::ttl;
    "pttl"           2 First         Usual     Read       expiry::pttl;
    "expiretime"     2 First         Usual     Read       expiry::expiretime;
    "pexpiretime"    2 First         Usual     Read       expiry::pexpiretime;
    "expire"        -3 First         Usual     Lock       expiry::expire;
    "pexpire"       -3 First         Usual     Lock       expiry::pexpire;
    "expireat"      -3 First         Usual     Lock       expiry::expireat;
    "pexpireat"     -3 First         Usual     Lock       expiry::pexpireat;
    "persist"        2 First         Usual     Lock       expiry::persist;

    "lpush"         -3 First         Usual     Lock       lists::lpush;
    "llen"           2 First         Usual     Read       lists::llen;
    "blpop"         -3 AllButLast    Usual     Lock       lists::blpop;
    "sadd"          -3 First         Usual     Lock       lists::sadd;
    "hget"           3 First         Usual     Read       hashes::hget;
    "hexists"        3 First         Usual     Read       hashes::hexists;

    "eval"          -3 Script        Usual     Script     scripts::eval;
    "evalsha"       -3 Script        Usual     Script     scripts::evalsha;
    "eval_ro"       -3 Script        Usual     Script     scripts::eval_ro;
    "evalsha_ro"    -3 Script        Usual     Script     scripts::evalsha_ro;
    "script"        -2 ScriptText    Usual     Scripts    scripts::script;

    "lock.acquire"  -4 First         Usual     Lock       locks::acquire;
    "lock.renew"     4 First         Usual     Lock       locks::renew;
    "lock.release"  -3 First         Usual     Lock       locks::release;
    "lock.fence"     2 First         Usual     Read       locks::fence;
    "lock.info"      2 First         Usual     Read       locks::info;
    "lock.force"     2 First         Usual     Force      locks::force;
    "lock.ls"       -1 None          Usual     Listing    listing::ls;

    "subscribe"     -2 None          Listening Channel    pubsub::subscribe;
    "unsubscribe"   -1 None          Listening Nothing    pubsub::unsubscribe;
    "psubscribe"    -2 None          Listening Pattern    pubsub::psubscribe;
    "punsubscribe"  -1 None          Listening Nothing    pubsub::punsubscribe;
    "publish"        3 None          Usual     Publish    pubsub::publish;

    "multi"          1 None          Immediate Nothing    transactions::multi;
    "exec"           1 None          Immediate Nothing    transactions::exec;
    "discard"        1 None          Immediate Nothing    transactions::discard;
    "watch"         -2 All           Immediate LockOrRead transactions::watch;
    "unwatch"        1 None          Usual     Nothing    transactions::unwatch;

    "hello"         -1 None          Always    Nothing    connection::hello;
    "auth"          -2 None          Always    Nothing    connection::auth;
    "quit"          -1 None          Always    Nothing    connection::quit;
    "reset"          1 None          Always    Nothing    connection::reset;
    "ping"          -1 None          Listening Nothing    connection::ping;
    "echo"           2 None          Usual     Nothing    connection::echo;
    "select"         2 None          Usual     Nothing    connection::select;
    "client"        -2 None          Usual     Client     connection::client;

    "info"          -1 None          Usual     Nothing    info::info;
    "command"       -1 None          Usual     Nothing    server::command;
    "config"        -2 None          Usual     Nothing    server::config;
    "role"           1 None          Usual     Nothing    server::role;
    "time"           1 None          Usual     Nothing    server::time;
    "dbsize"         1 Lists         Usual     Listing    listing::dbsize;
    "flushdb"       -1 ListsEnded    Usual     Operate    server::flushdb;
    "flushall"      -1 AllListsEnded Usual     Operate    server::flushall;
    "keys"           2 Lists         Usual     Listing    listing::keys;
    "scan"          -2 FirstPage     Usual     Listing    listing::scan;

    "cluster"       -2 None          Usual     Nothing    cluster::cluster;
    "readonly"       1 None          Usual     Nothing    cluster::mode;
    "readwrite"      1 None          Usual     Nothing    cluster::mode;
    "asking"         1 None          Usual     Nothing    cluster::mode;
    "wait"           3 None          Usual     Nothing    cluster::wait;
    "sentinel"      -2 None          Usual     Nothing    sentinel::sentinel;
}

// ---- what commands share

impl<'c> Call<'c, '_> {
    fn name(&self) -> &'c Name<'c> {
        &self.names[0]
    }

    /// Remembers a lock without an end that this connection has just taken.
    fn note_endless(&mut self, grant: Option<&Grant>) {
        if let Some(grant) = grant {
            let name = self.names[0].clone().into_owned();
            self.client.endless = Some((name, grant.fence));
        }
    }

    /// The client calls itself this from now on; empty: it has no name.
    fn rename(&self, name: String) {
        let own_name = (!name.is_empty()).then(|| name.as_str().into());
        self.connection.set_own_name(own_name);
        *self.client.card.name.lock() = name;
    }

    /// Refuses the call if the server recovers and nothing is known of one of its keys. A lock from
    /// before the crash may be there, so every answer that begins with "nothing is there" would be
    /// a guess. Asked before the command does anything.
    #[inline]
    pub(crate) fn check_known(&mut self) -> Result<(), Refusal> {
        match self.section.recovering() {
            None => Ok(()),
            Some(refusal) => self.check_known_while_recovering(refusal),
        }
    }

    #[cold]
    fn check_known_while_recovering(&mut self, refusal: Refusal) -> Result<(), Refusal> {
        let script = self.script.and_then(|recognised| recognised.script);
        for (index, name) in self.names.iter().enumerate() {
            if script.is_some_and(|script| !script.depends_on_key(index)) {
                continue;
            }
            let is_absent = matches!(self.section.look(name)?, Entry::Absent);
            if is_absent && script::fenced_token(self.section, name).is_none() {
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Refuses a command that looks at all keys while the server recovers: no list is complete
    /// then.
    fn check_all_known(&self) -> Result<(), Refusal> {
        self.section.recovering().map_or(Ok(()), Err)
    }
}

/// A number as Redis reads one.
fn integer(text: &[u8]) -> Result<i64, Refusal> {
    parse_integer(text).ok_or(Refusal::NotAnInteger)
}

/// Whether an argument is this word, in any case.
fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

fn wrong_arity(command: &str) -> Refusal {
    Refusal::text(format!(
        "ERR wrong number of arguments for '{command}' command"
    ))
}

fn unknown_subcommand(subcommand: &[u8], command: &str) -> Refusal {
    let shown = String::from_utf8_lossy(&subcommand[..subcommand.len().min(SHOWN_BYTES_MAX)]);
    Refusal::text(format!(
        "ERR unknown subcommand '{shown}'. Try {command} HELP."
    ))
}

/// How much of what a client sent an error repeats.
const SHOWN_BYTES_MAX: usize = 128;

/// The answer to a command that does not exist.
pub(crate) fn unknown(args: &[&[u8]]) -> Refusal {
    let clip = |bytes: &[u8]| {
        String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]).into_owned()
    };
    let mut beginning = String::new();
    for argument in &args[1..] {
        if beginning.len() >= SHOWN_BYTES_MAX {
            break;
        }
        let room = SHOWN_BYTES_MAX - beginning.len();
        beginning += &format!("'{}' ", clip(&argument[..argument.len().min(room)]));
    }
    Refusal::text(format!(
        "ERR unknown command '{}', with args beginning with: {beginning}",
        clip(args[0])
    ))
}

/// Checks the subcommand of a command that is queued in a transaction, and its number of arguments.
/// Redis refuses a wrong one when it is queued, not when it runs.
pub(crate) fn check_subcommand(command: &Command, args: &[&[u8]]) -> Result<(), Refusal> {
    match args {
        [_, subcommand, rest @ ..] if command.name == "script" => {
            scripts::check_subcommand(subcommand, rest.len())
        }
        _ => Ok(()),
    }
}

/// The answer to a command with too many or too few arguments.
pub(crate) fn wrong_number(command: &Command) -> Refusal {
    wrong_arity(command.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case_and_have_one_place_each() {
        assert_eq!(BY_NAME.len(), COMMANDS.len());
        assert!(
            COMMANDS
                .iter()
                .all(|command| command.name.len() <= NAME_BYTES_MAX)
        );
        for name in ["set", "SET", "sEt"] {
            assert_eq!(Command::find(name.as_bytes()).unwrap().name, "set");
        }
        assert!(Command::find(b"").is_none());
        assert!(Command::find(&[b'x'; NAME_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn the_number_of_arguments_is_checked_as_the_table_says() {
        let get = Command::find(b"get").unwrap();
        assert!(get.takes(2) && !get.takes(1) && !get.takes(3));
        let set = Command::find(b"set").unwrap();
        assert!(set.takes(3) && set.takes(9) && !set.takes(2));
    }

    #[test]
    fn an_unknown_command_is_quoted_within_bounds() {
        let long = [b'a'; 1_000];
        let args: [&[u8]; 3] = [b"foo", b"bar", &long];
        let message = unknown(&args).to_string();
        assert!(
            message.starts_with("ERR unknown command 'foo', with args beginning with: 'bar' 'aaa")
        );
        assert!(message.len() < 300);
    }
}
