"""Rules as data: expressions over named values, which plain numbers and Spark columns both can run.

An expression is a tree of operations. `compiled` makes a function over a mapping of it; `lag.spark.columns` makes a
column of the same tree; its text is the formula that `explain` shows. So a rule cannot differ between the three.

Null is "not known", as in SQL: what is computed from null is null, a comparison with null is null, `known and false` is
false, and a division by 0 is null. Whoever decides by a condition that may be null takes it as false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = int | float | bool | str | None
"""What a rule computes with."""

Given: TypeAlias = "RuleExpression | Value"
"""What the operations of an expression take: another one, or a constant."""

Facts: TypeAlias = Mapping[str, Value]
"""Named values; those that are not known are null."""


@dataclass(frozen=True, slots=True)
class RuleExpression:
    """One operation over expressions.

    Attributes:
        operation: Its name; "fact" and "constant" are the leaves.
        parts: What it is done with.
        leaf: Of a fact its name, of a constant its value.
    """

    operation: str
    parts: tuple[RuleExpression, ...] = ()
    leaf: Value = None

    def __add__(self, other: Given) -> RuleExpression:
        return _of("add", self, other)

    def __sub__(self, other: Given) -> RuleExpression:
        return _of("subtract", self, other)

    def __mul__(self, other: Given) -> RuleExpression:
        return _of("multiply", self, other)

    def __truediv__(self, other: Given) -> RuleExpression:
        return _of("divide", self, other)

    def __lt__(self, other: Given) -> RuleExpression:
        return _of("less", self, other)

    def __le__(self, other: Given) -> RuleExpression:
        return _of("less_equal", self, other)

    def __gt__(self, other: Given) -> RuleExpression:
        return _of("greater", self, other)

    def __ge__(self, other: Given) -> RuleExpression:
        return _of("greater_equal", self, other)

    def __and__(self, other: Given) -> RuleExpression:
        return _of("and", self, other)

    def __or__(self, other: Given) -> RuleExpression:
        return _of("or", self, other)

    def __invert__(self) -> RuleExpression:
        return _of("not", self)

    def equals(self, other: Given) -> RuleExpression:
        """Whether both are the same; null where one is null."""
        return _of("equals", self, other)

    def is_null(self) -> RuleExpression:
        """Whether it is not known; never null."""
        return _of("is_null", self)

    def is_known(self) -> RuleExpression:
        """Whether it is known; never null."""
        return ~self.is_null()

    def __str__(self) -> str:
        return _text(self)


def constant(value: Given) -> RuleExpression:
    """Return a constant; an expression as it is."""
    return value if isinstance(value, RuleExpression) else RuleExpression("constant", leaf=value)


def _of(operation: str, *parts: Given) -> RuleExpression:
    return RuleExpression(operation, tuple(constant(part) for part in parts))


def fact(name: str) -> RuleExpression:
    """Return a value by its name."""
    return RuleExpression("fact", leaf=name)


def if_else(condition: RuleExpression, then: Given, otherwise: Given) -> RuleExpression:
    """Return `then` where the condition is true, `otherwise` where it is false or null."""
    return _of("if_else", condition, then, otherwise)


def highest(first: Given, second: Given) -> RuleExpression:
    """Return the higher of both; null where one is null."""
    return _of("highest", first, second)


def latest(*parts: Given) -> RuleExpression:
    """Return the highest of those that are known; null where none is."""
    return _of("latest", *parts)


def coalesce(*parts: Given) -> RuleExpression:
    """Return the first that is known; null where none is."""
    return _of("coalesce", *parts)


def surely(condition: RuleExpression) -> RuleExpression:
    """Whether a condition is true; false where it is null."""
    return coalesce(condition, False)


def any_of(*conditions: RuleExpression) -> RuleExpression:
    """Whether one of them is surely true."""
    found = surely(conditions[0])
    for each in conditions[1:]:
        found = found | surely(each)
    return found


def all_of(*conditions: RuleExpression) -> RuleExpression:
    """Whether all of them are surely true."""
    found = surely(conditions[0])
    for each in conditions[1:]:
        found = found & surely(each)
    return found


def first_of(cases: Mapping[str, RuleExpression], otherwise: str | None) -> RuleExpression:
    """Return the name of the first case whose condition holds."""
    found = constant(otherwise)
    for name, condition in reversed(list(cases.items())):
        found = if_else(condition, name, found)
    return found


def compiled(expression: RuleExpression) -> Callable[[Facts], Value]:
    """Return the function that an expression is, over facts by name. It raises `KeyError` for a fact not given.

    A part that cannot change the result is not evaluated: the first of twenty statuses that holds ends the search.
    """
    writer = _Writer(sorted(names_in(expression)))
    writer.lines.append(f"    return {writer.write(expression)[0]}")
    function: Callable[[Facts], Value] = writer.function()
    return function


def compiled_all(rules: Mapping[str, RuleExpression]) -> Callable[[dict[str, Value]], None]:
    """Return a function that adds the value of each rule to the facts; a rule may use those before it.

    Raises of the function:
        KeyError: A fact was not given.
    """
    given, made = set[str](), set[str]()
    for name, rule in rules.items():
        given |= names_in(rule) - made
        made.add(name)
    writer = _Writer(sorted(given))
    for name, rule in rules.items():
        writer.lines.append(f"    facts[{name!r}] = {_local(name)} = {writer.write(rule)[0]}")
    function: Callable[[dict[str, Value]], None] = writer.function()
    return function


def _local(name: str) -> str:
    return f"v_{name}"


_STRICT = {
    "add": "{} + {}",
    "subtract": "{} - {}",
    "multiply": "{} * {}",
    "divide": "{} / {}",
    "less": "{} < {}",
    "less_equal": "{} <= {}",
    "greater": "{} > {}",
    "greater_equal": "{} >= {}",
    "equals": "{} == {}",
    "highest": "max({}, {})",
    "not": "not {}",
}
"""Operations that are null where one of their parts is, in Python."""


class _Writer:
    """Writes rules as one Python function: interpreting their trees takes several times as long.

    Its source is made of names of facts and constants of rules alone, which are in this package.

    Attributes:
        lines: The function's lines.

    Args:
        given: The facts that the function reads.
    """

    def __init__(self, given: Iterable[str]) -> None:
        self.lines = ["def rule(facts):", *(f"    {_local(name)} = facts[{name!r}]" for name in given)]
        self._held = 0

    def function(self) -> Any:
        """Return the function of the lines."""
        made: dict[str, Any] = {"latest": _latest}
        exec("\n".join(self.lines), made)
        return made["rule"]

    def write(self, expression: RuleExpression) -> tuple[str, bool]:
        """Return the Python of an expression, and whether its value may be null."""
        operation = expression.operation
        if operation == "fact":
            return _local(str(expression.leaf)), True
        if operation == "constant":
            return repr(expression.leaf), expression.leaf is None
        if operation == "latest":
            return f"latest({', '.join(self.write(part)[0] for part in expression.parts)})", True
        if operation == "coalesce":
            return self._coalesce(expression.parts)
        if operation in ("and", "or"):
            return self._joined(operation, *expression.parts)
        parts = [self.write(part) for part in expression.parts]
        if operation == "is_null":
            return f"({parts[0][0]} is None)", False
        if operation == "if_else":
            (condition, _), (then, then_null), (otherwise, otherwise_null) = parts
            return f"({then} if {condition} else {otherwise})", then_null or otherwise_null
        checks, names = [], []
        for place, (text, may_be_null) in enumerate(parts):
            is_divisor = operation == "divide" and place == 1
            name, first = self._hold(text) if may_be_null or is_divisor else (text, text)
            if may_be_null:
                checks.append(f"{first} is None")
                first = name
            if is_divisor:
                checks.append(f"{first} == 0")
            names.append(name)
        found = f"({_STRICT[operation].format(*names)})"
        return (f"(None if {' or '.join(checks)} else {found})", True) if checks else (found, False)

    def _hold(self, text: str) -> tuple[str, str]:
        """Return a name by which a value is used again, and the text that gives it that name where it is used first."""
        if text.isidentifier():
            return text, text
        self._held += 1
        return f"t{self._held}", f"(t{self._held} := {text})"

    def _coalesce(self, parts: Sequence[RuleExpression]) -> tuple[str, bool]:
        text, may_be_null = self.write(parts[0])
        if len(parts) == 1 or not may_be_null:
            return text, may_be_null
        name, first = self._hold(text)
        rest, may_be_null = self._coalesce(parts[1:])
        return f"({rest} if {first} is None else {name})", may_be_null

    def _joined(self, operation: str, left: RuleExpression, right: RuleExpression) -> tuple[str, bool]:
        (first, first_null), (second, second_null) = self.write(left), self.write(right)
        if not first_null:
            return f"({first} {operation} {second})", second_null
        deciding, other = ("False", "True") if operation == "and" else ("True", "False")
        (a, first), (b, second) = self._hold(first), self._hold(second)
        return (
            f"({deciding} if {first} is {deciding} or {second} is {deciding} "
            f"else None if {a} is None or {b} is None else {other})",
            True,
        )


def _latest(*values: Any) -> Value:
    return max((value for value in values if value is not None), default=None)


def names_in(expression: RuleExpression) -> frozenset[str]:
    """Return the names of all facts that an expression looks at."""
    if expression.operation == "fact":
        return frozenset({str(expression.leaf)})
    return frozenset().union(*(names_in(part) for part in expression.parts))


_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "less": "<", "less_equal": "<=", "equals": "="}
_SIGNS |= {"greater": ">", "greater_equal": ">=", "and": "and", "or": "or"}


def _text(expression: RuleExpression, inside: bool = False) -> str:
    """Return the formula as people read it; `inside` another one, with parentheses where they are needed."""
    operation, parts = expression.operation, expression.parts
    if operation == "fact":
        return str(expression.leaf)
    if operation == "constant":
        value = expression.leaf
        return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if operation == "coalesce" and len(parts) == 2 and parts[1] == constant(False):
        return _text(parts[0], inside)
    if operation in _SIGNS:
        words = f" {_SIGNS[operation]} ".join(_text(part, True) for part in _flat(expression))
    elif operation == "if_else":
        words = f"if {_text(parts[0])} then {_text(parts[1], True)} else {_text(parts[2])}"
    elif operation == "is_null":
        words = f"{_text(parts[0], True)} is null"
    elif operation == "not" and parts[0].operation == "is_null":
        words = f"{_text(parts[0].parts[0], True)} is known"
    elif operation == "not":
        words = f"not {'surely ' * _is_sure(parts[0])}{_text(parts[0], True)}"
    else:
        name = {"highest": "max", "latest": "latest", "coalesce": "first known of"}[operation]
        return f"{name}({', '.join(_text(part) for part in parts)})"
    return f"({words})" if inside else words


def _is_sure(expression: RuleExpression) -> bool:
    """Whether it is false, and not null, where one of its parts is not known."""
    if expression.operation in ("and", "or"):
        return all(_is_sure(part) for part in expression.parts)
    return expression.operation == "coalesce" and expression.parts[1] == constant(False)


def _flat(expression: RuleExpression) -> tuple[RuleExpression, ...]:
    """Return the parts of `a and (b and c)` as of one operation over three."""
    operation = expression.operation
    if operation == "coalesce" and len(expression.parts) == 2 and expression.parts[1] == constant(False):
        return _flat(expression.parts[0])
    if operation not in ("and", "or"):
        return expression.parts
    found: list[RuleExpression] = []
    for part in expression.parts:
        inner = part
        while inner.operation == "coalesce" and len(inner.parts) == 2 and inner.parts[1] == constant(False):
            inner = inner.parts[0]
        found += _flat(inner) if inner.operation == operation else (part,)
    return tuple(found)
