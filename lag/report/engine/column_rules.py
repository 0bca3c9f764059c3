"""Rules of `lag.rules` over whole columns: the same expressions, evaluated for many samples at once with numpy.

A value that is not known has no meaning in a column: `known` is what counts. A condition is false where it is not
known, so `surely` costs nothing. Texts of rules are numbers here (`code_of`). What is equal in all rows is one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import add, ge, gt, le, lt, mul, sub
from typing import Any, Final, NamedTuple

import numpy as np

from lag.rules.expression import RuleExpression
from lag.rules.quantities import Quantity

_TEXTS: Final[list[str]] = []
_CODES: Final[dict[str, int]] = {}


class ColumnValues(NamedTuple):
    """Values of many rows.

    Attributes:
        values: An array, or one value for all rows.
        known: Which of them are known: an array, or one answer for all rows.
    """

    values: Any
    known: Any = True

    def at(self, places: Any) -> ColumnValues:
        """Return the values of some rows."""
        return ColumnValues(_at(self.values, places), _at(self.known, places))

    def within(self, count: int) -> ColumnValues:
        """Return it as arrays of `count` rows."""
        return ColumnValues(np.broadcast_to(self.values, count), np.broadcast_to(self.known, count))

    def filled(self, value: Any) -> Any:
        """Return the values, with another one where nothing is known."""
        return self.values if self.known is True else np.where(self.known, self.values, value)


NOTHING: Final = ColumnValues(0, False)
"""A column of which no value is known."""


def _at(values: Any, places: Any) -> Any:
    return values[places] if np.ndim(values) else values


def code_of(text: str) -> int:
    """Return the number that is for a text of a rule."""
    code = _CODES.setdefault(text, len(_TEXTS))
    if code == len(_TEXTS):
        _TEXTS.append(text)
    return code


def text_of(code: int) -> str:
    """Return the text of a number."""
    return _TEXTS[code]


def both(one: Any, other: Any) -> Any:
    """Return where both hold; each is an array, or one answer for all rows."""
    if one is False or other is False:
        return False
    return other if one is True else one if other is True else one & other


def either(one: Any, other: Any) -> Any:
    """Return where one of both holds."""
    if one is True or other is True:
        return True
    return other if one is False else one if other is False else one | other


def opposite(one: Any) -> Any:
    """Return where it does not hold."""
    return not one if isinstance(one, bool) else ~one


class Judge:
    """Evaluates expressions over columns, each once.

    Args:
        facts: The columns by name.
    """

    def __init__(self, facts: Mapping[str, ColumnValues]) -> None:
        self.facts = dict(facts)
        self._found: dict[int, ColumnValues] = {}

    def add(self, table: Mapping[str, Quantity]) -> None:
        """Add the quantities of a table to the columns, in order: each may look at those before it."""
        for name, each in table.items():
            found = self.value(each.rule)
            if each.kind == "float" and found.known is not False:
                found = ColumnValues(np.asarray(found.values, np.float64), found.known)
            self.facts[name] = found

    def value(self, expression: RuleExpression) -> ColumnValues:
        """Return an expression's column. Raises KeyError: it looks at a fact that was not given."""
        if expression.operation == "fact":
            return self.facts[str(expression.leaf)]
        if expression.operation == "constant":
            return _constant(expression.leaf)
        found = self._found.get(id(expression))
        if found is None:
            found = self._found[id(expression)] = self._made(expression)
        return found

    def _made(self, expression: RuleExpression) -> ColumnValues:
        operation, parts = expression.operation, expression.parts
        first = self.value(parts[0])
        if operation in _ARITHMETIC:
            return _arithmetic(_ARITHMETIC[operation], first, self.value(parts[1]))
        if operation in _COMPARISONS:
            return _comparison(_COMPARISONS[operation], first, self.value(parts[1]))
        if operation == "and":
            return first if _is_all(first, False) else _and(first, self.value(parts[1]))
        if operation == "or":
            return first if _is_all(first, True) else _or(first, self.value(parts[1]))
        if operation == "not":
            return ColumnValues(both(opposite(first.values), first.known), first.known)
        if operation == "is_null":
            return ColumnValues(opposite(first.known))
        if operation == "divide":
            return _divide(first, self.value(parts[1]))
        if operation == "if_else":
            if isinstance(first.values, bool):
                return self.value(parts[1] if first.values else parts[2])
            return _if_else(first.values, self.value(parts[1]), self.value(parts[2]))
        assert operation in ("coalesce", "latest"), f"an operation without columns: {operation}"
        rest: Iterable[ColumnValues] = (self.value(part) for part in parts[1:])
        return reduce(_coalesce if operation == "coalesce" else _latest, rest, first)


_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "add": add, "subtract": sub, "multiply": mul, "highest": np.maximum,
}  # fmt: skip
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "less": lt, "less_equal": le, "greater": gt, "greater_equal": ge, "equals": np.equal,
}  # fmt: skip


def _constant(value: Any) -> ColumnValues:
    if value is None:
        return NOTHING
    return ColumnValues(code_of(value) if isinstance(value, str) else value)


def _is_all(condition: ColumnValues, answer: bool) -> bool:
    return condition.values is answer and condition.known is True


def _arithmetic(function: Callable[[Any, Any], Any], first: ColumnValues, second: ColumnValues) -> ColumnValues:
    known = both(first.known, second.known)
    return NOTHING if known is False else ColumnValues(function(first.values, second.values), known)


def _comparison(function: Callable[[Any, Any], Any], first: ColumnValues, second: ColumnValues) -> ColumnValues:
    known = both(first.known, second.known)
    if known is False:
        return ColumnValues(False, False)
    found = function(first.values, second.values)
    return ColumnValues(both(found if np.ndim(found) else bool(found), known), known)


def _and(first: ColumnValues, second: ColumnValues) -> ColumnValues:
    false = either(both(first.known, opposite(first.values)), both(second.known, opposite(second.values)))
    return ColumnValues(both(first.values, second.values), either(both(first.known, second.known), false))


def _or(first: ColumnValues, second: ColumnValues) -> ColumnValues:
    true = either(first.values, second.values)
    return ColumnValues(true, either(both(first.known, second.known), true))


def _divide(first: ColumnValues, second: ColumnValues) -> ColumnValues:
    known = both(first.known, second.known)
    if known is False:
        return NOTHING
    is_zero = np.equal(second.values, 0)
    known = both(known, opposite(is_zero if np.ndim(is_zero) else bool(is_zero)))
    return NOTHING if known is False else ColumnValues(first.values / np.where(is_zero, 1, second.values), known)


def _if_else(condition: Any, then: ColumnValues, otherwise: ColumnValues) -> ColumnValues:
    if then.known is otherwise.known and isinstance(then.known, bool):
        known = then.known
    else:
        known = either(both(condition, then.known), both(opposite(condition), otherwise.known))
    return ColumnValues(np.where(condition, then.values, otherwise.values), known)


def _coalesce(first: ColumnValues, second: ColumnValues) -> ColumnValues:
    if first.known is True:
        return first
    if first.known is False:
        return second
    if second.values is False and second.known is True:
        # A condition is false already where it is not known.
        return ColumnValues(first.values)
    return ColumnValues(np.where(first.known, first.values, second.values), either(first.known, second.known))


def _latest(first: ColumnValues, second: ColumnValues) -> ColumnValues:
    if first.known is False or second.known is False:
        return first if second.known is False else second
    takes_second = both(second.known, either(opposite(first.known), second.values > first.values))
    return ColumnValues(np.where(takes_second, second.values, first.values), either(first.known, second.known))
