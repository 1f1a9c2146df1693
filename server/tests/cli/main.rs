//! The program `fencepost` from the outside: settings, exit codes, output, signals.

mod commands;
mod lock;
mod program;
mod settings;
mod wal;
