//! The flags of the server: one for each setting in the table, and those about the settings
//! themselves.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use server::config::{Config, SETTINGS, Setting, Sources};
use std::path::PathBuf;

/// What `fencepost serve` takes.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// A TOML file with settings, under the names of the flags with _ for -
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check whether a server could start now: settings, ports, files, limits and room on the disk;
    /// print "ok" and exit
    #[arg(long)]
    pub(crate) check_config: bool,
    /// Print the settings as TOML, each with where it came from, and exit
    #[arg(long, conflicts_with = "check_config")]
    pub(crate) print_config: bool,
    /// End when standard input does: a node of `dev-cluster` does not outlive it
    #[arg(long, hide = true)]
    pub(crate) end_with_stdin: bool,
    #[command(flatten)]
    settings: SettingFlags,
}

impl ServeArgs {
    /// These flags, and the environment of this process.
    pub(crate) fn sources(&mut self) -> Sources {
        Sources {
            flags: std::mem::take(&mut self.settings.0),
            config_file: self.config.take(),
            environment: std::env::vars_os().collect(),
        }
    }
}

/// The settings that were given as flags. They stay text here: the table of settings reads and
/// checks them, with the same words for a flag, a variable and a line of the file.
struct SettingFlags(Vec<(&'static Setting, String)>);

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        let defaults = Config::default();
        command.args(SETTINGS.iter().map(|setting| {
            let doc = setting.doc();
            let arg = Arg::new(setting.name)
                .long(setting.flag())
                .value_name(setting.metavar)
                .help_heading(setting.heading)
                .help(format!(
                    "{} [default: {}]",
                    doc.replace("auth_token_file", "--auth-token-file")
                        .replace(" auth_file", " --auth-file"),
                    setting.show(&defaults),
                ));
            if setting.is_switch() {
                arg.num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
            } else {
                arg
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = SETTINGS.iter().filter_map(|setting| {
            let text = matches.get_one::<String>(setting.name)?;
            Some((setting, text.clone()))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
