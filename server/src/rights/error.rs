//! Why a file of tokens or of rights cannot be used.

use super::TOKEN_BYTES_MIN;
use protocol::limits::TOKEN_BYTES_MAX;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why there are no tokens and no rights. The server does not start, since it would let every
/// client in or none.
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
        /// The most that is read.
        bytes_max: u64,
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
        /// How many there may be.
        most: usize,
    },
    /// A line of `auth_file` cannot be used.
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "cannot read the tokens in {}: {error}", path.display())
            }
            Self::TooLarge { path, bytes_max } => write!(
                f,
                "{}: the file has more than {bytes_max} bytes, is it the right one?",
                path.display()
            ),
            Self::Empty { path } => write!(
                f,
                "{}: there is no token in it; `openssl rand -hex 32` makes one",
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
            Self::TooMany { path, most } => write!(
                f,
                "{}: there are more than {most} tokens, remove those that are no longer in use",
                path.display()
            ),
            Self::Line {
                path,
                line,
                problem,
            } => write!(f, "{}:{line}: {problem}", path.display()),
        }
    }
}

impl std::error::Error for AuthError {}
