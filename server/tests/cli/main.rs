//! The program `fencepost` from the outside: settings, exit codes, output, signals.

extern crate fencepost_server as server;

mod commands;
mod lock;
mod open_files;
mod program;
mod settings;
mod wal;
