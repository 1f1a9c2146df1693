//! What all cores share of the Redis port: its keyspace, its loaded scripts and its clients.

use super::script::{self, Script, Sha};
use super::section::Space;
use crate::core::shared::Shared;
use crate::session::redis_form::SESSION_ID;
use engine::Limit;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name of that session.
const SESSION_NAME: &str = "redis";

/// How many scripts are remembered by their SHA-1 that were recognised by their normal form.
const LOADED_MAX: usize = 10_000;

/// The shared half of the Redis port.
pub(crate) struct Port {
    pub(crate) space: Space,
    scripts: RwLock<Loaded>,
    clients: Mutex<BTreeMap<u64, Arc<Card>>>,
    last_client: AtomicU64,
}

/// The scripts that `EVALSHA` may call.
struct Loaded {
    /// No client has sent `SCRIPT FLUSH`: all published scripts count as loaded, which saves their
    /// clients a round trip.
    has_published: bool,
    by_sha: HashMap<Sha, Script>,
}

/// What is known of a client, for `CLIENT LIST`.
pub(crate) struct Card {
    pub(crate) id: u64,
    pub(crate) address: String,
    pub(crate) name: Mutex<String>,
    pub(crate) library: Mutex<(String, String)>,
}

impl Port {
    /// Makes the port ready: finds its session among those that were put back, or opens it. The
    /// session never ends by itself.
    pub(crate) fn open(shared: &Shared) -> Result<Arc<Self>, Limit> {
        let session = shared.open_lasting(SESSION_ID, SESSION_NAME)?;
        Ok(Arc::new(Port {
            space: Space::new(session, shared.engine.shard_count()),
            scripts: RwLock::new(Loaded {
                has_published: true,
                by_sha: HashMap::new(),
            }),
            clients: Mutex::default(),
            last_client: AtomicU64::new(0),
        }))
    }

    // ---- scripts

    /// The script that `EVALSHA` names. `None`: it was not loaded.
    pub(crate) fn script(&self, sha: &Sha) -> Option<Script> {
        let scripts = self.scripts.read();
        let loaded = scripts.by_sha.get(sha).copied();
        loaded.or_else(|| script::recognise_sha(sha).filter(|_| scripts.has_published))
    }

    /// Remembers a script that was sent whole. At the limit all are forgotten, and clients have to
    /// send those again that are not published ones.
    pub(crate) fn load(&self, sha: Sha, script: Script) {
        if self.script(&sha).is_some() {
            return;
        }
        let mut scripts = self.scripts.write();
        if scripts.by_sha.len() >= LOADED_MAX {
            scripts.by_sha.clear();
        }
        scripts.by_sha.insert(sha, script);
    }

    pub(crate) fn flush_scripts(&self) {
        let mut scripts = self.scripts.write();
        scripts.has_published = false;
        scripts.by_sha.clear();
    }

    // ---- clients

    pub(crate) fn enter(&self, address: String) -> Arc<Card> {
        let card = Arc::new(Card {
            id: self.last_client.fetch_add(1, Ordering::Relaxed) + 1,
            address,
            name: Mutex::default(),
            library: Mutex::default(),
        });
        self.clients.lock().insert(card.id, card.clone());
        card
    }

    pub(crate) fn leave(&self, card: &Card) {
        self.clients.lock().remove(&card.id);
    }

    pub(crate) fn clients(&self) -> Vec<Arc<Card>> {
        self.clients.lock().values().cloned().collect()
    }

    pub(crate) fn client_count(&self) -> usize {
        self.clients.lock().len()
    }
}
