//! What is measured.
//!
//! | file                     | what                                                   |
//! |--------------------------|--------------------------------------------------------|
//! | `workload.rs`            | the workloads, ways to wait, one setting of a workload |
//! | `settings.rs`            | which settings each workload is measured at            |
//! | `measure.rs`             | brings workload and protocol together                  |
//! | `measurement.rs`         | what a workload is handed, and how it ends             |
//! | `hot_key`, `expiry`, ... | one workload each; `hot_key` is `--handoff` too        |
//! | `bound.rs`               | what bounds a hot key                                  |
//! | `fill.rs`                | takes many locks; `fill_peer.rs`: of a running peer    |

mod bound;
mod expiry;
mod fill;
mod fill_peer;
mod hot_key;
mod many_keys;
mod measure;
mod measurement;
mod renew;
mod settings;
mod workload;

pub(crate) use fill::{Expiring, Times};
pub(crate) use fill_peer::{fill_expiring, fill_fencepost};
pub(crate) use measure::measure;
pub(crate) use settings::settings;
#[cfg(test)]
pub(crate) use workload::Waiting;
pub(crate) use workload::{Setting, Workload};
