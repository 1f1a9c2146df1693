//! Sessions as clients know them: names, secrets, connections and remembered outcomes.

pub(crate) mod detached;
pub(crate) mod registry;
pub(crate) mod secret;
