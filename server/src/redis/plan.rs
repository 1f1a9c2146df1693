//! What is found out about commands before a section is opened for them: their keys, and the script
//! that they call.
//!
//! The commands of a transaction are named one after the other, each once, and all of them before
//! the first one runs. A command may change something for those behind it: the database, the loaded
//! scripts, the keys that exist. Those changes are foreseen. `EXEC` works with what was named here
//! and looks nothing up again.

use super::client::Transaction;
use super::command::{self, Command};
use super::name::Name;
use super::port::{Port, Sha};
use super::refusal::Refusal;
use super::script::{self, Recognised, Script};
use super::section::Keyspace;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// How many keys the commands of one transaction may name. One script that finds a hundred thousand
/// locks by itself fits, with the list of each. A thousand such scripts do not.
const NAMES_MAX: usize = 1 << 18;

pub(crate) type Args<'a> = SmallVec<[&'a [u8]; 8]>;

pub(crate) type Names<'a> = SmallVec<[Name<'a>; 2]>;

/// What a command works with.
#[derive(Default)]
pub(crate) struct Target<'a> {
    /// Its keys, in the order of its arguments.
    pub(crate) names: Names<'a>,
    /// The script that it sends or calls. `None`: it has none, or calls one that is not loaded.
    pub(crate) script: Option<Recognised>,
}

impl<'a> From<Names<'a>> for Target<'a> {
    fn from(names: Names<'a>) -> Self {
        let script = None;
        Target { names, script }
    }
}

/// What a command's keys are named with.
pub(crate) struct Naming<'n, 'k> {
    pub(crate) keyspace: &'n mut Keyspace<'k>,
    pub(crate) db: u8,
    /// `None` outside a transaction.
    pub(crate) foreseen: Option<&'n Foreseen<'n>>,
}

impl Naming<'_, '_> {
    /// The script of this SHA-1, as the command that is named will find it.
    pub(crate) fn script(&self, sha: &Sha) -> Option<Script> {
        let port = self.keyspace.port;
        match self.foreseen {
            Some(foreseen) => foreseen.script(sha, port),
            None => port.script(sha),
        }
    }

    /// Recognises the text of a script that the command sends.
    pub(crate) fn recognise(&self, text: &[u8]) -> Recognised {
        let metrics = self.keyspace.core.metrics();
        script::recognise_text(text, &metrics.redis_script_texts)
    }
}

/// What the earlier commands of a transaction will have changed.
#[derive(Default)]
pub(crate) struct Foreseen<'a> {
    /// All keys that they name.
    pub(crate) names: Vec<Name<'a>>,
    loaded: HashMap<Sha, Script>,
    /// `SCRIPT FLUSH` forgets what was loaded before the transaction.
    is_flushed: bool,
}

impl Foreseen<'_> {
    fn script(&self, sha: &Sha, port: &Port) -> Option<Script> {
        let loaded = self.loaded.get(sha).copied();
        loaded.or_else(|| port.script(sha).filter(|_| !self.is_flushed))
    }

    /// A command loads this script, if it is a known one.
    pub(crate) fn load(&mut self, recognised: Recognised) {
        if let Some(script) = recognised.script {
            self.loaded.insert(recognised.sha, script);
        }
    }

    pub(crate) fn flush_scripts(&mut self) {
        self.loaded.clear();
        self.is_flushed = true;
    }
}

/// One command of a transaction, ready to run.
pub(crate) struct Planned<'a> {
    pub(crate) command: &'static Command,
    pub(crate) args: Args<'a>,
    /// What it works with, or why `EXEC` will refuse it.
    pub(crate) target: Result<Target<'a>, Refusal>,
}

/// A transaction, ready to run.
pub(crate) struct Plan<'a> {
    pub(crate) commands: Vec<Planned<'a>>,
    /// All keys that they name.
    pub(crate) names: Vec<Name<'a>>,
}

impl<'a> Plan<'a> {
    /// Names the keys of all commands of a transaction that begins in database `db`.
    pub(crate) fn new(transaction: &'a Transaction, db: u8, keyspace: &mut Keyspace<'_>) -> Self {
        let mut db = db;
        let mut foreseen = Foreseen::default();
        let mut commands = Vec::with_capacity(transaction.commands.len());
        for queued in &transaction.commands {
            let command = queued.command;
            let args: Args<'a> = queued.args.iter().map(|argument| &**argument).collect();
            let mut naming = Naming {
                keyspace: &mut *keyspace,
                db,
                foreseen: Some(&foreseen),
            };
            let room = NAMES_MAX - foreseen.names.len();
            let target = command.target(&args, &mut naming);
            let target = target.and_then(|target| match target.names.len() <= room {
                true => Ok(target),
                false => Err(Refusal::text(format!(
                    "OOM the commands of a transaction name at most {NAMES_MAX} keys"
                ))),
            });
            if let Ok(target) = &target {
                db = command::foresee(command, &args, target, db, &mut foreseen);
                foreseen.names.extend(target.names.iter().cloned());
            }
            commands.push(Planned {
                command,
                args,
                target,
            });
        }
        let names = foreseen.names;
        Plan { commands, names }
    }
}
