"""Three nodes of a cluster, as processes on this machine, of the program that FENCEPOST names."""

import os
import random
import secrets
import signal
import socket
import subprocess
import tempfile
import time

import redis

COUNT = 3
START_S_MAX = 30


def free_ports(count):
    """Below the ports that systems hand out for outgoing connections, so that none is taken in between."""
    taken = []
    while len(taken) < count:
        bound = socket.socket()
        try:
            bound.bind(("127.0.0.1", random.randrange(20_000, 30_000)))
            taken.append(bound)
        except OSError:
            bound.close()
    ports = [bound.getsockname()[1] for bound in taken]
    for bound in taken:
        bound.close()
    return ports


class Nodes:
    """Used with `with`: at the end all processes are gone."""

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="redis-clients-nodes.")
        self.key_file = os.path.join(self.directory.name, "key")
        with open(os.open(self.key_file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as key:
            key.write(secrets.token_hex(32))
        ports = free_ports(2 * COUNT)
        self.peer_ports, self.redis_ports = ports[:COUNT], ports[COUNT:]
        self.processes = [None] * COUNT
        for place in range(COUNT):
            self.start(place)
        try:
            self.wait_for_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        self.directory.cleanup()

    def addresses(self):
        return [("127.0.0.1", port) for port in self.redis_ports]

    def log(self, place):
        return os.path.join(self.directory.name, f"{place}.log")

    def start(self, place):
        peers = ",".join(f"{1 + other}=127.0.0.1:{port}" for other, port in enumerate(self.peer_ports))
        command = [os.environ["FENCEPOST"], "serve", "--node-id", str(1 + place), "--peers", peers, "--bootstrap"]
        command += ["--durability", "lease", "--cluster-key-file", self.key_file]
        command += ["--data-dir", os.path.join(self.directory.name, str(place))]
        command += ["--listen", "127.0.0.1:0", "--http", "off", "--redis-listen", f"127.0.0.1:{self.redis_ports[place]}"]
        with open(self.log(place), "a") as log:
            self.processes[place] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def replication(self, place):
        """What a node says of itself, over a connection that nothing else uses; empty if it does not answer."""
        try:
            with redis.Redis("127.0.0.1", self.redis_ports[place], socket_timeout=1, protocol=2) as node:
                return node.info("replication")
        except redis.RedisError:
            return {}

    def leader(self):
        """The place of the node that leads; waits for one."""
        return self.until(self.find_leader, "a node leads")

    def find_leader(self):
        places = [place for place in range(COUNT) if self.replication(place).get("role") == "master"]
        return places[0] if places else None

    def wait_for_all(self):
        """Waits until the leader has heard from all others."""

        def is_complete():
            leader = self.find_leader()
            return leader is not None and self.replication(leader).get("connected_slaves") == COUNT - 1

        self.until(is_complete, "one node leads and all others follow")

    def until(self, attempt, what):
        deadline = time.monotonic() + START_S_MAX
        while (result := attempt()) is None or result is False:
            if time.monotonic() > deadline:
                for place in range(COUNT):
                    print(f"node {1 + place} said:", open(self.log(place)).read()[-2000:], sep="\n")
                raise SystemExit(f"in vain waited for this: {what}")
            time.sleep(0.05)
        return result

    def send(self, place, sent):
        self.processes[place].send_signal(sent)
        if sent in (signal.SIGKILL, signal.SIGTERM):
            self.processes[place].wait()
