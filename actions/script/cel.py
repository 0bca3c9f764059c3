"""CEL expressions over messages: what they may name, how they are checked at load, and how they are evaluated.

The language and its library are Google's (D44). An expression sees values of the message and nothing else: there are no
functions but the language's own and those of its extensions for texts and optional values (FUNCTIONS). Only the fields
that it names are handed in, for each element of a body costs 0.3 us to convert.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from actions.script.cel_cost import COST_MAX, Estimate, Path, longest, path_of, weigh, weight_max
from actions.script.cel_tree import CelNode, read_tree
from conf.checks import nearest
from conf.places import ConfigTextError

TEXT_MAX = 8192
"""Characters of an expression."""
LOOPS_MAX = 8
REASON_MAX = 300
"""Characters of an error's text."""

VARIABLES: Mapping[str, tuple[str, str]] = {
    "json": ("map<string,dyn>", "the parsed body, an object"),
    "key": ("string", 'message key, "" without one'),
    "tag": ("string", 'tag, "" without one'),
    "properties": ("map<string,string>", "user properties"),
    "topic": ("string", "topic"),
    "group": ("string", "consumer group"),
    "qid": ("string", "the queue's text on the wire"),
    "queue": ("int", "the queue's number"),
    "offset": ("int", "offset in the queue"),
    "size": ("int", "bytes of the body"),
    "attempts": ("int", "failed attempts so far, over restarts"),
    "born": ("timestamp", "time of the producer's request"),
    "age": ("duration", "time since then"),
    "now": ("timestamp", "the node's time"),
}
"""What an expression may name: its type in CEL, and what it is."""

_OFFERED = """
    _&&_ _||_ !_ _?_:_ _==_ _!=_ _<_ _<=_ _>_ _>=_ @in _+_ _-_ -_ _*_ _/_ _%_ _[_] _?._ _[?_] @not_strictly_false
    size contains startsWith endsWith matches int uint double string bool bytes dyn type timestamp duration
    getFullYear getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours getMinutes getSeconds getMilliseconds
    lowerAscii upperAscii trim substring charAt indexOf lastIndexOf split
    optional.of optional.none optional.ofNonZeroValue hasValue value or orValue
"""
FUNCTIONS = frozenset(_OFFERED.split())
"""Operators and functions whose cost is known to be bounded by what they read."""

MISSING_LIBRARY = (
    "the library for CEL is not installed: pip install 'pyddmq[filter]', or pip install 'cel-expr-python>=0.1.3,<0.2'"
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class CelError(Exception):
    """An expression could not decide about a message."""


class CompiledExpression(NamedTuple):
    """A compiled expression.

    Attributes:
        evaluate: The library's own; takes values by name.
        tree: What it is made of.
        paths: Fields of variables that it names.
        wanted: The same as a tree of names: of each variable None where all of it is wanted.
        weight_max: See `cel_cost`.
    """

    evaluate: Callable[..., Any]
    tree: CelNode
    paths: frozenset[Path]
    wanted: Mapping[str, Any]
    weight_max: int | None

    def decide(self, values: Mapping[str, Any]) -> bool:
        """Evaluate it for values of the variables in `wanted`.

        Raises:
            CelError: It names a field that is not there, mixes types, gives no boolean, or would cost too much.
        """
        handed = {name: _pruned(below, values[name]) for name, below in self.wanted.items()}
        if self.weight_max is not None:
            self._check_cost(handed, self.weight_max)
        try:
            result = self.evaluate(data=handed)
            answer = result.value()
        except Exception as error:
            raise CelError(_short(str(error))) from error
        if answer is True or answer is False:
            return answer
        if result.type().name() == "ERROR":
            raise CelError(_short(str(answer)))
        raise CelError(_short(f"it returns {answer!r}, which is not true or false"))

    def _check_cost(self, handed: Mapping[str, Any], weight_max: int) -> None:
        weights = {path: weigh(_at(handed, path)) for path in self.paths}
        if max(weights.values(), default=0) <= weight_max:
            return
        # A text becomes a list by `split`, of as many elements as it has characters at most.
        splits = any(node.name == "split" for node in self.tree.walk())
        most = longest([_at(handed, path) for path in self.paths], texts=splits)
        cost = Estimate(weights, longest=most).of(self.tree)
        if cost > COST_MAX:
            raise CelError(f"it may take {cost:,} steps for this message; the maximum is {COST_MAX:,}")


@functools.lru_cache(maxsize=256)
def compile_expression(text: str) -> CompiledExpression:
    """Compile and check an expression.

    Raises:
        TextError: It is wrong; with the place.
        ValueError: It is wrong as a whole, or the library is not installed.
    """
    if len(text) > TEXT_MAX:
        raise ValueError(f"has {len(text)} characters; the maximum is {TEXT_MAX}")
    env = _environment()
    try:
        compiled = env.compile(text)
        returns = compiled.return_type().name()
        tree = read_tree(compiled.serialize())
    except Exception as error:
        raise _translated(str(error)) from error
    if returns not in ("BOOL", "DYN"):
        raise ValueError(f"returns {returns.lower()}, and a filter returns true or false; use a comparison")
    _check_parts(text, tree)
    paths = frozenset(_paths(tree, frozenset()))
    return CompiledExpression(compiled.eval, tree, paths, _wanted(paths), weight_max(tree))


@functools.cache
def _environment() -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional, ext_strings
    except ImportError as error:
        raise ValueError(MISSING_LIBRARY) from error
    types = {
        "string": cel.Type.STRING,
        "int": cel.Type.INT,
        "timestamp": cel.Type.TIMESTAMP,
        "duration": cel.Type.DURATION,
        "map<string,dyn>": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
        "map<string,string>": cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
    }
    return cel.NewEnv(
        variables={name: types[kind] for name, (kind, _) in VARIABLES.items()},
        extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
    )


_PLACED = re.compile(r"ERROR: [^\n:]*:(-?\d+):(-?\d+): ([^\n]*)")


def _translated(said: str) -> ValueError:
    """Make one sentence of what the compiler says, with the place of the first mistake."""
    if "recursion" in said:
        return ValueError("is nested deeper than 32 levels; split it into two filters")
    found = _PLACED.search(said)
    if found is None:
        return ValueError(_short(said.partition("\n")[0]))
    line, column, text = int(found[1]), int(found[2]), found[3]
    text = text.partition(" expecting ")[0].partition(" (in container")[0].removesuffix(" [INVALID_ARGUMENT]")
    if "undeclared reference" in text and (name := re.search(r"'([^']*)'", text)):
        text += f"; {nearest(name[1], VARIABLES)}use {', '.join(VARIABLES)}, or fields of the body as json.name"
    return ConfigTextError(_short(text), line, column) if line > 0 < column else ValueError(_short(text))


def _check_parts(text: str, tree: CelNode) -> None:
    """Refuse what has no bounded cost."""
    loops = 0
    for node in tree.walk():
        if node.kind == "loop":
            loops += 1
            if loops > LOOPS_MAX:
                raise _placed(text, node.at, f"has more than {LOOPS_MAX} loops; split it into several filters")
        elif node.kind == "call" and node.name not in FUNCTIONS:
            raise _placed(text, node.at, f"{node.name} is not supported, since it may create large texts")
        elif node.kind == "call" and node.name == "matches":
            _check_pattern(text, node)


def _check_pattern(text: str, node: CelNode) -> None:
    pattern = node.below[-1].value
    if not isinstance(pattern, str):
        raise _placed(text, node.at, "the pattern of matches must be a literal, not a value of the message")
    from cel_expr_python import cel

    probe = cel.NewEnv(variables={"pattern": cel.Type.STRING}).compile("''.matches(pattern)")
    answer = probe.eval(data={"pattern": pattern}).value()
    if not isinstance(answer, bool):
        raise _placed(text, node.below[-1].at, _short(str(answer).removeprefix("INVALID_ARGUMENT: ")))


def _placed(text: str, at: int, said: str) -> ValueError:
    if at < 0:
        return ValueError(said)
    before = text[:at]
    return ConfigTextError(said, before.count("\n") + 1, at - before.rfind("\n"))


def _paths(node: CelNode, local: frozenset[str]) -> set[Path]:
    """Return the fields of variables that a part names, the longest of each chain."""
    path = path_of(node)
    if path is not None:
        return set() if path[0] in local else {path}
    if node.kind == "loop":
        source, first, *inside = node.below
        within = local | {node.name, *node.more}
        return _paths(source, local) | _paths(first, local) | {each for part in inside for each in _paths(part, within)}
    return {each for part in node.below for each in _paths(part, local)}


def _wanted(paths: frozenset[Path]) -> dict[str, Any]:
    """Turn paths into a tree of names, in which None means a whole value."""
    root: dict[str, Any] = {}
    for path in sorted(paths):
        at = root
        for place, name in enumerate(path):
            if place + 1 == len(path):
                at[name] = None
            elif (below := at.setdefault(name, {})) is None:
                break  # All of it is wanted already.
            else:
                at = below
    return root


def _pruned(wanted: Mapping[str, Any] | None, value: Any) -> Any:
    """Return what is wanted of a value, in types that the library knows."""
    if wanted is None or type(value) is not dict:
        return _plain(value)
    return {name: _pruned(below, value[name]) for name, below in wanted.items() if name in value}


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: _plain(each) for name, each in value.items()}
    if kind is list:
        return [_plain(each) for each in value]
    # A number that keeps its text (`actions.transform.exact_json`) is a float of a class of its own.
    return float(value) if isinstance(value, float) and kind is not float else value


def _at(handed: Mapping[str, Any], path: Path) -> Any:
    value: Any = handed
    for name in path:
        if type(value) is not dict or name not in value:
            return None
        value = value[name]
    return value


def moment(ms: int) -> datetime.datetime:
    """Return a moment as CEL takes it, of ms since the epoch."""
    return _EPOCH + datetime.timedelta(milliseconds=ms)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]}..."
