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
//! | `talk.rs`       | from bytes to a command's `run`; `plan.rs`: its keys, named before it runs |
//! | `command.rs`    | the table of commands; `command/`: what each of them does                  |
//! | `section.rs`    | one command at its keys: every call of the engine; `section/`: its terms   |
//! | `value.rs`      | the Redis value of a key; `name.rs`: keys of sixteen databases             |
//! | `script/`       | scripts, recognised and not interpreted                                    |
//! | `signals.rs`    | signal lists; `channels.rs`: subscriptions; `glob.rs`: patterns            |
//! | `long_ttl.rs`   | ends beyond those that the engine counts                                   |
//! | `port.rs`       | what all cores share; `client.rs`: one client; `refusal.rs`: errors        |

mod channels;
mod client;
mod command;
mod glob;
mod listener;
mod long_ttl;
mod name;
mod plan;
mod port;
mod refusal;
mod script;
mod section;
mod serve;
mod signals;
mod talk;
mod value;
mod voice;

pub(crate) use listener::{Listeners, accept_tcp, accept_unix};
pub(crate) use port::Port;
pub(crate) use script::recognise_text;
