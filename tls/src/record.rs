//! The first bytes of a connection: TLS, or what else.

/// What a handshake begins with: the type of its record and the major version.
const HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// A fatal alert, "handshake failure": what a port that does not speak TLS tells a client that
/// does.
pub const ALERT_REFUSED: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x28];

/// Whether a connection that begins with these bytes speaks TLS.
pub fn is_client_hello(first: &[u8]) -> bool {
    first.starts_with(&HANDSHAKE)
}

/// Whether it may speak TLS: there may be only one byte so far.
pub fn may_be_client_hello(first: &[u8]) -> bool {
    is_client_hello(first) || *first == HANDSHAKE[..1]
}
