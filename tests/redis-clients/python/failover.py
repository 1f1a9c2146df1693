"""A lock through changes of the leader, with a driver that has to find the next one by itself.

    failover.py [--times N] DRIVER

Three nodes run. Their leader is killed, then the next one is paused, the next one asked to stop, and so on round. It
happens while the driver takes one lock after the other. Each time the driver has to take locks again without help, the
locks that it had before must still be held, and no other caller may get them.
"""

import argparse
import collections
import random
import re
import signal
import statistics
import sys
import threading
import time

import drivers
from drivers import Refused
from nodes import Nodes
from redisson_replay import REPLAYS, Replay

# A driver that has not found the new leader by then does not go on by itself.
RECOVERY_S_MAX = 30
# The driver takes locks for about so long before the leader ends. Not the same each time, so that the end comes upon
# every phase of a command.
BEFORE_S = (0.05, 0.3)
# So many of the locks that were granted last before the change are looked at after it.
KEPT = 20

DRIVERS = {**drivers.DRIVERS, **REPLAYS}

CHANGES = [("killed", signal.SIGKILL), ("paused", signal.SIGSTOP), ("asked to stop", signal.SIGTERM)]

# node-redis has no bound for the time that a command waits for its answer. It stays with a leader that is paused.
WAITS_FOR_EVER = ("node-redis-sentinel", "node-redis-cluster")


def check(claim, holds):
    if not holds:
        sys.exit(f"not so: {claim}")
    print("so it is:", claim)
    check.count += 1


check.count = 0


class Figures:
    """What happened in all changes together."""

    def __init__(self):
        # By kind of change: how long until a lock was granted again.
        self.recovery_s = collections.defaultdict(list)
        self.errors = collections.Counter()
        self.without_errors = 0
        self.looked_at = 0

    def refused(self, error):
        # Addresses, slots and what else differs from one occurrence to the next.
        self.errors[re.sub(r"[\d.]*\d+(:\d+)?", "#", str(error))[:150]] += 1

    def print(self, driver):
        every = [taken_s for kind in self.recovery_s.values() for taken_s in kind]
        kinds = ", ".join(f"{len(taken)} {kind}" for kind, taken in self.recovery_s.items())
        seconds = "; ".join(f"{kind}: {in_seconds(taken)}" for kind, taken in self.recovery_s.items())
        print(f"figures: {len(every)} changes of the leader: {kinds}")
        print(f"figures: a lock was granted again after {in_seconds(every)} ({seconds})")
        print(f"figures: {self.without_errors} changes without an error for the application")
        print(f"figures: {self.errors.total()} errors in all others together")
        for error, count in self.errors.most_common():
            print(f"figures:   {count} x {error}")
        print(f"figures: {driver.repeated} grants whose answer was lost and asked for again by the driver")
        print(f"figures: {self.looked_at} locks from before were looked at: 0 lost, 0 granted twice")


def in_seconds(taken):
    return f"{statistics.median(taken):.1f} s (median), {max(taken):.1f} s (most)"


class Change(threading.Thread):
    """Ends the leader in a moment, while the driver is at work."""

    def __init__(self, nodes, leader, sent):
        super().__init__()
        self.nodes, self.leader, self.sent = nodes, leader, sent
        self.is_over = False

    def run(self):
        time.sleep(random.uniform(*BEFORE_S))
        self.begun = time.monotonic()
        self.nodes.send(self.leader, self.sent)
        self.is_over = True


class Story:
    def __init__(self, driver, nodes):
        self.driver, self.nodes = driver, nodes
        self.figures = Figures()
        self.numbers = iter(range(1_000_000_000))

    def persist(self, attempt):
        """What an application does whose driver gives up on a command: it tries again. Returns what came of it."""
        deadline = time.monotonic() + RECOVERY_S_MAX
        while True:
            try:
                return attempt()
            except Refused as refused:
                print("  refused:", refused)
                self.figures.refused(refused)
                if time.monotonic() > deadline:
                    sys.exit(f"not so: the driver finds the new leader by itself within {RECOVERY_S_MAX} s")
                time.sleep(0.1)

    def fresh(self):
        """Takes a lock under a new key in every attempt: one whose answer was lost may have been taken all the same."""

        def attempt():
            self.key = f"fresh-{next(self.numbers)}"
            return self.driver.take(self.key)

        return self.persist(attempt)

    def take_until_after(self, change):
        """Takes one lock after the other until the leader is gone and the next one has granted one.

        Returns the last of those that were granted before."""
        granted = collections.deque(maxlen=KEPT)
        change.start()
        while not change.is_over:
            if not self.fresh():
                check("a free lock is granted", False)
            granted.append(self.key)
        change.join()
        check("the leader is gone; locks are granted again", self.fresh())
        return granted

    def after(self, change, sent, held):
        """Ends the leader under the driver, with a lock named `held`."""
        errors = self.figures.errors.total()
        leader = self.nodes.leader()
        ended = Change(self.nodes, leader, sent)
        granted = self.take_until_after(ended)
        taken_s = time.monotonic() - ended.begun
        self.figures.recovery_s[change].append(taken_s)
        self.figures.without_errors += self.figures.errors.total() == errors
        print(f"  {change}: granted again after {taken_s:.1f} s, the driver's own pauses included")
        for key in [held, *granted]:
            self.is_kept(key)
        check(f"{1 + len(granted)} locks from before are still held, and no other caller gets them", True)
        return leader

    def is_kept(self, key):
        self.figures.looked_at += 1
        if not self.persist(lambda: self.driver.is_held(key)):
            check(f"the lock {key} from before is still held", False)
        if self.persist(lambda: self.driver.take_other(key)):
            check(f"no other caller gets {key}", False)

    def tell(self, changes):
        driver, nodes = self.driver, self.nodes
        check("a free lock is granted", self.fresh())
        more = driver if isinstance(driver, Replay) else None
        if more:
            more.before_all(self, check)
        for change, sent in changes:
            check("a lock is granted that is to be kept", self.fresh())
            held = self.key
            if more:
                more.before_each(self, check)
            leader = self.after(change, sent, held)
            if sent == signal.SIGSTOP:
                nodes.send(leader, signal.SIGCONT)
            else:
                nodes.start(leader)
            nodes.wait_for_all()
            check("all nodes are back, and locks are granted", self.fresh())
            check("until it is given back", self.persist(lambda: driver.is_held(held)))
            # Not asked for its answer: of a release that the driver repeated, the second finds nothing to release.
            self.persist(lambda: driver.release(held))
            check("the lock was given back and is granted again", self.persist(lambda: driver.take(held)))
            if more:
                more.after_each(self, check)
        self.figures.print(driver)
        if more:
            more.after_all(self, check)


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("--times", type=int, help="how many changes of the leader; each kind once unless set")
    asked.add_argument("driver", choices=DRIVERS, metavar="DRIVER")
    asked = asked.parse_args()
    changes = [change for change in CHANGES if asked.driver not in WAITS_FOR_EVER or change[0] != "paused"]
    times = len(changes) if asked.times is None else asked.times
    with Nodes() as nodes:
        driver = DRIVERS[asked.driver](nodes.addresses())
        Story(driver, nodes).tell([changes[number % len(changes)] for number in range(times)])
        driver.close()
    print(check.count, "passed")


main()
