//! The program `fencepost`: flags to settings to a running server. Everything else it can do is in
//! `cli/`.

extern crate fencepost_server as server;

mod cli;

use cli::Request;
use cli::failure::{Code, Failure, complain, print};
use cli::flags::ServeArgs;
use cluster::peer::ClusterKey;
use server::StartError;
use std::process::ExitCode;

/// Sessions and connections come and go on other threads than they were made on; this allocator is
/// good at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match cli::run() {
        Request::Serve(args) => serve(*args).map(|()| ExitCode::SUCCESS),
        Request::Done(done) => done,
    };
    done.unwrap_or_else(|failure| failure.report())
}

/// Runs the server until a signal stops it, or shows its settings.
fn serve(mut args: ServeArgs) -> Result<(), Failure> {
    let loaded = args.sources().load().map_err(Failure::usage)?;
    if args.check_config {
        loaded.warnings.iter().for_each(|warning| complain(warning));
        let key_file = loaded.config.cluster_key_file.as_deref();
        let warning = key_file.and_then(ClusterKey::warning);
        warning.iter().for_each(|warning| complain(warning));
        server::check(loaded.config).map_err(refused)?;
        return print("ok\n");
    }
    if args.print_config {
        return print(&loaded.to_toml());
    }
    loaded.config.start_logging();
    if args.end_with_stdin {
        cli::end_with_stdin();
    }
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    server::run(loaded.config).map_err(refused)
}

/// Why the server does not start, or would not.
fn refused(error: StartError) -> Failure {
    let code = match &error {
        StartError::Storage(error) if error.is_for_want_of_room() => Code::Disk,
        StartError::Listen { .. } | StartError::ListenUnix { .. } => Code::Listen,
        StartError::Setting(_)
        | StartError::Auth(_)
        | StartError::Tls(_)
        | StartError::ClusterKey(_)
        | StartError::Adopted(_)
        | StartError::Storage(_) => Code::Usage,
        _ => Code::No,
    };
    Failure::new(code, error)
}
