"""House rules as tests: each message names the file, the line, and what to use instead."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

MAY_IMPORT: dict[str, frozenset[str]] = {
    "conf": frozenset(),
    "broker": frozenset({"conf"}),
    "upstream": frozenset({"broker", "conf", "pyddmq"}),
    "actions": frozenset({"upstream", "conf", "pyddmq"}),
    "lag": frozenset({"broker", "pyddmq"}),
    "proxy": frozenset({"lag", "actions", "upstream", "broker", "conf", "pyddmq"}),
    "pyddmq": frozenset({"proxy", "lag", "broker"}),
}
"""The table of docs/architecture.md."""

OVER_THE_ROOMS = ("pyddmq.__main__", "pyddmq.broker", "pyddmq.spark", "pyddmq.testing")
"""The modules of `pyddmq` that import rooms, which therefore import none of them; the others import no room."""

BELOW_ALL = ("broker.errors", "broker.runtime.seams", "broker.runtime.sealed_file")
"""Modules of `broker` that actions import too: disk and clock, and small files that survive a kill."""

NEVER_IN_PRODUCT = frozenset({"tests", "tools", "bench", "thrift", "hypothesis", "pytest"})

EXTRAS = {
    "pyspark": frozenset({"lag"}),
    "pyarrow": frozenset({"lag", "actions"}),
    "pandas": frozenset({"lag"}),
    "redis": frozenset({"actions"}),
    "happybase": frozenset({"actions"}),
    "confluent_kafka": frozenset({"upstream"}),
    "Hbase_thrift": frozenset({"actions"}),
}
"""Packages that the server starts without, each with the rooms that import it; of actions only its sinks do."""

LINES_MAX = 600

# What stands for what: a module or call that reads the outside world, and the seam to use in its place.
MODULES = {
    "time": "take a Clock (broker.runtime.seams) in the constructor",
    "socket": "go through proxy.port.network",
    "select": "go through proxy.port.network",
    "ssl": "go through proxy.port.network",
    "pathlib": "take a Disk (broker.runtime.seams) in the constructor; paths are plain strings",
    "shutil": "take a Disk (broker.runtime.seams) in the constructor",
    "tempfile": "take a Disk (broker.runtime.seams) in the constructor",
    "mmap": "take a Disk (broker.runtime.seams) in the constructor",
    "fcntl": "take a Disk (broker.runtime.seams) in the constructor",
    "glob": "use Disk.list (broker.runtime.seams)",
    "secrets": "take a random.Random in the constructor",
    "uuid": "take a random.Random in the constructor",
}
CALLS = {
    "open": "take a Disk (broker.runtime.seams) in the constructor",
    "random.*": "take a random.Random in the constructor",
    "datetime.now": "use Clock.wall_ms (broker.runtime.seams)",
    "datetime.utcnow": "use Clock.wall_ms (broker.runtime.seams)",
    "datetime.today": "use Clock.wall_ms (broker.runtime.seams)",
    "date.today": "use Clock.wall_ms (broker.runtime.seams)",
    "os.*": "take a Disk (broker.runtime.seams) in the constructor",
}

PURE = frozenset({"os.strerror", "os.fspath", "os.path.join", "os.path.basename", "os.path.dirname"})
"""Functions of `os` that look at nothing but their arguments."""

_EDGE = frozenset({*MODULES, *CALLS})
ALLOWED: dict[str, frozenset[str]] = {
    # The real versions behind the seams.
    "broker/runtime/seams.py": frozenset({"time"}),
    "broker/runtime/disk.py": frozenset({"os.*", "mmap", "fcntl"}),
    "broker/runtime/disks/linux_aio.py": frozenset({"os.*"}),
    # Stamps the process id into the abort file, as RocketMQ does.
    "broker/opening/store_json.py": frozenset({"os.*"}),
    # Hands the real seams in, for programs with the broker inside.
    "broker/embedded.py": frozenset({"random.*"}),
    # Finds out at import what is compiled, and from which sources.
    "broker/runtime/accelerators.py": frozenset({"os.*", "pathlib"}),
    # Options of listening sockets, which asyncio leaves to the caller, bytes that the kernel still has, datagrams to
    # a service manager.
    "proxy/port/network.py": frozenset({"socket", "select", "fcntl"}),
    # Looks whether the socket of a kept connection has bytes that no request asked for.
    "actions/http/client.py": frozenset({"select"}),
    # The timer of the system that wakes the loop.
    "proxy/node/alarms.py": frozenset({"os.*"}),
    # Reads one file, before there is a node.
    "conf/loader.py": frozenset({"open"}),
    # Reads the files of `access`, before there is a node and when they change.
    "conf/sections/access_files.py": frozenset({"open", "os.*"}),
    # Reads secrets, from a file or the environment, when an action opens.
    "conf/secrets.py": frozenset({"open", "os.*"}),
    # Says who the process runs as, and who owns a file that was denied to it; only when an error is written.
    "conf/file_faults.py": frozenset({"pathlib", "os.*"}),
    # What a handshake told; and contexts and connections of `ssl`, which read no socket.
    "proxy/tls/peer_certificate.py": frozenset({"ssl"}),
    "proxy/tls/channel.py": frozenset({"ssl"}),
    "proxy/tls/failures.py": frozenset({"ssl"}),
    # Reads certificates and keys, behind `TlsLoader`.
    "proxy/tls/files.py": frozenset({"ssl", "open", "os.*"}),
    # Makes the sockets of pushes, behind `Outside`.
    "actions/http/checked_sockets.py": frozenset({"socket", "ssl"}),
    # A process of its own, which has nothing of a node.
    "actions/process_serve.py": frozenset({"time"}),
    # Find the interface definitions and the rooms.
    "pyddmq/idl.py": frozenset({"pathlib"}),
    "pyddmq/rooms.py": frozenset({"pathlib"}),
    "pyddmq/version.py": frozenset({"pathlib"}),
    # The process around a node: makes the real seams, signals, file watching.
    "proxy/process/serve.py": _EDGE,
    # Programs of their own that speak to a node from outside.
    "proxy/cli/": _EDGE,
    "pyddmq/client/": _EDGE,
    "pyddmq/testing/client.py": frozenset({"socket"}),
    "proxy/demo/": _EDGE,
    # Jobs in Spark's processes, which read other programs' files.
    "lag/spark/": _EDGE,
    # HTTP for people and scrapers, outside the simulation.
    "proxy/admin/server.py": _EDGE,
}


def product_files() -> list[Path]:
    """All modules of the rooms."""
    return sorted(path for room in MAY_IMPORT for path in (ROOT / room).rglob("*.py"))


def name_of(path: Path) -> str:
    """Path of a file from the root, with slashes."""
    return path.relative_to(ROOT).as_posix()


def imports_of(tree: ast.Module, *, plain: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and full name of every imported module, wherever it stands; `plain`: of `import x` alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not plain:
            assert node.level == 0, f"line {node.lineno}: write the import with its room, not relative"
            yield node.lineno, str(node.module)


def over_the_rooms(module: str) -> bool:
    """Whether a module is one of `pyddmq` that imports rooms."""
    return any(module == each or module.startswith(f"{each}.") for each in OVER_THE_ROOMS)


def calls_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every call, as `open` or `datetime.now`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func)


def forbidden_import_direction(room: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and sentence for every import that the table does not allow to this room."""
    for line, module in imports_of(tree):
        target = module.partition(".")[0]
        if target in NEVER_IN_PRODUCT:
            yield line, f"imports {module}, which the product never does"
        elif target in EXTRAS and room not in EXTRAS[target]:
            yield line, f"imports {module}, which only {' and '.join(sorted(EXTRAS[target]))} does"
        elif room != "pyddmq" and over_the_rooms(module):
            yield line, f"imports {module}, which stands over the rooms: import what it imports"
        elif room == "actions" and module in BELOW_ALL:
            continue
        elif target in MAY_IMPORT and target != room and target not in MAY_IMPORT[room]:
            allowed = ", ".join(sorted(MAY_IMPORT[room])) or "nothing of ours"
            yield line, f"imports {module}: {room} may import {allowed} (docs/architecture.md)"


def outside_world(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, rule and sentence for everything that reaches past the seams."""
    for line, module in imports_of(tree):
        target = module.partition(".")[0]
        if target in MODULES:
            yield line, target, f"imports {module}: {MODULES[target]}"
    # A parameter named `random` is a handed-in Random; only the module itself is forbidden.
    modules = {module for _, module in imports_of(tree, plain=True)}
    for line, call in calls_of(tree):
        rule = rule_of(call, modules)
        if rule in CALLS and call not in PURE:
            yield line, rule, f"calls {call}(): {CALLS[rule]}"


def rule_of(call: str, modules: set[str]) -> str:
    """Name of the rule that a dotted call may fall under; `modules` are those that the file imports by name."""
    first, *rest = call.split(".")
    if call in ("Random", "SystemRandom") or (first in ("random", "os") and rest and first in modules):
        return "random.*" if first != "os" else "os.*"
    return ".".join(call.split(".")[-2:])


def allowed(name: str) -> frozenset[str]:
    """Rules that do not hold for this file."""
    return frozenset().union(*(rules for place, rules in ALLOWED.items() if name.startswith(place)))


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_run_in_the_direction_of_the_table(room: str) -> None:
    """A room imports only what docs/architecture.md lets it."""
    found = [
        f"{name_of(path)}:{line}: {text}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for line, text in forbidden_import_direction(room, ast.parse(path.read_text()))
    ]

    assert not found, "\n" + "\n".join(found)


def test_picture_of_the_rooms_shows_who_imports_whom() -> None:
    """The arrows of docs/architecture.md's picture are those of the table, but for the plain modules of `pyddmq`."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = text.partition("flowchart BT")[2].partition("```")[0]
    arrows = {(lower, upper) for lower, upper in re.findall(r"^ +(\w+) --> (\w+)", picture, re.MULTILINE)}
    assert arrows == {(lower, room) for room, lowers in MAY_IMPORT.items() for lower in lowers - {"pyddmq"}}


def test_client_of_pyddmq_imports_no_room() -> None:
    """What users import works where only the client is installed; few modules stand over the rooms."""
    found = [
        f"{name_of(path)}:{line}: imports {module}"
        for path in (ROOT / "pyddmq").rglob("*.py")
        if not over_the_rooms(name_of(path).removesuffix(".py").replace("/", "."))
        for line, module in imports_of(ast.parse(path.read_text()))
        if module.partition(".")[0] in MAY_IMPORT.keys() - {"pyddmq"}
    ]

    assert not found, "\n" + "\n".join(found)


def test_time_disk_network_and_chance_come_through_the_seams() -> None:
    """No module of the product reads them by itself, so that a node can be simulated whole."""
    found = [
        f"{name_of(path)}:{line}: {text}"
        for path in product_files()
        for line, rule, text in outside_world(ast.parse(path.read_text()))
        if rule not in allowed(name_of(path))
    ]

    assert not found, "\n" + "\n".join(found)


def test_exceptions_to_the_seams_are_still_needed() -> None:
    """An exception whose file is gone, or which no longer needs it, is taken out (named ones only)."""
    for place, rules in ALLOWED.items():
        assert (ROOT / place).exists(), f"{place} is gone: remove it of ALLOWED"
        if rules is not _EDGE:
            used = {rule for _, rule, _ in outside_world(ast.parse((ROOT / place).read_text()))}
            assert rules <= used, f"{place} no longer needs {sorted(rules - used)}"


def test_product_files_stay_readable_in_one_sitting() -> None:
    """No file of product code is longer than 600 lines; split it by meaning."""
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in product_files()}

    assert not {name: lines for name, lines in lengths.items() if lines > LINES_MAX}


def log_events(tree: ast.Module) -> Iterator[tuple[int, ast.expr]]:
    """Yield line and first argument of every call of a logger."""
    logger = re.compile(r"(self\.)?_?log(ger)?\.(debug|info|warning|error|critical|exception)")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and logger.fullmatch(ast.unparse(node.func)):
            yield node.lineno, node.args[0]


def test_log_events_are_constant_snake_case_names() -> None:
    """What varies in a log line is a key, not the event."""
    found = [
        f"{name_of(path)}:{line}: {ast.unparse(event)}"
        for path in product_files()
        # Its callers hand it the event.
        if name_of(path) != "broker/runtime/rate_limited_log.py"
        for line, event in log_events(ast.parse(path.read_text()))
        if not (isinstance(event, ast.Constant) and re.fullmatch(r"[a-z][a-z0-9_]*", str(event.value)))
    ]

    assert not found, "\n" + "\n".join(found)


def test_thrift_folder_is_no_package() -> None:
    """An Apache Thrift library in the same environment stays importable."""
    assert not list((ROOT / "thrift").rglob("*.py"))


def test_rules_find_what_they_forbid() -> None:
    """The checks above can fail."""
    bad = ast.parse(
        "import time, os\nfrom proxy.node.node import Node\nimport random\nfrom random import Random\n"
        "def f(r: Random):\n    open('x'); random.random(); Random(1); datetime.datetime.now(); r.random()\n"
        "    os.remove('x'); os.strerror(1)\n"
    )

    assert sorted(rule for _, rule, _ in outside_world(bad)) == [
        "datetime.now",
        "open",
        "os.*",
        "random.*",
        "random.*",
        "time",
    ]
    assert [line for line, _ in forbidden_import_direction("broker", bad)] == [2]
    assert not list(forbidden_import_direction("proxy", bad))
    over = ast.parse(
        "import pyddmq.__main__\nfrom pyddmq.codes import ResultCode\nfrom pyddmq.testing.loop import Process\n"
    )
    assert [line for line, _ in forbidden_import_direction("proxy", over)] == [1, 3]


def make_targets() -> set[str]:
    """Targets of the Makefile."""
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands_of(page: Path) -> list[str]:
    """Commands of the shell examples of a page, without their comments."""
    blocks = re.findall(r"```(?:sh|bash|console)\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines()]
    return [part.strip().removeprefix("$ ") for line in lines for part in line.split(";") if part.strip()]


def test_make_commands_of_the_readme_exist() -> None:
    """Every `make` target that the README shows is in the Makefile, run and test among them."""
    shown = {word for command in commands_of(ROOT / "README.md") for word in re.findall(r"\bmake ([a-z]+)", command)}

    assert {"run", "test"} <= shown <= make_targets()


def test_pyddmq_commands_of_the_readme_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Every `pyddmq` command that the README shows has a help page."""
    from proxy.cli.app import run

    shown = {
        match[1]
        for command in commands_of(ROOT / "README.md")
        if (match := re.search(r"\bpyddmq (config [a-z]+|[a-z]+)", command))
    }

    assert shown
    for words in sorted(shown):
        assert run([*words.split(), "--help"]) == 0, f"README shows `pyddmq {words}`: {capsys.readouterr().err}"


def test_files_named_by_the_readme_exist() -> None:
    """Every page, configuration file or folder that the README points to is there."""
    named = set(re.findall(r"\b(?:docs|conf|examples|bench)/[A-Za-z0-9_./-]*[a-z]", (ROOT / "README.md").read_text()))

    assert not {name for name in named if not (ROOT / name).exists()}


def test_ci_runs_the_readmes_test_command_and_what_needs_other_servers() -> None:
    """.ci/run calls `make test`, `console`, `sinks`, `interop`, `kafka` and `site`, and nothing else."""
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and line[0] != "#"]

    assert commands[0] == "set -eu"
    assert commands[2:] == ["make test", "make console", "make sinks", "make interop", "make kafka", "make site"]


def test_every_dependency_has_its_reason() -> None:
    """docs/dependencies.md names each package of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    names = {re.split(r"[<>=;\[ ]", text)[0] for text in texts}
    page = (ROOT / "docs" / "dependencies.md").read_text()

    assert not {name for name in names if name not in page}


def test_decisions_that_the_code_cites_are_restated() -> None:
    """docs/decisions.md has every D.. that a module, test or page cites."""
    reported = set(re.findall(r"^\*\*(D\d+)\b", (ROOT / "docs" / "decisions.md").read_text(), re.MULTILINE))
    places = [*product_files(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    cited = {number for path in places for number in re.findall(r"\bD[1-9]\d?\b", path.read_text())}

    # Ruff's rule names look alike but have three digits.
    assert not cited - reported, f"restate {sorted(cited - reported)} in docs/decisions.md"


PRIVATE_MAX = 98
"""A ceiling that only falls: ask the public face, or look inside in `tests/insides.py`."""
_OF_NAMED_TUPLES = ("_replace", "_asdict", "_fields", "_make")
_OF_OTHERS = ("_PARTITION_EOF", "_TIMED_OUT", "_exit")


def test_tests_look_at_few_private_attributes() -> None:
    """Of other objects than `self`; what named tuples and the standard library offer under such names is public."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))}
    # Most files have none at first sight, and parsing all of them takes long.
    others = re.compile(r"(?<!\bself)(?<!\bcls)(?<!super\(\))\s*\._(?!_)")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path, text in texts.items()
        if others.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in (*_OF_NAMED_TUPLES, *_OF_OTHERS)
        and ast.unparse(node.value) not in ("self", "cls", "super()")
    ]
    assert len(found) <= PRIVATE_MAX, "\n".join(found)
