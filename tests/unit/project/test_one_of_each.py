"""What every room needs is there once: the driver of work in steps, and the timer.

`broker.runtime.steps` and `broker.runtime.later` are these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.unit.project.test_house_rules import ROOT

DRIVER = "broker/runtime/steps.py"
ABOUT_USERS = ("upstream/calls/user_code.py", "tests/unit/upstream/running/test_raised.py")
"""What users raise is not work in steps."""
CLIENT = "pyddmq/client/calls.py"
"""The client imports no room; it runs coroutines that never wait."""
KEEPERS = {
    "broker/runtime/later.py": "does it for all others",
    "broker/log/group_commit.py": "its calls are alarms, which a store may have none of",
    "actions/sinks/files/sink.py": "one look, once, after the start of an action; asyncio's loop",
    "actions/http/pace.py": "no room below it has a scheduler for actions; asyncio's loop",
    "broker/transaction/ops.py": "in the next turn, or after a pause",
    "upstream/delivery/generations.py": "one for each topic, with what it is called with",
    "upstream/kafka/dead_letters.py": "one for each letter that Kafka refused",
    "proxy/admin/guard.py": "each call has a reason of its own; asyncio's loop",
}
"""Modules that keep the handle of a call that is to come, and why."""
FOLDERS = ("broker", "lag", "upstream", "actions", "proxy", "conf", "pyddmq", "bench", "tests")


def _drives(node: ast.AST, *, in_test: bool) -> bool:
    """Whether a node meets the end of a generator by itself, or, in the product, loops over one for its steps alone."""
    if isinstance(node, ast.Name):
        return node.id == "StopIteration"
    if in_test or not isinstance(node, ast.For) or not isinstance(node.target, ast.Name) or len(node.body) != 1:
        return False
    body = ast.unparse(node.body[0])
    return isinstance(node.iter, ast.Call) and (body == "pass" or body.startswith("await asyncio.sleep("))


def _drivers(module: ast.Module, *, in_test: bool = False) -> Iterator[int]:
    for node in ast.walk(module):
        if _drives(node, in_test=in_test):
            yield node.lineno  # type: ignore[attr-defined]


def test_work_in_steps_has_one_driver() -> None:
    """Nobody else meets StopIteration: `run_now`, `run_async` and `StepRunner` drive, and `step` tells the end."""
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            if file not in (DRIVER, *ABOUT_USERS, CLIENT, "tests/unit/project/test_one_of_each.py"):
                text, in_test = path.read_text(encoding="utf-8"), folder in ("tests", "bench")
                if not in_test or "StopIteration" in text:
                    found += [f"{file}:{line}" for line in _drivers(ast.parse(text), in_test=in_test)]
    assert not found, f"drive it by broker.runtime.steps: {found}"


def test_check_of_drivers_sees_each_way_to_write_one() -> None:
    """An except clause, a loop that does nothing, one that sleeps; no loop over values."""
    text = (
        "try:\n    next(a)\nexcept StopIteration:\n    pass\n"
        "for _ in a.steps():\n    pass\n"
        "async def f():\n    for _ in a.steps():\n        await asyncio.sleep(0)\n"
        "for b in a.steps():\n    c(b)\n"
    )
    assert sorted(_drivers(ast.parse(text))) == [3, 5, 8]
    assert list(_drivers(ast.parse(text), in_test=True)) == [3]


def _keeps_handles(module: ast.Module) -> bool:
    """Whether a module keeps what `call_later` returned in an object."""
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).endswith(".call_later")
        and any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
        for node in ast.walk(module)
    )


def test_calls_that_are_to_come_are_kept_in_one_place() -> None:
    """`Later`, `Earliest` and `Repeated` keep handles; whoever has to do so says why."""
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("broker", "lag", "upstream", "actions", "proxy", "conf", "pyddmq")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if _keeps_handles(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set(KEEPERS)


def test_check_of_handles_sees_where_one_is_kept() -> None:
    """In an attribute or a table; not one that is let go."""
    for text in ("self._timer = a.b.call_later(1, f)", "self._timers[1] = loop.call_later(1, f)"):
        assert _keeps_handles(ast.parse(text))
    assert not _keeps_handles(ast.parse("a.call_later(1, f)"))
