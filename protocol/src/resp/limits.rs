//! What a peer may make the reader keep. Redis's own numbers where this server has no reason for
//! others.

/// The longest line: an inline command, or the announcement of a count or a length. As in Redis.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// The longest argument. Redis takes 512 MiB; a lock's key, value and scripts need far less.
pub const BULK_BYTES_MAX: usize = 64 * 1024;

/// The most arguments that a command may announce. As in Redis; a real command of that many reaches
/// [`COMMAND_BYTES_MAX`] first.
pub const ARGS_MAX: usize = 1024 * 1024;

/// The longest command, from its first byte to its last. The buffer of a [`super::Reader`]'s caller
/// never needs more.
pub const COMMAND_BYTES_MAX: usize = 512 * 1024;

/// The most arguments of a command from a peer that has not authenticated yet. As in Redis.
pub const STRICT_ARGS_MAX: usize = 10;

/// The longest argument from a peer that has not authenticated yet. As in Redis.
pub const STRICT_BULK_BYTES_MAX: usize = 16 * 1024;

/// How many arguments a reader keeps room for between commands. After a larger command it gives the
/// rest back.
pub(super) const ARGS_KEPT_MAX: usize = 256;

/// How many bytes of inline arguments a reader keeps room for between commands.
pub(super) const INLINE_BYTES_KEPT_MAX: usize = 1024;

const _: () = {
    assert!(STRICT_BULK_BYTES_MAX <= BULK_BYTES_MAX && STRICT_ARGS_MAX <= ARGS_MAX);
    assert!(LINE_BYTES_MAX < COMMAND_BYTES_MAX && BULK_BYTES_MAX < COMMAND_BYTES_MAX);
    // Positions inside a command are kept in 32 bits.
    assert!(COMMAND_BYTES_MAX < u32::MAX as usize);
};
