//! What one name may do: its roles, and the keys that they reach.

use super::TOKEN_FILE_NAME;
use super::quota::{Meter, Quota};
use std::fmt;
use std::sync::Arc;

/// What a token or a certificate may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Acquire, renew and release locks of its own.
    Lock,
    /// Look: queries, lists, statistics, metrics, views over HTTP.
    Read,
    /// What concerns others: forced releases, ending sessions, commands about the server.
    Operate,
}

impl Role {
    /// All of them, in the order of the file's documentation.
    pub(crate) const ALL: [Role; 3] = [Role::Lock, Role::Read, Role::Operate];

    /// As the file spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Lock => "lock",
            Role::Read => "read",
            Role::Operate => "operate",
        }
    }

    fn bit(self) -> u8 {
        match self {
            Role::Lock => 1,
            Role::Read => 2,
            Role::Operate => 4,
        }
    }
}

/// A set of roles.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Roles(u8);

impl Roles {
    pub(crate) const NONE: Roles = Roles(0);

    pub(crate) fn all() -> Roles {
        Role::ALL.into_iter().collect()
    }

    pub(crate) fn has(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<T: IntoIterator<Item = Role>>(roles: T) -> Self {
        Roles(roles.into_iter().fold(0, |bits, role| bits | role.bit()))
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles = Role::ALL.into_iter().filter(|role| self.has(*role));
        f.debug_set().entries(roles).finish()
    }
}

/// What the peer of a connection, or the sender of a request over HTTP, may do. A connection gets
/// it with its token or its certificate, and a newer one when the file is read again.
///
/// Prefixes bound everything that names a key. What names none and shows or changes what belongs to
/// others, like ending a session, needs the role without prefixes.
#[derive(Clone, Debug)]
pub(crate) struct Entitlement {
    name: Arc<str>,
    roles: Roles,
    /// Empty: all keys.
    prefixes: Box<[Box<[u8]>]>,
    quota: Quota,
    /// What the name has used of its quota. `None`: it has none.
    meter: Option<Arc<Meter>>,
    /// The quotas of prefixes, which are the same for all names.
    prefix_meters: PrefixMeters,
    is_bounded: bool,
}

/// The longest prefix comes first.
pub(crate) type PrefixMeters = Arc<[(Box<[u8]>, Arc<Meter>)]>;

/// Two of the same name agree if they say the same of it, whatever is used of it.
impl PartialEq for Entitlement {
    fn eq(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.name.clone(), one.roles, one.quota);
        of(self) == of(other) && self.prefixes == other.prefixes
    }
}

impl Entitlement {
    pub(crate) fn new(
        name: Arc<str>,
        roles: Roles,
        prefixes: Box<[Box<[u8]>]>,
        quota: Quota,
    ) -> Self {
        let is_bounded = roles != Roles::all() || !prefixes.is_empty() || quota != Quota::default();
        Entitlement {
            name,
            roles,
            prefixes,
            quota,
            meter: None,
            prefix_meters: PrefixMeters::default(),
            is_bounded,
        }
    }

    /// The same with meters for its quota and for those of prefixes.
    pub(crate) fn metered(&self, meter: Option<Arc<Meter>>, prefix_meters: PrefixMeters) -> Self {
        Entitlement {
            is_bounded: self.is_bounded || !prefix_meters.is_empty(),
            meter,
            prefix_meters,
            ..self.clone()
        }
    }

    pub(crate) fn quota(&self) -> Quota {
        self.quota
    }

    pub(crate) fn meter(&self) -> Option<&Arc<Meter>> {
        self.meter.as_ref()
    }

    /// The meter of the longest prefix of this key that has a quota.
    pub(crate) fn prefix_meter(&self, key: &[u8]) -> Option<&Arc<Meter>> {
        let key = plain(key);
        let mut meters = self.prefix_meters.iter();
        let found = meters.find(|(prefix, _)| key.starts_with(prefix));
        found.map(|(_, meter)| meter)
    }

    /// All rights.
    pub(crate) fn everything(name: &str) -> Self {
        Self::new(name.into(), Roles::all(), Box::default(), Quota::default())
    }

    /// All rights to look, and no other.
    pub(crate) fn reader() -> Self {
        Self::new(
            "".into(),
            [Role::Read].into_iter().collect(),
            Box::default(),
            Quota::default(),
        )
    }

    /// No rights at all.
    pub(crate) fn nothing() -> Self {
        Self::new("".into(), Roles::NONE, Box::default(), Quota::default())
    }

    /// As the file and audit lines call it. Empty for a server without any file, and for a peer
    /// that has shown nothing.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its name for a log line, which has no field for a peer without one.
    pub(crate) fn shown_name(&self) -> Option<&str> {
        Some(&*self.name).filter(|name| !name.is_empty())
    }

    /// The name that its sessions are bound to: only a client of the same name may use them. Tokens
    /// of `auth_token_file` have none, and share theirs.
    pub(crate) fn session_name(&self) -> Arc<str> {
        match &*self.name {
            TOKEN_FILE_NAME => Arc::default(),
            _ => self.name.clone(),
        }
    }

    /// Whether anything has to be checked at all.
    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    /// Whether it has a role, for some key at least.
    pub(crate) fn has(&self, role: Role) -> bool {
        self.roles.has(role)
    }

    /// Whether it may acquire, renew and release this key.
    #[inline]
    pub(crate) fn may_lock(&self, key: &[u8]) -> bool {
        self.has(Role::Lock) && self.covers(key)
    }

    /// Whether it may see what is held and waited for at this key.
    #[inline]
    pub(crate) fn may_read(&self, key: &[u8]) -> bool {
        self.has(Role::Read) && self.covers(key)
    }

    /// Whether it may see what belongs to no key: sessions, clients.
    pub(crate) fn may_read_all(&self) -> bool {
        self.has(Role::Read) && self.prefixes.is_empty()
    }

    /// Whether it may take a lock on this key away from its holder.
    pub(crate) fn may_force(&self, key: &[u8]) -> bool {
        self.has(Role::Operate) && self.covers(key)
    }

    /// Whether it may do what concerns others and names no key: end a session, command a cluster.
    pub(crate) fn may_operate(&self) -> bool {
        self.has(Role::Operate) && self.prefixes.is_empty()
    }

    /// Whether its prefixes, if it has any, reach this key.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        let key = plain(key);
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    /// Whether another has all its roles, for all its keys.
    pub(crate) fn is_within(&self, other: &Entitlement) -> bool {
        let roles = [Role::Lock, Role::Read, Role::Operate];
        let keeps_roles = roles
            .iter()
            .all(|role| !self.has(*role) || other.has(*role));
        let keeps_keys = match self.prefixes.is_empty() {
            true => other.prefixes.is_empty(),
            false => self.prefixes.iter().all(|prefix| other.covers(prefix)),
        };
        keeps_roles && keeps_keys
    }

    /// Its prefixes; none is all keys.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        self.prefixes.iter().map(|prefix| &**prefix)
    }

    /// Whether a listing of all keys with this prefix could show it any key.
    pub(crate) fn may_list(&self, prefix: &[u8]) -> bool {
        let prefix = plain(prefix);
        let meets = |own: &[u8]| own.starts_with(prefix) || prefix.starts_with(own);
        self.has(Role::Read)
            && (self.prefixes.is_empty() || self.prefixes.iter().any(|own| meets(own)))
    }
}

/// A key without the database that the Redis port puts in front of it (`redis/name.rs`): a prefix
/// holds in all sixteen.
#[inline]
fn plain(key: &[u8]) -> &[u8] {
    match key {
        [0, 0..=15, rest @ ..] => rest,
        _ => key,
    }
}
