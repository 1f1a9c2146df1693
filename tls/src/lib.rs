//! Certificates: read from PEM files, checked, and handed to rustls.
//!
//! Servers, clients and the nodes of a cluster all come here, so that one set of rules holds for
//! all of them:
//!
//! - There are no certificates that come with the system: an authority is a file that is named.
//! - No session is resumed. Each handshake verifies the certificates afresh, so an authority that
//!   was taken away lets no peer in, not even one that was here a minute ago.
//! - TLS 1.2 and 1.3, whatever `ring` has for them: only cipher suites with forward secrecy.
//!
//! | file        | what                                                            |
//! |-------------|-----------------------------------------------------------------|
//! | `files.rs`  | certificates, keys and authorities, as they are in PEM files    |
//! | `config.rs` | what rustls is told: of a server, of a client                   |
//! | `name.rs`   | the name that a server's certificate must have                  |
//! | `facts.rs`  | what a certificate says: names, when it ends                    |
//! | `issue.rs`  | certificates made on the spot, for tests and measurements       |
//! | `reason.rs` | why a handshake failed, in words that say what to do            |
//! | `record.rs` | the first bytes of a connection: TLS, or what else              |

#![forbid(unsafe_code)]

mod config;
mod error;
#[cfg(feature = "facts")]
mod facts;
mod files;
#[cfg(feature = "issue")]
pub mod issue;
mod name;
mod reason;
mod record;

pub use config::{Clients, VersionMin, client_config, server_config};
pub use error::TlsError;
#[cfg(feature = "facts")]
pub use facts::{Facts, Names};
pub use files::{Identity, read_roots};
pub use name::{host_of, server_name};
pub use reason::{reason, reason_of_io};
pub use record::{ALERT_REFUSED, is_client_hello, may_be_client_hello};
pub use rustls;

#[cfg(test)]
mod tests;
