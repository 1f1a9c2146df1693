//! Puts a [`Config`] together: flags before environment before file before defaults.
//!
//! Every value that is given is checked, also one that a stronger source overrides: a mistake in a
//! file does not wait for the day on which a flag is left out. Each mistake is one sentence that
//! says where it was made.

use super::{Config, SETTINGS, Setting, SettingError};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Names the file, instead of the flag `--config`.
const CONFIG_VARIABLE: &str = "FENCEPOST_CONFIG";
/// A name this much like another one is taken for a slip of the pen.
const LIKENESS_MIN: f64 = 0.8;

/// Where settings come from.
#[derive(Default)]
pub struct Sources {
    /// Of the command line, with their values.
    pub flags: Vec<(&'static Setting, String)>,
    /// The file that the command line names.
    pub config_file: Option<PathBuf>,
    /// The environment: all of it, or what a test makes up.
    pub environment: Vec<(OsString, OsString)>,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing was said.
    Default,
    /// A line of the file.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// This environment variable.
    Environment(String),
    /// This flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(variable) => f.write_str(variable),
            Self::Flag(flag) => write!(f, "--{flag}"),
        }
    }
}

/// A checked [`Config`] that remembers where its values came from.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Environment variables that look like a setting misspelt, each a sentence for the log.
    pub warnings: Vec<String>,
    /// One for each of [`SETTINGS`].
    origins: Vec<Origin>,
}

/// Why there is no configuration. The operator acts on it: the server does not start.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is not TOML.
    Syntax {
        /// Where.
        at: Origin,
        /// What the parser says.
        message: String,
    },
    /// The file sets something that is no setting.
    UnknownKey {
        /// Where.
        at: Origin,
        /// What it sets.
        key: String,
        /// What it may have meant.
        nearest: Option<&'static str>,
    },
    /// An environment variable is not text.
    NotUtf8 {
        /// Its name.
        variable: String,
    },
    /// A value cannot be used.
    Setting {
        /// Where it came from.
        at: Origin,
        /// What is wrong with it.
        error: SettingError,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "cannot read the settings in {}: {error}", path.display())
            }
            Self::Syntax { at, message } => write!(f, "{at}: this is not TOML: {message}"),
            Self::UnknownKey { at, key, nearest } => {
                write!(f, "{at}: there is no setting {key:?}")?;
                match nearest {
                    Some(nearest) => write!(f, ", did you mean {nearest:?}?"),
                    None => write!(f, ", see `fencepost serve --help` for those there are"),
                }
            }
            Self::NotUtf8 { variable } => write!(f, "{variable}: the value is not UTF-8"),
            // A flag and a variable name their setting; a line of the file does not.
            Self::Setting {
                at: at @ (Origin::Flag(_) | Origin::Environment(_)),
                error,
            } => write!(f, "{at}: {}", error.problem),
            Self::Setting {
                at: Origin::Default,
                error,
            } => error.fmt(f),
            Self::Setting { at, error } => write!(f, "{at}: {error}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Sources {
    /// Reads, merges and checks everything.
    pub fn load(self) -> Result<Loaded, ConfigError> {
        let mut loaded = Loaded {
            config: Config::default(),
            warnings: Vec::new(),
            origins: vec![Origin::Default; SETTINGS.len()],
        };
        let config_file = match self.config_file {
            Some(path) => Some(path),
            // Empty counts as not set, as it does below.
            None => self
                .environment
                .iter()
                .find(|(name, value)| name == CONFIG_VARIABLE && !value.is_empty())
                .map(|(_, value)| PathBuf::from(value)),
        };
        if let Some(path) = config_file {
            let text = std::fs::read_to_string(&path).map_err(|error| ConfigError::Unreadable {
                path: path.clone(),
                error,
            })?;
            loaded.set_from_toml(&text, &path)?;
        }
        loaded.set_from_environment(&self.environment)?;
        for (setting, text) in self.flags {
            loaded.set(setting, &text, Origin::Flag(setting.flag()))?;
        }
        loaded
            .config
            .check()
            .map_err(|error| ConfigError::Setting {
                at: loaded.origin_of(error.setting).clone(),
                error,
            })?;
        Ok(loaded)
    }
}

impl Loaded {
    /// Which source decided this setting.
    pub fn origin_of(&self, name: &str) -> &Origin {
        let index = SETTINGS.iter().position(|setting| setting.name == name);
        &self.origins[index.expect("every name comes from the table")]
    }

    /// The settings as a file that `--config` takes, each with its origin.
    pub fn to_toml(&self) -> String {
        let values: Vec<String> = SETTINGS
            .iter()
            .map(|setting| format!("{} = {}", setting.name, (setting.to_toml)(&self.config)))
            .collect();
        // One long path should not push every comment out of sight.
        let width = values
            .iter()
            .map(String::len)
            .filter(|len| *len <= 48)
            .max();
        let width = width.unwrap_or(0);
        let mut text = String::new();
        let mut heading = "";
        for ((setting, value), origin) in SETTINGS.iter().zip(&values).zip(&self.origins) {
            if heading != setting.heading {
                let gap = if heading.is_empty() { "" } else { "\n" };
                text.push_str(&format!("{gap}# {}\n", setting.heading));
                heading = setting.heading;
            }
            // A path may hold any character; a comment may not.
            let origin = origin.to_string().replace(char::is_control, "?");
            text.push_str(&format!("{value:width$}  # {origin}\n"));
        }
        text
    }

    fn set(&mut self, setting: &Setting, text: &str, at: Origin) -> Result<(), ConfigError> {
        let set = (setting.set)(&mut self.config, text);
        // The range now and not at the end: a stronger source may hide the value by then.
        match set.and_then(|()| (setting.check)(&self.config)) {
            Ok(()) => {
                let index = SETTINGS.iter().position(|other| other.name == setting.name);
                self.origins[index.expect("every setting is in the table")] = at;
                Ok(())
            }
            Err(problem) => Err(ConfigError::Setting {
                at,
                error: SettingError {
                    setting: setting.name,
                    problem,
                },
            }),
        }
    }

    fn set_from_toml(&mut self, text: &str, path: &Path) -> Result<(), ConfigError> {
        let at = |offset: usize| Origin::File {
            path: path.to_owned(),
            line: 1 + text.as_bytes()[..offset.min(text.len())]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count(),
        };
        let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
            at: at(error.span().map_or(0, |span| span.start)),
            message: error.message().replace('\n', ", "),
        })?;
        for (key, value) in table.get_ref() {
            let at = at(key.span().start);
            let name = key.get_ref().as_ref();
            let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
                return Err(ConfigError::UnknownKey {
                    at,
                    key: name.to_owned(),
                    nearest: nearest(&name.replace('-', "_")).map(|setting| setting.name),
                });
            };
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Boolean(is_on) => is_on.to_string(),
                DeValue::Integer(number) if number.radix() == 10 => number.to_string(),
                // As it stands in the file: no kind of value takes these, and the error shows what
                // was written.
                _ => text[value.span()].split_whitespace().collect(),
            };
            self.set(setting, &text, at)?;
        }
        Ok(())
    }

    fn set_from_environment(
        &mut self,
        environment: &[(OsString, OsString)],
    ) -> Result<(), ConfigError> {
        for (variable, value) in environment {
            let Some(name) = variable.to_str().and_then(|v| v.strip_prefix("FENCEPOST_")) else {
                continue;
            };
            let variable = || format!("FENCEPOST_{name}");
            let Some(setting) = SETTINGS.iter().find(|s| s.variable() == variable()) else {
                self.warn_if_misspelt(name);
                continue;
            };
            match value.to_str() {
                Some("") => {}
                Some(text) => self.set(setting, text, Origin::Environment(variable()))?,
                None => {
                    return Err(ConfigError::NotUtf8 {
                        variable: variable(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Strangers are no error here, as they are in the file: orchestrators put variables like
    /// `FENCEPOST_SERVICE_HOST` into the environment of everything that runs near a service of that
    /// name.
    fn warn_if_misspelt(&mut self, name: &str) {
        // The command line's own.
        if ["CONFIG", "SERVER", "TOKEN_FILE", "KEY", "FENCE"].contains(&name) {
            return;
        }
        if let Some(setting) = nearest(&name.to_ascii_lowercase()) {
            self.warnings.push(format!(
                "the environment sets FENCEPOST_{name}, which is no setting; did you mean {}?",
                setting.variable()
            ));
        }
    }
}

/// The setting whose name is most like `name`, if one is like it at all.
fn nearest(name: &str) -> Option<&'static Setting> {
    SETTINGS
        .iter()
        .map(|setting| {
            (
                strsim::normalized_damerau_levenshtein(setting.name, name),
                setting,
            )
        })
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, setting)| setting)
}
