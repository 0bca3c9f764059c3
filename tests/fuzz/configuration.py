"""Target `yaml`: any text as a configuration gives a checked one or ConfigError, each problem with file and line."""

from __future__ import annotations

import functools

from actions.registry import Registry
from conf import ConfigError, loads
from conf.diff import diff


@functools.cache
def _registry() -> Registry:
    return Registry()


def yaml(data: bytes) -> None:
    """Load these bytes as a configuration."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        loaded = loads(text, file="node.yaml", actions=_registry())
    except ConfigError as error:
        _check_problems(error, text.count("\n") + text.count("\r") + 2)
        return
    for warning in loaded.warnings:
        assert warning.line is not None, f"{warning} names no line"
    assert diff(loaded.config, loaded.config).empty


def _check_problems(error: ConfigError, lines: int) -> None:
    assert error.problems, "a refusal has a reason"
    for problem in error.problems:
        assert problem.text, "a problem has a sentence"
        assert problem.line is not None, f"{problem} names no line"
        assert 1 <= problem.line <= lines, f"{problem} names no line of the text"
