"""What an expression can cost at most, as a function of what a message hands to it.

The library ends an expression after 10,000 rounds of its loops and refuses one nested deeper than 32 levels, and there
are no other loops in CEL. But a round may work on a text of a megabyte: 9,000 rounds of `contains` on one took 117 s,
and the library cannot be stopped. So the cost is bounded before: each part costs what it reads at most, a loop's body
costs that in every round, and sizes follow from those of the message's fields. An estimate above COST_MAX is an error
of that message, like a missing field.

Sizes and costs are of one unit, about a byte or a number looked at: the unit took 1 to 13 ns in the worst cases found.
A loop over a list sees each element once, so its body costs at most what it would for one element of the whole list's
size, and once more per round for what does not depend on the element. That makes the estimate exact enough for
`json.items.exists(i, i.price > json.limit)`: it grows with the body, not with its square.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from actions.script.cel_tree import CelNode

ROUNDS_MAX = 10_000
"""Rounds of all loops together, after which the library ends an expression."""
COST_MAX = 20_000_000
"""A quarter of a second, if every unit were the dearest one found."""
WEIGHT_MAX = 1 << 23
"""No field is larger: a body is not."""

Path = tuple[str, ...]
"""A variable, and names of fields below it."""

_PATTERN_PARTS = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\[pPx]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\{(\d+)(?:,(\d*))?\}|.", re.DOTALL
)
"""Of a pattern of RE2: quoted text, a character or class, the counts of a repetition, a bracket."""

_SEARCHES = frozenset({"contains", "startsWith", "endsWith", "indexOf", "lastIndexOf"})
_COMPARES = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_LOOK_UPS = frozenset({"_[_]", "_?._", "_[?_]", "optional.of", "value"})
_CHEAP = frozenset({"_&&_", "_||_", "!_", "@not_strictly_false", "hasValue"})


def path_of(node: CelNode) -> Path | None:
    """Return the field of a variable that a part names, such as `json.a.b` or `json["a b"]`; None: it is none."""
    names: list[str] = []
    while True:
        if node.kind == "ident":
            return (node.name, *reversed(names))
        if node.kind == "select":
            names.append(node.name)
        elif node.kind == "call" and node.name in ("_[_]", "_?._", "_[?_]") and len(node.below) == 2:
            name = node.below[1].value
            if not isinstance(name, str):
                return None
            names.append(name)
        else:
            return None
        node = node.below[0]


class Estimate:
    """The cost of one expression for fields of given sizes.

    Args:
        weights: Size of each field that is referenced (`path_of`); one that is not there has `otherwise`.
        longest: Elements of the longest list in any of them.
    """

    def __init__(self, weights: Mapping[Path, int], otherwise: int = 1, *, longest: int = ROUNDS_MAX) -> None:
        self._weights = weights
        self._otherwise = otherwise
        self._longest = longest
        self.cost = 0

    def of(self, node: CelNode) -> int:
        """Return the cost of an expression."""
        self.size(node, 1, {})
        return self.cost

    def size(self, node: CelNode, runs: int, scope: Mapping[str, int]) -> int:
        """Add what a part costs that is run so often, and return how large its value may be.

        Args:
            node: The part.
            runs: How often it is run.
            scope: Sizes of the loops' variables around it.
        """
        self.cost += runs
        path = path_of(node)
        if path is not None and path[0] not in scope:
            return self._weights.get(path, self._otherwise)
        if node.kind == "ident":
            return scope[node.name]
        if node.kind == "const":
            return 1 if node.value is None else len(node.value) + 1
        if node.kind == "loop":
            return self._loop(node, runs, scope)
        sizes = [self.size(each, runs, scope) for each in node.below]
        if node.kind == "select":
            return sizes[0]
        if node.kind in ("list", "map"):
            return 1 + sum(sizes)
        if node.name in _COMPARES:
            self.cost += runs * _compared(node, sizes, scope)
            return 1
        if node.name == "matches":
            pattern = node.below[-1].value
            self.cost += runs * sizes[0] * (1 + sizes[1] // 8 + _repeated(pattern if isinstance(pattern, str) else ""))
            return 1
        return self._call(node.name, sizes, runs)

    def _call(self, name: str, sizes: list[int], runs: int) -> int:
        if name in _CHEAP:
            return 1
        if name in _LOOK_UPS:
            return sizes[0]
        if name == "_?_:_":
            return max(sizes[1:])
        if name in _SEARCHES:
            self.cost += runs * sizes[0] * (1 + sizes[1] // 16)
            return 1
        self.cost += runs * sum(sizes)
        return 1 if name in ("@in", "size") else sum(sizes)

    def _loop(self, node: CelNode, runs: int, scope: Mapping[str, int]) -> int:
        source, first, condition, step, result = node.below
        whole = self.size(source, runs, scope)
        rounds = min(whole, ROUNDS_MAX)
        so_far, second = node.more
        made = self.size(first, runs, scope)
        if first.kind == "list":
            # `map` and `filter` copy in each round what they gathered: half of it on average, 50 ns for an element.
            self.cost += 2 * runs * rounds * min(rounds, self._longest)
        for element, often, times in ((1, min(ROUNDS_MAX, runs * rounds), rounds), (whole, runs, 1)):
            inside = {**scope, node.name: element, so_far: 1}
            if second:
                inside[second] = element
            self.size(condition, often, inside)
            made += times * self.size(step, often, inside)
        return self.size(result, runs, {**scope, so_far: made})


def _compared(node: CelNode, sizes: list[int], scope: Mapping[str, int]) -> int:
    """Return what a comparison is charged with in each round: the size of one operand, for it ends with the smaller.

    Of two that change it is the one that changes most often: the sum over its values is the size of a list, while two
    long fields may meet in many rounds.
    """
    if any(each.kind == "const" for each in node.below):
        return min(sizes)
    places = {name: place for place, name in enumerate(scope)}
    depths = [
        max((places.get(each.name, -1) for each in part.walk() if each.kind == "ident"), default=-1)
        for part in node.below
    ]
    return min(size for size, depth in zip(sizes, depths, strict=True) if depth == max(depths))


def _repeated(pattern: str) -> int:
    """Return how many parts a pattern has beyond its characters once its counted repetitions are written out.

    Each character of a text may meet all of them: `((a?b?){10}c?){90}d` took 42 us for each.
    """
    sizes, last = [0], 0
    for part in _PATTERN_PARTS.finditer(pattern):
        if part[0] == "(":
            sizes.append(0)
            continue
        if part[0] == ")" and len(sizes) > 1:
            last = sizes.pop()
        elif part[1]:
            more = max(int(part[1]), int(part[2] or 1), 1) - 1
            sizes[-1] += more * last
            last += more * last
            continue
        else:
            last = len(part[0]) if part[0].startswith("\\Q") else 1
        sizes[-1] += last
    return max(0, sizes[0] - len(pattern))


def weight_max(tree: CelNode) -> int | None:
    """Return the size up to which no field can make an expression cost too much; None: none can."""
    if Estimate({}, WEIGHT_MAX).of(tree) <= COST_MAX:
        return None
    weight = WEIGHT_MAX
    while weight and Estimate({}, weight).of(tree) > COST_MAX:
        weight //= 2
    return weight


def longest(value: object, *, texts: bool = False) -> int:
    """Return the elements of the longest list or object in parsed data; with `texts` the characters of texts, too."""
    if isinstance(value, str):
        return len(value) if texts else 0
    if isinstance(value, list | dict):
        below = value.values() if isinstance(value, dict) else value
        return max(len(value), max((longest(each, texts=texts) for each in below), default=0))
    return 0


def weigh(value: object) -> int:
    """Return the size of parsed data: one for each value, and the characters of texts and names."""
    if isinstance(value, str):
        return 1 + len(value)
    if isinstance(value, list):
        return 1 + sum(map(weigh, value))
    if isinstance(value, dict):
        return 1 + sum(1 + len(name) + weigh(each) for name, each in value.items())
    return 1
