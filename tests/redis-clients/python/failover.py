"""A lock through changes of the leader, with a driver that has to find the next one by itself: failover.py DRIVER.

Three nodes run. Their leader is killed, then the next one is paused, the next one asked to stop. Each time the driver has
to take locks again without help, and a lock that was held before must still be held.
"""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.cluster
import redis.retry
import redis.sentinel
from nodes import Nodes
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException

TTL_MS = 120_000
# A driver that has not found the new leader by then does not go on by itself.
RECOVERY_S_MAX = 30
# How long a driver waits for an answer. A leader that is paused gives none.
ANSWER_S_MAX = 1
MASTER = "mymaster"


class Refused(Exception):
    """The driver gave up on a command: the story tries again."""


class RedisPy:
    """redis-py's own locks."""

    def __init__(self, client):
        self.client = client
        self.locks = {}

    def take(self, key):
        lock, token = self.client.lock(key, timeout=TTL_MS / 1_000), secrets.token_hex(16)
        if not self.asked(lambda: lock.acquire(blocking=False, token=token)):
            # A driver that lost the answer asks again by itself, and is refused by the lock that it has.
            if self.asked(lambda: self.client.get(key)) != token.encode():
                return False
        self.locks[key] = lock, token.encode()
        return True

    def take_other(self, key):
        lock = self.client.lock(key, timeout=TTL_MS / 1_000)
        return self.asked(lambda: lock.acquire(blocking=False))

    def is_held(self, key):
        return self.asked(self.lock(key).owned)

    def release(self, key):
        return self.asked(self.lock(key).release)

    def lock(self, key):
        """The lock as it was granted: redis-py forgets the token when it starts to release."""
        lock, token = self.locks[key]
        lock.local.token = token
        return lock

    def asked(self, ask):
        try:
            return ask()
        except redis.exceptions.LockNotOwnedError:
            return False
        except (redis.RedisError, RedisClusterException) as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    def close(self):
        self.client.close()


class AsyncRedisPy(RedisPy):
    """The same, in asyncio."""

    def __init__(self, connect):
        self.loop = asyncio.new_event_loop()

        async def client():
            return connect()

        super().__init__(self.loop.run_until_complete(client()))

    def asked(self, ask):
        async def answer():
            return await ask()

        return super().asked(lambda: self.loop.run_until_complete(answer()))

    def close(self):
        self.loop.run_until_complete(self.client.aclose())
        self.loop.close()


class Program:
    """A driver in another language: its program does what it is told, a line of JSON at a time."""

    def __init__(self, command, driver, addresses):
        ports = [str(port) for _, port in addresses]
        self.process = subprocess.Popen(
            [*command, driver, *ports], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request):
        print(json.dumps(request), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit("not so: the process with the driver survives")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["ok"]

    def take(self, key):
        return self.ask(take=key, ttl_ms=TTL_MS)

    def take_other(self, key):
        return self.ask(take_other=key, ttl_ms=TTL_MS)

    def is_held(self, key):
        return self.ask(is_held=key)

    def release(self, key):
        return self.ask(release=key)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def node(driver):
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "node", "failover.mjs")
    return lambda addresses: Program(["node", program], driver, addresses)


def go(driver):
    # `run` has compiled it from `go` into the directory that it calls this in.
    return lambda addresses: Program([os.path.abspath("failover")], driver, addresses)


def sentinel(addresses, package=redis.sentinel, retry=redis.retry.Retry):
    # A node that does not answer is left for the next one at once; redis-py would ask it again and again.
    asking = {"socket_timeout": ANSWER_S_MAX, "retry": retry(NoBackoff(), 0)}
    found = package.Sentinel(addresses, sentinel_kwargs=asking)
    return found.master_for(MASTER, socket_timeout=ANSWER_S_MAX)


def cluster(addresses, package=redis.cluster):
    nodes = [package.ClusterNode(host, port) for host, port in addresses]
    return package.RedisCluster(startup_nodes=nodes, socket_timeout=ANSWER_S_MAX)


DRIVERS = {
    "redis-py-sentinel": lambda addresses: RedisPy(sentinel(addresses)),
    "redis-py-cluster": lambda addresses: RedisPy(cluster(addresses)),
    "redis-py-sentinel-async": lambda addresses: AsyncRedisPy(
        lambda: sentinel(addresses, redis.asyncio.sentinel, redis.asyncio.retry.Retry)
    ),
    "redis-py-cluster-async": lambda addresses: AsyncRedisPy(lambda: cluster(addresses, redis.asyncio.cluster)),
    "ioredis-sentinel": node("ioredis-sentinel"),
    "ioredis-cluster": node("ioredis-cluster"),
    "node-redis-sentinel": node("node-redis-sentinel"),
    "node-redis-cluster": node("node-redis-cluster"),
    "go-redis-5-sentinel": go("go-redis-5-sentinel"),
    "go-redis-5-cluster": go("go-redis-5-cluster"),
    "go-redis-9-sentinel": go("go-redis-9-sentinel"),
    "go-redis-9-cluster": go("go-redis-9-cluster"),
}

CHANGES = [("killed", signal.SIGKILL), ("paused", signal.SIGSTOP), ("asked to stop", signal.SIGTERM)]

# node-redis has no bound for the time that a command waits for its answer. It stays with a leader that is paused.
WAITS_FOR_EVER = ("node-redis-sentinel", "node-redis-cluster")


def check(claim, holds):
    if not holds:
        sys.exit(f"not so: {claim}")
    print("so it is:", claim)
    check.count += 1


check.count = 0


def persist(attempt):
    """What an application does whose driver gives up on a command: it tries again. Returns what came of it."""
    deadline = time.monotonic() + RECOVERY_S_MAX
    while True:
        try:
            return attempt()
        except Refused as refused:
            print("  refused:", refused)
            if time.monotonic() > deadline:
                sys.exit(f"not so: the driver finds the new leader by itself within {RECOVERY_S_MAX} s")
            time.sleep(0.1)


def fresh(driver, name):
    """Takes a lock under a new key in every attempt: one whose answer was lost may have been taken all the same."""
    numbers = iter(range(1_000_000))
    return persist(lambda: driver.take(f"{name}-{next(numbers)}"))


def story(driver, nodes, changes):
    check("a free lock is granted", fresh(driver, "first"))
    for number, (change, sent) in enumerate(changes):
        held = f"held-{number}"
        check("a lock is granted that is to be kept", driver.take(held))
        leader = nodes.leader()
        begun = time.monotonic()
        nodes.send(leader, sent)
        check(f"the leader was {change}; locks are granted again", fresh(driver, f"after-{number}"))
        print(f"  after {time.monotonic() - begun:.1f} s, the driver's own pauses included")
        check("the lock from before is still held", persist(lambda: driver.is_held(held)))
        check("and nobody else gets it", not persist(lambda: driver.take_other(held)))
        if sent == signal.SIGSTOP:
            nodes.send(leader, signal.SIGCONT)
        else:
            nodes.start(leader)
        nodes.wait_for_all()
        check("all nodes are back, and locks are granted", fresh(driver, f"whole-{number}"))
        check("until it is given back", persist(lambda: driver.is_held(held)))
        # Not asked for its answer: of a release that the driver repeated, the second finds nothing to release.
        persist(lambda: driver.release(held))
        check("the lock was given back and is granted again", persist(lambda: driver.take(held)))


def main():
    with Nodes() as nodes:
        name = sys.argv[1]
        driver = DRIVERS[name](nodes.addresses())
        story(driver, nodes, [change for change in CHANGES if name not in WAITS_FOR_EVER or change[0] != "paused"])
        driver.close()
    print(check.count, "passed")


main()
