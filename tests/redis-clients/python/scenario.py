"""One story of a lock, told through one library after the other: scenario.py LIBRARY.

Every step that looks at the server does so with a plain connection, so that a library's own bookkeeping cannot hide what
the server did. Nothing depends on how long anything takes: what must happen by itself is waited for, and the caller
bounds the whole.
"""

import os
import sys
import threading
import time

import redis

from libraries import LIBRARIES

HOST, PORT, DB = os.environ["REDIS_HOST"], int(os.environ["REDIS_PORT"]), 9
LONG_MS = 20_000
LONGER_MS = 60_000


def check(claim, holds):
    if not holds:
        sys.exit(f"not so: {claim}")
    print("so it is:", claim)
    check.count += 1


check.count = 0


def until(attempt):
    """Waits for what happens by itself."""
    while not (result := attempt()):
        time.sleep(0.02)
    return result


def held(server, key, ttl_ms):
    return 0 < server.pttl(key) <= ttl_ms


def story(library, server):
    key = library.key("orders")

    first = library.take("orders", LONG_MS)
    check("a free lock is granted", first)
    value = server.get(key)
    check("it is held on the server, for as long as asked", held(server, key, LONG_MS))

    check("nobody else gets it", not library.take("orders", LONG_MS))
    check("and trying changes nothing", server.get(key) == value and held(server, key, LONG_MS))

    if library.can_extend:
        check("its owner may keep it longer", library.extend(first, LONGER_MS))
        check("for as long as asked", LONG_MS < server.pttl(key) <= LONGER_MS)
        check("under the same value", server.get(key) == value)

    waiting = threading.Thread(target=lambda: until(lambda: library.take("orders", LONG_MS)))
    waiting.start()
    check("its owner may release it", library.release(first))
    waiting.join()
    check("then somebody else gets it", server.get(key) not in (None, value))

    lost = library.take("short", library.shortest_ms)
    check("a lock with a short life is granted", lost)
    until(lambda: not server.exists(library.key("short")))
    heir = library.take("short", LONG_MS)
    check("it ends by itself, and another owner gets it", heir)
    value = server.get(library.key("short"))
    check("who held it before cannot release it", not library.release(lost))
    if library.can_extend:
        check("nor extend it", not library.extend(lost, LONGER_MS))
    check("and trying changes nothing for its owner", server.get(library.key("short")) == value)
    check("who may release it", library.release(heir))
    check("and then it is free", not server.exists(library.key("short")))

    library.more(check)


def main():
    server = redis.Redis(HOST, PORT, DB)
    server.flushdb()
    library = LIBRARIES[sys.argv[1]](HOST, PORT, DB)
    try:
        story(library, server)
    finally:
        library.close()
    server.flushdb()
    print(check.count, "passed")


main()
