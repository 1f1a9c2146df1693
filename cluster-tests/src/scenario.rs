//! What befalls the nodes.

use clap::ValueEnum;

/// What befalls the nodes, round after round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// SIGKILL to the leader; it comes back, sometimes before another one is elected
    KillLeader,
    /// SIGKILL to a node that does not lead; it comes back
    KillFollower,
    /// SIGKILL to two nodes, so that no majority is left; both come back
    KillTwoAndReturn,
    /// SIGKILL to all nodes at once; all come back
    KillAll,
    /// The leader is stopped (SIGSTOP) for 0.1 to 10 s
    PauseLeader,
    /// Two nodes, the leader among them, are stopped for 0.1 to 5 s
    PauseTwo,
    /// The leader is cut off from all others for 0.5 to 5 s; clients still reach it
    CutLeader,
    /// The leader hears nothing from the others for 0.5 to 5 s, and they hear it
    CutOneWayIn,
    /// The others hear nothing from the leader for 0.5 to 5 s, and it hears them
    CutOneWayOut,
    /// Links are cut and opened at random, every 200 ms for 5 s
    Flap,
    /// One node reaches all others, which do not reach each other, for 12 s. Best with 5 nodes
    Bridge,
    /// All links are slow, by up to 150 ms each way, and the leader is killed
    SlowLinks,
    /// SIGTERM to one node after the other, each as soon as all are ready
    RollingRestart,
    /// The same with another build, and back again; in the end the format of the log is raised
    RollingUpgrade,
    /// A node comes back with an empty directory, and is refused; then with its own
    WipedDisk,
    /// Snapshots all the time, and a node that was away for longer than the log reaches back
    SnapshotUnderLoad,
    /// The wall clocks of nodes are set by up to an hour, and the leader is killed
    WallClock,
    /// All clocks of some nodes run half a percent too fast (faketime), and the leader is killed
    FastClock,
    /// All clocks of one node run a fifth too fast, more than is promised; only fences are checked
    WildClock,
    /// The disk of the leader is slow, by 0.2 to 2 s for each sync
    SlowDiskLeader,
    /// One of three nodes is down, and the disk of the leader is slow, then that of the other one
    SlowDiskOfTwo,
    /// The disk of the leader confirms nothing for 20 s, and another node has to lead meanwhile
    HangingDisk,
    /// The disk fails under the leader, which ends itself; it comes back with a sound one
    DiskErrorLeader,
    /// The same under a node that does not lead
    DiskErrorFollower,
    /// Two nodes are added and two are taken out, while nodes are killed
    GrowAndShrink,
    /// A node is lost for good, and another one takes its place under a new id
    ReplaceNode,
    /// The ledger of a node that does not lead differs; it ends itself, and another takes its place
    DifferingLedger,
    /// 200 clients wait in line for one key, and the leader is killed
    HotLine,
}

impl Scenario {
    /// How it is called on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.expect("none is left out").get_name().to_owned()
    }

    /// Whether a guard with a lease of 10 s must outlive it: a majority is left all the time.
    pub fn keeps_guards(self) -> bool {
        matches!(
            self,
            Scenario::KillLeader
                | Scenario::KillFollower
                | Scenario::RollingRestart
                | Scenario::RollingUpgrade
                | Scenario::WipedDisk
                | Scenario::ReplaceNode
                | Scenario::DifferingLedger
        )
    }

    /// Whether leases must be kept. Fences rise whatever the clocks do.
    pub fn keeps_leases(self) -> bool {
        self != Scenario::WildClock
    }
}
