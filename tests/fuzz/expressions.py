"""Targets `expression` and `transform`: any text as a filter's expression, any bytes as a body through all transforms.

An expression is refused in a sentence, with its place inside the text where one is told; or it decides about each of
the bodies, or says in a sentence why it cannot. How long that takes is bounded by the estimate, which is asked here.
"""

from __future__ import annotations

import datetime
import functools
from typing import Any, cast

from actions.json_action import JsonAction
from actions.registry import Registry
from actions.script.cel import CelError, compile_expression
from actions.script.cel_cost import COST_MAX, Estimate, weigh
from actions.transform.exact_json import decode_exact, encode
from conf.models import SubscriptionConfig
from conf.places import ConfigTextError
from pyddmq.actions import Action, Job, Outgoing, Unprocessable

SEEDS = {
    "expression": {
        "fields": b"json.a == 1 && json['o'].p == null || key == 'k'",
        "loops": b"json.l.exists(i, i.p > json.a) && json.l.all(a, json.l.all(b, a == b))",
        "texts": b"json.s.contains(json.a) || json.s.matches('^(a|b)*$') || json.s.lowerAscii() == 'x'",
        "times": b"age < duration('5m') && now > timestamp('2024-01-01T00:00:00Z') && born.getHours('UTC') < 9",
        "missing": b"has(json.q) ? json.q : json.?o.p.orValue(false)",
        "grows": b"[json.s].map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a)[0].size() > 1",
        "deep": b"((((((((((((((((((((((((((((((((((((((true))))))))))))))))))))))))))))))))))))))",
        "wrong": "json.a == 'é' &&\n  oops".encode(),
    },
    "transform": {
        "numbers": b'{"a":9223372036854775808,"b":1e400,"c":0.10,"d":-0.0,"n":null}',
        "names": b'{"a":1,"b":2,"a":{"p":[1,{"p":2}]},"l":[{"a":1},2]}',
        "escapes": b'{"\\u0041":"\\u00e9\\n\\/","x y":"\\ud83d\\ude00"}',
        "binary": b"\xff\x00\xfe",
        "list": b"[1,2,3]",
        "deep": b'{"a":' * 60 + b"1" + b"}" * 60,
    },
}

_TEXT = """
json json.a json.l json.s json.o.p key properties offset age now 1 2.5 'x' "é" true null [1,2] {'a':1}
== != < && || ! + - * / % in ? : ( ) . , [ ]
size( .contains( .matches( .exists(i, .all(i, .map(i, i i.p has( duration('1s') timestamp( .orValue(
"""
WORDS = tuple(_TEXT.split())
BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"a": 1, "s": "text", "l": [1, 2, 3], "o": {"p": None}},
    {"a": "x" * 3000, "s": "x" * 1500 + "y", "l": [{"p": i} for i in range(300)], "o": []},
    {"a": 2**64, "s": "", "l": {"k": "v"}, "o": {"p": {"q": 1.5}}},
)


def expression(data: bytes) -> None:
    """Take these bytes as an expression."""
    text = data.decode("utf-8", "replace")
    try:
        compiled = compile_expression(text)
    except ConfigTextError as error:
        _said(error)
        if not 1 <= error.line <= text.count("\n") + 2:
            raise AssertionError(f"{text!r} has no line {error.line}") from error
        return
    except ValueError as error:
        _said(error)
        return
    for body in BODIES:
        values = {name: _value(name, body) for name in compiled.wanted}
        try:
            assert compiled.decide(values) in (True, False)
        except CelError as error:
            _said(error)
            if "steps for this message" in str(error):
                continue
        weights = {path: weigh(body) for path in compiled.paths}
        assert Estimate(weights).of(compiled.tree) >= 1
        assert compiled.weight_max is None or compiled.weight_max < COST_MAX


def _said(error: Exception) -> None:
    """Whoever refuses says why."""
    if not str(error):
        raise AssertionError(f"{type(error).__name__} without a word") from error


def _value(name: str, body: dict[str, Any]) -> Any:
    made: dict[str, Any] = {
        "json": body,
        "properties": {"p": "1"},
        "age": datetime.timedelta(seconds=5),
        "now": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        "born": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
    }
    numbers = ("queue", "offset", "size", "attempts")
    return made.get(name, 3 if name in numbers else "text")


class _Context:
    """Counts nothing."""

    def count(self, event: str, amount: int = 1) -> None:
        """Forget it."""


class _Message:
    key, tag, properties = "k", None, {"p": "1"}


class _Job:
    """A job without a node, for actions that only look at its body."""

    group, topic, qid, offset, message = "g", "t", "q", 7, _Message()

    def __init__(self, data: Any, body: bytes) -> None:
        self.data = data
        self.body = body
        self.outgoing = Outgoing()


@functools.cache
def _actions() -> list[Action]:
    fields = {"x.y": "$.a", "$['l'][1]": "$.l[*]", "n": "$.n"}
    options = {
        "QueryParams": {"fields": {"a": "$.a", "n": "n", "deep": "$..p"}, "missing": "null"},
        "Transit": {"fields": {"$": "$", **fields}},
        "FormParams": {"appendContext": ["TOKEN", "PROPERTIES", "TOPIC"], "binary": "base64"},
    }
    names = ["QueryParams", "FormParams2", "Transit", "FormParams"]
    made = Registry().make(SubscriptionConfig.model_validate({"topic": "t", "actions": names, "options": options}))
    for action in made:
        action.context = cast("Any", _Context())
        action.open()
    return made


def transform(data: bytes) -> None:
    """Take these bytes as a body: parsed, through every transform, and written; or refused with a reason."""
    raw = _Job(data, data)
    form = next(action for action in _actions() if action.name == "FormParams")
    form.act(cast("Job", raw))
    assert raw.outgoing.form[0][0] == "params"
    try:
        parsed = JsonAction().parse(data)
    except Unprocessable as error:
        _said(error)
        return
    exact = decode_exact(data)
    assert decode_exact(encode(exact)) == exact or "nan" in repr(exact)
    job = _Job(exact, data)
    for action in _actions():
        try:
            action.act(cast("Job", job))
        except Unprocessable as error:
            _said(error)
            return
    assert parsed.keys() == exact.keys()
    for _, text in (*job.outgoing.form, *job.outgoing.query):
        assert isinstance(text, str)
    encode(job.data)
