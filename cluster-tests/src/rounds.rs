//! A round of each scenario: trouble, the next grant, and everything as it was.

use crate::nodes::{ADDED, Build, LOOK, STUCK};
use crate::run::Run;
use crate::scenario::Scenario;
use cluster::question::Question;
use crash_tests::disk::{Operation, Order};
use crash_tests::history::{LifeEnd, Time};
use crash_tests::trouble::STEPS_MS;
use std::time::{Duration, Instant};

/// Traffic before each trouble.
const BEFORE_MS: std::ops::Range<u64> = 100..800;

/// How long nodes that were killed stay down after the next grant.
const DOWN_MS: std::ops::Range<u64> = 0..1_000;

/// How long a leader is stopped.
const PAUSE_MS: std::ops::Range<u64> = 100..10_000;
const PAUSE_OF_TWO_MS: std::ops::Range<u64> = 100..5_000;

/// How long a leader is cut off.
const CUT_MS: std::ops::Range<u64> = 500..5_000;

const FLAP_EVERY: Duration = Duration::from_millis(200);
const FLAPS: usize = 25;

/// How long only one node reaches all others.
const BRIDGED: Duration = Duration::from_secs(12);
const BRIDGED_WITHOUT_GRANT_MAX: Duration = Duration::from_secs(10);

const SLOW_MS: std::ops::Range<u64> = 0..150;

/// The leader has the disks of all nodes written down by then.
const DISKS_KNOWN: Duration = Duration::from_millis(1_500);

/// How long a node without its disk is watched.
const REFUSED_FOR: Duration = Duration::from_millis(2_500);

/// What a node says of one that lost its disk.
const REFUSAL: &str = "comes with another disk";

/// What a node says in one line whose ledger differs.
const DIFFERENCE: [&str; 3] = [
    "this node's ledger has the hash",
    "Remove this node from the cluster, empty its data directory and add it under a new id",
    "This node stops here; the others go on",
];

/// When a node is killed while the membership changes.
const INTO_CHANGE_MS: std::ops::Range<u64> = 0..300;

/// Errors of a disk.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A disk that was to fail and has not ended its node is told to fail again after so long.
const FAIL_AGAIN: Duration = Duration::from_secs(2);

impl Run {
    /// One round. Returns what happened.
    pub(crate) fn round(&mut self, scenario: Scenario) -> Result<String, String> {
        let leader = self.nodes.wait_whole()?;
        self.sleep(BEFORE_MS);
        match scenario {
            Scenario::KillLeader => self.kill_leader(leader),
            Scenario::KillFollower => self.kill_follower(leader),
            Scenario::KillTwoAndReturn => self.kill_several(2),
            Scenario::KillAll => self.kill_several(self.nodes.count()),
            Scenario::PauseLeader => self.pause(&[leader], PAUSE_MS),
            Scenario::PauseTwo => {
                let other = self.other_than(leader);
                self.pause(&[leader, other], PAUSE_OF_TWO_MS)
            }
            Scenario::CutLeader => self.cut(leader, true, true),
            Scenario::CutOneWayIn => self.cut(leader, true, false),
            Scenario::CutOneWayOut => self.cut(leader, false, true),
            Scenario::Flap => self.flap(leader),
            Scenario::Bridge => self.bridge(leader),
            Scenario::SlowLinks => self.slow_links(leader),
            Scenario::RollingRestart => self.rolling_restart(),
            Scenario::RollingUpgrade => self.rolling_upgrade(),
            Scenario::WipedDisk => self.wiped_disk(),
            Scenario::SnapshotUnderLoad => self.snapshot_under_load(leader),
            Scenario::WallClock => self.wall_clock(leader),
            Scenario::FastClock | Scenario::WildClock => self.kill_leader(leader),
            Scenario::SlowDiskLeader => self.slow_disk(leader),
            Scenario::SlowDiskOfTwo => self.slow_disk_of_two(leader),
            Scenario::HangingDisk => self.hanging_disk(leader),
            Scenario::DiskErrorLeader => self.disk_error(leader),
            Scenario::DiskErrorFollower => {
                let node = self.other_than(leader);
                self.disk_error(node)
            }
            Scenario::GrowAndShrink => self.grow_and_shrink(),
            Scenario::ReplaceNode => self.replace_node(),
            Scenario::DifferingLedger => self.differing_ledger(leader),
            Scenario::HotLine => self.hot_line(leader),
        }
    }

    pub(crate) fn sleep(&mut self, ms: std::ops::Range<u64>) {
        std::thread::sleep(Duration::from_millis(self.random.u64(ms)));
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Waits for the first grant after the trouble, and keeps how long that took.
    pub(crate) fn fail_over(&mut self, from: Time) -> Result<Duration, String> {
        let took = self.wait_for_grant(from)?;
        self.failovers.push(took);
        Ok(took)
    }

    /// Keeps the longest pause of grants since the trouble.
    pub(crate) fn measure_pause(&mut self, from: Time) -> Duration {
        let pause = self.seen.longest_pause(from, self.recorder.now());
        let pause = Duration::from_micros(pause);
        self.pauses.push(pause);
        pause
    }

    pub(crate) fn kill_leader(&mut self, leader: usize) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let killed = self.nodes.end(leader, LifeEnd::Killed, &recorder)?;
        let is_back_at_once = self.random.u8(..4) == 0;
        if is_back_at_once {
            self.count("came back before another one led");
            self.nodes.start(leader, &recorder)?;
        }
        let took = self.fail_over(killed)?;
        if !is_back_at_once {
            self.sleep(DOWN_MS);
            self.nodes.start(leader, &recorder)?;
        }
        let back = recorder.now();
        self.wait_healed(back)?;
        self.measure_pause(killed);
        let id = self.nodes.id(leader);
        Ok(format!("node {id} killed, next grant after {took:.3?}"))
    }

    pub(crate) fn other_than(&mut self, node: usize) -> usize {
        let others = self.others(node);
        others[self.random.usize(..others.len())]
    }

    pub(crate) fn others(&self, node: usize) -> Vec<usize> {
        let mut others = self.nodes.members();
        others.retain(|other| *other != node);
        others
    }

    pub(crate) fn shuffled(&mut self) -> Vec<usize> {
        let mut all = self.nodes.members();
        self.random.shuffle(&mut all);
        all
    }

    fn kill_follower(&mut self, leader: usize) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let node = self.other_than(leader);
        let killed = self.nodes.end(node, LifeEnd::Killed, &recorder)?;
        let took = self.fail_over(killed)?;
        self.sleep(DOWN_MS);
        self.nodes.start(node, &recorder)?;
        let back = recorder.now();
        self.wait_healed(back)?;
        self.measure_pause(killed);
        let node = self.nodes.id(node);
        Ok(format!("node {node} killed, next grant after {took:.3?}"))
    }

    /// Kills so many at once that no majority is left. Failover counts from their return.
    fn kill_several(&mut self, count: usize) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let victims = self.shuffled();
        let victims = &victims[..count];
        for node in victims {
            self.nodes.end(*node, LifeEnd::Killed, &recorder)?;
        }
        self.sleep(DOWN_MS);
        for node in victims.iter().rev() {
            self.nodes.start(*node, &recorder)?;
        }
        let back = recorder.now();
        let took = self.fail_over(back)?;
        self.wait_healed(back)?;
        Ok(format!(
            "{count} killed, next grant {took:.3?} after their return"
        ))
    }

    fn pause(&mut self, victims: &[usize], ms: std::ops::Range<u64>) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let pause = self.pick_long(ms);
        let begun = recorder.now();
        for node in victims {
            self.nodes.pause(*node, &recorder)?;
        }
        std::thread::sleep(pause);
        for node in victims {
            self.nodes.go_on(*node)?;
        }
        let ended = recorder.now();
        // Without a majority the time that counts begins when it is back.
        let from = if victims.len() > 1 { ended } else { begun };
        let took = self.fail_over(from)?;
        self.wait_healed(ended)?;
        self.measure_pause(begun);
        let nodes: Vec<String> = victims
            .iter()
            .map(|node| self.nodes.id(*node).to_string())
            .collect();
        let nodes = nodes.join(" and ");
        Ok(format!(
            "node {nodes} stopped for {pause:.3?}, next grant after {took:.3?}"
        ))
    }

    /// Short times and long ones alike: each power of ten as often as the others.
    pub(crate) fn pick_long(&mut self, ms: std::ops::Range<u64>) -> Duration {
        let factor = ms.end as f64 / ms.start as f64;
        let ms = ms.start as f64 * factor.powf(self.random.f64());
        Duration::from_millis(ms as u64)
    }

    fn cut(&mut self, leader: usize, is_in: bool, is_out: bool) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let cut = self.pick_long(CUT_MS);
        let begun = recorder.now();
        for other in self.others(leader) {
            if is_in {
                self.nodes.links.cut(other, leader);
            }
            if is_out {
                self.nodes.links.cut(leader, other);
            }
        }
        self.nodes.lived(leader, begun, &recorder);
        std::thread::sleep(cut);
        self.heal_links();
        let ended = recorder.now();
        let took = self.fail_over(begun)?;
        self.wait_healed(ended)?;
        self.measure_pause(begun);
        let node = self.nodes.id(leader);
        Ok(format!(
            "node {node} cut off for {cut:.3?}, next grant after {took:.3?}"
        ))
    }

    /// Sometimes connections live on with what was kept, sometimes they are reset.
    pub(crate) fn heal_links(&mut self) {
        let is_reset = self.random.bool();
        self.nodes.links.heal(is_reset);
    }

    fn flap(&mut self, leader: usize) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let begun = recorder.now();
        self.nodes.lived(leader, begun, &recorder);
        for _ in 0..FLAPS {
            for from in self.nodes.members() {
                for to in self.nodes.members() {
                    match self.random.u8(..3) {
                        0 => self.nodes.links.cut(from, to),
                        _ => self.nodes.links.open(from, to),
                    }
                }
            }
            std::thread::sleep(FLAP_EVERY);
        }
        self.heal_links();
        let ended = recorder.now();
        let took = self.fail_over(ended)?;
        self.wait_healed(ended)?;
        let pause = self.measure_pause(begun);
        Ok(format!(
            "links flapped, at most {pause:.3?} without a grant, {took:.3?} in the end"
        ))
    }

    /// The cut stands while a grant is waited for.
    fn bridge(&mut self, leader: usize) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let hub = self.shuffled()[0];
        let begun = recorder.now();
        for from in self.others(hub) {
            for to in self.others(hub) {
                self.nodes.links.cut(from, to);
            }
        }
        self.nodes.lived(leader, begun, &recorder);
        std::thread::sleep(BRIDGED);
        let took = self.fail_over(begun)?;
        if took > BRIDGED_WITHOUT_GRANT_MAX {
            return Err(format!(
                "no grant within {took:?}, though one node reaches all"
            ));
        }
        let pause = self.measure_pause(begun);
        self.heal_links();
        let ended = recorder.now();
        self.wait_healed(ended)?;
        let (hub, leader) = (self.nodes.id(hub), self.nodes.id(leader));
        Ok(format!(
            "only node {hub} reached all, node {leader} led, at most {pause:.3?} without a grant"
        ))
    }

    fn slow_links(&mut self, leader: usize) -> Result<String, String> {
        for from in self.nodes.members() {
            for to in self.nodes.members() {
                let delay = Duration::from_millis(self.random.u64(SLOW_MS));
                self.nodes.links.slow(from, to, delay);
            }
        }
        self.sleep(BEFORE_MS);
        let what = self.kill_leader(leader)?;
        self.heal_links();
        Ok(format!("slow links, {what}"))
    }

    fn rolling_restart(&mut self) -> Result<String, String> {
        let mut longest = Duration::ZERO;
        for node in self.shuffled() {
            longest = longest.max(self.restart(node, None)?);
        }
        Ok(format!(
            "all restarted, at most {longest:.3?} without a grant"
        ))
    }

    /// Ends a node in good order when all are well, and starts it again, perhaps with another
    /// build. Returns how long there were no grants.
    pub(crate) fn restart(
        &mut self,
        node: usize,
        build: Option<&Build>,
    ) -> Result<Duration, String> {
        let recorder = self.recorder.clone();
        self.nodes.wait_whole()?;
        self.sleep(BEFORE_MS);
        let stopped = self.nodes.end(node, LifeEnd::Stopped, &recorder)?;
        if let Some(build) = build {
            self.nodes.set_build(node, build);
        }
        self.nodes.start(node, &recorder)?;
        let back = recorder.now();
        self.wait_healed(back)?;
        self.fail_over(stopped)?;
        Ok(self.measure_pause(stopped))
    }

    /// A node that has lost its disk must not take part. Its own disk is put back in the end.
    fn wiped_disk(&mut self) -> Result<String, String> {
        let recorder = self.recorder.clone();
        // The log has to know the disks before one can be missed.
        std::thread::sleep(DISKS_KNOWN);
        let node = self.shuffled()[0];
        let killed = self.nodes.end(node, LifeEnd::Killed, &recorder)?;
        let dir = self.nodes.data_dir(node).clone();
        let aside = dir.with_extension("aside");
        let system = |error: std::io::Error| format!("cannot wipe a disk: {error}");
        std::fs::rename(&dir, &aside).map_err(system)?;
        let said = |run: &Run| -> usize {
            let all = run.nodes.members().into_iter();
            let all = all.map(|node| run.nodes.lines(node));
            all.map(|lines| lines.matches(REFUSAL).count()).sum()
        };
        let said_before = said(self);
        self.nodes.start(node, &recorder)?;
        let took = self.fail_over(killed)?;
        std::thread::sleep(REFUSED_FOR);
        self.wait_for_grant(recorder.now())?;
        let standing = self.nodes.ask(node);
        let standing = standing.ok_or("a node without its disk does not answer")?;
        if standing.is_serving || standing.is_ready {
            return Err(format!("a node without its disk takes part: {standing:?}"));
        }
        if said(self) == said_before {
            return Err("no node said that one came with another disk".to_owned());
        }
        self.nodes.end(node, LifeEnd::Killed, &recorder)?;
        std::fs::remove_dir_all(&dir).map_err(system)?;
        std::fs::rename(&aside, &dir).map_err(system)?;
        self.nodes.start(node, &recorder)?;
        let back = recorder.now();
        self.wait_healed(back)?;
        self.measure_pause(killed);
        let node = self.nodes.id(node);
        Ok(format!(
            "node {node} came without its disk and was refused, next grant after {took:.3?}"
        ))
    }

    /// Waits until a number of a node's status is that high.
    pub(crate) fn wait_number(
        &mut self,
        node: usize,
        name: &str,
        least: u64,
        patience: Duration,
    ) -> Result<u64, String> {
        let begin = Instant::now();
        loop {
            self.nodes.demand_all_run()?;
            let standing = self.nodes.ask(node);
            let number = standing.as_ref().map_or(0, |it| it.number(name));
            if number >= least {
                return Ok(number);
            }
            if begin.elapsed() > patience {
                return Err(format!(
                    "{name} is not {least} after {patience:?}: {standing:#?}"
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn wall_clock(&mut self, leader: usize) -> Result<String, String> {
        for node in self.nodes.members() {
            let step_ms = STEPS_MS[self.random.usize(..STEPS_MS.len())];
            let ahead_ms = if self.random.bool() {
                step_ms
            } else {
                -step_ms
            };
            self.nodes.set_clock(node, ahead_ms)?;
        }
        self.sleep(BEFORE_MS);
        let what = self.kill_leader(leader)?;
        Ok(format!("clocks set, {what}"))
    }

    fn disk_error(&mut self, node: usize) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let of = match self.random.bool() {
            true => Operation::Sync,
            false => Operation::Write,
        };
        let error = if self.random.bool() { EIO } else { ENOSPC };
        let order = Order::Fail(of, error);
        let ordered = recorder.now();
        self.nodes.order_disk(node, order)?;
        let begin = Instant::now();
        let mut last_ordered = begin;
        while !self.nodes.has_ended(node) {
            if begin.elapsed() > STUCK {
                let id = self.nodes.id(node);
                return Err(format!("node {id} goes on without a disk"));
            }
            // A full disk may have met a spare segment, without which a node goes on.
            if last_ordered.elapsed() > FAIL_AGAIN {
                last_ordered = Instant::now();
                // It may have ended by now.
                let _ = self.nodes.order_disk(node, order);
            }
            std::thread::sleep(LOOK);
        }
        self.nodes.lived(node, ordered, &recorder);
        let took = self.fail_over(ordered)?;
        self.nodes.start(node, &recorder)?;
        let back = recorder.now();
        self.wait_healed(back)?;
        self.measure_pause(ordered);
        let (node, what) = (self.nodes.id(node), order.show());
        Ok(format!(
            "node {node} ended at `{what}`, next grant after {took:.3?}"
        ))
    }

    /// Asks for a change, and perhaps kills a node meanwhile, which comes back.
    pub(crate) fn change(&mut self, question: &Question, is_killing: bool) -> Result<(), String> {
        let recorder = self.recorder.clone();
        let operator = self.nodes.operator()?;
        let victim = match question {
            // It must not end before it is a member: it would have to be asked for again.
            Question::Add { node, .. } => self.member_without(*node),
            Question::Remove { node } => self.member_without(*node),
            _ => None,
        };
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| operator.change(question));
            let disturbed = match victim.filter(|_| is_killing) {
                None => Ok(()),
                Some(victim) => {
                    self.sleep(INTO_CHANGE_MS);
                    self.count("kills while the membership changed");
                    let killed = self.nodes.end(victim, LifeEnd::Killed, &recorder);
                    killed.and_then(|_| {
                        self.sleep(INTO_CHANGE_MS);
                        self.nodes.start(victim, &recorder)
                    })
                }
            };
            let changed = changing.join().expect("an operator does not panic");
            disturbed.and(changed)
        })
    }

    fn member_without(&mut self, id: u64) -> Option<usize> {
        let mut others = self.nodes.members();
        others.retain(|node| self.nodes.id(*node) != id);
        Some(others[self.random.usize(..others.len())])
    }

    /// A new node joins. Returns its place.
    fn add_node(&mut self, is_killing: bool) -> Result<usize, String> {
        let recorder = self.recorder.clone();
        let node = self.nodes.settle().ok_or("all places are taken")?;
        self.nodes.start(node, &recorder)?;
        let addition = self.nodes.addition(node);
        self.change(&addition, is_killing)?;
        Ok(node)
    }

    fn grow_and_shrink(&mut self) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let begun = recorder.now();
        for _ in 0..ADDED {
            let is_killing = self.random.bool();
            self.add_node(is_killing)?;
            self.nodes.wait_whole()?;
        }
        let leader = self.nodes.wait_whole()?;
        self.sleep(BEFORE_MS);
        self.kill_leader(leader)?;
        let mut gone = Vec::new();
        for _ in 0..ADDED {
            let node = self.shuffled()[0];
            let id = self.nodes.id(node);
            let is_killing = self.random.bool();
            self.change(&Question::Remove { node: id }, is_killing)?;
            let end = match self.random.bool() {
                true => LifeEnd::Killed,
                false => LifeEnd::Stopped,
            };
            self.nodes.end(node, end, &recorder)?;
            self.nodes.vacate(node);
            gone.push(id);
            self.nodes.wait_whole()?;
        }
        let ended = recorder.now();
        self.fail_over(ended)?;
        let pause = self.measure_pause(begun);
        Ok(format!(
            "grew and shrank, without nodes {gone:?} now, at most {pause:.3?} without a grant"
        ))
    }

    fn replace_node(&mut self) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let node = self.shuffled()[0];
        let id = self.nodes.id(node);
        let killed = self.nodes.end(node, LifeEnd::Killed, &recorder)?;
        let took = self.fail_over(killed)?;
        self.change(&Question::Remove { node: id }, false)?;
        self.nodes.vacate(node);
        let added = self.add_node(false)?;
        self.wait_healed(killed)?;
        self.measure_pause(killed);
        let added = self.nodes.id(added);
        Ok(format!(
            "node {added} took the place of node {id}, next grant after {took:.3?}"
        ))
    }

    /// A node that differs ends itself, says what to do, and that is done.
    fn differing_ledger(&mut self, leader: usize) -> Result<String, String> {
        let recorder = self.recorder.clone();
        let node = self.other_than(leader);
        let id = self.nodes.id(node);
        let stopped = self.nodes.end(node, LifeEnd::Stopped, &recorder)?;
        self.nodes.let_differ(node);
        let mut said_before = self.nodes.lines(node).len();
        self.nodes.begin(node, &recorder)?;
        let begin = Instant::now();
        let mut code = None;
        loop {
            code = code.or_else(|| self.nodes.exit_code(node));
            let lines = self.nodes.lines(node).split_off(said_before);
            let is_told = |line: &str| DIFFERENCE.iter().all(|said| line.contains(said));
            match code {
                Some(server::EXIT_DIFFERS) if lines.lines().any(is_told) => break,
                // Its lines are on their way.
                Some(server::EXIT_DIFFERS) | None => {}
                // A connection of the life before may linger.
                Some(_) if lines.contains("cannot listen on") => {
                    said_before += lines.len();
                    code = None;
                    self.nodes.begin(node, &recorder)?;
                }
                Some(code) => return Err(format!("node {id} differs and ended with {code}")),
            }
            if begin.elapsed() > STUCK {
                return Err(format!(
                    "node {id} differs, and after {STUCK:?} its exit code is {code:?}: {lines}"
                ));
            }
            std::thread::sleep(LOOK);
        }
        self.nodes.lived(node, stopped, &recorder);
        // The others serve on, without having been disturbed.
        let took = self.fail_over(recorder.now())?;
        self.change(&Question::Remove { node: id }, false)?;
        self.nodes.vacate(node);
        let added = self.add_node(false)?;
        self.wait_healed(stopped)?;
        self.measure_pause(stopped);
        let added = self.nodes.id(added);
        Ok(format!(
            "node {id} differed and ended itself, next grant after {took:.3?}; node {added} took its place"
        ))
    }

    /// Every client in line gets the lock after the failover.
    fn hot_line(&mut self, leader: usize) -> Result<String, String> {
        let served = self.served.clone().ok_or("there is no line")?;
        let what = self.kill_leader(leader)?;
        let before = served.counts();
        let begin = Instant::now();
        loop {
            let waiting = served.counts();
            let pairs = waiting.iter().zip(&before);
            let waiting = pairs.filter(|(now, before)| now == before).count();
            if waiting == 0 {
                break;
            }
            if begin.elapsed() > STUCK {
                return Err(format!("{waiting} clients in line wait for ever"));
            }
            self.nodes.demand_all_run()?;
            std::thread::sleep(LOOK);
        }
        let took = begin.elapsed();
        Ok(format!("{what}, all of the line served within {took:.3?}"))
    }
}
