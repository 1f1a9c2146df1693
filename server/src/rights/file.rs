//! `auth_file`: names with their roles and prefixes, in TOML.
//!
//! ```toml
//! [[token]]
//! name = "orders"
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! roles = ["lock", "read"]
//! prefixes = ["orders/"]
//! held_max = 1000
//! waiters_max = 200
//! operations_per_second = 5000
//!
//! [[certificate]]
//! name = "billing.internal"
//! roles = ["lock"]
//! prefixes = ["billing/"]
//!
//! [[prefix]]
//! prefix = "orders/"
//! held_max = 10000
//! ```
//!
//! Several entries may have one name, for the time in which a token is exchanged for another: they
//! must say the same of it. What the file does not know is refused with its line.

use super::entitlement::{Entitlement, Role, Roles};
use super::error::AuthError;
use super::quota::Quota;
use super::{Book, PrefixQuotas, TOKEN_FILE_NAME, TokenDigest, read};
use protocol::limits::KEY_BYTES_MAX;
use serde::Deserialize;
use std::collections::btree_map::Entry as Place;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;

/// Tokens and certificates together. Every hello is compared with all tokens.
const ENTRIES_MAX: usize = 1_024;
/// Each key of a request is compared with all prefixes of its token.
const PREFIXES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 64;
/// Each key of an acquire is compared with all prefixes that have a quota.
const PREFIX_QUOTAS_MAX: usize = 64;
const QUOTA_MAX: u32 = 1_000_000_000;
/// The most that is read of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Spanned<Entry>>,
    #[serde(default)]
    certificate: Vec<Spanned<Entry>>,
    #[serde(default)]
    prefix: Vec<Spanned<PrefixEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    sha256: Option<Spanned<String>>,
    roles: Spanned<Vec<Role>>,
    prefixes: Option<Spanned<Vec<Spanned<String>>>>,
    held_max: Option<Spanned<u32>>,
    waiters_max: Option<Spanned<u32>>,
    operations_per_second: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrefixEntry {
    prefix: Spanned<String>,
    held_max: Option<Spanned<u32>>,
    waiters_max: Option<Spanned<u32>>,
}

/// What is wrong, and where.
struct Mistake {
    at: Range<usize>,
    problem: String,
}

fn mistake<T>(at: Range<usize>, problem: impl Into<String>) -> Result<T, Mistake> {
    let problem = problem.into();
    Err(Mistake { at, problem })
}

/// Reads and checks the file.
pub(super) fn load(path: &Path) -> Result<Book, AuthError> {
    let (bytes, mode) = read(path, FILE_BYTES_MAX)?;
    if mode.is_world_writable {
        tracing::warn!(
            "every user of this machine can change the rights in {}; `chmod 600` it",
            path.display()
        );
    }
    parse(&bytes, path)
}

pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Book, AuthError> {
    let line_of = |offset: usize| {
        let before = &bytes[..offset.min(bytes.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    };
    let at = |offset: usize, problem: String| AuthError::Line {
        path: path.to_owned(),
        line: line_of(offset),
        problem,
    };
    let text = std::str::from_utf8(bytes)
        .map_err(|error| at(error.valid_up_to(), "this is not UTF-8".to_owned()))?;
    let file: File = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        at(start, error.message().replace('\n', ", "))
    })?;
    let book =
        put_together(file, line_of).map_err(|mistake| at(mistake.at.start, mistake.problem))?;
    match book.names.is_empty() {
        true => Err(AuthError::Empty {
            path: path.to_owned(),
        }),
        false => Ok(book),
    }
}

fn put_together(file: File, line_of: impl Fn(usize) -> usize) -> Result<Book, Mistake> {
    let mut book = Book {
        prefix_quotas: prefix_quotas(file.prefix)?,
        ..Book::default()
    };
    let mut lines = std::collections::BTreeMap::<Arc<str>, usize>::new();
    let tokens = file.token.into_iter().map(|entry| (entry, true));
    let certificates = file.certificate.into_iter().map(|entry| (entry, false));
    for (count, (entry, is_token)) in (1..).zip(tokens.chain(certificates)) {
        let (span, entry) = (entry.span(), entry.into_inner());
        if count > ENTRIES_MAX {
            let problem = format!("there are more than {ENTRIES_MAX} entries, the most");
            return mistake(span, problem);
        }
        let (name_at, line) = (entry.name.span(), line_of(entry.name.span().start));
        let entitlement = Arc::new(entitlement(&entry)?);
        let name = entitlement.name().clone();
        let entitlement = match book.names.entry(name.clone()) {
            Place::Vacant(place) => {
                lines.insert(name, line);
                place.insert(entitlement).clone()
            }
            Place::Occupied(place) if *place.get() != entitlement => {
                let first = lines.get(&name).copied().unwrap_or_default();
                let problem = format!(
                    "{name:?} stands in line {first} with other rights: entries of one name must agree"
                );
                return mistake(name_at, problem);
            }
            Place::Occupied(place) => place.get().clone(),
        };
        match (is_token, entry.sha256) {
            (true, Some(sha256)) => {
                let digest = digest_of(&sha256)?;
                if book.tokens.iter().any(|(other, _)| *other == digest) {
                    return mistake(sha256.span(), "another entry has this token already");
                }
                book.tokens.push((digest, entitlement));
            }
            (true, None) => {
                let problem = "a token needs sha256; `fencepost auth hash` prints it";
                return mistake(name_at, problem);
            }
            (false, None) => {
                let shown = entitlement.name().to_ascii_lowercase().into();
                if book.certificates.insert(shown, entitlement).is_some() {
                    return mistake(name_at, "another certificate has this name already");
                }
            }
            (false, Some(sha256)) => {
                let problem = "a certificate is known by its name; sha256 is for tokens";
                return mistake(sha256.span(), problem);
            }
        }
    }
    Ok(book)
}

fn entitlement(entry: &Entry) -> Result<Entitlement, Mistake> {
    let name = entry.name.get_ref();
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
        let problem = format!(
            "a name has 1 to {NAME_BYTES_MAX} bytes, this one has {}",
            name.len()
        );
        return mistake(entry.name.span(), problem);
    }
    if name.chars().any(char::is_control) || name == TOKEN_FILE_NAME {
        return mistake(entry.name.span(), format!("{name:?} cannot be a name"));
    }
    let roles: Roles = entry.roles.get_ref().iter().copied().collect();
    if roles == Roles::NONE {
        let problem = "without a role it may do nothing: write \"lock\", \"read\" or \"operate\"";
        return mistake(entry.roles.span(), problem);
    }
    let mut prefixes = Vec::new();
    if let Some(given) = &entry.prefixes {
        let count = given.get_ref().len();
        if count == 0 {
            let problem = "no prefix is no key at all; leave `prefixes` out for all keys";
            return mistake(given.span(), problem);
        }
        if count > PREFIXES_MAX {
            let problem = format!("there are {count} prefixes, at most {PREFIXES_MAX} are allowed");
            return mistake(given.span(), problem);
        }
        for prefix in given.get_ref() {
            prefixes.push(checked_prefix(prefix)?);
        }
        // In order, so that two entries that name the same ones agree.
        prefixes.sort();
        prefixes.dedup();
    }
    let quota = quota(
        entry.held_max.as_ref(),
        entry.waiters_max.as_ref(),
        entry.operations_per_second.as_ref(),
    )?;
    let name = name.as_str().into();
    Ok(Entitlement::new(name, roles, prefixes.into(), quota))
}

fn prefix_quotas(entries: Vec<Spanned<PrefixEntry>>) -> Result<PrefixQuotas, Mistake> {
    let mut quotas = PrefixQuotas::new();
    for entry in entries {
        let (span, entry) = (entry.span(), entry.into_inner());
        if quotas.len() == PREFIX_QUOTAS_MAX {
            let problem = format!("there are more than {PREFIX_QUOTAS_MAX} [[prefix]], the most");
            return mistake(span, problem);
        }
        let prefix = checked_prefix(&entry.prefix)?;
        if quotas.iter().any(|(other, _)| *other == prefix) {
            return mistake(
                entry.prefix.span(),
                "another [[prefix]] has this one already",
            );
        }
        let quota = quota(entry.held_max.as_ref(), entry.waiters_max.as_ref(), None)?;
        if quota == Quota::default() {
            let problem = "a [[prefix]] has a quota: held_max or waiters_max";
            return mistake(entry.prefix.span(), problem);
        }
        quotas.push((prefix, quota));
    }
    Ok(quotas)
}

fn quota(
    held_max: Option<&Spanned<u32>>,
    waiters_max: Option<&Spanned<u32>>,
    operations_per_second: Option<&Spanned<u32>>,
) -> Result<Quota, Mistake> {
    let checked = |most: Option<&Spanned<u32>>| match most {
        None => Ok(None),
        Some(most) if (1..=QUOTA_MAX).contains(most.get_ref()) => Ok(Some(*most.get_ref())),
        Some(most) => mistake(
            most.span(),
            format!("a quota is 1 to {QUOTA_MAX}; leave it out for no bound"),
        ),
    };
    Ok(Quota {
        held_max: checked(held_max)?,
        waiters_max: checked(waiters_max)?,
        operations_per_second: checked(operations_per_second)?,
    })
}

fn checked_prefix(prefix: &Spanned<String>) -> Result<Box<[u8]>, Mistake> {
    let bytes = prefix.get_ref().as_bytes();
    match bytes {
        [] => mistake(
            prefix.span(),
            "an empty prefix is every key; leave `prefixes` out for that",
        ),
        // The Redis port puts its databases there.
        [0, ..] => mistake(prefix.span(), "a prefix does not begin with a zero byte"),
        _ if bytes.len() > KEY_BYTES_MAX => mistake(
            prefix.span(),
            format!("no key is longer than {KEY_BYTES_MAX} bytes, this prefix is"),
        ),
        _ => Ok(bytes.into()),
    }
}

fn digest_of(sha256: &Spanned<String>) -> Result<TokenDigest, Mistake> {
    let text = sha256.get_ref().as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let mut digest = TokenDigest::default();
    if text.len() == digest.len() * 2 {
        let mut is_hex = true;
        for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
            match (digit(pair[0]), digit(pair[1])) {
                (Some(high), Some(low)) => *byte = high << 4 | low,
                _ => is_hex = false,
            }
        }
        if is_hex && digest == super::digest(b"") {
            let problem = "this is the SHA-256 of nothing: was the token's file empty? `openssl rand -hex 32` makes a token";
            return mistake(sha256.span(), problem);
        }
        if is_hex {
            return Ok(digest);
        }
    }
    // It is not shown: it may be the token itself.
    let problem = "sha256 is the hash of a token, 64 hexadecimal digits; `fencepost auth hash` reads a token and prints it";
    mistake(sha256.span(), problem)
}
