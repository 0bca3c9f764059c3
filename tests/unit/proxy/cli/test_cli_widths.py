"""Commands that print tables fit the terminal's width, however long the names are, and cut no number."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from proxy.cli import admin_client
from proxy.cli.app import run

NAME = "billing-of-rides-in-the-north-west-region-by-night"
NUMBER = 1_234_567_890
WORDS = {"level": "ERR", "kind": "timer", "state": "undecided"}
"""Values of fields that take not just any text, by name."""


def filled(shape: Any, name: str = "") -> Any:
    """Return a value of a view's type with two items in each list, a long name in each text and large numbers."""
    shape = getattr(shape, "__value__", shape)
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    if origin is typing.Annotated:
        return filled(inner[0], name)
    if origin is typing.Literal:
        return inner[0]
    if origin in (typing.Union, types.UnionType):
        return filled(next(each for each in inner if each is not type(None)), name)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {filled(inner[0]): filled(inner[1])}
    if isinstance(origin, type) and issubclass(origin, tuple) and inner[-1] is not ...:
        return [filled(each) for each in inner]
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return [filled(inner[0])] * 2
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        return {each.encode_name: filled(each.type, each.name) for each in msgspec.structs.fields(shape)}
    return {bool: True, int: NUMBER, float: float(NUMBER)}.get(shape, WORDS.get(name, NAME))


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose every answer has long names and large numbers."""

    def answer(_method: str, _address: str, _path: str, _document: object, shape: Any, *_rest: object) -> Any:
        return msgspec.json.decode(json.dumps(filled(shape)), type=shape)

    monkeypatch.setattr(admin_client, "_request", answer)


COMMANDS = (
    ("stats",),
    ("limits",),
    ("limits", NAME),
    ("groups",),
    ("groups", NAME),
    ("groups", "stuck"),
    ("topics",),
    ("topics", NAME),
    ("offsets", "show"),
    ("delays", "list"),
    ("delays", "show", "1"),
    ("lag",),
    ("lag", "--trend", "1h"),
    ("lag", "slo"),
    ("dlq", "list"),
    ("dlq", "show", NAME),
    ("dlq", "stats", NAME),
    ("transactions", "list"),
    ("transactions", "show", NAME),
    ("transactions", "stats"),
    ("timers", "list"),
    ("timers", "show", NAME),
    ("timers", "stats"),
    ("messages", "query", NAME),
)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_fits_the_width(
    command: tuple[str, ...],
    width: int,
    node: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A longer line is a single word; no value ends in an ellipsis, and numbers have all their digits."""
    monkeypatch.setenv("COLUMNS", str(width))
    code = run(list(command))
    shown = capsys.readouterr()
    assert code == 0, shown.err
    wide = [line for line in shown.out.splitlines() if len(line) > width and len(line.split()) > 1]
    assert wide == [], "\n".join(wide)
    assert "…" not in shown.out
    numbers = set(re.findall(r"(?<![\w.,-])1,?234[\d,]*\d", shown.out))
    assert {len(number.replace(",", "")) for number in numbers} <= {10}, numbers
