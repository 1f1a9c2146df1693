//! What packages install beside the program, made from the command line's own description: man
//! pages and completions for shells.

use super::failure::{Code, Failure, print};
use clap::{Args, Command};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the man pages of this program and of all its commands into a directory
#[derive(Args)]
#[command(after_help = "\
Examples:
  Install them for all users of this machine:
    fencepost man /usr/local/share/man/man1")]
pub(super) struct ManArgs {
    /// The directory. It is made if it does not exist; pages of the same name are replaced
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Print completions of this program's commands and flags for a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  Use them in this shell:
    source <(fencepost completions bash)

  Install them:
    fencepost completions bash > ~/.local/share/bash-completion/completions/fencepost
    fencepost completions zsh > /usr/local/share/zsh/site-functions/_fencepost
    fencepost completions fish > ~/.config/fish/completions/fencepost.fish")]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Writes `fencepost.1` and a page for each command.
pub(super) fn man(args: &ManArgs, command: Command) -> Result<ExitCode, Failure> {
    let directory = &args.directory;
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory));
    written.map_err(|error| {
        let directory = directory.display();
        Failure::new(
            Code::No,
            format_args!("cannot write man pages to {directory}: {error}"),
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the completions of one shell.
pub(super) fn completions(
    args: &CompletionsArgs,
    mut command: Command,
) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    let script = String::from_utf8(script).expect("the command line is described in UTF-8");
    print(&script)?;
    Ok(ExitCode::SUCCESS)
}
