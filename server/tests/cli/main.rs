//! The program `fencepost` from the outside: settings, exit codes, output, signals.

extern crate fencepost_server as server;

mod audit;
mod auth;
mod cluster;
mod commands;
mod deploy;
mod dev_cluster;
mod idle;
mod lock;
mod open_files;
mod places;
mod program;
mod settings;
mod tls;
mod tls_cluster;
mod top;
mod traces;
mod wal;
