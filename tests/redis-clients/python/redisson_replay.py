"""What Redisson sends, without Redisson: a replay of its commands for failover.py.

Redisson comes from Maven alone and is not run here. This follows its source (4.x): how it looks for the master, what its
locks send, when it sends something again, and after how long. Its pools of connections, its threads and whatever else
happens inside Redisson are not shown by this.

replicated mode | each second `INFO replication` on every node; the node with role:master is the master
cluster mode    | every 5 s `CLUSTER NODES` from one node after the other until one answers; -MOVED is followed
to find out     | once `WAIT 0 0` and `WAITAOF 0 0 0`, each of which may be unknown; then `INFO ALL` for connected_slaves
to take a lock  | EVAL of the script, and in the same batch `WAIT connected_slaves 1000`; none of them: Redisson gives up
to keep it      | the watchdog's EVAL each 10 s, for leases of 30 s
to wait for it  | SUBSCRIBE redisson_lock__channel:{name} on the master, EVAL again, then a message or the end of the lease
to try again    | four times, after 1 to 2 s: no connection, -READONLY, -CLUSTERDOWN, -LOADING, no answer within 3 s
"""

import random
import select
import socket
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from drivers import Refused

# Redisson's defaults.
REPLICATED_SCAN_S = 1
CLUSTER_SCAN_S = 5
ANSWER_S_MAX = 3
CONNECT_S_MAX = 10
ATTEMPTS = 4
RETRY_S = (1.0, 2.0)
WATCHDOG_MS = 30_000
SYNC_MS = 1_000
UNLOCK_MESSAGE = "0"

# The first word of an error that makes Redisson send a command again.
SENT_AGAIN = ("READONLY", "CLUSTERDOWN", "LOADING", "TRYAGAIN", "MASTERDOWN", "BUSY", "NOREPLICAS", "WAIT")

LOCK = (
    "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then "
    "redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; "
    "return redis.call('pttl', KEYS[1]);"
)
UNLOCK = (
    "local val = redis.call('get', KEYS[3]); if val ~= false then return tonumber(val);end; "
    "if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; "
    "local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); if (counter > 0) then "
    "redis.call('pexpire', KEYS[1], ARGV[2]); redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; "
    "else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); "
    "redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end; "
)
RENEW = (
    "local result = {} for i = 1, #KEYS, 1 do if (redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1) then "
    "redis.call('pexpire', KEYS[i], ARGV[1]); table.insert(result, 1); else table.insert(result, 0); end; end; "
    "return result;"
)


class ErrorReply(Exception):
    pass


class Connection:
    """RESP2 and nothing else: the first that Redisson sends is PING."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=CONNECT_S_MAX)
        self.socket.settimeout(ANSWER_S_MAX)
        self.lines = self.socket.makefile("rb")
        try:
            self.ask(["PING"])
        except Exception:
            self.close()
            raise

    def send(self, *commands):
        for command in commands:
            parts = [str(part).encode() for part in command]
            self.socket.sendall(
                b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
            )

    def ask(self, *commands):
        """One answer for each command; errors are among them."""
        self.send(*commands)
        answers = [self.receive() for _ in commands]
        return answers if len(commands) > 1 else answers[0]

    def receive(self):
        line = self.lines.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the node has closed the connection")
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"-":
            return ErrorReply(rest)
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if int(rest) < 0:
            return None
        if kind == b"$":
            return self.lines.read(int(rest) + 2)[:-2].decode()
        return [self.receive() for _ in range(int(rest))]

    def close(self):
        self.lines.close()
        self.socket.close()


class Connections:
    """At most one to each node, for one thread at a time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.by_address = {}

    def ask(self, address, *commands):
        with self.lock:
            if address not in self.by_address:
                self.by_address[address] = Connection(address)
            try:
                return self.by_address[address].ask(*commands)
            except OSError:
                self.by_address.pop(address).close()
                raise

    def close(self):
        for connection in self.by_address.values():
            connection.close()


class Listener:
    """Subscribed to one channel at the master, and again at the next one: then nobody wakes those who wait, and what was
    published in between is lost to them until the lease ends."""

    def __init__(self, instance, channel):
        self.instance, self.channel = instance, channel
        self.connection = self.address = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        if self.connection:
            self.connection.close()
        self.connection = self.address = None

    def subscribe(self):
        self.end()
        master = self.instance.master
        self.connection = Connection(master)
        if isinstance(said := self.connection.ask(["SUBSCRIBE", self.channel]), ErrorReply):
            raise ConnectionError(str(said))
        self.address = master

    def wait(self, deadline):
        """Whether the channel said that the lock was given back, before the deadline."""
        while time.monotonic() < deadline:
            try:
                if self.address != self.instance.master:
                    self.subscribe()
                if select.select([self.connection.socket], [], [], 0.05)[0]:
                    if self.connection.receive() == ["message", self.channel, UNLOCK_MESSAGE]:
                        return True
            except OSError:
                self.end()
                time.sleep(0.1)
        return False


class Waiter(threading.Thread):
    """Waits for a lock that another instance has, as an application's thread would in RLock.lock()."""

    def __init__(self, story, instance, key, thread):
        super().__init__(daemon=True)
        self.story, self.instance, self.key, self.owner = story, instance, key, thread
        self.listener = None
        self.told = 0

    def run(self):
        self.story.persist(lambda: self.instance.wait_for(self.key, self.owner, self))

    def wait_until_it_listens(self, address):
        while self.is_alive() and (not self.listener or self.listener.address != address):
            time.sleep(0.02)


class Instance:
    """One client that replays Redisson, with the thread that looks for the master and the watchdog."""

    def __init__(self, addresses, find_master, scan_s):
        self.addresses = addresses
        self.id = str(uuid.uuid4())
        self.is_over = threading.Event()
        self.commands, self.renewals = Connections(), Connections()
        self.scans = {address: Connections() for address in addresses}
        self.scanner = ThreadPoolExecutor(len(addresses))
        self.wait_is_known = None
        self.repeated = 0
        # Those that the watchdog keeps, and of all locks when they were granted or renewed last: before it was asked for.
        self.kept = set()
        self.renewed = {}
        self.renewal_count = 0
        self.gap_s_max = 0
        self.find_master = lambda: find_master(self)
        self.master = None
        self.find_master()
        if self.master is None:
            raise SystemExit("not so: the replay finds a master when it starts")
        # Redisson asks whether channels may have shards; both may be unknown.
        self.commands.ask(self.master, ["PUBSUB", "SHARDNUMSUB", 0], ["PUBSUB", "NUMPAT"])
        every = [(self.find_master, scan_s), (self.renew, WATCHDOG_MS / 3_000)]
        self.threads = [threading.Thread(target=self.each, args=job, daemon=True) for job in every]
        for thread in self.threads:
            thread.start()

    def each(self, job, pause_s):
        while not self.is_over.wait(pause_s):
            job()

    def execute(self, connections, *commands):
        """Sends a batch until it is answered, as often and after such pauses as Redisson would."""
        said, redirected, again = None, None, 0
        while again <= ATTEMPTS:
            address = redirected or self.master
            try:
                answers = connections.ask(address, *commands)
            except OSError as error:
                said = f"{type(error).__name__}: {error}"
            else:
                listed = answers if len(commands) > 1 else [answers]
                errors = [str(answer) for answer in listed if isinstance(answer, ErrorReply)]
                if not errors:
                    return answers
                said = errors[0]
                if said.startswith("MOVED"):
                    host, port = said.split()[2].rsplit(":", 1)
                    if redirected == (host, int(port)):
                        raise Refused("MOVED redirection loop detected")
                    redirected = host, int(port)
                    continue
                if not said.startswith(SENT_AGAIN):
                    raise Refused(said)
            redirected = None
            again += 1
            if again <= ATTEMPTS:
                time.sleep(random.uniform(*RETRY_S))
        raise Refused(f"{said} after {ATTEMPTS} retry attempts")

    def find_out_whether_wait_is_known(self):
        answers = self.commands.ask(self.master, ["WAIT", 0, 0], ["WAITAOF", 0, 0, 0])
        known = {"WAIT", "WAITAOF"}
        for name, answer in zip(["WAIT", "WAITAOF"], answers):
            if isinstance(answer, ErrorReply):
                if not str(answer).startswith("ERR unknown command"):
                    raise Refused(str(answer))
                known.remove(name)
        self.wait_is_known = "WAIT" in known

    def synced(self, *script):
        """A script, with the question how many replicas have what it did."""
        if self.wait_is_known is None:
            try:
                self.find_out_whether_wait_is_known()
            except OSError as error:
                raise Refused(f"{type(error).__name__}: {error}") from error
        if not self.wait_is_known:
            return self.execute(self.commands, script)
        replicas = int(fields(self.execute(self.commands, ["INFO", "ALL"])).get("connected_slaves", 0))
        if replicas == 0:
            return self.execute(self.commands, script)
        answer, synced = self.execute(self.commands, script, ["WAIT", replicas, SYNC_MS])
        if synced == 0:
            raise Refused("NoSyncedSlavesException: None of slaves were synced")
        return answer

    def owner(self, thread):
        return f"{self.id}:{thread}"

    def acquire(self, key, thread):
        """None, if it was granted; otherwise for how many milliseconds another one has it."""
        asked = time.monotonic()
        left_ms = self.synced("EVAL", LOCK, 1, key, WATCHDOG_MS, self.owner(thread))
        if left_ms is None:
            self.kept.add((key, thread))
            self.renewed[key, thread] = asked
        return left_ms

    def wait_for(self, key, thread, waiter):
        """Waits for the lock, however often its master changes."""
        if self.acquire(key, thread) is None:
            return
        with Listener(self, f"redisson_lock__channel:{{{key}}}") as listener:
            waiter.listener = listener
            while (left_ms := self.acquire(key, thread)) is not None:
                waiter.told += listener.wait(time.monotonic() + left_ms / 1_000)

    def is_held(self, key, thread):
        return self.execute(self.commands, ["HEXISTS", key, self.owner(thread)]) == 1

    def release(self, key, thread):
        latch = f"redisson_unlock_latch:{{{key}}}:{uuid.uuid4().hex}"
        latch_ms = ATTEMPTS * 1_000 * round(ANSWER_S_MAX + RETRY_S[1])
        keys = [key, f"redisson_lock__channel:{{{key}}}", latch]
        args = [UNLOCK_MESSAGE, WATCHDOG_MS, self.owner(thread), "PUBLISH", latch_ms]
        released = self.synced("EVAL", UNLOCK, len(keys), *keys, *args)
        self.kept.discard((key, thread))
        self.execute(self.commands, ["DEL", latch])
        return released == 1

    def renew(self):
        """The watchdog. What it cannot renew now it tries to renew the next time; what is gone it forgets."""
        kept = list(self.kept)
        asked = time.monotonic()
        # Redisson puts up to 100 locks into one call; in cluster mode only those of one slot.
        for names in [kept[place : place + 100] for place in range(0, len(kept), 100)]:
            keys, owners = [key for key, _ in names], [self.owner(thread) for _, thread in names]
            try:
                answers = self.execute(self.renewals, ["EVAL", RENEW, len(keys), *keys, WATCHDOG_MS, *owners])
            except Refused as refused:
                print("  the watchdog was refused:", refused)
                continue
            for name, answer in zip(names, answers):
                if answer == 1 and name in self.kept:
                    self.gap_s_max = max(self.gap_s_max, time.monotonic() - self.renewed[name])
                    self.renewed[name] = asked
                    self.renewal_count += 1
                else:
                    self.kept.discard(name)

    def close(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        self.scanner.shutdown()
        for connections in [self.commands, self.renewals, *self.scans.values()]:
            connections.close()


def fields(info):
    return dict(line.split(":", 1) for line in info.splitlines() if ":" in line)


def find_replicated(instance):
    def look(address):
        try:
            said = instance.scans[address].ask(address, ["INFO", "replication"])
        except OSError:
            return
        if not isinstance(said, ErrorReply) and fields(said)["role"] == "master":
            instance.master = address

    # All at once: a node that does not answer keeps the others from nothing but the next round.
    list(instance.scanner.map(look, instance.addresses))


def find_in_cluster(instance):
    # The master is asked first.
    for address in sorted(instance.addresses, key=lambda address: (address != instance.master, random.random())):
        try:
            said = instance.scans[address].ask(address, ["CLUSTER", "NODES"])
        except OSError:
            continue
        if isinstance(said, ErrorReply):
            continue
        for line in said.splitlines():
            name, place, flags, *_, last = line.split()
            # The slots stand at the end of a master's line.
            if "master" in flags.split(",") and "fail" not in flags.split(",") and last[0].isdigit() and "-" in last:
                host, port = place.split("@")[0].split(",")[0].rsplit(":", 1)
                instance.master = host, int(port)
        return


class Replay:
    """Two clients: what one holds the other must not get, and after a change of the leader both must be able to take
    the same lock in turns (which Redisson's issues 4822 and 4706 say was not so with Redis)."""

    THREAD = 1

    def __init__(self, addresses, find_master, scan_s):
        self.first = Instance(addresses, find_master, scan_s)
        self.second = Instance(addresses, find_master, scan_s)
        self.ended = 0

    @property
    def repeated(self):
        return self.first.repeated

    def take(self, key):
        if self.first.acquire(key, self.THREAD) is not None:
            return False
        # A script that was sent twice has been counted twice.
        count = self.first.execute(self.first.commands, ["HGET", key, self.first.owner(self.THREAD)])
        self.first.repeated += count != "1"
        return True

    def take_other(self, key):
        return self.second.acquire(key, self.THREAD) is None

    def is_held(self, key):
        return self.first.is_held(key, self.THREAD)

    def release(self, key):
        return self.first.release(key, self.THREAD)

    def fence(self, key):
        return self.first.execute(self.first.commands, ["LOCK.FENCE", key])

    def before_all(self, story, check):
        """A lock that nothing but the watchdog keeps, from the first change to the last."""
        self.watch(story, check)

    def before_each(self, story, check):
        """While the leader changes, one instance waits for a lock that the other one has."""
        key = f"awaited-{next(story.numbers)}"
        check("one instance has a lock", story.persist(lambda: self.first.acquire(key, self.THREAD)) is None)
        self.waiter = Waiter(story, self.second, key, self.THREAD)
        self.waiter.start()
        self.waiter.wait_until_it_listens(self.second.master)

    def after_each(self, story, check):
        key = f"turns-{next(story.numbers)}"
        for instance in (self.first, self.second) * 2:
            granted = story.persist(lambda: instance.acquire(key, self.THREAD)) is None
            check("both instances take the same lock in turns", granted)
            story.persist(lambda: instance.release(key, self.THREAD))

        key, waiter = self.waiter.key, self.waiter
        waiter.wait_until_it_listens(story.nodes.addresses()[story.nodes.leader()])
        if story.persist(lambda: self.first.release(key, self.THREAD)):
            waiter.join()
            check("the channel tells the instance that waits for a lock when it is given back", waiter.told == 1)
        else:
            self.has_ended(key, check)
            waiter.join()
        check("which gets the lock", story.persist(lambda: self.second.is_held(key, self.THREAD)))
        story.persist(lambda: self.second.release(key, self.THREAD))

        self.look_at_watched(story, check)
        # The locks of this change have been looked at: the watchdog need not carry them along.
        self.first.kept &= {(self.watched[0], self.THREAD)}

    def look_at_watched(self, story, check):
        """The watchdog's lock is held under its first fence, unless its lease has ended: the watchdog gives up after four
        attempts and goes on 10 s later. If the next change comes upon that, nothing has renewed the lock for 30 s."""
        key, fence = self.watched
        if story.persist(lambda: self.fence(key)) == fence:
            return check("the watchdog's lock is held under its first fence", True)
        self.has_ended(key, check)
        self.watch(story, check)

    def has_ended(self, key, check):
        late_s = time.monotonic() - self.first.renewed[key, self.THREAD]
        check(f"a lease of 30 s has ended, which was renewed {late_s:.0f} s ago", late_s > WATCHDOG_MS / 1_000)
        self.ended += 1

    def watch(self, story, check):
        check("a lock is taken for the watchdog", story.fresh())
        self.watched = story.key, self.fence(story.key)

    def after_all(self, story, check):
        before = self.first.renewal_count
        while self.first.renewal_count == before and (self.watched[0], self.THREAD) in self.first.kept:
            time.sleep(0.1)
        self.look_at_watched(story, check)
        times, gap_s = self.first.renewal_count, self.first.gap_s_max
        print(f"figures: the watchdog renewed locks {times} times, at most {gap_s:.0f} s after the time before")
        print(f"figures: {self.ended} leases ended because it could not renew them for 30 s")

    def close(self):
        self.first.close()
        self.second.close()


REPLAYS = {
    "redisson-replay-replicated": lambda addresses: Replay(addresses, find_replicated, REPLICATED_SCAN_S),
    "redisson-replay-cluster": lambda addresses: Replay(addresses, find_in_cluster, CLUSTER_SCAN_S),
}
