"""Python: functions of one's own, in the place of Groovy scripts (R28, W16)."""

from __future__ import annotations

import pytest

from actions.script.python_action import find_function
from actions.sinks.commands import HBaseAppend, HBaseDelete, HBaseIncrement, HBasePut, RedisCommand
from tests.unit.actions.gathering import Ends, events, reasons, world
from tests.unit.upstream_world import World

FUNCTIONS = "tests.unit.actions.script_functions"


def scripted(function: str, **options: str) -> World:
    """Make a group that calls a function."""
    return world("Json", "Python", options={"Python": {"function": f"{FUNCTIONS}:{function}", **options}})


def test_function_changes_the_body_and_gathers() -> None:
    """What DDMQ's scripts may do: headers, form, query, commands of Redis, mutations of HBase; false filters."""
    made = scripted("enrich")
    made.publish("k", body={"drop": 1})
    made.publish("k", body={"prices": [1, 2]})
    [(data, outgoing)] = Ends.ended
    assert data == {"prices": [1, 2], "total": 3}
    assert outgoing.headers == [("X-Key", "k")]
    assert outgoing.form == [("topic", "t")]
    assert outgoing.query == [("offset", "1")]
    assert outgoing.commands == [
        RedisCommand("SET", ("a", 1)),
        RedisCommand("DEL", ("b", "c")),
        RedisCommand("HSET", ("h", "f", b"v")),
        RedisCommand("HMSET", ("h", "f", 1.5, "g", "x")),
        RedisCommand("HDEL", ("h", "f")),
        RedisCommand("MSET", ("a", 1, "b", 2)),
        HBasePut("t", "r", {"f:q": "ü".encode()}),
        HBaseAppend("t", "r", {"f:q": b"x"}),
        HBaseIncrement("t", "r", {"f:n": 2}),
        HBaseDelete("t", "r", ("f:q",)),
    ]
    assert events(made, "Python", "filtered") == 1


@pytest.mark.parametrize("on_error", ["fail", "skip", "pass"])
@pytest.mark.parametrize(
    ("function", "said"),
    [("broken", "KeyError: 'price'"), ("leaves", "SystemExit: 1"), ("forgets", "returned None")],
)
def test_error_of_a_script_is_never_taken_for_filtered(function: str, said: str, on_error: str) -> None:
    """W16: counted, and ends as the group chose; what it had changed and gathered until then is not kept."""
    made = scripted(function, onError=on_error)
    made.publish(None, body={"a": 1})
    letters = reasons(made)
    assert len(letters) == (on_error == "fail")
    assert all(said in each for each in letters)
    assert events(made, "Python", "filtered") == 0
    assert events(made, "Python", "error") == (3 if on_error == "fail" else 1)
    assert [(data, outgoing.form) for data, outgoing in Ends.ended] == [({"a": 1}, [])] * (on_error == "pass")


def test_function_may_say_what_becomes_of_a_message() -> None:
    """By a status or by what actions raise; neither is an error of the script."""
    made = scripted("says", onError="skip")
    for word in ("CONTINUE", "FINISH", "FAIL", "failed", "never", "later"):
        made.publish(None, body={"say": word})
    assert [data["say"] for data, _ in Ends.ended] == ["CONTINUE"]
    letters = reasons(made)
    assert sorted(each.rpartition(": ")[2] for each in letters) == ["an action answered FAIL", "not ever", "not today"]
    assert made.count("pyddmq_retried_later_total", "g", "t") == 1
    assert events(made, "Python", "error") == 0
    made.publish(None, body={"say": "ASYNCHRONIZED"})
    assert events(made, "Python", "error") == 1


@pytest.mark.parametrize("what", ["header", "redis", "mset", "column", "none", "cell", "increment"])
def test_what_nobody_could_carry_out_is_refused_where_it_is_gathered(what: str) -> None:
    """A line break in a header, a list for Redis, a column without a family."""
    made = scripted("wrong", onError="skip")
    made.publish(None, body={"what": what})
    assert events(made, "Python", "error") == 1
    assert Ends.ended == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("enrich", "is not a function path; write package.module:function"),
        ("no_such_package.x:f", "cannot be imported"),
        (f"{FUNCTIONS}:nothing", "cannot be imported"),
        (f"{FUNCTIONS}:NOT_CALLABLE", "configure a function of one argument"),
        ("conf.nothing:f", "is a module of pyddmq itself"),
    ],
)
def test_function_that_is_not_there_is_said_at_load(path: str, said: str) -> None:
    """With what to do."""
    with pytest.raises(ValueError, match=said):
        find_function(path)
