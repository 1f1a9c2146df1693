//! Which clients may connect: the tokens of `auth_token_file`.
//!
//! A token is kept as its SHA-256 and nothing else, so that no log line or debug output can give
//! one away. What a client shows is hashed and compared with all of them, in a time that depends
//! neither on where two digests differ nor on which of them matches. A plain hash is enough: tokens
//! are random and long, not passwords to be guessed.

use parking_lot::RwLock;
use protocol::limits::TOKEN_BYTES_MAX;
use sha2::{Digest, Sha256};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use subtle::{Choice, ConstantTimeEq};

/// Shorter ones can be found by trying.
const TOKEN_BYTES_MIN: usize = 16;
/// Rotation needs two; this is room for one per team. Every hello is compared with all of them.
const TOKENS_MAX: usize = 64;
/// The most that is read of the file: tokens, and as much again for comments.
const FILE_BYTES_MAX: u64 = (TOKENS_MAX * TOKEN_BYTES_MAX * 2) as u64;

/// The tokens that a client may show. Without any, every client may connect.
///
/// They may be replaced while the server runs, never by none: whether a token is required is
/// decided at the start. They are looked at when a connection is opened and not again: one that was
/// let in goes on until it closes.
pub(crate) struct Tokens {
    is_required: bool,
    digests: RwLock<Digests>,
}

type Digests = Vec<[u8; 32]>;

/// How a file of tokens has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TokenChange {
    pub(crate) added: usize,
    pub(crate) removed: usize,
    pub(crate) count: usize,
}

/// Why there are no tokens. The server does not start, since it would let every client in or none.
#[derive(Debug)]
pub enum AuthError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is far larger than any list of tokens.
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file has comments and blank lines at most.
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A token is too short or too long. It is not shown.
    TokenLength {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Of the token.
        token_bytes: usize,
    },
    /// There are more tokens than are compared at each hello.
    TooMany {
        /// The file.
        path: PathBuf,
    },
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "cannot read the tokens in {}: {error}", path.display())
            }
            Self::TooLarge { path } => write!(
                f,
                "{}: the file has more than {FILE_BYTES_MAX} bytes, is it the right one? One token per line is expected",
                path.display()
            ),
            Self::Empty { path } => write!(
                f,
                "{}: there is no token in it; write one per line, for example from `openssl rand -hex 32`",
                path.display()
            ),
            Self::TokenLength {
                path,
                line,
                token_bytes,
            } => write!(
                f,
                "{}:{line}: the token has {token_bytes} bytes, {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} are allowed",
                path.display()
            ),
            Self::TooMany { path } => write!(
                f,
                "{}: there are more than {TOKENS_MAX} tokens, remove those that are no longer in use",
                path.display()
            ),
        }
    }
}

impl std::error::Error for AuthError {}

impl Tokens {
    /// No tokens: every client may connect. For servers that only the own machine can reach.
    pub(crate) fn none() -> Self {
        Self {
            is_required: false,
            digests: RwLock::default(),
        }
    }

    /// Reads a file of tokens: one per line, blank lines and lines that start with `#` do not
    /// count, neither do spaces around a token. Logs a warning about a file that every user can
    /// read.
    pub(crate) fn from_file(path: &Path) -> Result<Self, AuthError> {
        Ok(Self {
            is_required: true,
            digests: RwLock::new(read_file(path)?),
        })
    }

    /// Reads the file once more. If that fails, the tokens stay as they are.
    pub(crate) fn reload(&self, path: &Path) -> Result<TokenChange, AuthError> {
        assert!(self.is_required, "a server without tokens has no file");
        let new = read_file(path)?;
        let mut old = self.digests.write();
        let not_in = |these: &Digests, those: &Digests| {
            these.iter().filter(|one| !those.contains(one)).count()
        };
        let change = TokenChange {
            added: not_in(&new, &old),
            removed: not_in(&old, &new),
            count: new.len(),
        };
        *old = new;
        Ok(change)
    }

    /// Whether a client has to show a token at all.
    pub(crate) fn is_required(&self) -> bool {
        self.is_required
    }

    /// Whether a client that shows this may connect. Where no token is required, any will do, also
    /// none.
    pub(crate) fn accepts(&self, token: &[u8]) -> bool {
        if !self.is_required() {
            return true;
        }
        let shown = digest(token);
        let mut is_known = Choice::from(0);
        for known in &*self.digests.read() {
            // No early end: the time must not tell which token matched.
            is_known |= known.ct_eq(&shown);
        }
        is_known.into()
    }
}

fn read_file(path: &Path) -> Result<Digests, AuthError> {
    use io::Read;
    let unreadable = |error| AuthError::Unreadable {
        path: path.to_owned(),
        error,
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    if is_world_readable(&file.metadata().map_err(unreadable)?) {
        tracing::warn!(
            "every user of this machine can read the tokens in {}; `chmod 600` it",
            path.display()
        );
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(AuthError::TooLarge {
            path: path.to_owned(),
        });
    }
    parse(&bytes, path)
}

fn parse(bytes: &[u8], path: &Path) -> Result<Digests, AuthError> {
    let mut digests = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let token = line.trim_ascii();
        if token.is_empty() || token.starts_with(b"#") {
            continue;
        }
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
            return Err(AuthError::TokenLength {
                path: path.to_owned(),
                line: index + 1,
                token_bytes: token.len(),
            });
        }
        if digests.len() == TOKENS_MAX {
            return Err(AuthError::TooMany {
                path: path.to_owned(),
            });
        }
        digests.push(digest(token));
    }
    if digests.is_empty() {
        return Err(AuthError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(digests)
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens, hidden", self.digests.read().len())
    }
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(unix)]
fn is_world_readable(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    // A pipe or a descriptor under /dev/fd is open to no other process, whatever its mode says.
    metadata.is_file() && metadata.permissions().mode() & 0o004 != 0
}

#[cfg(not(unix))]
fn is_world_readable(_: &std::fs::Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "0123456789abcdef";
    const NEW: &str = "fedcba9876543210fedcba9876543210";

    fn tokens(text: &str) -> Result<Tokens, AuthError> {
        Ok(Tokens {
            is_required: true,
            digests: RwLock::new(parse(text.as_bytes(), Path::new("tokens"))?),
        })
    }

    #[test]
    fn every_token_of_the_file_is_accepted_and_nothing_else() {
        let tokens = tokens(&format!("# old\n{OLD}\n\n  {NEW}\r\n")).unwrap();
        assert!(tokens.is_required());
        for token in [OLD, NEW] {
            assert!(tokens.accepts(token.as_bytes()));
        }
        for stranger in [
            "",
            "# old",
            &OLD[1..],
            &format!("{OLD} "),
            &format!("{OLD}{NEW}"),
        ] {
            assert!(!tokens.accepts(stranger.as_bytes()), "{stranger:?}");
        }
    }

    #[test]
    fn a_file_that_is_read_again_replaces_the_tokens_and_a_bad_one_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        std::fs::write(&path, OLD).unwrap();
        let tokens = Tokens::from_file(&path).unwrap();
        std::fs::write(&path, format!("{OLD}\n{NEW}\n")).unwrap();
        let change = |added, removed, count| TokenChange {
            added,
            removed,
            count,
        };
        assert_eq!(tokens.reload(&path).unwrap(), change(1, 0, 2));
        assert!(tokens.accepts(OLD.as_bytes()) && tokens.accepts(NEW.as_bytes()));
        std::fs::write(&path, NEW).unwrap();
        assert_eq!(tokens.reload(&path).unwrap(), change(0, 1, 1));
        assert!(!tokens.accepts(OLD.as_bytes()) && tokens.accepts(NEW.as_bytes()));
        for bad in ["", "# none\n", "short\n"] {
            std::fs::write(&path, bad).unwrap();
            assert!(tokens.reload(&path).is_err(), "{bad:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(tokens.reload(&path).is_err());
        assert!(tokens.is_required() && tokens.accepts(NEW.as_bytes()));
    }

    #[test]
    fn without_tokens_everybody_is_accepted() {
        assert!(!Tokens::none().is_required());
        assert!(Tokens::none().accepts(b""));
        assert!(Tokens::none().accepts(b"anything"));
    }

    #[test]
    fn a_file_without_tokens_is_refused() {
        for text in ["", "\n\n", "# nothing here\n"] {
            assert!(matches!(tokens(text), Err(AuthError::Empty { .. })));
        }
    }

    #[test]
    fn a_token_that_can_be_guessed_is_refused_without_being_shown() {
        let error = tokens(&format!("{OLD}\nhunter2\n")).unwrap_err();
        let text = error.to_string();
        assert_eq!(
            text,
            "tokens:2: the token has 7 bytes, 16 to 256 are allowed"
        );
    }

    #[test]
    fn a_token_that_no_hello_can_carry_is_refused() {
        assert!(tokens(&"x".repeat(TOKEN_BYTES_MAX)).is_ok());
        assert!(matches!(
            tokens(&"x".repeat(TOKEN_BYTES_MAX + 1)),
            Err(AuthError::TokenLength { line: 1, .. })
        ));
    }

    #[test]
    fn there_is_a_bound_on_tokens() {
        let many: Vec<String> = (0..=TOKENS_MAX).map(|i| format!("{OLD}{i}")).collect();
        assert!(tokens(&many[1..].join("\n")).is_ok());
        assert!(matches!(
            tokens(&many.join("\n")),
            Err(AuthError::TooMany { .. })
        ));
    }

    #[test]
    fn tokens_are_not_printed() {
        assert_eq!(format!("{:?}", tokens(NEW).unwrap()), "1 tokens, hidden");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_everybody_can_read_is_noticed() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        std::fs::write(&path, NEW).unwrap();
        for (mode, is_noticed) in [(0o600, false), (0o640, false), (0o644, true)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let metadata = std::fs::metadata(&path).unwrap();
            assert_eq!(is_world_readable(&metadata), is_noticed, "{mode:o}");
            assert!(Tokens::from_file(&path).is_ok());
        }
    }

    #[test]
    fn a_missing_file_and_a_huge_one_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        assert!(matches!(
            Tokens::from_file(&path),
            Err(AuthError::Unreadable { .. })
        ));
        std::fs::write(&path, vec![b'\n'; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(matches!(
            Tokens::from_file(&path),
            Err(AuthError::TooLarge { .. })
        ));
    }
}
