"""Getters made of JSON paths."""

from __future__ import annotations

from typing import Any

import pytest

from conf.json_path import MISSING, compile_getter, full_path, parse_path, plain_steps

DATA = {"a": {"b": [10, {"c": None}]}, "x y": 1, "l": [{"p": 1}, {"p": 2}]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", DATA["a"]),
        ("$", DATA),
        ("$.a.b[0]", 10),
        ("a.b[1].c", None),
        ("a.b[2]", MISSING),
        ("a.b.c", MISSING),
        ("['x y']", 1),
        ("$.l[-1].p", 2),
        ("$.l[*].p", [1, 2]),
        ("$..p", [1, 2]),
        ("$.l[?@.p > 1]", [{"p": 2}]),
        ("$.l[?@.p > 9]", MISSING),
        ("x y", ValueError),
        ("", ValueError),
        (" a", ValueError),
        ("$.a | $.b", ValueError),
        ("$.l[?@.p > 1e999]", ValueError),
        ("$.l[" + "9" * 5000 + "]", ValueError),
        ("$.l[?match(@.p, '(a+)+b')]", ValueError),
        ("$..[?search(@.p, $.a)]", ValueError),
        ("$.l[?@.p =~ /(a+)+b/]", ValueError),
        ("$.l[?@['/a/'] == 'match(']", MISSING),
    ],
)
def test_getter(path: str, value: Any) -> None:
    """Plain paths are walked, others found by the library; several matches are a list, none is MISSING."""
    if value is ValueError:
        with pytest.raises(ValueError, match="JSON path"):
            parse_path(path)
        return
    parse_path(path)
    assert compile_getter(path)(DATA) == value
    assert compile_getter(path)([1]) in ([1], MISSING)


def test_plain_paths() -> None:
    """Only these are places to set a value at."""
    assert plain_steps(full_path("a.b[1]['c d']")) == ("a", "b", 1, "c d")
    assert plain_steps("$") == ()
    assert plain_steps("$.a[*]") is None
