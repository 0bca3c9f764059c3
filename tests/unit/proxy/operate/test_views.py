"""Views are encoded as they are, and read back as they were: page, JSON, commands and tests have one record each."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from broker.views import View
from proxy.operate import answers
from proxy.operate.attention.findings import judged
from proxy.operate.views.dead_letters import DeadLetterView, RedriveTarget
from proxy.operate.views.findings import Finding
from proxy.operate.views.groups import GroupsAnswer
from proxy.operate.views.topics import TopicView
from tests.admin_node import busy_node
from tools.shapes_doc import views
from upstream.views import Move


def example(info: inspect.Type) -> Any:
    """A value of a type, as JSON has it."""
    match info:
        case inspect.UnionType(types=types):
            return example(types[0])
        case inspect.StructType(fields=fields):
            return {field.encode_name: example(field.type) for field in fields}
        case inspect.CollectionType(item_type=item):
            return [example(item)]
        case inspect.DictType(value_type=value):
            return {"name": example(value)}
        case inspect.LiteralType(values=values):
            return values[0]
    kinds = {inspect.StrType: "é", inspect.IntType: 7, inspect.FloatType: 0.5, inspect.BoolType: True}
    return kinds.get(type(info))


@pytest.mark.parametrize("view", views(), ids=lambda view: view.__name__)
def test_view_is_encoded_as_it_is_and_read_back(view: type[View]) -> None:
    """Every field comes through JSON, under its own name."""
    written = example(inspect.type_info(view))
    read = msgspec.json.decode(json.dumps(written), type=view)
    assert json.loads(msgspec.json.encode(read)) == written
    assert msgspec.json.decode(msgspec.json.encode(read), type=view) == read


def test_answer_of_a_node_is_read_back_as_it_was() -> None:
    """A command has the very records that the node made."""
    node = busy_node()
    answer = answers.groups(node, judged(node), limit=10)
    assert answer is not None
    written = msgspec.json.encode(answer)
    read = msgspec.json.decode(written, type=GroupsAnswer)
    assert msgspec.json.encode(read) == written
    assert read.groups[1].in_flight == answer.groups[1].in_flight
    assert read.findings == answer.findings


def test_fields_of_later_versions_are_passed_over() -> None:
    """A command reads a node that says more."""
    read = msgspec.json.decode(
        b'{"topic": "t", "system": false, "kind": "user", "queues": [], "hue": 1}', type=TopicView
    )
    assert (read.topic, read.message_type, read.messages) == ("t", "MIXED", 0)


def test_what_has_no_meaning_is_left_out() -> None:
    """Of an unreadable dead letter there is its place alone; a target that was only shown has no offset."""
    lost = DeadLetterView(queue=0, offset=7, readable=False)
    assert json.loads(msgspec.json.encode(lost)) == {"queue": 0, "offset": 7, "readable": False}
    assert json.loads(msgspec.json.encode(RedriveTarget(topic="t", queue=1))) == {"topic": "t", "queue": 1}


def test_move_says_whether_it_changes_anything() -> None:
    """Also one to where it stands, which forgets what was finished above."""
    still = Move(queue=0, start=4, to=4, skipped=0, repeated=0, finished_above_forgotten=0)
    assert not still.changes
    assert msgspec.structs.replace(still, to=5).changes
    assert msgspec.structs.replace(still, finished_above_forgotten=1).changes
    assert msgspec.to_builtins(still)["from"] == 4


def test_finding_is_bad_or_to_be_watched() -> None:
    """By its severity."""
    bad = Finding(finding="poison", severity="bad", text="t", advice="a")
    assert (bad.bad, msgspec.structs.replace(bad, severity="watch").bad) == (True, False)
