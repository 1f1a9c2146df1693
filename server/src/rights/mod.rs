//! Who may do what: tokens and names of certificates, and what each of them is entitled to.
//!
//! | file              | what                                                                  |
//! |-------------------|-----------------------------------------------------------------------|
//! | `mod.rs`          | all entitlements of a server, found by token, certificate or name     |
//! | `entitlement.rs`  | what one name may do                                                  |
//! | `quota.rs`        | how much one name, or one prefix, may use at once                     |
//! | `reserve.rs`      | what counts for it, and until when                                    |
//! | `file.rs`         | `auth_file`: names with roles, prefixes and quotas                    |
//! | `token_file.rs`   | `auth_token_file`: tokens that have all rights                        |
//! | `describe.rs`     | what a file says, for people                                          |
//! | `error.rs`        | why a file cannot be used                                             |
//!
//! A token is kept as its SHA-256 and nothing else, so that no log line or debug output can give
//! one away. What a client shows is hashed and compared with all of them, in a time that depends
//! neither on where two digests differ nor on which of them matches. A plain hash is enough: tokens
//! are random and long, not passwords to be guessed.
//!
//! A server without any file has no rights to check: every client has one entitlement to
//! everything, and the check is one branch.

mod describe;
mod entitlement;
mod error;
mod file;
mod quota;
mod reserve;
#[cfg(test)]
mod tests;
mod token_file;

pub use describe::{AuthEntry, check_auth_file, hash_token};
pub(crate) use entitlement::{Entitlement, Role};
pub(crate) use error::AuthError;
pub(crate) use quota::{Bound, Exceeded, Whose};
pub(crate) use reserve::{Holdings, Reservation};

use crate::config::Config;
use entitlement::PrefixMeters;
use parking_lot::{Mutex, RwLock};
use quota::{Meter, Quota};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Shorter tokens can be found by trying.
const TOKEN_BYTES_MIN: usize = 16;

/// The name of all tokens in `auth_token_file`. No entry of `auth_file` has it.
pub(crate) const TOKEN_FILE_NAME: &str = "auth_token_file";

type TokenDigest = [u8; 32];

/// All entitlements of a server.
///
/// They may be replaced while the server runs, never by none: whether a token is required is
/// decided at the start.
pub(crate) struct Rights {
    /// `None`: every client may do everything.
    book: Option<RwLock<Book>>,
    /// There is an `auth_file`, which says what may be seen without a token: nothing.
    has_file: bool,
    /// Raised whenever the entitlements are replaced. Zero as long as they never were.
    generation: AtomicU64,
    everything: Arc<Entitlement>,
    nothing: Arc<Entitlement>,
    reader: Arc<Entitlement>,
    /// What is used of each quota that there is or has been.
    meters: Mutex<BTreeMap<Whose, Arc<Meter>>>,
    /// What was asked for without the right to it, and beyond a quota.
    refused_rights: AtomicU64,
    refused_quota: AtomicU64,
}

/// What the files say.
#[derive(Default)]
struct Book {
    tokens: Vec<(TokenDigest, Arc<Entitlement>)>,
    /// By the name that a certificate shows, in lower case.
    certificates: BTreeMap<Box<str>, Arc<Entitlement>>,
    names: BTreeMap<Arc<str>, Arc<Entitlement>>,
    prefix_quotas: PrefixQuotas,
}

type PrefixQuotas = Vec<(Box<[u8]>, Quota)>;

/// How the entitlements have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    /// Tokens.
    pub(crate) added: usize,
    pub(crate) removed: usize,
    pub(crate) count: usize,
    /// Names that may do something else than before.
    pub(crate) altered: usize,
}

impl Rights {
    /// Every client may do everything. For servers that only the own machine can reach.
    pub(crate) fn none() -> Self {
        Self::with(None, false)
    }

    /// Reads the files that the settings name.
    pub(crate) fn load(config: &Config) -> Result<Self, AuthError> {
        match Book::load(config)? {
            None => Ok(Self::none()),
            book => Ok(Self::with(book, config.auth_file.is_some())),
        }
    }

    fn with(book: Option<Book>, has_file: bool) -> Self {
        let meters: Mutex<BTreeMap<Whose, Arc<Meter>>> = Mutex::default();
        let book = book.map(|book| book.metered(&mut meters.lock()));
        Rights {
            book: book.map(RwLock::new),
            meters,
            refused_rights: AtomicU64::new(0),
            refused_quota: AtomicU64::new(0),
            has_file,
            generation: AtomicU64::new(0),
            everything: Arc::new(Entitlement::everything("")),
            nothing: Arc::new(Entitlement::nothing()),
            reader: Arc::new(Entitlement::reader()),
        }
    }

    /// Reads the files once more. If that fails, everything stays as it is. `None`: there are none.
    pub(crate) fn reload(&self, config: &Config) -> Result<Option<Change>, AuthError> {
        let Some(book) = &self.book else {
            return Ok(None);
        };
        for path in [&config.auth_file, &config.auth_token_file] {
            path.as_deref().map_or(Ok(()), check_regular)?;
        }
        let Some(new) = Book::load(config)? else {
            return Ok(None);
        };
        let mut old = book.write();
        let change = new.change_from(&old);
        *old = new.metered(&mut self.meters.lock());
        // Behind the change, paired with `generation`: a reader of the new number that looks finds
        // the new book, since it locks it.
        self.generation.fetch_add(1, Ordering::Release);
        Ok(Some(change))
    }

    /// A client asked for something that it has no right to.
    pub(crate) fn count_refused(&self) {
        self.refused_rights.fetch_add(1, Ordering::Relaxed);
    }

    /// A client asked for more than a quota allows.
    pub(crate) fn count_exceeded(&self) {
        self.refused_quota.fetch_add(1, Ordering::Relaxed);
    }

    /// How often either was the case.
    pub(crate) fn refusals(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.refused_rights), count(&self.refused_quota))
    }

    /// Differs after every change.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether a client has to show a token, or a certificate, at all.
    pub(crate) fn is_required(&self) -> bool {
        self.book.is_some()
    }

    /// What a client may do that has shown nothing.
    pub(crate) fn of_stranger(&self) -> &Arc<Entitlement> {
        match self.is_required() {
            true => &self.nothing,
            false => &self.everything,
        }
    }

    /// No rights.
    pub(crate) fn of_nothing(&self) -> &Arc<Entitlement> {
        &self.nothing
    }

    /// What a request over HTTP may do that comes from the own machine without a token. Servers
    /// with nothing but `auth_token_file` have always let it look.
    pub(crate) fn of_local_reader(&self) -> &Arc<Entitlement> {
        match (self.is_required(), self.has_file) {
            (false, _) => &self.everything,
            (true, false) => &self.reader,
            (true, true) => &self.nothing,
        }
    }

    /// What a client may do that shows this token. `None`: it may not connect. Where no token is
    /// required, any will do, also none.
    pub(crate) fn of_token(&self, token: &[u8]) -> Option<Arc<Entitlement>> {
        let Some(book) = &self.book else {
            return Some(self.everything.clone());
        };
        // No file can have one that is shorter; above all, to show nothing is no token.
        if token.len() < TOKEN_BYTES_MIN {
            return None;
        }
        let shown = digest(token);
        let book = book.read();
        // One more than the index of the match; zero is none.
        let mut found = 0_u32;
        for (place, (known, _)) in (1_u32..).zip(&book.tokens) {
            // No early end: the time must not tell which token matched.
            found.conditional_assign(&place, known.ct_eq(&shown));
        }
        let (_, entitlement) = book.tokens.get((found as usize).checked_sub(1)?)?;
        Some(entitlement.clone())
    }

    /// What a client may do whose certificate was verified and shows these names: that of the first
    /// of them that has an entry. `None`: none has. Names of hosts are compared without regard to
    /// case.
    pub(crate) fn of_certificate<N: AsRef<str>>(&self, names: &[N]) -> Option<Arc<Entitlement>> {
        let Some(book) = &self.book else {
            return Some(self.everything.clone());
        };
        let book = book.read();
        let mut names = names.iter().map(|name| name.as_ref().to_ascii_lowercase());
        names.find_map(|name| book.certificates.get(&*name).cloned())
    }

    /// What this name may do by the latest book. `None`: the name is gone.
    pub(crate) fn of_name(&self, name: &str) -> Option<Arc<Entitlement>> {
        match &self.book {
            None => Some(self.everything.clone()),
            Some(book) => book.read().names.get(name).cloned(),
        }
    }
}

impl Book {
    /// `None`: the settings name no file.
    fn load(config: &Config) -> Result<Option<Book>, AuthError> {
        if config.auth_file.is_none() && config.auth_token_file.is_none() {
            return Ok(None);
        }
        let mut book = match &config.auth_file {
            Some(path) => file::load(path)?,
            None => Book::default(),
        };
        if let Some(path) = &config.auth_token_file {
            let all = Arc::new(Entitlement::everything(TOKEN_FILE_NAME));
            let tokens = token_file::load(path)?;
            (book.tokens).extend(tokens.into_iter().map(|token| (token, all.clone())));
            book.names.insert(all.name().clone(), all);
        }
        Ok(Some(book))
    }

    /// The same, with a meter for each quota: the one that it had before, if it had one.
    fn metered(mut self, meters: &mut BTreeMap<Whose, Arc<Meter>>) -> Book {
        let mut meter = |whose: Whose, quota: Quota| {
            let found = meters.entry(whose.clone());
            let meter = found.or_insert_with(|| Arc::new(Meter::new(whose))).clone();
            meter.set(quota);
            meter
        };
        let mut prefixes: Vec<_> = (self.prefix_quotas.iter())
            .map(|(prefix, quota)| {
                let whose = Whose::Prefix(prefix.clone());
                (prefix.clone(), meter(whose, *quota))
            })
            .collect();
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let prefixes: PrefixMeters = prefixes.into();
        for entitlement in self.names.values_mut() {
            let own = (entitlement.quota() != Quota::default()).then(|| {
                let whose = Whose::Token(entitlement.name().clone());
                meter(whose, entitlement.quota())
            });
            *entitlement = Arc::new(entitlement.metered(own, prefixes.clone()));
        }
        let tokens = self.tokens.iter_mut().map(|(_, one)| one);
        for entitlement in tokens.chain(self.certificates.values_mut()) {
            *entitlement = self.names[entitlement.name()].clone();
        }
        self
    }

    fn change_from(&self, old: &Book) -> Change {
        let not_in = |these: &Book, those: &Book| {
            let is_there = |digest| those.tokens.iter().any(|(other, _)| other == digest);
            let digests = these.tokens.iter().map(|(digest, _)| digest);
            digests.filter(|digest| !is_there(*digest)).count()
        };
        let is_altered = |(name, one): &(&Arc<str>, &Arc<Entitlement>)| {
            old.names.get(*name).is_some_and(|other| other != *one)
        };
        Change {
            added: not_in(self, old),
            removed: not_in(old, self),
            count: self.tokens.len(),
            altered: self.names.iter().filter(is_altered).count(),
        }
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self
            .book
            .as_ref()
            .map_or(0, |book| book.read().tokens.len());
        write!(f, "{count} tokens, hidden")
    }
}

fn digest(token: &[u8]) -> TokenDigest {
    Sha256::digest(token).into()
}

/// Refuses what is no file. A pipe is read at the start, and once: to open it again would wait for
/// a writer, and meanwhile no signal would be heard.
fn check_regular(path: &Path) -> Result<(), AuthError> {
    let unreadable = |error| AuthError::Unreadable {
        path: path.to_owned(),
        error,
    };
    match std::fs::metadata(path).map_err(unreadable)?.is_file() {
        true => Ok(()),
        false => Err(unreadable(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file; a pipe can be read once, at the start",
        ))),
    }
}

/// Who else may touch a file.
struct FileMode {
    is_world_readable: bool,
    is_world_writable: bool,
}

/// Reads a file of at most so many bytes.
fn read(path: &Path, bytes_max: u64) -> Result<(Vec<u8>, FileMode), AuthError> {
    let unreadable = |error| AuthError::Unreadable {
        path: path.to_owned(),
        error,
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mode = mode_of(&file.metadata().map_err(unreadable)?);
    let mut bytes = Vec::new();
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > bytes_max {
        return Err(AuthError::TooLarge {
            path: path.to_owned(),
            bytes_max,
        });
    }
    Ok((bytes, mode))
}

#[cfg(unix)]
fn mode_of(metadata: &std::fs::Metadata) -> FileMode {
    use std::os::unix::fs::PermissionsExt;
    // A pipe or a descriptor under /dev/fd is open to no other process, whatever its mode says.
    let mode = match metadata.is_file() {
        true => metadata.permissions().mode(),
        false => 0,
    };
    FileMode {
        is_world_readable: mode & 0o004 != 0,
        is_world_writable: mode & 0o002 != 0,
    }
}

#[cfg(not(unix))]
fn mode_of(_: &std::fs::Metadata) -> FileMode {
    FileMode {
        is_world_readable: false,
        is_world_writable: false,
    }
}
