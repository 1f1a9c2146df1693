//! What a connection is called. On its own, so that sessions and mail can name connections without
//! knowing each other.

/// A connection: which core has it, and where. Never reused for another connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionId {
    pub(crate) core: u16,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}
