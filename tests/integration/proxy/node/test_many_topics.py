"""Many topics at a time: a start and a reload write the topic file once; a turn that makes some appends a line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random

import pytest

from broker.features import ALL
from broker.log.put import Put
from broker.opening.recovery import RecoveryProgress
from broker.options import StoreOptions
from broker.runtime.bundle import runtime_of
from broker.runtime.sealed_file import sealed_lines
from broker.runtime.steps import noted, run_now
from broker.store import Store
from conf import SubscriptionConfig, loads
from proxy.node.reload import Reloader
from pyddmq.actions import Action
from pyddmq.testing import ManualClock, SimDisk
from tests.insides import opened_of
from tests.integration.store_tools import HOST
from tests.running_node import RunningNode

MANY = 300


def yaml(topics: int, queues: int = 1, groups: int = 0) -> str:
    """A configuration with many topics, and groups that use their retry topics."""
    subscription = "topics: [{topic: t0, retryTopic: true}]"
    lines = [f"  t{number}: {{queues: {queues}}}" for number in range(topics)]
    described = [f"  - {{group: g{number}, {subscription}}}" for number in range(groups)]
    return "\n".join(
        ["node: {autoCreateTopics: true}", "topics:", *lines, *(["groups:", *described] if groups else [])]
    )


def writes(data: Path) -> int:
    """How often the topic file was written."""
    count: int = json.loads((data / "config" / "topics.json").read_text())["dataVersion"]["counter"]
    return count


def test_start_writes_the_topic_file_once(tmp_path: Path) -> None:
    """With all topics of the configuration and the retry topics of all groups."""
    with RunningNode(yaml(MANY, groups=20), tmp_path) as node:
        assert writes(tmp_path) == 1
        names = node.call(lambda: set(opened_of(node.node).store.topics))
    assert {f"t{MANY - 1}", "%RETRY%g19"} <= names


@pytest.mark.parametrize(
    "change", [yaml(MANY), yaml(1, groups=MANY), yaml(1, queues=8)], ids=["add", "groups", "widen"]
)
def test_reload_writes_the_topic_file_once(change: str, tmp_path: Path) -> None:
    """Whether it adds topics, groups with retry topics, or queues."""
    with RunningNode(yaml(1), tmp_path) as node:
        before = writes(tmp_path)
        assert node.reload(change).accepted
        assert writes(tmp_path) == before + 1


def test_opening_looks_at_many_queues_in_steps() -> None:
    """Whether the checkpoint fits, and which files go: a step for some of the queues each."""
    disk, clock = SimDisk(), ManualClock()
    runtime = runtime_of(disk, clock, random=Random(1))
    opening = partial(Store.opening, "/s", options=StoreOptions(), features=ALL, runtime=runtime)
    store = run_now(noted(opening(), lambda _: None))
    run_now(store.topic_changes.making({f"t{number}": 1 for number in range(MANY)}))
    store.append([Put(store.topics["t0"], 0, b"x", b"")], born_ms=1, born_host=HOST)
    store.flush()
    store.close()
    shown: list[RecoveryProgress] = []
    run_now(noted(opening(), shown.append)).close()
    assert len(shown) >= 2 * (MANY // 128) + 2


def test_ports_of_many_topics_change_at_once_after_steps(tmp_path: Path) -> None:
    """What is deleted, widened or opened for a client between two steps is as it is now."""
    with RunningNode(yaml(1), tmp_path) as node:

        def change() -> tuple[int, int, dict[bytes, int]]:
            ports, store = opened_of(node.node).ports, opened_of(node.node).store
            wanted = loads(yaml(3_000)).config
            run_now(ports.making(wanted))
            steps = ports.publishing(wanted)
            for _ in range(8):
                assert next(steps) is None
            before = len(ports.by_name)
            run_now(store.topic_changes.deleting("t5"))
            store.create_topic("t6", 4)
            for _ in steps:
                pass
            assert all(store.topics[port.topic.name] is port.topic for port in ports.by_name.values())
            return before, len(ports.by_name), {name: ports.by_name[name].queue_count for name in (b"t5", b"t6")}

        assert node.call(change) == (1, 3_000, {b"t5": 1, b"t6": 4})


def test_reload_touches_what_changed(tmp_path: Path) -> None:
    """Ports of other topics stay the same, and only actions of changed subscriptions are made."""
    with RunningNode(yaml(MANY, groups=1), tmp_path) as node:
        by_name = opened_of(node.node).ports.by_name
        before = dict(by_name)
        registry, made = node.node.parts.registry, []
        make = registry.make

        def counted(subscription: SubscriptionConfig) -> list[Action]:
            made.append(subscription.topic)
            return make(subscription)

        registry.make = counted  # type: ignore[assignment, method-assign]
        changed = yaml(MANY + 1, groups=1).replace("t1: {queues: 1}", "t1: {queues: 2}")
        changed = changed.replace("retryTopic: true}]", "retryTopic: true}, {topic: t2}]")
        assert node.reload(changed).accepted
        assert {name for name, port in by_name.items() if before.get(name) is not port} == {b"t1", b"t300"}
        assert set(made) == {"t2"}


def test_first_publishes_of_one_turn_share_a_write(tmp_path: Path) -> None:
    """A line names all of their topics before the log does."""
    with RunningNode(yaml(1), tmp_path) as node:
        before = writes(tmp_path)

        def publish() -> None:
            ports, store = opened_of(node.node).ports, opened_of(node.node).store
            for number in range(100):
                port = ports.auto_create(f"new{number}", node.node.in_force.config)
                assert port is not None
                store.append([Put(store.topics[f"new{number}"], 0, b"x", b"")], born_ms=1, born_host=HOST)
            store.flush()

        node.call(publish)
        assert writes(tmp_path) == before
        (line,) = sealed_lines((tmp_path / "pyddmq" / "topics_opened.json").read_bytes())
        assert len(line["topics"]) == 100


def test_groups_that_leave_together_share_a_commit(tmp_path: Path) -> None:
    """The file of committed offsets is written once for all of them, before others may consume their queues."""
    with RunningNode(yaml(1, groups=50), tmp_path) as node:

        def leave() -> int:
            commits = 0
            commit = opened_of(node.node).progress.commit

            def counted() -> None:
                nonlocal commits
                commits += 1
                commit()

            opened_of(node.node).progress.commit = counted  # type: ignore[method-assign]
            assert len(node.node.in_force.leaving) == 49
            node.node.let_drained_go(opened_of(node.node).progress)
            assert not node.node.in_force.leaving
            return commits

        async def reload_and_leave() -> int:
            config = node.read(yaml(1, groups=1))
            assert run_now(Reloader(node.node, lambda: pytest.fail("not read")).applying(config)).accepted
            return leave()

        assert node.wait_for(reload_and_leave()) == 1
