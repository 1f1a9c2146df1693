//! How far a run is, and how long it still takes: a bar on a terminal, nothing elsewhere.
//!
//! Everything that takes longer than some seconds has one. It goes to standard error and is gone
//! when the run is over, so results can be piped and copied as they are.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How often the clocks on the bar move while nothing else does.
const TICK: Duration = Duration::from_millis(500);

const STEPS: &str = "{bar:30} {pos}/{len}  {elapsed} gone, {eta} left  {msg}";

/// Steps of one run. Its end clears the bar.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A run of so many steps, which take about as long each.
    pub(crate) fn new(steps: u64) -> Self {
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(steps),
            false => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template(STEPS).expect("the template is constant");
        bar.set_style(style);
        bar.enable_steady_tick(TICK);
        Progress(bar)
    }

    /// What is done now.
    pub(crate) fn begin(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// A step is over.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Prints something above the bar.
    pub(crate) fn print(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted() {
        let progress = Progress::new(3);
        progress.begin("first");
        progress.step();
        progress.step();
        assert_eq!(progress.0.position(), 2);
        assert_eq!(progress.0.message(), "first");
        let mut is_printed = false;
        progress.print(|| is_printed = true);
        assert!(is_printed);
    }
}
