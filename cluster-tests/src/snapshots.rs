//! A node is away until the others do not have the entries any more that it lacks, and is sent an
//! image of the ledger. With many locks: what that costs the clients, and the nodes.

use crate::fill;
use crate::footprint::Footprint;
use crate::install::Install;
use crate::load::Acquires;
use crate::nodes::{LOOK, STUCK};
use crate::run::Run;
use crash_tests::history::LifeEnd;
use std::time::{Duration, Instant};

/// How long it may take until entries that a node lacks are gone: more log than half an image, of a
/// million locks.
const PURGED_MAX: Duration = Duration::from_secs(600);

/// So many acquires say how long one takes while all nodes are there.
const ACQUIRES_BEFORE: usize = 3_000;

/// So many of the locks that fill the ledger are asked for at the end.
const PROBED_LOCKS: usize = 2_000;

impl Run {
    /// A node is away until the others do not have the entries any more that it lacks.
    pub(crate) fn snapshot_under_load(&mut self, leader: usize) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let before = self.acquires_before()?;
        let node = self.other_than(leader);
        // What many locks cost is asked of a node that has them in memory.
        let is_cut = self.random.bool() || self.locks > 0;
        let begun = recorder.now();
        let term = self.ask_number(leader, "term")?;
        if is_cut {
            for other in self.others(node) {
                self.nodes.links.cut(other, node);
                self.nodes.links.cut(node, other);
            }
            self.nodes.lived(node, begun, &recorder);
        }
        let last = self.ask_number(node, "last_index")?;
        if !is_cut {
            self.nodes.end(node, LifeEnd::Killed, &recorder)?;
        }
        let purged = self.wait_number(leader, "purged_index", last + 1, PURGED_MAX)?;
        let away = Duration::from_micros(recorder.now() - begun);
        std::thread::sleep(self.away.saturating_sub(away));
        let away = Duration::from_micros(recorder.now() - begun);
        let meanwhile = self.acquires();
        if is_cut {
            self.heal_links();
        } else {
            self.nodes.start(node, &recorder)?;
        }
        let back = recorder.now();
        self.wait_number(node, "applied_index", purged, STUCK)?;
        let took = Duration::from_micros(recorder.now() - back);
        self.failovers.push(took);
        self.wait_healed(back)?;
        self.measure_pause(begun);
        if let Some((before, meanwhile)) = before.zip(meanwhile) {
            let leader = self.nodes.wait_whole()?;
            let install = Install {
                away,
                took,
                before,
                meanwhile,
                during: self.acquires().unwrap_or_default(),
                elections: self.ask_number(leader, "term")? - term,
                footprint: self.footprint(),
            };
            self.installs.push(install);
        }
        // Now and then the node leads by what it was sent.
        if self.random.bool() {
            let leader = self.nodes.wait_whole()?;
            self.kill_leader(leader)?;
        }
        let node = self.nodes.id(node);
        Ok(format!(
            "node {node} missed entries from {last} to {purged}, caught up in {took:.3?}"
        ))
    }

    /// How long acquires take while all is well, if the run measures that.
    fn acquires_before(&mut self) -> Result<Option<Acquires>, String> {
        let Some(latencies) = self.latencies.clone() else {
            return Ok(None);
        };
        latencies.take();
        let begin = Instant::now();
        while latencies.count() < ACQUIRES_BEFORE {
            self.nodes.demand_all_run()?;
            if begin.elapsed() > STUCK {
                return Err(format!(
                    "{ACQUIRES_BEFORE} acquires take {STUCK:?} and more"
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(Some(latencies.take()))
    }

    fn acquires(&self) -> Option<Acquires> {
        Some(self.latencies.as_ref()?.take())
    }

    fn ask_number(&self, node: usize, name: &str) -> Result<u64, String> {
        let standing = self.nodes.ask(node).ok_or("a node does not answer")?;
        Ok(standing.number(name))
    }

    /// The most that a node uses.
    pub(crate) fn footprint(&self) -> Footprint {
        let members = self.nodes.members().into_iter();
        let used = members.filter_map(|node| {
            let pid = self.nodes.pid(node)?;
            Some(Footprint::of(pid, self.nodes.data_dir(node)))
        });
        used.fold(Footprint::default(), Footprint::max)
    }

    /// No lock that filled the ledger may be another client's now.
    pub(crate) fn demand_filled(&mut self) -> Result<(), String> {
        let probed: Vec<usize> = match self.locks {
            0 => return Ok(()),
            all => (0..PROBED_LOCKS)
                .map(|_| self.random.usize(..all))
                .collect(),
        };
        match fill::lost(&self.nodes.redis_addresses(), &probed)? {
            0 => Ok(()),
            lost => Err(format!("{lost} of {PROBED_LOCKS} long leases were lost")),
        }
    }
}
