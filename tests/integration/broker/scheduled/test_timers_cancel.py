"""Cancelling and rescheduling timers: a definite answer, over every stop, and in RocketMQ's form."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import MessageRefused
from broker.format.message import message_of
from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.scheduled.timer.stages import TimerPipelineStage
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.broker.scheduled.test_timers_stops import FILES
from tests.integration.store_tools import HOST, ROOT
from tests.integration.timer_tools import START_MS, TOPIC, Broker, broker
from tests.integration.waiting_tools import lose

CANCELLED, TOO_LATE, UNKNOWN = CancelEffect.CANCELLED, CancelEffect.TOO_LATE, CancelEffect.UNKNOWN


def test_cancelled_timer_is_not_delivered() -> None:
    """Whatever is lost afterwards; asked again the answer is the same."""
    made = broker()
    key = made.send(b"no", 5000)
    made.send(b"yes", 5000)
    made.scheduler.advance(1)
    assert made.timers.cancel(TOPIC, key) is CANCELLED
    assert made.timers.cancel(TOPIC, key) is CANCELLED
    assert made.timers.pending == 1
    for lost in (0, 1, 15):
        made.timers.stop()
        made.store.abandon()
        lose(made.disk, FILES, lost)
        made = made.again()
        made.scheduler.advance(0)
        assert (made.timers.cancel(TOPIC, key), made.timers.pending) == (CANCELLED, 1)
    made.scheduler.advance(10)
    assert (made.delivered(), made.timers.pending) == ([b"yes"], 0)
    assert made.timers.cancel(TOPIC, key) is CANCELLED


@pytest.mark.parametrize(
    "stage",
    [
        TimerPipelineStage.ENQUEUE_GET,
        TimerPipelineStage.ENQUEUE_PUT,
        TimerPipelineStage.DEQUEUE_GET,
        TimerPipelineStage.DEQUEUE_GET_MESSAGE,
    ],
)
def test_cancel_holds_wherever_the_timer_is(stage: TimerPipelineStage) -> None:
    """In the queue, read, in the wheel, in a slot that was read: also when the cancel's own record lags behind."""
    made = broker()
    made.send(b"first", 100)
    made.scheduler.advance(1)
    made.timers.pause(stage)
    key = made.send(b"no", 3000)
    made.send(b"yes", 3000)
    made.scheduler.advance(2)
    assert made.timers.cancel(TOPIC, key) is CANCELLED
    made.scheduler.advance(1.5)
    made.timers.resume(stage)
    made.scheduler.advance(3)
    assert (made.delivered(), made.timers.pending) == ([b"first", b"yes"], 0)


def test_rolled_timer_can_be_cancelled() -> None:
    """Whichever of its records is the last."""
    made = broker(segment_bytes=1 << 16)
    key = made.send(b"far", 900_000)
    made.scheduler.advance(400)
    assert made.metrics.value(counted.ROLLED) > 1
    assert made.timers.cancel(TOPIC, key) is CANCELLED
    made.scheduler.advance(600)
    assert (made.delivered(), made.timers.pending) == ([], 0)


def test_cancel_is_rocketmqs() -> None:
    """A delete unit in the target's slot, and a record with TIMER_DEL_UNIQKEY, as its recall makes them."""
    made = broker()
    key = made.send(b"x", 5300)
    made.scheduler.advance(0)
    made.timers.cancel(TOPIC, key)
    made.scheduler.advance(0)
    [_, (physical, size, _)] = made.store.topics[TIMER_TOPIC].queues[0].read(0, 2)
    cancel = message_of(made.store.read(physical, size))
    assert cancel.body() == b"0"
    assert cancel.properties["TIMER_DEL_UNIQKEY"] == f"{TOPIC}+{key}"
    assert cancel.properties["TIMER_OUT_MS"] == str(START_MS + 5000)
    assert (cancel.properties["TAGS"], cancel.unique_key) == ("_RECALL_TAG_", key)
    log = made.timers.table.log
    unit = log.unit(log.position(1))
    assert (unit.magic, unit.slot_ms, unit.previous) == (1 | 4, START_MS + 5000, 0)
    slot = made.timers.table.wheel.get(START_MS + 5000)
    assert slot is not None
    assert slot.timers == 0


def test_cancels_of_rocketmq_are_honoured() -> None:
    """Its record names no other as replaced: it takes effect when the slot is read, by either form of the key."""
    made = broker()
    keys = [made.send(b"%d" % number, 5000 + number) for number in range(4)]
    topic = made.store.topics[TIMER_TOPIC]
    for name in (f"{TOPIC}+{keys[1]}", keys[2], f"u+{keys[3]}"):
        facts = {"TIMER_OUT_MS": str(START_MS + 5000), "TIMER_DEL_UNIQKEY": name, "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
        put = Put(topic, 0, b"0", encode_properties(facts))
        made.store.append([put], born_ms=1, born_host=HOST)
    made.store.flush()
    made.scheduler.advance(10)
    # 5,000 ms belongs to the slot before.
    assert made.delivered() == [b"0", b"3"]
    assert (made.metrics.value(counted.CANCELLED), made.timers.pending) == (2, 0)


def test_reschedule_moves_a_timer_either_way() -> None:
    """One atomic append: the old id is cancelled, the new one counts; a past moment delivers at once."""
    made = broker()
    sooner, later, now = (made.send(each, 60_000) for each in (b"sooner", b"later", b"now"))
    made.scheduler.advance(1)
    assert made.timers.reschedule(TOPIC, sooner, START_MS + 5000).outcome is CANCELLED
    moved = made.timers.reschedule(TOPIC, later, START_MS + 300_500)
    assert made.timers.reschedule(TOPIC, now, START_MS).outcome is CANCELLED
    assert made.delivered() == [b"now"]
    assert made.timers.cancel(TOPIC, later) is CANCELLED
    assert made.timers.reschedule(TOPIC, later, START_MS + 1).outcome is CANCELLED
    made = made.again()
    made.scheduler.advance(400)
    assert made.times() == [1000, 5000, 300_500]
    assert made.timers.cancel(TOPIC, moved.unique_key) is TOO_LATE
    key = made.send(b"x", 5000)
    with pytest.raises(MessageRefused, match="timerMaxDelaySec"):
        made.timers.reschedule(TOPIC, key, START_MS + 900 * 86_400_000)
    made.scheduler.advance(5)
    assert made.delivered()[-1] == b"x"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30))
def test_model(seed: int) -> None:
    """Send, cancel, reschedule, pass time, step the clock, stop, lose files: the answers and the deliveries agree."""
    random = Random(seed)
    disk, clock = SimDisk(), ManualClock(START_MS)
    made: Broker = broker(disk, clock, segment_bytes=1 << 16)
    waits: dict[str, bytes] = {}
    expected: set[bytes] = set()
    for number in range(30):
        match random.choice(("send", "send", "cancel", "move", "pass", "pass", "step", "stop")):
            case "send":
                body = b"%d" % number
                waits[made.send(body, random.choice((1, 900, 2500, 6000, 140_000, 500_000)))] = body
                expected.add(body)
            case "cancel" if waits:
                key = random.choice(sorted(waits))
                outcome = made.timers.cancel(TOPIC, key)
                delivered = waits[key] in made.delivered()
                assert outcome is (TOO_LATE if delivered else CANCELLED)
                if not delivered:
                    expected.discard(waits.pop(key))
            case "move" if waits:
                key = random.choice(sorted(waits))
                moved = made.timers.reschedule(TOPIC, key, clock.wall_ms() + random.choice((0, 1, 5000, 200_000)))
                if moved.outcome is CANCELLED:
                    waits[moved.unique_key] = waits.pop(key)
            case "pass":
                made.scheduler.advance(random.choice((0.0, 0.5, 3, 70)))
            case "step":
                clock.set_wall_ms(clock.wall_ms() + random.choice((-30_000, -500, 500, 90_000)))
            case "stop":
                if random.random() < 0.3:
                    made.close()
                    made = broker(disk, clock, segment_bytes=1 << 16)
                else:
                    made.timers.stop()
                    made.store.abandon()
                    lose(disk, FILES, random.randrange(16) if random.random() < 0.5 else 0)
                    made = made.again(segment_bytes=1 << 16)
    made.scheduler.advance(900)
    assert sorted(made.delivered()) == sorted(expected)
    assert made.timers.pending == 0


def test_cancelled_timer_is_settled_in_the_timer_log_before_any_checkpoint() -> None:
    """RocketMQ, opening the store after a kill, delivers an overdue roll without a look at cancels."""
    made = broker()
    key = made.send(b"x", 200_000)
    made.scheduler.advance(1)
    unit = f"{ROOT}/timerlog/{0:020d}"
    assert made.disk.open(unit).read(36, 4) != bytes(4)
    assert made.timers.cancel(TOPIC, key) is CancelEffect.CANCELLED
    assert made.disk.open(unit).read(36, 4) == bytes(4)
    made = made.again()
    made.scheduler.advance(300)
    assert (made.delivered(), made.pending) == ([], 0)
