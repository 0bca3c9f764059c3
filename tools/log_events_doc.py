"""Makes docs/log-events.md from the calls in the code.

A log line is made by a logger (`_log.info("event", fact=...)`) or by a node's rate-limited log (`limited_log.note`,
`limited_log.fault`). Their calls are found in the source by their shape, so no line is left out; what each event means
stands in `tools.log_events`.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.abc import InspectLoader

from tools.log_events import MEANINGS
from tools.metrics_doc import modules_of

ROOMS = ("conf", "broker", "upstream", "actions", "lag", "proxy", "pyddmq")
LEVELS = ("error", "warning", "info", "debug")
_LOGGER = re.compile(r"(self\.)?_?log(ger)?")
_LIMITED_LOG = re.compile(r"(.*\.)?_?limited_log")
_OF_METHOD = {"exception": "error", "critical": "error", "note": "warning", "fault": "error"}
_COUNTED = ("group", "count")
_TRACEBACK = "exception"

EXPANDED = {
    "names_of(tracker)": ("group", "topic", "queue"),
    "job.log_facts": ("topic", "qid", "offset"),
    "self._place()": ("topic", "queue"),
    "addresses": ("producer", "consumer", "admin", "data"),
}
"""Facts that a call hands over as a mapping; of any other mapping the page says `...`."""

_INTRODUCTION = """\
# Log events

<!-- Made from the code by `make docs`; a test keeps the two equal. -->

Every line that a node writes to stderr: one JSON object, or a line for people on a terminal (`logFormat`). `event` is
one of the names below, `level` its level, `timestamp` the time in UTC; the other fields are listed here. Unknown fields
are omitted. `...` means fields that differ from case to case.

Events with `count` are rate-limited. The first of a kind, group and minute is written immediately. The others of that
minute are counted, and one line has their number and the fields of the first. [Metrics](metrics.md) count all.
`fault` and `at` are the exception and its place; `exception` is the traceback. The place is the module that writes the
line.

Check each `error`. A `warning` reports something that was skipped, refused, repaired or delayed. `info` reports start,
recovery, reload, stop and deleted log files. [Operations](operations.md#what-needs-attention) describes what to do.
"""


@dataclass(slots=True)
class Event:
    """What the code says of one event: its levels, the fields of all its calls in their order, the modules."""

    levels: set[str] = field(default_factory=set)
    fields: dict[str, None] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)


class NoConstantEvent(Exception):
    """A log call whose event is not a plain text; names the module and line."""


def sources() -> Iterator[tuple[str, str]]:
    """Yield name and source of every module of a node."""
    for name in (name for room in ROOMS for name in modules_of(room)):
        spec = importlib.util.find_spec(name)
        source = spec.loader.get_source(name) if spec is not None and isinstance(spec.loader, InspectLoader) else None
        # An accelerator has none.
        if source is not None:
            yield name, source


def collect(modules: Iterable[tuple[str, str]]) -> dict[str, Event]:
    """Return the events of modules, given by name and source.

    Raises:
        NoConstantEvent: A call's event is not a constant, so that nobody could list it.
    """
    found: dict[str, Event] = {}
    for module, source in modules:
        if module == "broker.runtime.rate_limited_log":
            # Its callers hand it the event.
            continue
        for call, method in _calls(ast.parse(source)):
            name = call.args[0]
            if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
                text = (
                    f"{module}:{call.lineno}: {ast.unparse(name)} is not a constant; put the variable part into a field"
                )
                raise NoConstantEvent(text)
            event = found.setdefault(name.value, Event())
            facts = list(_facts(call, method))
            event.modules.add(module)
            event.fields.update(dict.fromkeys(facts))
            event.levels.add("error" if "fault" in facts else _OF_METHOD.get(method, method))
    return found


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls that write a log line, with the name of the method."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        owner, method = ast.unparse(node.func.value), node.func.attr
        if (method in ("note", "fault") and _LIMITED_LOG.fullmatch(owner)) or (
            method in (*LEVELS, "exception", "critical") and _LOGGER.fullmatch(owner)
        ):
            yield node, method


def _facts(call: ast.Call, method: str) -> Iterator[str]:
    """Yield the fields of a call's line."""
    if method == "note" and len(call.args) > 1 and ast.unparse(call.args[1]) != "''":
        yield _COUNTED[0]
    for keyword in call.keywords:
        if keyword.arg is None:
            yield from EXPANDED.get(ast.unparse(keyword.value), ("...",))
        elif keyword.arg not in ("kind", "first") or method not in ("note", "fault"):
            yield keyword.arg
    if method in ("note", "fault"):
        yield _COUNTED[1]
    if method == "fault":
        yield from ("fault", "at")
    if method in ("fault", "exception"):
        yield _TRACEBACK


def render(events: Mapping[str, Event], meanings: Mapping[str, str]) -> str:
    """Return the page: a table for each level, each by name; an event of two levels stands under the graver."""
    parts = [_INTRODUCTION]
    for level in LEVELS:
        names = sorted(name for name, event in events.items() if _gravest(event) == level)
        if names:
            parts.append(f"\n## {level}\n\n| event | fields | means | place |\n| --- | --- | --- | --- |\n")
            parts.extend(_row(name, events[name], meanings[name]) for name in names)
    return "".join(parts)


def _gravest(event: Event) -> str:
    return min(event.levels, key=LEVELS.index)


def _row(name: str, event: Event, meaning: str) -> str:
    fields = ", ".join(each if each == "..." else f"`{each}`" for each in sorted(event.fields, key=_place_of_field))
    also = f" Also at {' and '.join(sorted(event.levels - {_gravest(event)}))}." if len(event.levels) > 1 else ""
    modules = ", ".join(f"`{module}`" for module in sorted(event.modules))
    return f"| `{name}` | {fields} | {meaning}{also} | {modules} |\n"


def _place_of_field(name: str) -> tuple[bool, bool]:
    """The group first, what stands for more last; the others stay as the code has them."""
    return name == "...", name != "group"


def page() -> str:
    """Return the page of this checkout."""
    return render(collect(sources()), MEANINGS)
