"""The drivers of failover.py: each takes a lock, says whether it is held, and gives it back, through a cluster."""

import asyncio
import json
import os
import secrets
import subprocess
import sys

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.cluster
import redis.retry
import redis.sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException

TTL_MS = 120_000
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
        # Commands that the driver sent again by itself, after the first answer was lost.
        self.repeated = 0

    def take(self, key):
        lock, token = self.client.lock(key, timeout=TTL_MS / 1_000), secrets.token_hex(16)
        if not self.asked(lambda: lock.acquire(blocking=False, token=token)):
            # A driver that lost the answer asks again by itself, and is refused by the lock that it has.
            if self.asked(lambda: self.client.get(key)) != token.encode():
                return False
            self.repeated += 1
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
        self.repeated = 0

    def ask(self, **request):
        print(json.dumps(request), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit("not so: the process with the driver survives")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        self.repeated += answer.get("repeated", False)
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
