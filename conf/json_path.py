"""JSON paths of the configuration: their full spelling, and getters made of them.

DDMQ also takes paths without the `$` (`a.b`, `x[0]`); all who read one here do. Plain paths (names, bracketed names,
indexes) become a walk over the parsed body; everything else (wildcards, filters, slices, `..`) goes through
python-jsonpath, whose parser a configuration without JSON paths does not pay for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jsonpath import JSONPath

_PLAIN_PATH = re.compile(r"""\$(?:\.[A-Za-z_][A-Za-z0-9_]*|\[(?:0|[1-9][0-9]*)\]|\['[^'\\]+'\]|\["[^"\\]+"\])+""")
_PLAIN_STEP = re.compile(r"""\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]|\['([^']+)'\]|\["([^"]+)"\]""")

Steps = tuple[str | int, ...]
"""Names of objects' fields, and places in lists."""


class Missing:
    """What a getter returns where a path leads nowhere; there is one, `MISSING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


def full_path(text: str) -> str:
    """Return a path in its full spelling, which starts with `$`."""
    return text if text.startswith("$") else f"${text}" if text.startswith("[") else f"$.{text}"


def parse_path(text: str) -> JSONPath:
    """Parse a path, in its full spelling or without the `$`.

    Raises:
        ValueError: A sentence that says what is wrong with it.
    """
    from jsonpath import JSONPath, JSONPathError, compile
    from jsonpath.token import TOKEN_FUNCTION, TOKEN_RE_PATTERN

    if not text or text != text.strip():
        raise ValueError(f"{text!r} is not a valid JSON path; write for example $.customer.id or $['case id']")
    try:
        query = compile(full_path(text))
    except (JSONPathError, RecursionError, ValueError, ArithmeticError) as error:
        # The last two of numbers: 1e999, or 5,000 digits.
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{text!r} is not a valid JSON path ({reason}); write for example $.customer.id") from error
    if not isinstance(query, JSONPath):
        raise ValueError(f"{text!r} has several JSON paths; write one")
    for token in query.env.lexer.tokenize(full_path(text)):
        if token.kind == TOKEN_RE_PATTERN or (token.kind == TOKEN_FUNCTION and token.value in {"match", "search"}):
            # Python's may take years for a text of 40 characters, and cannot be stopped.
            raise ValueError(f"{text!r} is a JSON path with a regular expression; use the action Filter with `matches`")
    return query


def plain_steps(path: str) -> Steps | None:
    """Return the steps of a plain path in its full spelling; None where it is none. `$` alone has no steps."""
    if path == "$":
        return ()
    if not _PLAIN_PATH.fullmatch(path):
        return None
    return tuple(
        int(index) if index else name or single or double for name, index, single, double in _PLAIN_STEP.findall(path)
    )


def compile_getter(text: str) -> Callable[[Any], Any]:
    """Make the getter of a path.

    Args:
        text: A path that `parse_path` takes.

    Returns:
        A function from parsed data to the value at the path, or MISSING. A path that may match several values gives
        the list of those that it does match.
    """
    path = full_path(text)
    steps = plain_steps(path)
    if steps is not None:
        return _walker(steps)
    query = parse_path(path)
    single = query.singular_query()

    def get(data: Any) -> Any:
        found = query.findall(data) if isinstance(data, dict | list) else []
        if single:
            return found[0] if found else MISSING
        return found or MISSING

    return get


def _walker(steps: Steps) -> Callable[[Any], Any]:
    if len(steps) == 1 and isinstance(steps[0], str):
        [name] = steps

        def get(data: Any) -> Any:
            return data.get(name, MISSING) if isinstance(data, dict) else MISSING

        return get

    def walk(data: Any) -> Any:
        for step in steps:
            if isinstance(step, str):
                if not isinstance(data, dict):
                    return MISSING
                data = data.get(step, MISSING)
            elif isinstance(data, list) and step < len(data):
                data = data[step]
            else:
                return MISSING
        return data

    return walk
