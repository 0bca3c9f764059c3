"""A group belongs to the proxy or to consumers inside the program: the second waits, visibly, and loses nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker.consumer import ConsumedMessage, Consumers, OrderlyConsumer, OrderlyStatus, QueuesOwned
from tests.unit.upstream_world import Client, World
from upstream.embedded.queues import offsets_of

PLACE = ("t", 0)


class Shared(World):
    """A node whose program consumes, too; what its listener got is in `got`."""

    def open(self) -> None:
        """Start the node and make consumers possible."""
        self.got: list[Any] = []
        super().open()
        self.consumers = Consumers.open(
            self.store,
            disk=self.disk,
            clock=self.clock,
            scheduler=self.scheduler,
            metrics=self.metrics,
            limited_log=self.limited_log,
            offsets=offsets_of(self.progress),
        )

    def consume(self) -> OrderlyConsumer:
        """Start a consumer of the group inside the program."""

        def listener(messages: Sequence[ConsumedMessage], _: object) -> OrderlyStatus:
            self.got += [int(message.body) for message in messages]
            return OrderlyStatus.SUCCESS

        consumer = self.consumers.orderly("g", {"t": "*"}, listener, client_id="inside")
        consumer.start()
        self.advance(0.1)
        return consumer


def state(world: World) -> tuple[str, str | None]:
    """State and owner of the subscription as the stats tell."""
    [topic] = [each for each in world.group.stats().topics if each.topic == "t"]
    return topic.state, topic.owner


def test_consumers_inside_are_refused_while_the_proxy_consumes() -> None:
    """The error names the proxy; nothing of it is disturbed."""
    world = Shared(queues=1)
    with pytest.raises(QueuesOwned) as caught:
        world.consume()

    assert (caught.value.owner, caught.value.group, caught.value.place) == ("proxy", "g", PLACE)
    world.publish("k")
    batch = world.pull(Client())
    assert batch is not None
    assert world.body(batch.jobs[0]) == 1


def test_proxy_keeps_its_locks_however_long_it_runs() -> None:
    """They are renewed before their 60 s are over."""
    world = Shared(queues=1)
    world.advance(600.0)

    assert world.store.queue_locks.owner("g", PLACE) == "proxy"


def test_the_group_changes_hands_both_ways_without_loss_or_repetition() -> None:
    """What one side finished the other does not get; what is left it gets, from the committed offset on."""
    world = Shared(queues=1)
    client = Client()
    world.publish("k", "k", "k")
    for _ in range(2):
        batch = world.pull(client, count=1)
        assert batch is not None
        world.answer(client, batch.jobs[0])
    world.group.reconfigure(world.config({"topic": "u"}))
    world.advance(31.0)
    consumer = world.consume()
    assert world.got == [3]

    world.publish("k")
    assert consumer.stats()[0].busy_since is None
    world.advance(0.1)
    assert world.got == [3, 4]
    world.progress.commit()
    assert world.progress.offsets.get("g", "t", 0) == 4
    world.group.reconfigure(world.config())
    assert state(world) == ("waiting", "inside")
    assert world.count("pyddmq_queues_owned_total", "g", "t") == 1
    assert world.pull(client) is None
    consumer.stop()
    world.publish("k")
    world.advance(1.0)
    assert state(world) == ("running", None)
    assert [world.body(job) for job in world.pull_all(client)] == [5]


def test_what_the_program_consumed_stays_consumed_for_the_proxy_after_a_restart() -> None:
    """The committed offset in the file wins over the ack journal (D10)."""
    world = Shared(queues=1)
    world.publish("k", "k")
    world.group.reconfigure(world.config({"topic": "u"}))
    world.advance(1.0)
    world.consume()
    world.advance(6.0)
    world.kill()

    assert world.pull(Client()) is None
    world.publish("k")
    assert [world.body(job) for job in world.pull_all(Client())] == [3]


def test_a_proxy_that_lost_its_locks_stops_and_waits() -> None:
    """After a standstill of more than a minute somebody else may consume: then nothing is handed out here."""
    world = Shared(queues=1)
    world.publish("k")
    world.clock.advance(61.0)
    assert world.store.queue_locks.lock_batch("g", "inside", [PLACE])
    world.scheduler.run_until_idle()

    assert state(world) == ("waiting", "inside")
    assert world.count("pyddmq_queues_lost_total", "g", "t") == 1
    assert world.pull(Client()) is None
    world.store.queue_locks.unlock_batch("g", "inside", [PLACE])
    world.advance(1.0)
    assert [world.body(job) for job in world.pull_all(Client())] == [1]


def test_a_topic_taken_out_of_the_configuration_gives_its_locks_back() -> None:
    """Then a consumer inside the program may have the group."""
    world = Shared(queues=1)
    other = world.config({"topic": "u"})
    world.store.create_topic("u", 1)
    world.group.reconfigure(other)
    world.advance(1.0)

    assert world.store.queue_locks.owner("g", PLACE) is None
    assert len(world.consume().works) == 1


def test_new_queues_of_a_topic_are_locked_too() -> None:
    """Nobody can slip in between when a topic grows."""
    world = Shared(queues=1)
    world.store.create_topic("t", 2)
    world.publish("k", queue=1)

    assert world.store.queue_locks.owner("g", ("t", 1)) == "proxy"
    assert [world.body(job) for job in world.pull_all(Client())] == [1]
