//! The Redis-compatible port: today's Redis lock clients, unchanged, on the engine that native
//! clients use.
//!
//! A command becomes engine calls, and the engine's answers become replies. Nothing about locks is
//! decided here. To the engine, all locks of this port belong to one session that never ends. The
//! owner of a lock is named by the value that a client set, which is kept as the lock's metadata.
//! `docs/redis.md` says what is the same as in Redis and what is not.
//!
//! | file            | what                                                                       |
//! |-----------------|----------------------------------------------------------------------------|
//! | `listener.rs`   | accepting; `serve.rs`: one connection: read, decide, write, block          |
//! | `talk.rs`       | from bytes to a command's `run`; `naming.rs`: its keys, before it runs     |
//! | `plan.rs`       | the same for all commands of a transaction; `permission.rs`: who may send  |
//! | `command.rs`    | the table of commands; `command/`: what each of them does                  |
//! | `section.rs`    | one command at its keys: every call of the engine; `section/`: its terms   |
//! | `name.rs`       | keys of sixteen databases; their values: `session/redis_form.rs`           |
//! | `script/`       | scripts, recognised and not interpreted                                    |
//! | `signals.rs`    | signal lists; `channels.rs`: subscriptions; `glob.rs`: patterns            |
//! | `long_ttl.rs`   | ends beyond those that the engine counts; `times.rs`: times in commands    |
//! | `topology.rs`   | a cluster as Redis clients see it; `switches.rs`: news; `slot.rs`: slots   |
//! | `port.rs`       | what all cores share; `client.rs`: one client; `refusal.rs`: errors        |

mod channels;
mod client;
mod command;
mod glob;
mod listener;
mod long_ttl;
mod name;
mod naming;
mod permission;
mod plan;
mod port;
mod refusal;
mod script;
mod section;
mod serve;
mod signals;
mod slot;
mod switches;
mod talk;
mod times;
mod topology;
mod voice;

pub(crate) use listener::{Listeners, accept_tcp, accept_unix};
pub(crate) use port::Port;
pub(crate) use script::recognise_text;
pub(crate) use switches::announce as announce_switches;
