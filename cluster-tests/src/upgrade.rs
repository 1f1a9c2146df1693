//! Nodes are replaced by another build while clients go on: round after round there and back, and
//! in the end the format of the log is raised.
//!
//! Until then the newer build says that it reads what the older one does, so that the way back
//! stays open; then it reads a format that is made up. While one member does not, the log must not
//! go on to it; afterwards the older build must be refused, with a sentence that names the way out.

use crate::builds::{NEWER_FORMAT, OLDER_FORMAT};
use crate::nodes::{Build, LOOK, STUCK, Standing};
use crate::run::Run;
use cluster::question::Question;
use crash_tests::history::LifeEnd;
use std::time::{Duration, Instant};

/// How long the nodes are watched while one of them reads the older format only. The leader looks
/// three times in it whether the log can go on.
const WATCHED: Duration = Duration::from_millis(1_500);

/// What nodes say of a build that does not read the log's format: why, and what to do.
const REFUSAL: &str = "has gone on to format";
const WAY_OUT: &str = "with the version that the other nodes run";

impl Run {
    /// All nodes change to the other build, one after the other.
    pub(crate) fn rolling_upgrade(&mut self) -> Result<String, String> {
        let build = self.builds.other();
        let mut longest = Duration::ZERO;
        for node in self.shuffled() {
            longest = longest.max(self.restart(node, Some(&build))?);
            self.count("nodes that changed to the other build");
        }
        let way = match self.builds.is_newer() {
            true => "from the older build to the newer",
            false => "back to the older build",
        };
        Ok(format!("all {way}, at most {longest:.3?} without a grant"))
    }

    /// The newer build learns to read another format on one node after the other.
    pub(crate) fn raise_format(&mut self) -> Result<String, String> {
        let older = self.builds.older().clone();
        let newer = self.builds.reading_newer();
        let mut first = self.shuffled();
        let last = first.pop().ok_or("a cluster has nodes")?;
        self.restart(last, Some(&older))?;
        for node in &first {
            self.restart(*node, Some(&newer))?;
            self.demand_older_format()?;
        }
        // As long as one node holds the others back, each of them can go back.
        self.restart(first[0], Some(&older))?;
        self.demand_older_format()?;
        self.restart(first[0], Some(&newer))?;
        // It is not for want of a leader that reads it.
        if self.nodes.wait_whole()? == last {
            let to = self.nodes.id(first[0]);
            self.change(&Question::Transfer { to }, false)?;
        }
        let begin = Instant::now();
        while begin.elapsed() < WATCHED {
            self.demand_older_format()?;
            std::thread::sleep(LOOK);
        }
        self.restart(last, Some(&newer))?;
        for node in self.nodes.members() {
            let format = u64::from(NEWER_FORMAT.0);
            self.wait_number(node, "format", format, STUCK)?;
        }
        self.count("times that the log went on to another format");
        let refused = self.refuse_older(&older, &newer)?;
        Ok(format!(
            "the log went on to format {} with the last node; {refused}",
            NEWER_FORMAT.0
        ))
    }

    /// The log must not have gone on.
    fn demand_older_format(&mut self) -> Result<(), String> {
        self.nodes.demand_all_run()?;
        let members = self.nodes.members().into_iter();
        // A build that does not tell has 0.
        let formats = members.filter_map(|node| Some(self.nodes.ask(node)?.number("format")));
        match formats.max() {
            Some(format) if format > u64::from(OLDER_FORMAT.0) => Err(format!(
                "the log has gone on to format {format}, which a member does not read"
            )),
            _ => Ok(()),
        }
    }

    /// A node comes with the older build once more, takes no part, and comes back with the newer.
    fn refuse_older(&mut self, older: &Build, newer: &Build) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let node = self.shuffled()[0];
        let said_before = self.nodes.lines(node).len();
        let stopped = self.nodes.end(node, LifeEnd::Stopped, &recorder)?;
        self.nodes.set_build(node, older);
        // A snapshot that says the format ends it before it listens. If only entries say it, the
        // other nodes tell it.
        let how = match self.nodes.start(node, &recorder) {
            Err(why) if why.contains(REFUSAL) => "ended at once",
            Err(why) => return Err(why),
            Ok(()) => "was refused by the others",
        };
        let begin = Instant::now();
        let told = loop {
            let lines = self.nodes.lines(node).split_off(said_before);
            if let Some(told) = lines.lines().find(|line| line.contains(REFUSAL)) {
                break told.to_owned();
            }
            if begin.elapsed() > STUCK {
                return Err(format!("a node of the older build is not told so: {lines}"));
            }
            std::thread::sleep(LOOK);
        };
        if !told.contains(WAY_OUT) {
            return Err(format!("no way out is named: {told}"));
        }
        // Builds that do not tell the format said that they are ready as long as they remembered a
        // leader.
        let takes_part = |it: &Standing| it.is_serving || it.is_ready && it.number("format") > 0;
        if let Some(standing) = self.nodes.ask(node).filter(takes_part) {
            return Err(format!(
                "a node takes part that does not read the log's format: {standing:?}"
            ));
        }
        self.fail_over(stopped)?;
        if self.nodes.is_up(node) && !self.nodes.has_ended(node) {
            self.nodes.end(node, LifeEnd::Killed, &recorder)?;
        }
        self.nodes.set_build(node, newer);
        self.nodes.start(node, &recorder)?;
        let back = recorder.now();
        self.wait_healed(back)?;
        self.count("nodes of the older build that were refused");
        let id = self.nodes.id(node);
        Ok(format!("node {id} came with the older build and {how}"))
    }
}
