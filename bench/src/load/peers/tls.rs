//! Peers behind TLS. All get a certificate of the same kind (ECDSA on P-256), made for the run;
//! none asks its clients for one.

use super::embedded::{self, AUTHORITY, FENCEPOST_TLS, OWN};
use super::{Started, redis};
use crate::load::stream;
use std::io;
use std::path::Path;
use tls::issue::Authority;
use tls::{VersionMin, client_config, read_roots};

pub(super) fn start_fencepost(directory: &Path) -> io::Result<Started> {
    let authority = Authority::new(directory, AUTHORITY);
    authority.issue(OWN);
    secured(embedded::start(FENCEPOST_TLS, directory)?, &authority)
}

/// Redis listens for plain connections on another port, on which its start is noticed.
pub(super) fn start_redis(directory: &Path) -> io::Result<Started> {
    let authority = Authority::new(directory, AUTHORITY);
    let own = authority.issue(OWN);
    let address = super::child::free_address()?;
    let port = address.port().to_string();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (cert, key, ca) = (text(&own.cert), text(&own.key), text(&authority.file()));
    let others = [
        ("--tls-port", port.as_str()),
        ("--tls-cert-file", &cert),
        ("--tls-key-file", &key),
        ("--tls-ca-cert-file", &ca),
        ("--tls-auth-clients", "no"),
    ];
    let others: Vec<&str> = others
        .iter()
        .flat_map(|(name, value)| [*name, *value])
        .collect();
    let (_, process) = redis::start_one("redis-server", directory, "redis.log", None, &others)?;
    secured((vec![address], vec![process]), &authority)
}

/// Has the generator speak TLS with it.
fn secured(started: Started, authority: &Authority) -> io::Result<Started> {
    let roots = read_roots(&authority.file()).map_err(io::Error::other)?;
    let config = client_config(roots, None, VersionMin::Tls13).map_err(io::Error::other)?;
    for address in &started.0 {
        stream::secure(*address, config.clone());
    }
    Ok(started)
}
