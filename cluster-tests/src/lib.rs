//! Kills, stops and cuts off the nodes of a real cluster under real clients, and checks what they
//! saw.
//!
//! A run starts three nodes or more as child processes, with the links between them through a proxy
//! of the harness, and the clients of `crash-tests` on all of them. Then it lets happen to the
//! nodes what its [`Scenario`] says, round after round. In the end the cluster has to heal, and the
//! checker of `crash-tests` looks at what the clients were told: promises outlive everything.
//!
//! ```sh
//! cargo run --release -p cluster-tests -- kill-leader --times 200
//! ```
//!
//! # The files
//!
//! | file           | what                                                                    |
//! |----------------|-------------------------------------------------------------------------|
//! | `scenario.rs`  | what befalls the nodes                                                  |
//! | `run.rs`       | one run: rounds, then the cluster heals                                 |
//! | `rounds.rs`    | a round of each scenario                                                |
//! | `nodes.rs`     | the nodes as child processes, and what they say of themselves           |
//! | `upgrade.rs`   | another build on each node, there and back; the log's format is raised  |
//! | `builds.rs`    | the two builds of such an upgrade, and what they read                   |
//! | `snapshots.rs` | a node that was away for long is sent an image; what that costs         |
//! | `slow_disks.rs` | disks that are slow, one or one of two                                 |
//! | `waits.rs`     | what slow disks cost                                                    |
//! | `links.rs`     | the links between them: open, slow or cut, each direction by itself     |
//! | `company.rs`   | all clients of a run                                                    |
//! | `crew.rs`      | clients that work until the run stops                                   |
//! | `install.rs`   | what such an image came to                                              |
//! | `fill.rs`      | many long leases, before a run                                          |
//! | `load.rs`      | acquires at a steady rate, measured                                     |
//! | `footprint.rs` | memory and disk of a node                                               |
//! | `line.rs`      | many clients in line for one key                                        |
//! | `operator.rs`  | a tool that asks for changes of the membership                          |
//! | `rates.rs`     | clocks that run too fast                                                |
//! | `keepers.rs`   | guards with long leases that nothing here may cost, and grants measured |
//! | `report.rs`    | what came of it                                                         |

#![forbid(unsafe_code)]

mod builds;
pub mod company;
mod crew;
mod fill;
pub mod footprint;
pub mod install;
pub mod keepers;
pub mod line;
pub mod links;
pub mod load;
pub mod nodes;
pub mod operator;
pub mod rates;
pub mod report;
pub mod rounds;
pub mod run;
pub mod scenario;
pub mod slow_disks;
pub mod snapshots;
pub mod upgrade;
pub mod waits;

pub use report::Report;
pub use run::{GRANT_MAX, Plan, run};
pub use scenario::Scenario;
