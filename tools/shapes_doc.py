"""Makes docs/admin-shapes.md from the views."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

from msgspec import UNSET, inspect
from msgspec.structs import fields

from broker.views import TimerStatus, View, WaitingMessage
from proxy.node.views import ReloadResult
from proxy.operate.views.audit import AuditAnswer
from proxy.operate.views.changes import (
    CancelsResult,
    DecisionResult,
    DeletionResult,
    HeadResult,
    LossesAnswer,
    PauseResult,
    RescheduleResult,
    ResetResult,
    ResumptionResult,
    StagesResult,
    TopicResult,
)
from proxy.operate.views.dead_letters import (
    DeadLetterFigures,
    DeadLetterGroupsAnswer,
    DeadLetterLine,
    DeadLettersAnswer,
    RedriveResult,
)
from proxy.operate.views.errors import ErrorAnswer
from proxy.operate.views.findings import AttentionAnswer
from proxy.operate.views.groups import GroupsAnswer, OffsetsAnswer, StuckAnswer
from proxy.operate.views.lag import LagAnswer
from proxy.operate.views.lag_history import ObjectivesAnswer
from proxy.operate.views.limits import LimitsAnswer
from proxy.operate.views.messages import MessagesAnswer
from proxy.operate.views.node import ReadinessAnswer, StatsAnswer
from proxy.operate.views.topics import TopicsAnswer
from proxy.operate.views.waiting import DelaysAnswer, TimerAnswer, TimersAnswer, TransactionsAnswer
from tools.numbers import without_numbers

MODULES = (
    "broker.views",
    "upstream.views",
    "proxy.node.views",
    "proxy.access.views",
    *(
        f"proxy.operate.views.{name}"
        for name in (
            "audit",
            "changes",
            "dead_letters",
            "errors",
            "findings",
            "groups",
            "lag",
            "lag_history",
            "limits",
            "messages",
            "node",
            "topics",
            "waiting",
        )
    ),
)
"""Where views are."""

ANSWERS: tuple[tuple[str, tuple[type[View], ...]], ...] = (
    ("GET /readyz?verbose", (ReadinessAnswer,)),
    ("GET /api/topics", (TopicsAnswer,)),
    ("GET /api/groups", (GroupsAnswer,)),
    ("GET /api/groups/stuck", (StuckAnswer,)),
    ("GET /api/offsets", (OffsetsAnswer,)),
    ("GET /api/lag", (LagAnswer,)),
    ("GET /api/lag/objectives", (ObjectivesAnswer,)),
    ("GET /api/attention", (AttentionAnswer,)),
    ("GET /api/limits", (LimitsAnswer,)),
    ("GET /api/losses", (LossesAnswer,)),
    ("GET /api/stats", (StatsAnswer,)),
    ("GET /api/audit", (AuditAnswer,)),
    ("GET /api/delays", (DelaysAnswer,)),
    ("GET /api/timers", (TimersAnswer,)),
    ("GET /api/timers/show", (TimerAnswer,)),
    ("GET /api/transactions", (TransactionsAnswer,)),
    ("GET /api/messages", (MessagesAnswer,)),
    ("GET /api/dead-letters", (DeadLetterGroupsAnswer, DeadLettersAnswer, DeadLetterFigures)),
    ("GET /api/dead-letters/download, each line", (DeadLetterLine,)),
    ("POST /api/groups/retry, skip, dead-letter", (HeadResult,)),
    ("POST /api/groups/pause, resume", (PauseResult,)),
    ("POST /api/offsets/reset", (ResetResult,)),
    ("POST /api/topics, /api/topics/alter", (TopicResult,)),
    ("DELETE /api/topics", (DeletionResult,)),
    ("POST /api/delays/cancel, /api/timers/cancel", (CancelsResult,)),
    ("POST /api/timers/reschedule", (RescheduleResult,)),
    ("POST /api/timers/pause, resume", (StagesResult,)),
    ("POST /api/transactions/decide", (DecisionResult,)),
    ("POST /api/transactions/resume", (ResumptionResult,)),
    ("POST /api/dead-letters/redrive", (RedriveResult,)),
    ("POST /api/reload", (ReloadResult,)),
    ("any, refused", (ErrorAnswer,)),
)
"""What each path answers with."""

BASES = frozenset({View, WaitingMessage, TimerStatus})
"""Views that are parts of others alone."""

_SPANS = frozenset(
    {"delay_ms", "late_ms", "timeout_ms", "interval_ms", "every_ms", "ms", "time_lag_ms", "time_lag_low_ms"}
    | {"time_lag_high_ms", "width_ms", "objective_ms", "kept_ms", "over_ms", "unknown_ms"}
)
"""Durations in ms; the others that end so are moments."""

_INTRODUCTION = """\
# Shapes of the admin port's answers

Each field of what the [admin port](admin.md) answers. This page is made from the records in the code
(`make docs`); a test keeps the two equal. Commands print the same with `--json`.
Unix ms are milliseconds since 1970 by the node's wall clock. A field that may be absent is left out where it has no
meaning; every other field is always there. Later versions may add fields.
"""


def views() -> list[type[View]]:
    """Return all views, in the order of their modules."""
    found = []
    for name in MODULES:
        module = importlib.import_module(name)
        found += [
            each
            for each in vars(module).values()
            if isinstance(each, type) and issubclass(each, View) and each.__module__ == name and each not in BASES
        ]
    return found


def meanings(view: type[View]) -> dict[str, str]:
    """Return what the docstrings of a view, and of those that it extends, say of each field."""
    found: dict[str, str] = {}
    for each in reversed(view.__mro__):
        section = (each.__doc__ or "").partition("Attributes:")[2]
        for entry in re.finditer(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", section, re.MULTILINE):
            found[entry[1]] = " ".join(entry[2].split())
    return found


def render() -> str:
    """Return the page."""
    shapes = (part for view in views() for part in _shape(view))
    return without_numbers("".join([_INTRODUCTION, *_paths(), "\n## Shapes\n", *shapes]))


def _paths() -> Iterator[str]:
    yield "\n## Answers\n\n| request | answer |\n| --- | --- |\n"
    for request, shapes in ANSWERS:
        yield f"| `{request}` | {' or '.join(map(_link, shapes))} |\n"


def _shape(view: type[View]) -> Iterator[str]:
    said = meanings(view)
    left_out = {field.name for field in fields(view) if field.default is UNSET}
    info = inspect.type_info(view)
    assert isinstance(info, inspect.StructType)
    yield f"\n### {view.__name__}\n\n{(view.__doc__ or '').partition(chr(10))[0]}\n"
    yield "\n| field | type | unit | meaning |\n| --- | --- | --- | --- |\n"
    for field in info.fields:
        meaning = said[field.name].replace("|", "\\|")
        absent = ", may be absent" if field.name in left_out else ""
        yield f"| `{field.encode_name}` | {_type(field.type)}{absent} | {_unit(field.name)} | {meaning} |\n"


def _link(view: type) -> str:
    return f"[{view.__name__}](#{view.__name__.lower()})"


def _unit(name: str) -> str:
    if name == "ms" or name.endswith("_ms"):
        return "ms" if name in _SPANS else "Unix ms"
    if name == "interval" or name.endswith("_seconds"):
        return "s"
    return "bytes" if name == "bytes" or name.endswith("_bytes") else ""


def _type(info: inspect.Type) -> str:
    match info:
        case inspect.UnionType(types=types):
            return " or ".join(map(_type, types))
        case inspect.StructType(cls=view):
            return _link(view)
        case inspect.CollectionType(item_type=item) | inspect.ListType(item_type=item):
            return f"list of {_type(item)}"
        case inspect.DictType(value_type=value):
            return f"object of {_type(value)}"
        case inspect.LiteralType(values=values):
            return " or ".join(f"`{each}`" for each in values)
    return {
        inspect.StrType: "string",
        inspect.IntType: "integer",
        inspect.FloatType: "number",
        inspect.BoolType: "boolean",
        inspect.NoneType: "null",
    }[type(info)]
