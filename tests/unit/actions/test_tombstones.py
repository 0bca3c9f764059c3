"""Deletes: a null value passes every action, and sinks delete what they wrote for its key."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar, cast

import pytest

from actions.client_factories import Outside
from actions.http.options import AsyncHttpOptions
from actions.http.request import Composer
from actions.registry import BUILT_IN, Registry
from actions.script.filter_action import FilterAction
from actions.sinks.files.formats import format_of
from actions.sinks.hbase.sink import HBaseSink
from actions.sinks.redis.sink import RedisSink
from actions.tombstones import NULL_VALUE, is_tombstone
from actions.transform.form_params import PARAMS, FormParamsAction
from broker.format.properties import parse_properties
from pyddmq.actions import Action, Job, Status, Unprocessable
from tests.conftest import need_module
from tests.unit.actions.sinks.memory_redis import MemoryRedis
from tests.unit.actions.sinks.surroundings import FakeJob, opened
from tests.unit.actions.sinks.test_hbase import MemoryHBase
from tests.unit.upstream_world import Client, World
from upstream.kafka.link import KafkaRecord
from upstream.kafka.source import slices_of

KEY = "k1"


def deleting(*, parsed: bool = False) -> FakeJob:
    """A delete of the key, as Kafka's source gives it; or as Json leaves it."""
    job = FakeJob(2, b"", key=KEY, properties={NULL_VALUE: "null"})
    if parsed:
        job.data = None
    return job


class Seen(Action):
    """Remembers what it is given."""

    data: ClassVar[list[Any]] = []

    def act(self, job: Job) -> Status:
        self.data.append(job.data)
        return Status.CONTINUE


def test_delete_passes_json_and_the_actions_behind_it() -> None:
    """Json gives None, Transit and QueryParams leave it; an empty body that is no delete is refused as before."""
    Seen.data.clear()
    options = {"Transit": {"fields": {"$.a": "$.b"}}, "QueryParams": {"fields": {"a": "$.a"}, "missing": "fail"}}
    actions = ["Json", "Transit", "QueryParams", "Async", "Seen", "PullServer"]
    settings = {"topic": "t", "actions": actions, "options": options}
    world = World(settings, queues=1, registry=Registry({**BUILT_IN, "Seen": Seen}))
    client = Client()
    world.publish(KEY, properties=[(NULL_VALUE, "null")], body=b"")
    world.publish("empty", body=b"")

    jobs = world.pull_all(client)

    assert [job.message.key for job in jobs] == [KEY]
    assert Seen.data == [None]
    assert jobs[0].data == b""


@pytest.mark.parametrize("parsed", [True, False])
@pytest.mark.parametrize(
    ("expression", "status"), [("has(json.a)", Status.FINISH), ("!has(json.a) || json.a > 5", Status.CONTINUE)]
)
def test_filter_sees_a_delete_as_an_object_without_fields(expression: str, status: Status, parsed: bool) -> None:
    """So `has` decides about it, and no body has to be parsed."""
    action = opened(cast("Any", FilterAction), {"expression": expression}, Outside())
    assert action.act_many([deleting(parsed=parsed)]) == [status]


@pytest.mark.parametrize("parsed", [True, False])
def test_form_of_a_delete_has_null(parsed: bool) -> None:
    """As JSON writes it; an empty body is empty."""
    action = opened(cast("Any", FormParamsAction), {}, Outside())
    assert dict(action.fields(deleting(parsed=parsed)))[PARAMS] == "null"
    assert dict(action.fields(FakeJob(2, b"", key=KEY)))[PARAMS] == ""


@pytest.mark.parametrize("parsed", [True, False])
def test_redis_deletes_what_its_commands_write(parsed: bool) -> None:
    """SET and MSET become DEL, HSET becomes HDEL of its fields; a counter is left alone."""
    memory = MemoryRedis()
    memory.data.update({b"a:k1": b"1", b"h:k1": {b"body": b"1"}, b"by": {b"k1": b"1", b"k2": b"1"}, b"n": b"5"})
    commands = [
        ["SET", "a:${key}", "${$.x}"],
        ["HSET", "h:${key}", "body", "${body}"],
        ["HSET", "by", "${key}", "${body}"],
        ["INCR", "n"],
    ]
    sink = opened(RedisSink, {"hosts": ["h:1"], "commands": commands}, Outside(redis=lambda _: memory))

    assert asyncio.run(sink.act_many([deleting(parsed=parsed)])) == [Status.FINISH]
    assert memory.data == {b"h:k1": {}, b"by": {b"k2": b"1"}, b"n": b"5"}


def test_redis_takes_the_commands_for_deletes_of_its_options() -> None:
    """In place of those that follow from `commands`."""
    memory = MemoryRedis()
    memory.data.update({b"list": [b"1"], b"n": b"5"})
    options = {"commands": [["RPUSH", "list", "${body}"]], "deletes": [["DEL", "list"]]}
    sink = opened(RedisSink, {"hosts": ["h:1"], **options}, Outside(redis=lambda _: memory))

    assert asyncio.run(sink.act_many([deleting()])) == [Status.FINISH]
    assert memory.data == {b"n": b"5"}


def test_redis_never_drops_a_delete_in_silence() -> None:
    """A delete of what no command can delete, or whose key was in the body, is a dead letter with the reason."""
    for commands in ([["RPUSH", "list", "${body}"]], [["SET", "${$.id}", "1"]]):
        sink = opened(RedisSink, {"hosts": ["h:1"], "commands": commands}, Outside(redis=lambda _: MemoryRedis()))
        [answer] = asyncio.run(sink.act_many([deleting()]))
        assert isinstance(answer, Unprocessable)


def test_hbase_deletes_the_columns_that_it_puts() -> None:
    """Of the row of the key; increments are left alone."""
    server = MemoryHBase()
    tables = [
        {"table": "t", "row": "${key}", "columns": {"d:body": "${body}"}},
        {"table": "n", "row": "all", "operation": "increment", "columns": {"d:n": "1"}},
    ]
    sink = opened(HBaseSink, {"hosts": ["h:1"], "tables": tables}, Outside(hbase=lambda _: server))
    assert sink.act_many([FakeJob(1, b"{}", key=KEY)]) == [Status.FINISH]
    assert server.value(b"k1", b"d:body") == b"{}"

    assert sink.act_many([deleting()]) == [Status.FINISH]

    assert server.value(b"k1", b"d:body") is None
    assert server.value(b"all", b"d:n") == (1).to_bytes(8, "big")


@pytest.mark.parametrize("parsed", [True, False])
def test_files_have_null(parsed: bool) -> None:
    """Each form in its own way."""
    job = cast("Job", deleting(parsed=parsed))
    line = json.loads(format_of("json", bodies_alone=False, is_intact=True).record(job))
    assert (line["key"], line["body"]) == (KEY, None)
    assert format_of("json", bodies_alone=True, is_intact=True).record(job) == b"null\n"
    assert format_of("text", bodies_alone=False, is_intact=True).record(job) == b"\\N\n"
    assert format_of("sequence", bodies_alone=False, is_intact=True).record(job) == format_of(
        "sequence", bodies_alone=False, is_intact=True
    ).record(cast("Job", FakeJob(2, b"", key=KEY)))
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    import pyarrow
    import pyarrow.parquet

    rows = format_of("parquet", bodies_alone=False, is_intact=True)
    read: Any = pyarrow.parquet.read_table
    whole = rows.whole([rows.record(job), rows.record(cast("Job", FakeJob(3, b"x", key=KEY)))])
    assert read(pyarrow.BufferReader(whole)).column("body").to_pylist() == [None, b"x"]


@pytest.mark.parametrize(("parsed", "body"), [(True, b"null"), (False, b"")])
def test_push_of_a_delete_says_so(parsed: bool, body: bytes) -> None:
    """A receiver tells it from an empty body by a header."""
    request = Composer(AsyncHttpOptions.model_validate({"urls": ["http://a/"]}), []).compose(
        cast("Job", deleting(parsed=parsed))
    )

    assert request.body == body
    assert ("Pyddmq-Tombstone", "true") in request.headers


def test_body_that_an_action_made_is_no_delete_any_more() -> None:
    """Nor is an empty body without the property."""
    job = deleting()
    assert is_tombstone(cast("Job", job))
    job.data = {"deleted": True}
    assert not is_tombstone(cast("Job", job))
    assert not is_tombstone(cast("Job", FakeJob(1, b"")))


def test_null_value_of_kafka_is_marked_as_the_actions_look_for_it() -> None:
    """A record without a value has the property, one with an empty value does not."""
    for value, marked in ((None, True), (b"", False)):
        data, _, body_end, start, end = slices_of(KafkaRecord("t", 0, 5, 1, b"k1", value, ()))
        assert bytes(data[:body_end]) == b""
        assert (NULL_VALUE in parse_properties(bytes(data[start:end]))) is marked
