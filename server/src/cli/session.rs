//! Commands on one session.

use super::connect::ServerArgs;
use super::failure::{Code, Failure, print};
use super::view::to_line;
use clap::{Args, Subcommand};
use serde_json::json;
use std::process::ExitCode;

/// End a session: what it holds goes to those that wait for it
#[derive(Args)]
#[command(disable_help_subcommand = true)]
pub(super) struct SessionArgs {
    #[command(subcommand)]
    command: SessionCommand,
}

#[derive(Subcommand)]
enum SessionCommand {
    End(EndArgs),
}

/// End a session as its client would by saying goodbye. The client is told
#[derive(Args)]
#[command(after_help = "\
`fencepost sessions` shows the ids. The client may still be at work: fences protect only a resource that checks them. It \
opens a new session as soon as it hears of it. To keep it out, take its token out of the server's file as well.

Where the server has an --auth-file, this needs a token with the role operate and without prefixes.")]
struct EndArgs {
    /// The id of the session
    id: u64,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) fn run(args: &SessionArgs) -> Result<ExitCode, Failure> {
    let SessionCommand::End(args) = &args.command;
    let id = args.id;
    let has_ended = (args.server).ask(async |client| client.end_session(id).await)?;
    if args.server.json {
        print(&to_line(&json!({ "session_id": id, "ended": has_ended })))?;
        let code = if has_ended { 0 } else { Code::No as u8 };
        return Ok(ExitCode::from(code));
    }
    match has_ended {
        true => {
            print(&format!("session {id} has ended\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        false => Err(Failure::new(
            Code::No,
            format_args!("there is no session {id}; `fencepost sessions` shows those there are"),
        )),
    }
}
