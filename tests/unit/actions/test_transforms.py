"""Transit, QueryParams, FormParams and FormParams2 (R23 to R27)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.transform.exact_json import encode
from tests.unit.actions.gathering import Ends, events, reasons, world
from tests.unit.actions.test_exact_json import JSON


def transit(body: object, fields: dict[str, str], **options: Any) -> Any:
    """Return what Transit makes of one body."""
    made = world("Json", "Transit", options={"Transit": {"fields": fields, **options}})
    made.publish(None, body=body)
    [(data, _)] = Ends.ended
    return data


def test_transit_sets_values_at_target_paths() -> None:
    """In the order of the configuration, into an empty object, making objects and lists on the way."""
    body = {"a": {"b": 1}, "list": [10, 20], "n": None}
    fields = {"x.y": "$.a.b", "$.items[1]": "list[1]", "$['whole']": "$.a", "gone": "$.n", "none": "$.q"}
    assert transit(body, fields) == {"x": {"y": 1}, "items": [None, 20], "whole": {"b": 1}}


def test_transit_begins_with_the_part_that_the_dollar_names() -> None:
    """The old body is not changed by it: a later field reads what the message had."""
    body = {"case": {"id": 7, "in": {"deep": 1}}, "top": 2}
    fields = {"$": "$.case", "in.deep": "$.top", "copy": "$.case.in"}
    assert transit(body, fields) == {"id": 7, "in": {"deep": 2}, "copy": {"deep": 1}}


@pytest.mark.parametrize(
    ("body", "reason"), [({"a": 1}, "nothing at $.case"), ({"case": [1]}, "no object, but a list")]
)
def test_transit_whose_root_is_missing_says_so(body: object, reason: str) -> None:
    """W23: no null dereference but a dead letter that names the path."""
    made = world("Json", "Transit", options={"Transit": {"fields": {"$": "case"}}})
    made.publish(None, body=body)
    [said] = reasons(made)
    assert reason in said
    assert events(made, "Transit", "no_root") == 1


def test_transit_target_inside_a_text_says_so() -> None:
    """A part of the new body that is no object takes no field."""
    made = world("Json", "Transit", options={"Transit": {"fields": {"$": "$", "a.b": "c"}}})
    made.publish(None, body={"a": "text", "c": 1})
    [said] = reasons(made)
    assert "'a' is already a text" in said


@pytest.mark.parametrize("value", [None, "absent"])
def test_missing_field_is_handled_as_configured(value: str | None) -> None:
    """W23: left out, null, or a dead letter with the path; a null counts as missing. Counted each time."""
    body = {} if value == "absent" else {"a": value}
    fields = {"fields": {"x": "$.a"}}
    expected: dict[str, tuple[list[Any], list[Any]]] = {
        "skip": ([{}], [[]]),
        "null": ([{"x": None}], [[("x", "null")]]),
    }
    for missing, (datas, queries) in expected.items():
        assert [transit(body, fields["fields"], missing=missing)] == datas
        made = world("Json", "QueryParams", options={"QueryParams": {**fields, "missing": missing}})
        made.publish(None, body=body)
        assert [outgoing.query for _, outgoing in Ends.ended] == queries
        assert events(made, "QueryParams", "missing") == 1
    for action in ("Transit", "QueryParams"):
        made = world("Json", action, options={action: {**fields, "missing": "fail"}})
        made.publish(None, body=body)
        [said] = reasons(made)
        assert "x: the body has nothing at $.a" in said
        assert not Ends.ended


def test_query_params_are_texts_in_order() -> None:
    """A text as it is, everything else as JSON, numbers as the producer wrote them."""
    fields = {"t": "$.t", "n": "n", "b": "$.b", "o": "$.o", "all": "$.l[*]"}
    made = world("Json", "QueryParams", options={"QueryParams": {"fields": fields}})
    made.publish(None, body=b'{"l":[1,2],"t":"a&b","n":1.50,"b":true,"o":{"x":[1e400]}}')
    [(_, outgoing)] = Ends.ended
    expected = [("t", "a&b"), ("n", "1.50"), ("b", "true"), ("o", '{"x":[1e400]}'), ("all", "[1,2]")]
    assert outgoing.query == expected


CONTEXT = ["TOPIC", "GROUP", "OFFSET", "SOURCE", "QID", "TOKEN", "MSG_KEY", "PROPERTIES"]


@pytest.mark.parametrize("action", ["FormParams", "FormParams2"])
@pytest.mark.parametrize("key", ["k", None])
def test_context_goes_with_every_body(action: str, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """W22: of raw bytes, too. The token is the MD5 of key and secret; the key stands there once (R27)."""
    monkeypatch.setenv("FORM_TOKEN", "secret")
    made = world(action, options={action: {"appendContext": CONTEXT, "tokenKey": {"env": "FORM_TOKEN"}}})
    made.publish(key, body=b"plain", properties=[("p", "1")] if key else ())
    [(_, outgoing)] = Ends.ended
    text = key or "null"
    assert outgoing.form == [
        ("params", "plain"),
        ("carrera_topic", "t"),
        ("carrera_group", "g"),
        ("carrera_offset", "0"),
        ("carrera_source", "RMQ"),
        ("carrera_qid", "c_b_0"),
        ("carrera_token", hashlib.md5(f"{text}secret".encode()).hexdigest()),
        ("carrera_msg_key", text),
        ("carrera_properties", '{"p":"1"}' if key else "null"),
    ]


def test_form_params_of_a_parsed_body() -> None:
    """FormParams writes it as one field, FormParams2 a field of each entry (R25, R26)."""
    body = b'{"z":"text","n":12345678901234567890,"d":1.10,"o":{"b":1,"a":null},"x":null}'
    made = world("Json", "FormParams", options={"FormParams": {}})
    made.publish(None, body=body)
    assert Ends.ended[0][1].form == [("params", body.decode())]
    made = world("Json", "FormParams2")
    made.publish(None, body=body)
    fields = [("z", "text"), ("n", "12345678901234567890"), ("d", "1.10"), ("o", '{"b":1,"a":null}'), ("x", "null")]
    assert Ends.ended[0][1].form == fields


def test_body_that_is_no_text_is_refused_or_sent_as_base64() -> None:
    """W21: never decoded with losses."""
    made = world("FormParams2")
    made.publish(None, body=b"\xff\x00")
    made.advance(1)
    assert made.count("pyddmq_dead_letters_total", "g", "t", "unprocessable") == 1
    assert events(made, "FormParams2", "binary") == 1
    made = world("FormParams", options={"FormParams": {"binary": "base64"}})
    made.publish(None, body=b"\xff\x00")
    assert Ends.ended[0][1].form == [("params", "/wA="), ("params_encoding", "base64")]


PATHS = st.sampled_from(["$", "a", "$.a.b", "$['x y']", "l[0]", "l[2].a", "$..a", "$.*", "$.l[?@.a > 1]", "$.l[-1:]"])
TARGETS = st.sampled_from(["a", "a.b", "l[0]", "l[2].a", "$['x y'].z"])


@settings(max_examples=60, deadline=None)
@given(
    body=st.dictionaries(st.sampled_from(["a", "b", "x y", "l"]), JSON, max_size=4),
    fields=st.dictionaries(TARGETS, PATHS, min_size=1, max_size=4),
    root=st.sampled_from([None, "$", "$.a"]),
    missing=st.sampled_from(["fail", "skip", "null"]),
)
def test_every_message_ends_once_whatever_its_body(
    body: dict[str, Any], fields: dict[str, str], root: str | None, missing: str
) -> None:
    """Through all transforms: gathered and written, or a dead letter with a reason."""
    both = {"missing": missing, "fields": fields if root is None else {"$": root, **fields}}
    options = {"Transit": both, "QueryParams": {"missing": missing, "fields": fields}}
    made = world("Json", "QueryParams", "Transit", "FormParams", "FormParams2", options=options)
    made.publish(None, body=encode(body))
    letters = reasons(made)
    assert len(letters) + len(Ends.ended) == 1
    assert all(letters)
    for data, outgoing in Ends.ended:
        assert outgoing.form[0] == ("params", encode(data).decode())
