#!/usr/bin/env python3
"""What rights cost: instructions of the server per request, counted by callgrind.

    bench/scripts/rights_cost.py target/debug/fencepost

The question: how many instructions does a server execute to decide one acquire or one release of an
uncontended lock, without any file, with `auth_token_file`, with a token that has one prefix, and with
quotas? Only the function that decides a batch is counted, so neither system calls nor timers are in
the figure: the share of the whole is smaller. Requests come sixteen at a time, on one connection,
natively and to the Redis port. Counts do not depend on what else the machine does.
"""

import hashlib
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile

ROUNDS = 200
PIPELINE = 16
TOKEN = b"the-token-of-the-measurement"


def frame(kind, request_id, body):
    return struct.pack("<IBBQ", 10 + len(body), kind, 0, request_id) + body


def text(value):
    return struct.pack("<H", len(value)) + value


def key_of(number):
    return b"orders/%09d" % number


class Reader:
    def __init__(self, stream):
        self.stream, self.buffer = stream, b""

    def take(self, count):
        while len(self.buffer) < count:
            chunk = self.stream.recv(1 << 16)
            assert chunk, "the server closed"
            self.buffer += chunk
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def frame(self):
        (length,) = struct.unpack("<I", self.take(4))
        return self.take(length)

    def line(self):
        while b"\r\n" not in self.buffer:
            self.buffer += self.stream.recv(1 << 16)
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line


def native(address):
    stream = socket.create_connection(address)
    reader = Reader(stream)
    hello = b"FNCP" + struct.pack("<HHI", 1, 1, 60_000) + text(b"cost") + b"\x01" + text(TOKEN)
    stream.sendall(frame(0x01, 1, hello))
    assert reader.frame()[0] == 0x81, "let in"
    request_id = 1
    for _ in range(ROUNDS):
        out = b""
        for number in range(PIPELINE):
            request_id += 1
            out += frame(0x10, request_id, struct.pack("<II", 30_000, 0) + text(key_of(number)))
        stream.sendall(out)
        fences = []
        for _ in range(PIPELINE):
            reply = reader.frame()
            assert reply[0] == 0x90, reply
            fences.append(struct.unpack("<Q", reply[10:18])[0])
        out = b""
        for number, fence in enumerate(fences):
            request_id += 1
            out += frame(0x12, request_id, struct.pack("<Q", fence) + text(key_of(number)))
        stream.sendall(out)
        for _ in range(PIPELINE):
            assert reader.frame()[0] == 0x98
    stream.close()


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def redis(address, has_file):
    stream = socket.create_connection(address)
    reader = Reader(stream)
    if has_file:
        stream.sendall(command(b"AUTH", TOKEN))
        assert reader.line() == b"+OK"
    for _ in range(ROUNDS):
        keys = [key_of(number) for number in range(PIPELINE)]
        stream.sendall(b"".join(command(b"SET", key, b"me", b"NX", b"PX", b"30000") for key in keys))
        for _ in keys:
            assert reader.line() == b"+OK"
        stream.sendall(b"".join(command(b"DELEX", key, b"IFEQ", b"me") for key in keys))
        for _ in keys:
            assert reader.line() == b":1"
    stream.close()


def measure(program, directory, flags, dialect):
    out = directory / "callgrind.out"
    type_name = {"native": "Batch", "redis": "Talk"}[dialect]
    server = subprocess.Popen(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        + [f"--toggle-collect=*{type_name}*Dialect*decide*"]
        + [program, "serve", "--listen=127.0.0.1:0", "--redis-listen=127.0.0.1:0", "--http=off"]
        + ["--threads=1", "--spin=0", "--durability=none", "--log-format=json", *flags],
        stderr=subprocess.PIPE,
        text=True,
    )
    address = {}
    for line in server.stderr:
        if '"ready"' in line:
            for port, field in [("native", "address"), ("redis", "redis")]:
                found = re.search(rf'"{field}":"([^"]+):(\d+)"', line)
                if found:
                    address[port] = (found[1], int(found[2]))
            break
    if dialect == "native":
        native(address["native"])
    else:
        redis(address["redis"], bool(flags))
    server.terminate()
    rest = server.stderr.read()
    server.wait()
    collected = int(re.search(r"Collected : (\d+)", rest)[1])
    return collected / (ROUNDS * PIPELINE * 2)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        tokens = directory / "tokens"
        tokens.write_bytes(TOKEN)
        sha256 = hashlib.sha256(TOKEN).hexdigest()
        entry = f'[[token]]\nname = "a"\nsha256 = "{sha256}"\nroles = ["lock"]\n'
        rights = {"prefix": 'prefixes = ["orders/"]\n'}
        rights["quotas"] = rights["prefix"] + "held_max = 1000\noperations_per_second = 100000000\n"
        files = {"none": [], "auth_token_file": [f"--auth-token-file={tokens}"]}
        for kind, rest in rights.items():
            path = directory / f"{kind}.toml"
            path.write_text(entry + rest)
            files[f"auth_file, {kind}"] = [f"--auth-file={path}"]
        print(f"{'file':24} {'port':8} {'instructions a request':>24} {'more':>8}")
        for dialect in ["native", "redis"]:
            base = None
            for kind, flags in files.items():
                count = measure(program, directory, flags, dialect)
                base = base or count
                print(f"{kind:24} {dialect:8} {count:24.0f} {100 * (count / base - 1):7.1f}%")


main()
