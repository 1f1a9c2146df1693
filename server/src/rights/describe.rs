//! What a file of rights says, name by name, for people and programs: `fencepost auth check`.

use super::entitlement::{Entitlement, Role};
use super::error::AuthError;
use super::quota::Quota;
use super::{TOKEN_BYTES_MIN, digest, file};
use protocol::limits::TOKEN_BYTES_MAX;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// One name of an `auth_file`, or one prefix with a quota.
#[derive(Debug, Serialize)]
pub struct AuthEntry {
    /// The name of tokens and certificates, or the prefix.
    pub name: String,
    /// It is a prefix with a quota.
    pub is_prefix: bool,
    /// How many tokens have this name.
    pub tokens: usize,
    /// Whether a certificate has it.
    pub is_certificate: bool,
    /// What it may do.
    pub roles: Vec<&'static str>,
    /// With which keys; empty: with all.
    pub prefixes: Vec<String>,
    /// Locks that it may hold, those that it waits for included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_max: Option<u32>,
    /// Requests that may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiters_max: Option<u32>,
    /// Operations that it may ask for in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations_per_second: Option<u32>,
}

/// Reads and checks an `auth_file`.
pub fn check_auth_file(path: &Path) -> Result<Vec<AuthEntry>, AuthError> {
    let book = file::load(path)?;
    let names = book.names.values().map(|entitlement| {
        let name = entitlement.name();
        let is_of_it = |other: &Entitlement| other.name() == name;
        AuthEntry {
            tokens: (book.tokens.iter())
                .filter(|(_, other)| is_of_it(other))
                .count(),
            is_certificate: book.certificates.values().any(|other| is_of_it(other)),
            roles: (Role::ALL.into_iter())
                .filter(|role| entitlement.has(*role))
                .map(Role::name)
                .collect(),
            prefixes: entitlement.prefixes().map(shown).collect(),
            ..AuthEntry::new(name.to_string(), entitlement.quota())
        }
    });
    let prefixes = book.prefix_quotas.iter().map(|(prefix, quota)| AuthEntry {
        is_prefix: true,
        ..AuthEntry::new(shown(prefix), *quota)
    });
    Ok(names.chain(prefixes).collect())
}

fn shown(prefix: &[u8]) -> String {
    String::from_utf8_lossy(prefix).into_owned()
}

impl AuthEntry {
    fn new(name: String, quota: Quota) -> Self {
        AuthEntry {
            name,
            is_prefix: false,
            tokens: 0,
            is_certificate: false,
            roles: Vec::new(),
            prefixes: Vec::new(),
            held_max: quota.held_max,
            waiters_max: quota.waiters_max,
            operations_per_second: quota.operations_per_second,
        }
    }
}

/// One sentence.
impl fmt::Display for AuthEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_prefix, self.tokens, self.is_certificate) {
            (true, ..) => write!(f, "[[prefix]] {:?}: all clients together", self.name)?,
            (_, 0, _) => write!(f, "{} (a certificate)", self.name)?,
            (_, 1, false) => write!(f, "{} (a token)", self.name)?,
            (_, tokens, false) => write!(f, "{} ({tokens} tokens)", self.name)?,
            (_, tokens, true) => write!(f, "{} (tokens: {tokens}, and a certificate)", self.name)?,
        }
        if !self.is_prefix {
            write!(f, " may {}", self.roles.join(", "))?;
            match &self.prefixes[..] {
                [] => f.write_str(" all keys")?,
                prefixes => write!(f, " keys that begin with {prefixes:?}")?,
            }
        }
        for (most, what) in [
            (self.held_max, "locks held or waited for"),
            (self.waiters_max, "requests waiting"),
            (self.operations_per_second, "operations a second"),
        ] {
            if let Some(most) = most {
                write!(f, "; at most {most} {what}")?;
            }
        }
        Ok(())
    }
}

/// The hash of a token as an `auth_file` has it. `Err`: how many bytes a token has.
pub fn hash_token(token: &[u8]) -> Result<String, String> {
    if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
        return Err(format!(
            "a token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} bytes, this one has {}",
            token.len()
        ));
    }
    let digest = digest(token);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}
