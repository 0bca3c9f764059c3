"""No module imports, over whatever way round, a module that imports it.

Imports for types alone count, also under `if TYPE_CHECKING`: who has to know of whom is what they tell. That a module
runs its package's `__init__` before it counts for nothing; an import of that package by name does.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Mapping

from tests.unit.project.test_house_rules import ROOT, name_of, product_files

Graph = Mapping[str, Iterable[str]]


def module_names() -> dict[str, str]:
    """Return each module of the product with its file, by the name that imports have for it."""
    files = {name_of(path) for path in product_files()}
    return {file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for file in files}


def imported(tree: ast.Module, modules: Iterable[str]) -> set[str]:
    """Return those of `modules` that a module imports, wherever in it and whatever for."""
    known, found = frozenset(modules), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from room import module` names a module, `from room.module import thing` what is in one.
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & known
            if not names <= known:
                found.add(str(node.module))
    return found & known


def circles(graph: Graph) -> set[frozenset[str]]:
    """Return the sets of modules that import each other round about, as large as they are."""
    reached = {module: _reached_from(module, graph) for module in graph}
    return {
        frozenset({module, *(other for other in reached[module] if module in reached[other])})
        for module in graph
        if module in reached[module]
    }


def _reached_from(start: str, graph: Graph) -> set[str]:
    """Return what a module imports, over however many others; itself only if there is a way round."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = set(graph[waiting.pop()]) - seen
        seen |= new
        waiting.extend(new)
    return seen


def shortest_way_round(circle: frozenset[str], graph: Graph) -> str:
    """Write a circle down as `a imports b imports a`, by the shortest way from the first of its modules."""
    start = min(circle)
    ways, seen = deque([[start]]), set[str]()
    while start not in seen:
        way = ways.popleft()
        new = sorted(circle.intersection(graph[way[-1]]) - seen)
        seen.update(new)
        ways.extend([*way, module] for module in new)
    return " imports ".join(next(way for way in ways if way[-1] == start))


def test_modules_stand_one_above_the_other() -> None:
    """The product has no circle of imports; the cure is a lower module that owns what both need, or a handed-in one."""
    modules = module_names()
    graph = {name: imported(ast.parse((ROOT / file).read_text()), modules) for name, file in modules.items()}
    found = circles(graph)

    assert not found, "\n" + "\n".join(
        f"{len(circle)} modules import each other: {shortest_way_round(circle, graph)}"
        f" (all of them: {', '.join(sorted(circle))})"
        for circle in sorted(found, key=min)
    )


def test_a_circle_is_found_and_written_down() -> None:
    """One for types alone, and one of which only a part goes round; what is beside it is not named."""
    modules = ["room.a", "room.b", "room.c", "room.d", "room"]
    texts = {
        "room": "from room.a import thing\n",
        "room.a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from room.b import Thing\n",
        "room.b": "from room import c, d\n",
        "room.c": "def f():\n    import room.a\n",
        "room.d": "import json\nfrom json import room\n",
    }
    graph = {name: imported(ast.parse(text), modules) for name, text in texts.items()}

    assert circles(graph) == {frozenset({"room.a", "room.b", "room.c"})}
    assert shortest_way_round(frozenset({"room.a", "room.b", "room.c"}), graph) == (
        "room.a imports room.b imports room.c imports room.a"
    )
    assert not circles(dict.fromkeys(modules, ()))
