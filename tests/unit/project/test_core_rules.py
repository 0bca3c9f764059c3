"""The core of the broker imports no feature, and nothing that is made of both (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.unit.project.test_house_rules import ROOT, name_of

FEATURES = {
    "delay levels, timers, recurring messages, and what these share": ("scheduled/",),
    "transactions": ("transaction/",),
    "retries": ("retry/",),
    "consumers": ("consumer/",),
    "deduplication": ("deduplication/",),
}
ABOVE = ("features", "embedded", "tools/")
"""What is made of the core and all features: the tuple of them, and tools."""

Sources = dict[str, list[tuple[int, str]]]
"""By path from the root: line and full name of every import."""


def imports(path: Path) -> list[tuple[int, str]]:
    """Every module that a file may import, for types alone or in a function as well; of a *.pyx by its lines."""
    text = path.read_text()
    if path.suffix == ".pyx":
        found = re.finditer(r"^\s*(?:from|c?import)\s+(broker[\w.]*)(?:\s+c?import\s+(\w+))?", text, re.MULTILINE)
        return [(text.count("\n", 0, each.start()) + 1, ".".join(filter(None, each.groups()))) for each in found]
    return list(_imported(ast.parse(text)))


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from broker import x` may name a module; `from broker.x import y` begins with one in any case.
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def modules() -> Sources:
    """The broker's files and what each imports."""
    files = sorted(path for suffix in ("py", "pyx") for path in (ROOT / "broker").rglob(f"*.{suffix}"))
    return {name_of(path): imports(path) for path in files}


def belongs(module: str, places: tuple[str, ...]) -> bool:
    """Whether a dotted name is that of a module, or of something in one, of these places of the broker."""
    inner = module.removeprefix("broker.")
    names = tuple(place.rstrip("/") for place in places)
    return inner != module and any(inner == name or inner.startswith(f"{name}.") for name in names)


def forbidden(sources: Sources) -> list[str]:
    """Imports of features, or of what stands above them, by the core; with the sentence that says what is right."""
    features = tuple(place for places in FEATURES.values() for place in places)
    found = []
    for name, imported in sources.items():
        own = name.rpartition(".")[0].replace("/", ".").removesuffix(".__init__")
        if belongs(own, (*features, *ABOVE, "testing/")):
            continue
        for line, module in imported:
            if belongs(module, (*features, *ABOVE)):
                found.append(f"{name}:{line}: the core imports {module}: let the feature say it (broker/feature.py)")
    return found


def test_core_imports_no_feature() -> None:
    """Imports for types alone count, and so do those inside functions."""
    found = forbidden(modules())

    assert not found, "\n" + "\n".join(found)


def test_features_import_nothing_that_is_made_of_all_of_them() -> None:
    """The tuple of all features and the tools stand above each feature."""
    features = tuple(place for places in FEATURES.values() for place in places)
    found = [
        f"{name}:{line}: imports {module}"
        for name, imported in modules().items()
        if belongs(name.rpartition(".")[0].replace("/", "."), features)
        for line, module in imported
        if belongs(module, ABOVE)
    ]

    assert not found, "\n" + "\n".join(found)


def test_places_of_the_table_exist() -> None:
    """A place that is gone is taken out of the table, so that the rule holds for what is there."""
    places = [*(place for places in FEATURES.values() for place in places), *ABOVE]
    stems = {name.rpartition(".")[0].removeprefix("broker/") for name in modules()}

    assert not {place for place in places if not any(f"{stem}/".startswith(f"{place.rstrip('/')}/") for stem in stems)}


def test_rule_finds_what_it_forbids() -> None:
    """The check above can fail: by a plain import, by a name of the package, for types, and in a function."""
    bad = ast.parse(
        "import broker.scheduled.delay.levels\nfrom broker.scheduled import pop_records\n"
        "from broker.scheduled.timer.names import TIMER_TOPIC\n"
        "if TYPE_CHECKING:\n    from broker.transaction.names import State\n"
        "def f():\n    from broker.features import ALL\n"
        "from broker.retention import Retention\nfrom broker import topic_changes\n"
    )
    sources = {"broker/log/segment_space.py": list(_imported(bad))}

    assert len(forbidden(sources)) == 5
    assert not forbidden({"broker/scheduled/delay/new.py": sources["broker/log/segment_space.py"]})
