//! A transaction before its section is opened: the keys and scripts of all its commands.
//!
//! The commands are named one after the other, each once, and all of them before
//! the first one runs. A command may change something for those behind it: the database, the loaded
//! scripts, the keys that exist. Those changes are foreseen. `EXEC` works with what was named here
//! and looks nothing up again.

use super::client::Transaction;
use super::command::{self, Command};
use super::name::Name;
use super::naming::{Args, Foreseen, Naming, Target};
use super::port::Port;
use super::refusal::Refusal;
use super::section::Keyspace;

/// How many keys the commands of one transaction may name. One script that finds a hundred thousand
/// locks by itself fits, with the list of each. A thousand such scripts do not.
const NAMES_MAX: usize = 1 << 18;

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
    pub(crate) fn new(
        transaction: &'a Transaction,
        db: u8,
        port: &Port,
        keyspace: &mut Keyspace<'_>,
    ) -> Self {
        let mut db = db;
        let mut foreseen = Foreseen::default();
        let mut commands = Vec::with_capacity(transaction.commands.len());
        for queued in &transaction.commands {
            let args: Args<'a> = queued.iter().map(|argument| &**argument).collect();
            let command = Command::find(args[0]).expect("it was found when it was queued");
            let mut naming = Naming {
                port,
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
