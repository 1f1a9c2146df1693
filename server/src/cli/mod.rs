//! The command line: what it takes, what its help says, and which file does it.
//!
//! | file         | what                                                               |
//! |--------------|--------------------------------------------------------------------|
//! | `flags.rs`   | the server's settings                                              |
//! | `look.rs`    | commands that look at a server, and `release`                      |
//! | `audit.rs`   | what an audit log tells about a key                                |
//! | `auth.rs`    | files of rights; `session.rs`: ending a session                    |
//! | `top.rs`     | the server at a glance, in a terminal                              |
//! | `lock.rs`    | running a command under a lock; `child.rs`: that command;          |
//! |              | `tied.rs`: how it ends with this program                           |
//! | `connect.rs` | reaching a server, and the sentences for when that fails           |
//! | `cluster.rs` | commands on a cluster; `nodes.rs`: reaching its nodes               |
//! | `dev_cluster.rs` | a cluster on this machine to try things with                   |
//! | `wal.rs`     | commands on data directories; `wal/json.rs`: what `--json` prints  |
//! | `view.rs`    | locks and sessions as output; `text.rs`: times, keys and tables    |
//! | `generated.rs` | man pages and completions                                        |
//! | `failure.rs` | exit codes                                                         |

mod audit;
mod auth;
mod child;
mod cluster;
mod connect;
mod dev_cluster;
pub(crate) use dev_cluster::end_with_stdin;
pub(crate) mod failure;
pub(crate) mod flags;
mod generated;
mod lock;
mod look;
mod nodes;
mod reading;
mod session;
mod text;
mod tied;
mod tls;
mod top;
mod view;
mod wal;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use flags::ServeArgs;
use std::ffi::OsStr;
use std::process::ExitCode;

const ABOUT: &str =
    "A lock server. Every grant carries a fence, a number that only ever rises for its key.";

const EXAMPLES: &str = "\
Examples:
  Start a server on this machine, on 127.0.0.1:7400:
    fencepost

  Run a nightly job on one machine at a time; give up after 10 seconds:
    fencepost lock jobs/nightly --wait 10s -- ./nightly.sh

  See who holds what, and how long the queues are:
    fencepost list
    fencepost query jobs/nightly
    fencepost top

  Take a lock away from its holder:
    fencepost release jobs/nightly --fence 1836311903 --force

  Tell who held a key some time ago, from the audit log:
    fencepost audit jobs/nightly --at 10:03:17 --log /var/log/fencepost/audit.log

  End the session of a client that hangs; `fencepost sessions` shows its id:
    fencepost session end 1836311903

  See what the tokens in a file of rights may do:
    fencepost auth check rights.toml

  See whether a server would start with the log in a data directory:
    fencepost wal verify fencepost-data

  Try a cluster of three nodes on this machine:
    fencepost dev-cluster

The server takes its settings from flags, FENCEPOST_* variables and a TOML file, in this order: see \
`fencepost serve --help`.

Exit codes:
    0  all is well; serve: stopped in order by a signal
    1  the server said no; audit: the files cannot tell; wal: no server starts with that log;
       cluster: the leader said no, and why, or there is no leader; serve: not started, for the audit log, a limit or a thread
    2  a flag, an argument or a setting is wrong; serve: so are the tokens, or the log is damaged or in use
   65  serve: a node stopped itself, because its ledger differs from the other nodes': its log says what to do
   69  the server cannot be reached
   70  the server or this program failed
   71  serve: not started, because an address or a socket cannot be listened on
   74  serve: the disk failed or is full; cluster backup, restore, adopt: a file cannot be written
   75  lock: not acquired in time
   76  lock: the lock was lost while the command ran, but the command ended with 0
   77  the server did not accept the token; cluster: the nodes have another key
  126  lock: the command cannot be started
  127  lock: there is no such command
  130  serve: ended at once by a second signal
  lock otherwise ends with the exit code of its command, 128+n if signal n ended it";

/// The whole command line.
#[derive(Parser)]
#[command(
    name = "fencepost",
    version,
    about = ABOUT,
    after_help = "`fencepost --help` has examples and the exit codes.",
    after_long_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    override_usage = "fencepost [SETTINGS]\n       fencepost <COMMAND>",
)]
pub(crate) struct Cli {
    /// Without a command the server is run, so its flags stand here too; their help is with
    /// `serve`.
    #[command(flatten)]
    serve: ServeArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server. This is also what `fencepost` alone does
    #[command(
        after_help = "`fencepost serve --help` has examples, and how to use a file or the environment instead.",
        after_long_help = SERVE_NOTES
    )]
    Serve(Box<ServeArgs>),
    Lock(lock::LockArgs),
    Query(look::QueryArgs),
    List(look::ListArgs),
    Sessions(look::SessionsArgs),
    Session(session::SessionArgs),
    Stats(look::StatsArgs),
    Release(look::ReleaseArgs),
    Ping(look::PingArgs),
    Top(top::TopArgs),
    Audit(audit::AuditArgs),
    Auth(auth::AuthArgs),
    Wal(wal::WalArgs),
    Cluster(cluster::ClusterArgs),
    DevCluster(dev_cluster::DevClusterArgs),
    Man(generated::ManArgs),
    Completions(generated::CompletionsArgs),
    /// What `lock` starts: see `tied.rs`
    #[command(hide = true)]
    Tied(tied::TiedArgs),
}

const SERVE_NOTES: &str = "\
Every flag is an environment variable and a key of the file as well: --session-ttl is FENCEPOST_SESSION_TTL in the \
environment and session_ttl in the file. Flags come before variables, variables before the file, the file before the \
defaults. An empty variable counts as not set. Times are written like 500ms, 30s, 2m, 1h; sizes like 64KiB, 16MiB, 4GiB.

Examples:
  Write a settings file to start from:
    fencepost serve --print-config > fencepost.toml

  Serve other machines; clients have to show the token:
    (umask 077; openssl rand -hex 32 > tokens)
    fencepost serve --listen 0.0.0.0:7400 --auth-token-file tokens

  The same with rights of its own for each token, described in docs/security.md:
    fencepost serve --listen 0.0.0.0:7400 --auth-file rights.toml

SIGTERM and SIGINT end the server in order, with exit code 0; a second one ends it at once, with 130. On SIGHUP the server \
reads the tokens and rights again and opens the audit log again, and its log says what changed. If it cannot read them, the \
old ones stay. Open connections stay open, even if their token is gone, unless its name is gone from --auth-file.

Exit codes: 0 stopped in order; 1 not started, for the audit log, a limit or a thread; 2 a setting, the tokens or \
the log cannot be used; 65 this node of a cluster differs from the others, and needs a person; 71 an address or a socket \
cannot be listened on, in use or not allowed; 74 the disk failed or is full; 130 ended at once by a second signal. A start \
that fails changes nothing; --check-config does all that a start does up to its first write.";

/// What the command line asks for.
pub(crate) enum Request {
    /// Run the server, or look at its settings.
    Serve(Box<ServeArgs>),
    /// Another command, which has run with this result.
    Done(Result<ExitCode, Failure>),
}

/// Reads the command line and runs its command, except for the server.
pub(crate) fn run() -> Request {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => return Request::Done(refuse(&error)),
    };
    let done = match cli.command {
        None => return Request::Serve(Box::new(cli.serve)),
        Some(Command::Serve(args)) => return Request::Serve(args),
        Some(Command::Lock(args)) => lock::run(args),
        Some(Command::Query(args)) => look::query(&args),
        Some(Command::List(args)) => look::list(&args),
        Some(Command::Sessions(args)) => look::sessions(&args),
        Some(Command::Stats(args)) => look::stats(&args),
        Some(Command::Release(args)) => look::release(&args),
        Some(Command::Ping(args)) => look::ping(&args),
        Some(Command::Top(args)) => top::run(&args),
        Some(Command::Audit(args)) => audit::run(&args),
        Some(Command::Session(args)) => session::run(&args),
        Some(Command::Auth(args)) => auth::run(&args),
        Some(Command::Wal(args)) => wal::run(&args),
        Some(Command::Cluster(args)) => cluster::run(&args),
        Some(Command::DevCluster(args)) => dev_cluster::run(&args),
        Some(Command::Man(args)) => generated::man(&args, described()),
        Some(Command::Completions(args)) => generated::completions(&args, described()),
        Some(Command::Tied(args)) => tied::run(&args),
    };
    Request::Done(done)
}

fn parse() -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&described().try_get_matches()?)
}

/// The command line as it is shown. Thirty settings above the list of commands would bury it.
fn described() -> clap::Command {
    Cli::command().mut_args(|arg| match arg.get_id().as_str() {
        "help" | "version" => arg,
        _ => arg.hide(true),
    })
}

/// Help and version go to standard output as they are. A mistake becomes one line.
fn refuse(error: &clap::Error) -> Result<ExitCode, Failure> {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            failure::print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            let command = std::env::args_os().nth(1);
            let command = command.as_deref().and_then(OsStr::to_str);
            let advice = advice(command, error.kind());
            Err(Failure::usage(format_args!(
                "{}; {advice}",
                one_line(&text)
            )))
        }
    }
}

/// Where the user finds the right use of this command.
fn advice(command: Option<&str>, kind: ErrorKind) -> String {
    let known = command.filter(|name| Cli::command().find_subcommand(name).is_some());
    match (known, kind) {
        // The usual mistake: a command without `--` in front.
        (Some("lock"), ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument) => {
            "write it like `fencepost lock KEY --wait 10s -- COMMAND ARGUMENTS`".to_owned()
        }
        (Some(name), _) => format!("see `fencepost {name} --help`"),
        // Flags of the commands, in front of the command.
        (None, ErrorKind::UnknownArgument) if is_of_commands(command) => {
            "it goes behind the command: `fencepost query KEY --server HOST:PORT`".to_owned()
        }
        (None, _) => "see `fencepost --help`".to_owned(),
    }
}

/// Whether this is a flag that every command takes and the server does not.
fn is_of_commands(argument: Option<&str>) -> bool {
    let name = argument.and_then(|argument| argument.split('=').next());
    matches!(
        name,
        Some("--server" | "--token-file" | "--timeout" | "--json")
    )
}

/// clap's message and tip, without the usage and the pointer to the help.
fn one_line(text: &str) -> String {
    let gist = text.lines().map(str::trim).take_while(|line| {
        !line.starts_with("Usage:") && !line.starts_with("For more information")
    });
    let gist: Vec<&str> = gist.filter(|line| !line.is_empty()).collect();
    let gist = gist.join(" ").replace(" tip:", "; tip:");
    gist.strip_prefix("error: ").unwrap_or(&gist).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Codes that only the server ends with: in order, another ledger than the other nodes, disk
    /// failure, second signal.
    const OF_THE_SERVER: [i32; 4] = [0, server::EXIT_DIFFERS, server::EXIT_DISK, 130];

    #[test]
    fn every_exit_code_is_in_the_help_and_in_the_readme() {
        let readme = include_str!("../../../README.md");
        let codes = failure::Code::ALL.iter().map(|code| *code as i32);
        for code in codes.chain(OF_THE_SERVER) {
            assert!(EXAMPLES.contains(&format!("\n{code:5}  ")), "{code}");
            assert!(readme.contains(&format!("| {code} |")), "{code}");
        }
        for code in OF_THE_SERVER.into_iter().chain([1, 2, 71]) {
            assert!(SERVE_NOTES.contains(&format!(" {code} ")), "{code}");
        }
    }

    /// systemd restarted it, and it stopped at the same entry again.
    #[test]
    fn systemd_leaves_a_node_that_differs_to_a_person() {
        let unit = include_str!("../../../deploy/systemd/fencepost.service");
        let prevents = unit
            .lines()
            .find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
        let prevents: Vec<&str> = prevents.expect("it says so").split(' ').collect();
        let code = server::EXIT_DIFFERS.to_string();
        assert!(prevents.contains(&&*code), "{prevents:?}");
    }

    #[test]
    fn advice_fits_the_command() {
        let kind = ErrorKind::UnknownArgument;
        assert!(advice(Some("lock"), kind).contains("lock KEY --wait 10s -- "));
        assert_eq!(advice(Some("list"), kind), "see `fencepost list --help`");
        assert_eq!(advice(Some("--listen"), kind), "see `fencepost --help`");
        assert_eq!(advice(None, kind), "see `fencepost --help`");
        let misplaced = advice(Some("--server=127.0.0.1:1"), kind);
        assert!(misplaced.contains("behind the command"), "{misplaced}");
    }

    #[test]
    fn mistakes_are_one_line() {
        let mistakes: &[&[&str]] = &[
            &["--lissten", "127.0.0.1:1"],
            &["--listen"],
            &["serve", "--pin", "yes"],
            &["lock"],
            &["lock", "key"],
            &["lock", "key", "--ttl", "5", "--", "true"],
            &["lock", "key", "--ttl", "2d", "--", "true"],
            &["lock", "key", "--wait", "2d", "--", "true"],
            &["release", "key"],
            &["audit", "key"],
            &["audit", "key", "--at", "noon", "--log", "audit.log"],
            &["wal"],
            &["wal", "verify"],
            &["wal", "repair", "dir", "--lease-max", "5"],
            &["cluster"],
            &["cluster", "remove", "three"],
            &["dev-cluster", "--nodes", "none"],
            &["completions", "cmd"],
            &["man"],
            &["unlock", "key"],
        ];
        for mistake in mistakes {
            let arguments = std::iter::once(&"fencepost").chain(*mistake);
            let Err(error) = Cli::try_parse_from(arguments) else {
                panic!("{mistake:?} was accepted");
            };
            let line = one_line(&error.render().to_string());
            assert!(!line.contains('\n') && !line.starts_with("error"), "{line}");
        }
    }
}
