//! The name that a server's certificate must have.

use rustls::pki_types::ServerName;
use std::net::IpAddr;

/// This name, or this address. `None`: no certificate can have it.
pub fn server_name(name: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(name.to_owned()).ok()
}

/// The host of `host:port`, without the brackets of an IPv6 address.
pub fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    match bare {
        Some(bare) if bare.parse::<IpAddr>().is_ok() => bare,
        _ => host,
    }
}
