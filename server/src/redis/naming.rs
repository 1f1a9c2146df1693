//! What is found out about a command before a section is opened for it: its keys, and the script
//! that it calls. In a transaction, also what the commands in front of it will have changed.

use super::name::Name;
use super::port::Port;
use super::script::{self, Recognised, Script, Sha};
use super::section::Keyspace;
use hashbrown::HashMap;
use smallvec::SmallVec;

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
    pub(crate) port: &'n Port,
    pub(crate) keyspace: &'n mut Keyspace<'k>,
    pub(crate) db: u8,
    /// `None` outside a transaction.
    pub(crate) foreseen: Option<&'n Foreseen<'n>>,
}

impl<'n> Naming<'n, '_> {
    /// The script of this SHA-1, as the command that is named will find it.
    pub(crate) fn script(&self, sha: &Sha) -> Option<Script> {
        match self.foreseen {
            Some(foreseen) => foreseen.script(sha, self.port),
            None => self.port.script(sha),
        }
    }

    /// The keys that earlier commands of the transaction name.
    pub(crate) fn in_front(&self) -> &'n [Name<'n>] {
        self.foreseen.map_or(&[], |foreseen| &foreseen.names)
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
