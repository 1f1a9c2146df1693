//! What a command needs of its sender's entitlement; `permission.rs` checks it.

/// What a command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    /// Nothing: it is about the connection, or says what every driver asks before it starts.
    Nothing,
    /// To lock each of its keys.
    Lock,
    /// To read each of its keys.
    Read,
    /// Either of them.
    LockOrRead,
    /// To lock each of its keys, or to read them if the script only reads.
    Script,
    /// By the subcommand: forgetting all scripts concerns others.
    Scripts,
    /// To take each of its keys away from its holder.
    Force,
    /// To read something. What the sender may not see is left out of the answer.
    Listing,
    /// To lock or to read each of these channels.
    Channel,
    /// To lock or to read each channel that one of these patterns can match.
    Pattern,
    /// To lock the channel.
    Publish,
    /// By the subcommand: the list of all clients is shown only to those that may read all keys.
    Client,
    /// To operate the server.
    Operate,
}
