"""What one side sent back or dead-lettered, the other consumes again or redrives, once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.consumer import ConcurrentContext, ConcurrentStatus, ConsumedMessage, Consumers
from broker.query import at_offset
from broker.retry.letters import letters
from broker.retry.redrive import Redrives
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import SystemClock
from broker.runtime.steps import run_now
from broker.scheduled.delay.delays import Delays
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler
from tests.interop.conftest import Surroundings
from tests.interop.contents import open_store
from tests.interop.sides import settings_for

pytestmark = pytest.mark.long

TOPIC, GROUP = "permits", "inspectors"
Got = list[tuple[str, bytes, int]]


class Ours:
    """A program with a concurrent consumer on a store, at moments that the test chooses.

    Attributes:
        got: Topic, body and reconsume times of every delivery.
    """

    def __init__(self, root: Path, fails: dict[bytes, list[int]]) -> None:
        self.store: Store = open_store(root)
        self.store.create_topic(TOPIC, 1)
        clock, disk, metrics = ManualClock(SystemClock().wall_ms()), RealDisk(), Metrics()
        self.scheduler = ManualScheduler(clock)
        limited_log = RateLimitedLog(clock)
        self._delays = run_now(
            Delays.opening(
                self.store, disk=disk, clock=clock, scheduler=self.scheduler, metrics=metrics, limited_log=limited_log
            )
        )
        self._delays.start()
        self._consumers = Consumers.open(
            self.store, disk=disk, clock=clock, scheduler=self.scheduler, metrics=metrics, limited_log=limited_log
        )
        self.got: Got = []

        def listener(batch: Sequence[ConsumedMessage], context: ConcurrentContext) -> ConcurrentStatus:
            [message] = batch
            self.got.append((message.topic, message.body, message.reconsume_times))
            levels = fails.get(message.body)
            if not levels:
                return ConcurrentStatus.SUCCESS
            context.delay_level = levels.pop(0)
            return ConcurrentStatus.RECONSUME_LATER

        self._consumers.concurrent(GROUP, {TOPIC: "*"}, listener).start()
        self.scheduler.run_until_idle()

    def close(self) -> None:
        """Stop in an orderly way."""
        self._consumers.close()
        self._delays.close()
        self.store.close()


def test_failed_messages_change_sides(rocket: Surroundings) -> None:
    """Ours pending and dead to RocketMQ's consumer, its to ours; a dead letter of each is redriven by us."""
    root = rocket.folder / "store"
    ours = Ours(root, {b"ours pending": [2], b"ours dead": [1, -1]})
    for body in (b"ours pending", b"ours dead", b"ours fine"):
        ours.store.put(TOPIC, body, key="k", tags="TagA", properties={"own": "1"})
    ours.scheduler.advance(1.5)
    assert [times for _, body, times in ours.got if body == b"ours dead"] == [0, 1]
    ours.close()

    with rocket.broker("broker", settings_for(root)) as broker, rocket.client() as client:
        for encoded in ("dGhlaXJzIHBlbmRpbmc=", "dGhlaXJzIGRlYWQ="):  # "theirs pending", "theirs dead"
            fields = {"key": "k", "tags": "TagA", "properties": {"own": "2"}, "body": encoded}
            [answer] = client.ask(do="send", topic=TOPIC, queue=0, messages=[fields])
            assert answer["status"] == "SEND_OK"
        fails = {"theirs pending": [6], "theirs dead": [1, -1]}
        got = client.consume(GROUP, TOPIC, deliveries=4, fails=fails)
        _, dead = client.read(f"%DLQ%{GROUP}", {0: 2})
        broker.stop()
    assert sorted((each.topic, each.body, each.reconsumed) for each in got) == [
        (TOPIC, b"ours pending", 1),
        (TOPIC, b"theirs dead", 0),
        (TOPIC, b"theirs dead", 1),
        (TOPIC, b"theirs pending", 0),
    ]
    [pending] = [each for each in got if each.body == b"ours pending"]
    assert (pending.key, pending.tags, pending.properties["own"]) == ("k", "TagA", "1")
    assert pending.properties["RETRY_TOPIC"] == TOPIC
    assert [each.body for each in dead] == [b"ours dead", b"theirs dead"]

    ours = Ours(root, {})
    ours.scheduler.advance(130)
    assert ours.got == [(TOPIC, b"theirs pending", 1)]
    redrives = Redrives(ours.store, disk=RealDisk())
    run_now(redrives.opening())
    found = list(letters(ours.store, ours.store.topics[f"%DLQ%{GROUP}"]))
    assert [(each.topic, each.attempts) for each in found] == [(TOPIC, 2), (TOPIC, 2)]
    for letter in found:
        redrives.append(letter, redrives.plan(letter))
    ours.store.flush()
    ours.scheduler.run_until_idle()
    assert ours.got[1:] == [(TOPIC, b"ours dead", 0), (TOPIC, b"theirs dead", 0)]
    end = ours.store.topics[TOPIC].queues[0].max_offset
    for body, offset in ((b"ours dead", end - 2), (b"theirs dead", end - 1)):
        message = at_offset(ours.store, TOPIC, 0, offset)
        assert message.body() == body
        assert not {"DELAY", "REAL_TOPIC", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"} & message.properties.keys()
    ours.close()
    with rocket.broker("again", settings_for(root)), rocket.client() as client:
        _, messages = client.read(TOPIC, {0: end})
    assert [each.body for each in messages[-2:]] == [b"ours dead", b"theirs dead"]
