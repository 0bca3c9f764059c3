"""Constructors return working objects: nothing is declared without a value, and what calls back is handed in."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.unit.project.test_house_rules import ROOT

ROOMS = ("broker", "upstream", "actions", "lag", "proxy", "conf")
ARGUMENTS_MAX = 8

CONTINUATIONS = {"start", "withdraw"}
"""Of the place of one request (`proxy.port.reply_slot`): what goes on with it once its turn comes, or its client left.
A request that waits is made by its arrival, and what it waits for is known by the service that it reaches."""

TWO_PHASES = {
    "broker/scheduled/delay/puts.py::connect": "a store is opened with its puts; what delivers is made over it",
    "broker/scheduled/timer/puts.py::connect": "likewise",
    "upstream/kafka/partitions.py::begin": "a group is made over its member; what it has in hand is asked of it",
    "upstream/kafka/membership.py::begin": "likewise: whether anything is out is asked of the group",
    "upstream/group_parts.py::serve": "a group is made first; what serves its fetches is made over it",
    "proxy/operate/live_node.py::observe": "the admin port, which measures the loop and judges, is made over the view",
    "upstream/progress/tracker.py::stage_to": "what a replay finishes is in the journal, and is staged nowhere",
}
"""Methods that set what their object calls from then on, and the circle or the change that makes them needed."""

ASKED = {
    "broker/log/durability.py::then": "whoever waits says what is to happen",
    "broker/log/durability.py::_expect": "of its two constructors",
    "broker/queues/open_files.py::opened": "called before the file is closed to make room",
    "broker/consumer/orderly.py::_dead_letter": "what goes on after this call's messages",
    "upstream/kafka_client/member.py::leave": "told once the member has left",
    "upstream/kafka/waiting/owner.py::end": "called once what is being written has ended",
}
"""Methods that keep a callback for the end of what they were called for, as `call_later` does."""

MANY = {
    "broker/log/encoder.py::_encode_none": "takes what its compiled form takes, in one call per append",
    "broker/log/encoder.py::_measure_none": "likewise",
    "broker/scheduled/release_plain.py::_release": "likewise",
    "proxy/wire/replies.py::encode_result_reply": "the fields of a reply of the wire, by keyword",
    "proxy/wire/transactions.py::encode_half_reply": "likewise",
    "broker/store.py::put": "the fields of a message, by keyword: programs call it",
    "broker/selectors.py::put_selected": "likewise",
    "broker/query.py::__init__": "what a listing may be narrowed by, by keyword",
    "upstream/delivery/subscription.py::__init__": "what one subscription works with; its group makes it, in one place",
    "proxy/services/consumer_service.py::__init__": "what one service works with; the node makes it, in one place",
    "upstream/kafka/commits/commits.py::__init__": "what commits of one group work with; made in one place",
    "upstream/kafka/source.py::__init__": "likewise",
    "upstream/kafka_client/member.py::__init__": "likewise",
    "upstream/kafka_client/member_thread.py::__init__": "likewise",
}
"""Functions of more arguments than others may have, and why."""


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def _bases(node: ast.ClassDef) -> str:
    return " ".join(ast.unparse(each) for each in (*node.bases, *node.decorator_list))


def _methods() -> set[str]:
    """Names that are functions wherever they stand in the product: no property, and no attribute that is assigned."""
    functions: set[str] = set()
    others: set[str] = set()
    for _, module in _modules():
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                named = " ".join(ast.unparse(each) for each in node.decorator_list)
                (others if "property" in named or "setter" in named else functions).add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                others.add(node.attr)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                others.add(node.target.id)
    return functions - others


def _is_callable(value: ast.expr, methods: set[str]) -> bool:
    if isinstance(value, ast.Tuple):
        return any(_is_callable(each, methods) for each in value.elts)
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).split(".")[-1] == "partial"
    if isinstance(value, ast.Attribute):
        return value.attr in methods
    return isinstance(value, ast.Lambda)


def _set_from_outside(module: ast.Module, methods: set[str]) -> Iterator[tuple[int, str]]:
    """Line and text of each assignment of something that can be called to an attribute of another object."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Assign) or not _is_callable(node.value, methods):
            continue
        for target in node.targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                if (
                    isinstance(each, ast.Attribute)
                    and ast.unparse(each.value) not in ("self", "cls")
                    and each.attr not in CONTINUATIONS
                ):
                    yield node.lineno, ast.unparse(node)


def test_callbacks_are_handed_in() -> None:
    """Nobody sets what another object calls: it is an argument of its constructor, or of a method that says when."""
    methods = _methods()
    found = [
        f"{file}:{line} {text}" for file, module in _modules() for line, text in _set_from_outside(module, methods)
    ]
    assert not found


def test_check_of_callbacks_sees_each_way_to_set_one() -> None:
    """A lambda, a partial, a method; not a value, and not one's own attribute."""
    text = (
        "a.on = lambda: 1\na.b.on = partial(f, 1)\na.on = self.begin_flush\na.on, b = a.begin_flush, 1\n"
        "self.on = self.begin_flush\na.on = 1\na.on = self.value\n"
    )
    assert [line for line, _ in _set_from_outside(ast.parse(text), {"begin_flush"})] == [1, 2, 3, 4]


def _callbacks_set(function: ast.FunctionDef) -> set[str]:
    """Parameters of a method that are callables and that it does nothing with but keep them in its object."""
    given = function.args
    callables = {
        each.arg
        for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)
        if each.annotation is not None and "Callable[" in ast.unparse(each.annotation)
    }
    kept: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).lstrip("(").startswith("self."):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            kept |= {each.id for each in values if isinstance(each, ast.Name)}
    return callables & kept


def test_no_method_takes_callbacks_later() -> None:
    """What an object calls is handed to its constructor, but where a circle makes two phases of it."""
    found = {
        f"{file}::{node.name}"
        for file, module in _modules()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and node.name != "__init__" and _callbacks_set(node)
    }
    assert found == {*TWO_PHASES, *ASKED}


def test_check_of_later_callbacks_sees_who_keeps_one() -> None:
    """Alone or with another; not one that is passed on, and no value."""
    for body, seen in (
        ("self._a = a", {"a"}),
        ("self._a, self._b = a, b", {"a"}),
        ("f(a)", set()),
        ("self._b = b", set()),
    ):
        [function] = ast.parse(f"def f(self, a: Callable[[], None], b: int) -> None:\n    {body}\n").body
        assert isinstance(function, ast.FunctionDef)
        assert _callbacks_set(function) == seen


def test_no_function_takes_more_than_eight_arguments() -> None:
    """What more goes together is a bundle (`broker.runtime.bundle`), a record of values, or two functions."""
    found = set()
    for file, module in _modules():
        for node in ast.walk(module):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or file.startswith("proxy/cli/"):
                continue  # A command's arguments are its options.
            given = node.args
            names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            if len([name for name in names if name not in ("self", "cls")]) > ARGUMENTS_MAX:
                found.add(f"{file}::{node.name}")
    assert found == set(MANY)


def _plain(node: ast.ClassDef) -> bool:
    """Whether a class has a constructor of its own kind: no record, protocol or model that is made of its fields."""
    kinds = ("dataclass", "NamedTuple", "TypedDict", "Protocol", "Struct", "BaseModel", "Model", "Structure")
    return not any(kind in _bases(node) for kind in kinds) and any(
        isinstance(each, ast.FunctionDef) and each.name == "__init__" for each in node.body
    )


def test_no_attribute_is_declared_without_a_value() -> None:
    """Whoever has an object can use all of it; what is there later is in an object that is made later."""
    found = []
    for file, module in _modules():
        for node in ast.walk(module):
            if not isinstance(node, ast.ClassDef) or not _plain(node):
                continue
            made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            for each in [*node.body, *(inner for function in made for inner in ast.walk(function))]:
                if isinstance(each, ast.AnnAssign) and each.value is None and "ClassVar" not in ast.unparse(each):
                    found.append(f"{file}:{each.lineno} {ast.unparse(each)}")
    assert not found
