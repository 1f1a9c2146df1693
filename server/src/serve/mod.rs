//! Serving connections, whatever they speak: accepting them, the one loop that reads, decides and
//! writes, and their end. What a connection is made of, and what the protocols have to say for
//! themselves, is in `conn/`.

pub(crate) mod conversation;
pub(crate) mod entrance;
pub(crate) mod listener;
pub(crate) mod stopping;
