//! The program `fencepost` from the outside: settings, exit codes, output, signals.

mod commands;
mod lock;
mod open_files;
mod program;
mod settings;
mod wal;
