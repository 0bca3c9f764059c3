"""A survey of all groups: what one group or broker does not answer costs no other group."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from broker.runtime.seams import SystemClock
from conf.sections.kafka import KafkaClusterConfig
from tests.conftest import need_module
from upstream.kafka.all_groups import GroupNames
from upstream.kafka_client.all_groups import LibrdkafkaSurvey

PACKAGE = "pip install 'pyddmq[kafka]'"


def answered(value: object) -> Future[Any]:
    """A future with an answer, or with a failure."""
    future: Future[Any] = Future()
    if isinstance(value, BaseException):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class SetAdmin:
    """The AdminClient's part that a survey calls: two groups, one of them with an empty name."""

    def __init__(self, errors: list[object], names: tuple[str, ...] = ("g", "")) -> None:
        self._errors, self._names = errors, names

    def list_consumer_groups(self, **_: object) -> Future[Any]:
        """Both groups."""
        valid = [SimpleNamespace(group_id=name) for name in self._names]
        return answered(SimpleNamespace(valid=valid, errors=self._errors))

    def poll(self, _: float) -> int:
        """No callback is due."""
        return 0

    def list_consumer_group_offsets(self, wanted: list[Any], **_: object) -> dict[str, Future[Any]]:
        """Nothing is committed."""
        return {each.group_id: answered(SimpleNamespace(topic_partitions=[])) for each in wanted}

    def describe_consumer_groups(self, names: list[str], **_: object) -> dict[str, Future[Any]]:
        """A stable group without members."""
        group = SimpleNamespace(state=SimpleNamespace(name="STABLE"), members=[])
        return {name: answered(group) for name in names}


def survey_of(*answers: Any) -> LibrdkafkaSurvey:
    """A survey of the set groups; nothing connects."""
    need_module("confluent_kafka", PACKAGE)
    config = KafkaClusterConfig.model_validate({"bootstrapServers": "127.0.0.1:1"})
    survey: Any = LibrdkafkaSurvey("main", config, client_id="test", clock=SystemClock())
    survey._admin = SetAdmin(*answers)
    return survey  # type: ignore[no-any-return]


def test_group_with_an_empty_name_is_listed_and_the_others_are_surveyed() -> None:
    """The client library accepts no question about it."""
    survey = survey_of([])
    names = survey.group_names()
    assert names == GroupNames(["", "g"])
    assert set(survey.groups(names.names)) == {"g"}
    assert survey.groups([""]) == {}


def test_list_without_the_groups_of_a_broker_says_so() -> None:
    """The brokers that answer list theirs."""
    package = need_module("confluent_kafka", PACKAGE)
    failed = package.KafkaError(package.KafkaError._TIMED_OUT)
    names = survey_of([failed]).group_names()
    assert names.names == ["", "g"]
    assert names.failure is not None
    assert "imed out" in names.failure
    nothing = survey_of([failed], ())
    with pytest.raises(Exception, match="imed out"):
        nothing.group_names()
