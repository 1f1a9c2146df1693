//! `bench --cluster N`: what surrounds the load on clusters, which itself is `load`'s.
//!
//! | file          | what                                                                    |
//! |---------------|-------------------------------------------------------------------------|
//! | `failover.rs` | `--failover`: leaders killed and told to hand over; idle nodes          |
//! | `cycler.rs`   | its client: takes and gives back locks through all addresses for ever   |

pub(crate) mod cycler;
pub(crate) mod failover;
