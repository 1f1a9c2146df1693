"""How each library spells the same five things. Libraries are imported when they are asked for: some no longer can be."""

import asyncio
import threading


class Library:
    """What a story needs: `take` gives a handle or nothing, `extend` and `release` say whether they did it."""

    can_extend = True
    shortest_ms = 150

    def key(self, name):
        return name

    def more(self, check):
        """What only this library can do."""

    def close(self):
        pass


def done(work, *refusals):
    """Whether `work` went through; the library's own refusals are answers, anything else is a failure."""
    try:
        return work() is not False
    except refusals:
        return False


class RedisPy(Library):
    def __init__(self, host, port, db):
        from redis import Redis, exceptions

        self.client = Redis(host, port, db)
        self.lost = exceptions.LockError

    def take(self, name, ttl_ms):
        lock = self.client.lock(name, timeout=ttl_ms / 1000)
        return lock if lock.acquire(blocking=False) else None

    def extend(self, lock, ttl_ms):
        return done(lambda: lock.extend(ttl_ms / 1000, replace_ttl=True), self.lost)

    def release(self, lock):
        return done(lock.release, self.lost)


class PythonRedisLock(Library):
    # It counts in seconds.
    shortest_ms = 1000

    def __init__(self, host, port, db):
        import redis_lock
        from redis import Redis

        self.library = redis_lock
        self.client = Redis(host, port, db)

    def key(self, name):
        return f"lock:{name}"

    def take(self, name, ttl_ms):
        lock = self.library.Lock(self.client, name, expire=ttl_ms // 1000)
        return lock if lock.acquire(blocking=False) else None

    def extend(self, lock, ttl_ms):
        return done(lambda: lock.extend(expire=ttl_ms // 1000), self.library.NotAcquired)

    def release(self, lock):
        return done(lock.release, self.library.NotAcquired)

    def more(self, check):
        holder = self.library.Lock(self.client, "signal", expire=30)
        holder.acquire()
        waiter = self.library.Lock(self.client, "signal", expire=30)
        waiting = threading.Thread(target=waiter.acquire)
        waiting.start()
        holder.release()
        waiting.join()
        check("who waits is woken by the release", waiter.locked() and waiter.get_owner_id() == waiter.id)
        waiter.reset()
        check("a reset frees the lock", not waiter.locked())

        forever = self.library.Lock(self.client, "forever")
        forever.acquire()
        check("without a time to live it has none", self.client.ttl("lock:forever") == -1)
        try:
            forever.extend(expire=10)
            check("what has no time to live cannot be extended", False)
        except self.library.NotExpirable:
            check("what has no time to live cannot be extended", True)
        self.library.reset_all(self.client)
        check("all are freed at once", not self.client.exists("lock:forever"))


class Pottery(Library):
    def __init__(self, host, port, db):
        from redis import Redis
        import pottery

        self.library = pottery
        self.client = Redis(host, port, db)
        # Its extensions renew for the time that the lock was made with, and no two locks share one.
        self.can_extend = False

    def key(self, name):
        return f"redlock:{name}"

    def take(self, name, ttl_ms):
        lock = self.library.Redlock(key=name, masters={self.client}, auto_release_time=ttl_ms / 1000)
        return lock if lock.acquire(blocking=False) else None

    def release(self, lock):
        return done(lock.release, self.library.ReleaseUnlockedLock)

    def more(self, check):
        lock = self.take("renewed", 30_000)
        self.client.pexpire("redlock:renewed", 10_000)
        lock.extend()
        check("an extension renews the whole time", 10_000 < self.client.pttl("redlock:renewed") <= 30_000)
        check("the time left can be asked for", 0 < lock.locked() <= 30)
        lock.release()
        check("and is none once released", not lock.locked())
        try:
            lock.extend()
            check("a released lock cannot be extended", False)
        except self.library.ExtendUnlockedLock:
            check("a released lock cannot be extended", True)


class RedlockNg(Library):
    def __init__(self, host, port, db):
        from redlock import Redlock

        self.redlock = Redlock([f"redis://{host}:{port}/{db}"], retry_count=0)
        self.server = self.redlock.client.instances[0]

    def take(self, name, ttl_ms):
        return self.redlock.acquire(name, ttl_ms)

    def extend(self, lock, ttl_ms):
        return self.redlock.extend(lock, ttl_ms)

    def release(self, lock):
        # It does not tell whether it did: what is at the key tells.
        mine = self.server.get(lock.resource) == lock.value.encode()
        self.redlock.release(lock)
        lock.valid = True
        return mine and self.server.get(lock.resource) != lock.value.encode()


class Asynchronous(Library):
    """Runs what is awaited on a loop of its own, one call at a time, from whichever thread."""

    def start(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


class RedlockNgAsync(Asynchronous):
    # The asynchronous half of the library has no extension.
    can_extend = False

    def __init__(self, host, port, db):
        from redlock import AsyncRedlock

        self.start()
        self.redlock = AsyncRedlock([f"redis://{host}:{port}/{db}"], retry_count=0)
        self.server = self.redlock.client.instances[0]

    def take(self, name, ttl_ms):
        return self.wait(self.redlock.acquire(name, ttl_ms))

    def release(self, lock):
        return self.wait(self.release_and_look(lock))

    async def release_and_look(self, lock):
        mine = await self.server.get(lock.resource) == lock.value.encode()
        await self.redlock.release(lock)
        return mine and await self.server.get(lock.resource) != lock.value.encode()


class Aioredlock(Asynchronous):
    def __init__(self, host, port, db):
        from aioredlock import Aioredlock as Manager, LockError

        self.start()
        self.lost = (LockError, RuntimeError)
        self.address = {"host": host, "port": port, "db": db}
        self.manager = self.wait(self.make(Manager))

    async def make(self, manager):
        return manager([self.address], retry_count=1)

    def take(self, name, ttl_ms):
        try:
            return self.wait(self.manager.lock(name, lock_timeout=ttl_ms / 1000))
        except self.lost:
            return None

    def extend(self, lock, ttl_ms):
        return done(lambda: self.wait(self.manager.extend(lock, ttl_ms / 1000)), *self.lost)

    def release(self, lock):
        return done(lambda: self.wait(self.manager.unlock(lock)), *self.lost)

    def close(self):
        self.wait(self.manager.destroy())


class CeleryRedbeat(Library):
    """Its scheduler keeps its schedule in types that a lock server lacks; its lock is what is looked at."""

    def __init__(self, host, port, db):
        from celery import Celery
        from redbeat import schedulers
        from redbeat.schedulers import RedBeatConfig
        from redis import exceptions

        self.app = Celery(broker="memory://")
        self.app.conf.redbeat_redis_url = f"redis://{host}:{port}/{db}"
        self.app.redbeat_conf = RedBeatConfig(self.app)
        self.schedulers = schedulers
        self.lost = exceptions.LockError

    def take(self, name, ttl_ms):
        # As `acquire_distributed_beat_lock` does, but without waiting for ever.
        client = self.schedulers.get_redis(self.app)
        lock = client.lock(name, timeout=ttl_ms / 1000)
        lock.lua_extend = client.register_script(self.schedulers.LUA_EXTEND_TO_SCRIPT)
        return lock if lock.acquire(blocking=False) else None

    def extend(self, lock, ttl_ms):
        return done(lambda: lock.extend(ttl_ms // 1000), self.lost)

    def release(self, lock):
        return done(lock.release, self.lost)

    def more(self, check):
        from types import SimpleNamespace

        scheduler = SimpleNamespace(app=self.app, lock_key="redbeat::lock", lock_timeout=30, max_interval=5, lock=None)
        self.schedulers.acquire_distributed_beat_lock(sender=SimpleNamespace(scheduler=scheduler))
        check("a scheduler that starts holds its lock", scheduler.lock.owned())
        scheduler.lock.release()


LIBRARIES = {
    "redis-py": RedisPy,
    "python-redis-lock": PythonRedisLock,
    "pottery": Pottery,
    "redlock-ng": RedlockNg,
    "redlock-ng-async": RedlockNgAsync,
    "aioredlock": Aioredlock,
    "celery-redbeat": CeleryRedbeat,
}
