//! Disks that are slow or hang: the leader's while all nodes run, and those of two nodes in turn
//! while the third is down.

use crate::nodes::{LOOK, STUCK};
use crate::run::Run;
use crate::waits::median_ms;
use crash_tests::disk::Order;
use crash_tests::history::LifeEnd;
use std::time::{Duration, Instant};

/// How much longer each sync of a slow disk takes, and for how long.
const SLOW_SYNC_MS: std::ops::Range<u64> = 200..2_000;
const SLOW_DISK_MS: std::ops::Range<u64> = 1_000..4_000;

/// How long a disk hangs: a sync that has begun ends after that.
const HANGS_FOR: Duration = Duration::from_secs(20);

/// How long each of two disks is slow while it is watched, and how often it is asked how long the
/// next grant takes.
const WATCHED: Duration = Duration::from_secs(4);
const ASKED_EVERY: Duration = Duration::from_millis(250);

impl Run {
    pub(crate) fn slow_disk(&mut self, leader: usize) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let delay = self.pick_long(SLOW_SYNC_MS);
        let begun = recorder.now();
        self.nodes.order_disk(leader, Order::Slow(delay))?;
        self.nodes.lived(leader, begun, &recorder);
        self.sleep(SLOW_DISK_MS);
        self.nodes.order_disk(leader, Order::Slow(Duration::ZERO))?;
        let ended = recorder.now();
        let took = self.fail_over(begun)?;
        self.wait_healed(ended)?;
        let pause = self.measure_pause(begun);
        let node = self.nodes.id(leader);
        Ok(format!(
            "syncs of node {node} took {delay:.3?}, next grant after {took:.3?}, at most {pause:.3?} without one"
        ))
    }

    /// The disk of the leader hangs. Commits do not wait for it, but what the leader logs stays in
    /// its memory meanwhile, so another node is to lead.
    pub(crate) fn hanging_disk(&mut self, leader: usize) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let begun = recorder.now();
        let begin = Instant::now();
        self.nodes.order_disk(leader, Order::Slow(HANGS_FOR))?;
        self.nodes.lived(leader, begun, &recorder);
        let mut next = Some(leader);
        while next.is_none_or(|next| next == leader) {
            if begin.elapsed() > HANGS_FOR {
                let node = self.nodes.id(leader);
                return Err(format!("node {node} leads on a disk that hangs"));
            }
            std::thread::sleep(LOOK);
            self.nodes.demand_all_run()?;
            next = self.nodes.leader();
        }
        let led_on = begin.elapsed();
        self.nodes.order_disk(leader, Order::Slow(Duration::ZERO))?;
        std::thread::sleep(HANGS_FOR.saturating_sub(begin.elapsed()));
        let ended = recorder.now();
        let took = self.fail_over(begun)?;
        self.wait_healed(ended)?;
        let pause = self.measure_pause(begun);
        let node = self.nodes.id(leader);
        Ok(format!(
            "the disk of node {node} hung, another led after {led_on:.3?}, next grant after {took:.3?}, at most {pause:.3?} \
             without one"
        ))
    }

    /// With one of three nodes down each commit needs the disks of both others. First that of the
    /// leader is slow, then, by as much, that of the follower.
    pub(crate) fn slow_disk_of_two(&mut self, leader: usize) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let delay = self.pick_long(SLOW_SYNC_MS);
        let down = self.other_than(leader);
        let killed = self.nodes.end(down, LifeEnd::Killed, &recorder)?;
        self.fail_over(killed)?;
        let leader = self.wait_leader()?;
        let of_leader = self.watch_slow(leader, delay)?;
        // The other one may have taken over.
        let leader = self.wait_leader()?;
        let mut others = self.others(leader);
        others.retain(|other| *other != down);
        let of_follower = self.watch_slow(others[0], delay)?;
        self.nodes.start(down, &recorder)?;
        let back = recorder.now();
        self.wait_healed(back)?;
        self.measure_pause(killed);
        let what = format!(
            "two nodes, syncs of one took {delay:.3?}: next grant after {} ms if it led, {} ms if it did not",
            median_ms(&of_leader),
            median_ms(&of_follower)
        );
        self.slow_disks.of_leader.extend(of_leader);
        self.slow_disks.of_follower.extend(of_follower);
        Ok(what)
    }

    /// How long the next grant took at moments while this disk was slow.
    fn watch_slow(&mut self, node: usize, delay: Duration) -> Result<Vec<Duration>, String> {
        let recorder = self.recorder.clone();
        let begun = recorder.now();
        self.nodes.order_disk(node, Order::Slow(delay))?;
        self.nodes.lived(node, begun, &recorder);
        let slow = recorder.now();
        std::thread::sleep(WATCHED);
        self.nodes.order_disk(node, Order::Slow(Duration::ZERO))?;
        let moments = (slow..recorder.now()).step_by(ASKED_EVERY.as_micros() as usize);
        let waits = moments.map(|moment| self.wait_for_grant(moment));
        waits.collect()
    }

    fn wait_leader(&mut self) -> Result<usize, String> {
        let begin = Instant::now();
        loop {
            self.nodes.demand_all_run()?;
            if let Some(leader) = self.nodes.leader() {
                return Ok(leader);
            }
            if begin.elapsed() > STUCK {
                return Err(format!("no leader after {STUCK:?}"));
            }
            std::thread::sleep(LOOK);
        }
    }
}
