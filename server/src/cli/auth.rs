//! Commands on files of rights: checking one, and hashing a token for it.

use super::failure::{Code, Failure, print};
use super::view::to_line;
use clap::{Args, Subcommand};
use server::{check_auth_file, hash_token};
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

/// More than this is no token.
const INPUT_BYTES_MAX: u64 = 4_096;

const NOTES: &str = "\
Examples:
  Make a token for the clients of a team, and an entry of the file for it:
    (umask 077; openssl rand -hex 32 > orders.token)
    fencepost auth hash < orders.token

  See whether a server would take the file, and what each token may do:
    fencepost auth check rights.toml

The format is described in docs/security.md. The server takes the file with --auth-file, and reads it again on SIGHUP.";

/// Check a file of rights, or hash a token for it
#[derive(Args)]
#[command(after_help = NOTES, disable_help_subcommand = true)]
pub(super) struct AuthArgs {
    #[command(subcommand)]
    command: AuthCommand,
}

#[derive(Subcommand)]
enum AuthCommand {
    Check(CheckArgs),
    Hash(HashArgs),
}

/// Read a file of rights as the server does, and say what each token may do
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 the server would take it, 2 it would not; the sentence names the line."
)]
struct CheckArgs {
    /// The file
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Read a token from standard input, and print its SHA-256
#[derive(Args)]
#[command(after_help = "Spaces and line ends around the token do not count. It is never shown.")]
struct HashArgs {}

pub(super) fn run(args: &AuthArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        AuthCommand::Check(args) => check(args),
        AuthCommand::Hash(_) => hash(),
    }
}

fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let entries = check_auth_file(&args.file).map_err(Failure::usage)?;
    let text = match args.json {
        true => to_line(&entries),
        false => entries.iter().map(|entry| format!("{entry}\n")).collect(),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn hash() -> Result<ExitCode, Failure> {
    let mut input = Vec::new();
    let mut stdin = std::io::stdin().lock().take(INPUT_BYTES_MAX);
    stdin.read_to_end(&mut input).map_err(|error| {
        Failure::new(
            Code::Internal,
            format_args!("cannot read standard input: {error}"),
        )
    })?;
    let hash = hash_token(input.trim_ascii()).map_err(Failure::usage)?;
    print(&format!("{hash}\n"))?;
    Ok(ExitCode::SUCCESS)
}
