"""The folders of a room are layers: what stands lower imports nothing of what stands higher (docs/architecture.md).

Imports for types alone count.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.unit.project.test_house_rules import ROOT
from tests.unit.project.test_import_circles import imported, module_names

LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "broker": (
        ("errors", "views"),
        ("runtime",),
        ("format",),
        ("options",),
        ("queues",),
        ("log",),
        ("feature_marks", "feature"),
        ("index",),
        ("opening",),
        ("store", "store_parts", "store_seams", "query", "retention", "topic_changes",
         "put_batch", "selectors"),
        ("scheduled", "retry", "transaction", "deduplication", "consumer"),
        ("features",),
        ("tools", "embedded"),
    ),
    "upstream": (
        ("state", "action", "history", "message_holder", "budget", "retention_losses", "views"),
        ("progress", "queues"),
        ("job",),
        ("source",),
        ("calls",),
        ("retry",),
        ("figures",),
        ("waiting",),
        ("group_parts",),
        ("outcomes",),
        ("running",),
        ("delivery",),
        ("fetch",),
        ("embedded",),
        ("kafka",),
        ("kafka_client",),
        ("operate",),
        ("tools",),
    ),
    "lag": (
        ("samples", "varints", "blocks", "visible_end", "spans"),
        ("rules", "journal", "acks"),
        ("verdicts", "history"),
        ("export",),
        ("report",),
        ("spark",),
    ),
    "proxy": (
        ("idl",),
        ("wire", "tls", "access"),
        ("limits",),
        ("port",),
        ("services",),
        ("recording",),
        ("node",),
        ("operate",),
        ("admin",),
        ("process",),
        ("demo",),
        ("cli",),
    ),
}  # fmt: skip
"""Of each room, from the lowest to the highest."""


def layer_of(module: str) -> int | None:
    """Return how high a module stands in its room; None: in no layer."""
    room, _, rest = module.partition(".")
    for height, names in enumerate(LAYERS.get(room, ())):
        if rest.partition(".")[0] in names:
            return height
    return None


@pytest.mark.parametrize("room", LAYERS)
def test_no_import_runs_up(room: str) -> None:
    """Of one room's modules."""
    modules = module_names()
    found = set()
    for module, file in modules.items():
        height = layer_of(module)
        if module.partition(".")[0] != room or height is None:
            continue
        for other in imported(ast.parse((ROOT / file).read_text(encoding="utf-8")), modules):
            above = layer_of(other)
            if other.partition(".")[0] == room and other != room and (above is None or above > height):
                found.add((module, other))
    assert not found, f"hand it in, or move what is shared down: {sorted(found)}"


def test_every_module_has_its_place() -> None:
    """Whoever adds one says where it stands."""
    unplaced = {
        module
        for module in module_names()
        if module.partition(".")[0] in LAYERS and "." in module and layer_of(module) is None
    }
    assert not unplaced


PLACES = re.compile(r"`(?P<file>[\w/]+\.(?:py|pyx))::(?P<name>\w+)(?:\.(?P<member>\w+))?`")


def places() -> list[tuple[str, str, str | None]]:
    """Return what docs/architecture.md names as `file::name` or `file::Class.member`."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return [(found["file"], found["name"], found["member"]) for found in PLACES.finditer(text)]


@pytest.mark.parametrize(("file", "name", "member"), places())
def test_named_place_exists(file: str, name: str, member: str | None) -> None:
    """What the page answers a new reader with is there."""
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    if member is not None:
        [owner] = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
        body, name = owner.body, member
    assert name in defined(body)


def defined(body: list[ast.stmt]) -> set[str]:
    """Return what statements define by name."""
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def test_reader_finds_ten_answers() -> None:
    """The questions of a new reader are answered with a place each."""
    assert len(places()) >= 10


TESTS_MAX = 40
"""Test modules of one folder: more, and nobody finds the one that is asked for."""


def test_folders_of_tests_stay_small_and_mirror_the_rooms() -> None:
    """What tests a module stands in a folder named like the module's, not beside them all."""
    folders: dict[str, int] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT).as_posix()
        folders[folder] = folders.get(folder, 0) + 1
    assert {folder: count for folder, count in folders.items() if count > TESTS_MAX} == {}
    assert not {"tests/unit", "tests/integration"} & folders.keys()
