#!/usr/bin/env python3
"""Counts how the house stands: the rows of docs/results/history/house.md.

    tests/house/measure.py              the working tree, as a Markdown table
    tests/house/measure.py REV [REV]    these commits side by side
    tests/house/measure.py --cycles     the modules of each import cycle in the working tree
    tests/house/measure.py --check      what CI asks of the working tree: no import cycle, no comment that is too long, few words
                                        that hide who acts, ARCHITECTURE.md within its length; each breach is a line

Needs git and Python 3. Sources are the *.rs files that git tracks. A test file is one below a folder `tests` or `benches`, or
called `tests.rs`; everything else is source. Counts are by regular expression, so they are close and not exact.
"""

import re
import subprocess
import sys

CRATES = "types protocol engine disk wal server client resource testing tls bench cluster cluster-model cluster-sim cluster-tests loom-tests crash-tests fuzz-tests fuzz".split()
WORDS = ["whoever", "somebody", "nobody", "everybody", "anybody", "those who"]
WORDS_MAX = 30
COLUMNS = 100
ARCHITECTURE_LINES = 200
RUN = 6
TEST_MODULE = r"^#\[cfg\(test\)\]\n(?:pub(?:\([a-z ]+\))? )?mod (\w+);"


def files(rev):
    """Path and text of every *.rs and *.md file."""
    if rev is None:
        names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    else:
        names = git("ls-tree", "-r", "-z", "--name-only", rev).split("\0")
    names = [name for name in names if name.endswith((".rs", ".md"))]
    if rev is None:
        found = {}
        for name in names:
            try:
                with open(name, encoding="utf-8") as file:
                    found[name] = file.read()
            except FileNotFoundError:
                pass  # Deleted, and not committed yet.
        return found
    asked = "".join(f"{rev}:{name}\n" for name in names).encode()
    out = subprocess.run(["git", "cat-file", "--batch"], input=asked, capture_output=True, check=True).stdout
    found, at = {}, 0
    for name in names:
        end = out.index(b"\n", at)
        size = int(out[at:end].split()[2])
        found[name] = out[end + 1 : end + 1 + size].decode("utf-8")
        at = end + 1 + size + 1
    return found


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, check=True, text=True).stdout


def is_test(name):
    return bool(re.search(r"(^|/)(tests|benches)(/|\.rs$)", name))


def without_tests(text):
    """A source file without its `mod tests { .. }` block."""
    return re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", text, flags=re.M)[0]


def shard_methods(sources):
    """Functions in `impl Shard` blocks, and the files they are in."""
    methods, places = 0, 0
    for text in sources.values():
        blocks = re.findall(r"^impl(?:<[^{]*?>)? Shard\b(?:<[^{]*?>)?[^{]*\{\n(.*?)^\}", without_tests(text), re.S | re.M)
        count = sum(len(re.findall(r"^    (?:pub(?:\([a-z]+\))? )?(?:const |unsafe )*fn ", block, re.M)) for block in blocks)
        methods += count
        places += count > 0
    return f"{methods} in {places}"


def knows_mode(text):
    code = re.sub(r"//.*", "", without_tests(text))
    return bool(re.search(r"\bMode\b|\bis_shared\b|\bMode::", code))


# Import cycles.


def module_of(path):
    """The module path of a file below `src`; the root is ()."""
    parts = path[:-3].split("/")
    if parts[-1] in ("mod", "lib", "main"):
        parts.pop()
    return tuple(parts)


def uses(text):
    """Every path that code names from `crate`, `self` or `super`, or imports; braces of `use` opened."""
    code = re.sub(r"//.*", "", without_tests(text))
    for statement in re.findall(r"^\s*(?:pub(?:\([a-z ]+\))? )?use ([^;]+);", code, re.M):
        yield from opened(re.sub(r"\s+", "", re.sub(r"\bas\s+\w+", "", statement)))
    body = re.sub(r"^\s*(?:pub(?:\([a-z ]+\))? )?use [^;]+;", "", code, flags=re.M)
    for path in re.findall(r"\b((?:crate|super|self)(?:::\w+)+)", body):
        yield path.split("::")


def opened(path):
    if "{" not in path:
        yield path.split("::")
        return
    head, rest = path.split("{", 1)
    depth, item, items = 0, "", []
    for char in rest[:-1]:
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            items.append(item)
            item = ""
        else:
            item += char
    for item in items + [item]:
        if item:
            for tail in opened(item):
                yield head.rstrip(":").split("::") + tail


def resolve(path, module, modules, exports):
    """The module that a path leads to, through re-exports; None if it is not of this crate."""
    at, path = module, list(path)
    if path[0] == "crate":
        at, path = (), path[1:]
    elif path[0] == "self":
        path = path[1:]
    elif path[0] == "super":
        while path and path[0] == "super":
            at, path = at[:-1], path[1:]
    elif module + (path[0],) not in modules:
        return None
    for _ in range(20):
        while path and at + (path[0],) in modules:
            at, path = at + (path[0],), path[1:]
        if not path or (at, path[0]) not in exports:
            return at
        at, path = exports[(at, path[0])], path
    return at


def graph(sources):
    """Edges between the files of one crate's `src`. The root names everything by design and is left out."""
    # A binary beside a library is a crate of its own, which only names the library.
    others = ("bin/",) + (("main.rs",) if "lib.rs" in sources else ())
    modules = {module_of(name): text for name, text in sources.items() if not name.startswith(others)}
    for module in [module + (name,) for module, text in modules.items() for name in re.findall(TEST_MODULE, text, re.M)]:
        modules = {other: text for other, text in modules.items() if other[: len(module)] != module}
    exports = {}
    for module, text in modules.items():
        for statement in re.findall(r"^pub(?:\([a-z ]+\))? use ([^;]+);", without_tests(text), re.M):
            for path in opened(re.sub(r"\s+", "", re.sub(r"\bas\s+\w+", "", statement))):
                target = resolve(path[:-1] or ["self"], module, modules, {})
                if target is not None and target != module:
                    exports[(module, path[-1])] = target
    edges = {module: set() for module in modules}
    for module, text in modules.items():
        for path in uses(text):
            target = resolve(path, module, modules, exports)
            if target and module and target != module:
                edges[module].add(target)
    return edges


def components(edges):
    """Strongly connected components of more than one node, by Tarjan's algorithm."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while True:
                component.append(stack.pop())
                if component[-1] == node:
                    break
            if len(component) > 1:
                found.append(sorted(component))

    for node in edges:
        if node not in index:
            visit(node)
    return found


def siblings(edges):
    """The graph of each folder: its entries, each with all that is below it. A folder and its own files are no cycle."""
    folders = {}
    for module, targets in edges.items():
        for target in targets:
            depth = 0
            while depth < min(len(module), len(target)) and module[depth] == target[depth]:
                depth += 1
            if depth < len(module) and depth < len(target):
                graph = folders.setdefault(module[:depth], {})
                graph.setdefault(module[: depth + 1], set()).add(target[: depth + 1])
                graph.setdefault(target[: depth + 1], set())
    return folders


def cycles(crate, found):
    sources = {}
    for name, text in found.items():
        if name.startswith(crate + "/src/") and name.endswith(".rs") and not is_test(name):
            sources[name[len(crate) + 5 :]] = text
    return [cycle for folder in siblings(graph(sources)).values() for cycle in components(folder)]


# Repeated runs.


def code_lines(text):
    """Lines that count: no blank ones, comments, imports or lone punctuation."""
    for line in text.split("\n"):
        line = " ".join(line.split())
        if re.search(r"\w", line) and not re.match(r"//|#!?\[|(pub(\([a-z]+\))? )?use |mod ", line):
            yield line


def repeated(sources):
    """Runs of RUN lines or more that stand somewhere else as well, to the letter, and the lines in them."""
    places = {}
    lines = {name: list(code_lines(text)) for name, text in sources.items()}
    for name, of_file in lines.items():
        for at in range(len(of_file) - RUN + 1):
            places.setdefault(tuple(of_file[at : at + RUN]), []).append((name, at))
    covered = {}
    for found in places.values():
        if len(found) > 1:
            for name, at in found:
                covered.setdefault(name, set()).update(range(at, at + RUN))
    runs = sum(len([at for at in of_file if at - 1 not in of_file]) for of_file in covered.values())
    return f"{runs} ({sum(map(len, covered.values()))} lines)"


def words(texts):
    pattern = re.compile(r"\b(" + "|".join(WORDS).replace(" ", r"\s+(?://[/!]?\s*)?") + r")\b", re.I)
    return sum(len(pattern.findall(text)) for text in texts)


def long_comments(text):
    """Numbers of the lines that are comments and too long."""
    lines = enumerate(text.split("\n"), 1)
    return [number for number, line in lines if len(line) > COLUMNS and line.lstrip().startswith("//")]


def cycle_lines(found):
    for crate in CRATES:
        for cycle in cycles(crate, found):
            yield f"{crate}: " + ", ".join("::".join(module) for module in cycle)


def breaches():
    found = files(None)
    rust = {name: text for name, text in found.items() if name.endswith(".rs")}
    for line in cycle_lines(found):
        yield f"import cycle in {line}"
    for name, text in rust.items():
        for number in long_comments(text):
            yield f"{name}:{number}: a comment is longer than {COLUMNS} columns"
    count = words(rust.values())
    if count >= WORDS_MAX:
        yield f"{count} of the words {', '.join(WORDS)} in *.rs: name the actor"
    lines = found["ARCHITECTURE.md"].count("\n")
    if lines >= ARCHITECTURE_LINES:
        yield f"ARCHITECTURE.md has {lines} lines: fewer than {ARCHITECTURE_LINES}"


def rows(rev):
    found = files(rev)
    rust = {name: text for name, text in found.items() if name.endswith(".rs")}
    source = {name: text for name, text in rust.items() if not is_test(name)}
    test = {name: text for name, text in rust.items() if is_test(name)}
    notes = [text for name, text in found.items() if name.endswith(".md")]
    count = lambda texts: f"{len(texts)} / {sum(text.count(chr(10)) for text in texts.values()):,}"
    for crate in CRATES:
        of = lambda texts: {name: text for name, text in texts.items() if name.startswith(crate + "/")}
        if of(rust):
            yield f"{crate}: source files / lines", count(of(source))
            if of(test):
                yield f"{crate}: test files / lines", count(of(test))
    yield "all: source files / lines", count(source)
    yield "all: test files / lines", count(test)
    yield "methods of `Shard`, in files", shard_methods(of_crate(source, "engine"))
    yield "source files that know the mode", str(sum(knows_mode(text) for text in source.values()))
    for crate in CRATES:
        if of_crate(source, crate):
            of = cycles(crate, found)
            yield f"{crate}: import cycles (modules in them)", f"{len(of)} ({sum(map(len, of))})"
    yield f"repeated runs of {RUN} lines or more, sources", repeated(source)
    yield f"repeated runs of {RUN} lines or more, tests", repeated(test)
    yield "words of point 9 in `*.rs`", str(words(rust.values()))
    yield "words of point 9 in `*.md`", str(words(notes))
    yield f"comment lines over {COLUMNS} columns", str(sum(len(long_comments(text)) for text in rust.values()))


def of_crate(texts, crate):
    return {name: text for name, text in texts.items() if name.startswith(crate + "/")}


def main():
    sys.setrecursionlimit(10_000)
    arguments = sys.argv[1:]
    if arguments == ["--cycles"]:
        print("\n".join(cycle_lines(files(None))))
        return
    if arguments == ["--check"]:
        found = list(breaches())
        print("\n".join(found) or "the house stands as it should")
        sys.exit(1 if found else 0)
    revs = arguments or [None]
    tables = [dict(rows(rev)) for rev in revs]
    names = list(dict.fromkeys(name for table in tables for name in table))
    order = [name for name, _ in rows(revs[-1])]
    names.sort(key=lambda name: order.index(name) if name in order else -1)
    print("| | " + " | ".join(rev or "now" for rev in revs) + " |")
    print("|---|" + "---|" * len(revs))
    for name in names:
        print(f"| {name} | " + " | ".join(table.get(name, "-") for table in tables) + " |")


main()
