//! Where figures come from: a plot without commit, date and machine is worth little a month later.

use std::process::Command;
use std::time::SystemTime;

/// The commit, the date and the machine of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) machine: String,
}

impl Origin {
    /// Of this run, here and now.
    pub(crate) fn here() -> Self {
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Origin {
            commit: commit(),
            date: date[..10].to_owned(),
            machine: machine(),
        }
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        format!("{}, {}, {}", self.commit, self.date, self.machine)
    }
}

/// The commit of the working directory, which is what the bench was built from if it was started by
/// `cargo run`.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=10", "HEAD"]) else {
        return "commit unknown".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]).as_deref() {
        Some("") => format!("commit {commit}"),
        _ => format!("commit {commit} and changes"),
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = match cores {
        1 => "1 core".to_owned(),
        cores => format!("{cores} cores"),
    };
    let uname = rustix::system::uname();
    let system = format!(
        "{} {}",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy()
    );
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    match model(&processors) {
        Some(model) => format!("{cores} of {model}, {system}"),
        None => format!("{cores}, {system}"),
    }
}

/// The processor's name, as Linux shows it.
fn model(processors: &str) -> Option<&str> {
    let line = processors
        .lines()
        .find(|line| line.starts_with("model name"))?;
    let (_, model) = line.split_once(':')?;
    Some(model.trim()).filter(|model| !model.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_if_the_system_names_it() {
        let processors = "processor\t: 0\nmodel name\t: A Processor @ 2.8GHz\nflags\t: fpu\n";
        assert_eq!(model(processors), Some("A Processor @ 2.8GHz"));
        assert_eq!(model("model name\t: \n"), None);
        assert_eq!(model(""), None);
    }

    #[test]
    fn every_run_has_an_origin() {
        let origin = Origin::here();
        assert_eq!(origin.date.len(), "2026-01-31".len());
        assert!(origin.commit.starts_with("commit "), "{origin:?}");
        assert!(origin.machine.contains(" core"), "{origin:?}");
        assert!(origin.line().contains(&origin.date));
    }
}
