"""Timers, levels and transactions that one side left are carried on by the other: ours, RocketMQ, ours, RocketMQ, ours.

Nothing is early, lost or there twice, nothing cancelled or rolled back comes, whoever was killed.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.features import features
from broker.format.record import split, store_timestamp
from broker.log.put import Put
from broker.queues.offsets import ConsumerOffsets
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import SystemClock
from broker.runtime.steps import run_now
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.delay.delays import Delays
from broker.scheduled.timer.names import TimerOptions
from broker.scheduled.timer.timers import Timers
from broker.tools.interchange import adopted
from broker.transaction.names import State
from broker.transaction.outcomes import EndOutcome
from broker.transaction.settings import CheckSettings
from broker.transaction.transactions import HalfCheck, Transactions
from pyddmq.testing import ManualClock, ManualScheduler
from tests.interop.conftest import Surroundings
from tests.interop.contents import OPTIONS, STORE_HOST, open_store
from tests.interop.rocketmq import Broker, Client, Message
from tests.interop.sides import settings_for

pytestmark = pytest.mark.long

TOPIC, GROUP = "appointments", "clerks"
TIMERS = TimerOptions(roll_slots=8, log_file_bytes=52 * 20 + 16)
"""Rolls from eight seconds on, files of 20 units."""
CHECKS = CheckSettings(timeout_ms=100, interval_ms=1000, checks_max=1000)
THEIR_SETTINGS = {
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
    "flushDelayOffsetInterval": "500",
    "transactionOpBatchInterval": "100",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1000",
    "transactionCheckMax": "1000",
}
BATCH = [b"our batch 0", b"our batch 1", b"our batch 2"]
THEIR_BATCH = [b"their batch 0", b"their batch 1"]
OURS_LEAD_SECONDS = 30
"""How long before the hand-over our clock begins, so that timers are rolled."""
FAR_MS = 3_600_000
WAIT_SECONDS_MAX = 60


class Ours:
    """Our broker on a store, with all that waits in it, at moments that the test chooses.

    Attributes:
        due: When what is sent here is due, ms since the epoch, by body.
    """

    def __init__(self, root: Path, wall_ms: int) -> None:
        options = adopted(str(root), OPTIONS, disk=RealDisk())
        self.store = open_store(root, options, clock := ManualClock(wall_ms), features(timers=TIMERS))
        self.clock = clock
        self.scheduler = ManualScheduler(clock)
        self.due: dict[bytes, int] = {}
        parts: dict[str, Any] = {
            "disk": RealDisk(),
            "clock": clock,
            "scheduler": self.scheduler,
            "metrics": Metrics(),
            "limited_log": RateLimitedLog(clock),
        }
        offsets = ConsumerOffsets.open(str(root), disk=RealDisk(), clock=clock)
        self.delays = run_now(Delays.opening(self.store, **parts))
        self.timers = run_now(Timers.opening(self.store, **parts))
        self.transactions = run_now(Transactions.opening(self.store, offsets=offsets, settings=CHECKS, **parts))
        for part in (self.delays, self.timers, self.transactions):
            part.start()
        self.scheduler.run_until_idle()

    def timer(self, body: bytes, due_ms: int) -> str:
        """Send for a moment; return the UNIQ_KEY."""
        self.due[body] = due_ms
        return self.store.put(TOPIC, body, key="k", tags="TagA", deliver_at_ms=due_ms).unique_key.decode()

    def half(self, body: bytes) -> str:
        """Store a half; return its handle."""
        put = self.transactions.half(Put(self.store.topics[TOPIC], 0, body, b"KEYS\x01k\x02"), group=GROUP)
        [position] = self.store.append([put], born_ms=self.clock.wall_ms(), born_host=STORE_HOST)
        self.store.flush()
        return self.transactions.handle_of(position)

    def decide(self, handle: str, state: State) -> None:
        """Decide a half."""
        found: list[EndOutcome] = []
        self.transactions.end(handle, group=GROUP, state=state, from_check=True, done=found.append)
        self.scheduler.run_until_idle()
        assert found[0].resolved

    def checks(self) -> list[HalfCheck]:
        """Checks for the producers of the group that are due now."""
        return self.transactions.fetch_checks(GROUP, 9)

    def undecided(self) -> list[str]:
        """States of the undecided transactions, as they are listed."""
        return [each.state for each in run_now(self.transactions.pending()).found]

    def stored(self) -> dict[bytes, list[int]]:
        """When the messages of the topic were stored, by body."""
        queue = self.store.topics[TOPIC].queues[0]
        found: dict[bytes, list[int]] = {}
        for physical, size, _ in queue.read(0, queue.max_offset):
            record = self.store.read(physical, size)
            found.setdefault(bytes(split(record)[0]), []).append(store_timestamp(record))
        return found

    def save(self) -> None:
        """Save how far everything is, as happens every few seconds."""
        for part in (self.delays, self.timers, self.transactions):
            part.save()

    def leave(self, *, kill: bool) -> None:
        """Stop in an orderly way, or as SIGKILL does."""
        for part in (self.delays, self.timers, self.transactions):
            if kill:
                part.stop()
            else:
                part.close()
        if kill:
            self.store.abandon()
        else:
            self.store.close()


def ours_first(root: Path, now_ms: int, *, kill: bool) -> dict[bytes, int]:
    """Leave something of everything; return due times by body, 0 for what is there already or needs a decision."""
    ours = Ours(root, now_ms - 1000 * OURS_LEAD_SECONDS)
    ours.store.create_topic(TOPIC, 1)
    ours.timer(b"our past", ours.clock.wall_ms() + 2000)
    ours.timer(b"our rolled", now_ms + 12_300)
    cancelled_rolled = ours.timer(b"our cancelled, rolled", now_ms + 13_000)
    ours.timer(b"our far", now_ms + FAR_MS)
    ours.store.append(
        [Put(ours.store.topics[TOPIC], 0, body, b"") for body in BATCH],
        born_ms=ours.clock.wall_ms(),
        born_host=STORE_HOST,
        atomic=True,
    )
    ours.store.flush()
    ours.decide(ours.half(b"our committed"), State.COMMIT)
    ours.decide(ours.half(b"our rolled back"), State.ROLLBACK)
    ours.half(b"our undecided")
    ours.scheduler.advance(OURS_LEAD_SECONDS - 6)
    assert set(ours.stored()) == {b"our past", *BATCH, b"our committed"}
    ours.due[b"our level 3"] = ours.clock.wall_ms() + 10_000
    ours.store.put(TOPIC, b"our level 3", delay_level=3)
    cancelled = ours.timer(b"our cancelled", now_ms + 12_600)
    ours.timer(b"our soon", now_ms + 3000)
    ours.timer(b"our late", now_ms + 12_700)
    ours.scheduler.advance(0.1)
    ours.save()
    # A kill leaves these behind the last checkpoint.
    ours.timer(b"our latest", now_ms + 14_000)
    ours.scheduler.advance(0.1)
    for key in (cancelled, cancelled_rolled):
        assert ours.timers.cancel(TOPIC, key) is CancelEffect.CANCELLED
    ours.scheduler.advance(0.1)
    ours.leave(kill=kill)
    wanted = {body: due for body, due in ours.due.items() if b"cancelled" not in body}
    return wanted | dict.fromkeys([*BATCH, b"our committed", b"our undecided"], 0)


def send(client: Client, *bodies: bytes, **fields: int) -> str:
    """Have RocketMQ's client send a message or a batch; return the recall handle of a timed one."""
    messages = [{"key": "k", "tags": "", "properties": {}, "body": encoded(body), **fields} for body in bodies]
    [answer] = client.ask(do="send", topic=TOPIC, queue=0, messages=messages)
    assert answer["status"] == "SEND_OK"
    return str(answer["handle"])


def half(client: Client, body: bytes, outcome: str, *, keep: bool = False) -> None:
    """Have RocketMQ's client make a transaction; a producer that is kept commits all but what is not settled."""
    request = {"group": GROUP, "topic": TOPIC, "body": body.decode(), "outcome": outcome, "keep": keep}
    assert client.ask(do="half", unsettled="their undecided", **request) == [{"status": "SEND_OK"}]


def encoded(body: bytes) -> str:
    """Base64, as requests carry bodies."""
    return b64encode(body).decode()


def theirs_next(
    root: Path, broker: Broker, client: Client, ours: dict[bytes, int], *, kill: bool
) -> tuple[list[Message], dict[bytes, int]]:
    """Have RocketMQ carry on with what ours left, and leave something of its own; return all that is there by then."""
    half(client, b"their committed", "commit", keep=True)
    now_ms = SystemClock().wall_ms()
    theirs = {b"their soon": now_ms + 2500, b"their pending": now_ms + 30_250, b"their delayed": now_ms + 30_000}
    theirs[b"their level 4"] = now_ms + 30_000
    send(client, b"their soon", deliverMs=theirs[b"their soon"])
    send(client, b"their pending", deliverMs=theirs[b"their pending"])
    send(client, b"their delayed", delayMs=30_000)
    send(client, b"their level 4", delayLevel=4)
    handle = send(client, b"their cancelled", deliverMs=now_ms + 29_500)
    client.ask(do="recall", topic=TOPIC, handle=handle)
    send(client, *THEIR_BATCH)
    half(client, b"their rolled back", "rollback")
    half(client, b"their undecided", "unknown")
    theirs |= dict.fromkeys([b"their committed", *THEIR_BATCH, b"their undecided"], 0)
    # `our far`, and what is due in half a minute or needs a decision.
    left = 1 + len((b"their pending", b"their delayed", b"their level 4", b"their undecided"))
    _, messages = client.read(TOPIC, {0: len(ours) + len(theirs) - left})
    if kill:
        wait_for_checkpoints(client, root, max(theirs[b"their soon"], ours[b"our latest"]))
    else:
        broker.stop()
    return messages, theirs


def wait_for_checkpoints(client: Client, root: Path, moment_ms: int) -> None:
    """Wait until RocketMQ has saved what it delivered: timers up to a moment, and the one message of level 3."""
    deadline = SystemClock().monotonic() + WAIT_SECONDS_MAX
    config = root / "config"
    while (read_ms := int.from_bytes((config / "timercheck").read_bytes()[:8], "big")) <= moment_ms or not re.search(
        r'\b3"?\s*:\s*1\b', (config / "delayOffset.json").read_text()
    ):
        assert SystemClock().monotonic() < deadline, f"it is at {read_ms}, {moment_ms} is wanted"
        client.read(TOPIC)


def assert_once(stored: dict[bytes, list[int]], wanted: dict[bytes, int]) -> None:
    """Whether exactly these messages are there, once, none before it was due."""
    assert {body: len(times) for body, times in stored.items()} == dict.fromkeys(wanted, 1)
    early = {body: times[0] - wanted[body] for body, times in stored.items() if times[0] < wanted[body]}
    assert not early


def times_of(messages: Sequence[Message]) -> dict[bytes, list[int]]:
    """When messages were stored, by body."""
    found: dict[bytes, list[int]] = {}
    for each in messages:
        found.setdefault(each.body, []).append(each.stored_ms)
    return found


@pytest.mark.parametrize("killed", ["ours", "theirs"])
def test_what_waits_goes_there_and_back_again(rocket: Surroundings, killed: str) -> None:
    """Everything comes once, at its time; what is undecided is decided by producers of its group, wherever it is."""
    root = rocket.folder / "store"
    ours = ours_first(root, SystemClock().wall_ms(), kill=killed == "ours")
    with rocket.broker("broker", settings_for(root) | THEIR_SETTINGS) as broker, rocket.client() as client:
        messages, theirs = theirs_next(root, broker, client, ours, kill=killed == "theirs")
    later = {b"our far", b"their pending", b"their delayed", b"their level 4", b"their undecided"}
    wanted = ours | theirs
    assert_once(times_of(messages), {body: due for body, due in wanted.items() if body not in later})
    [kept] = [each for each in messages if each.body == b"our late"]
    assert (kept.key, kept.tags) == ("k", "TagA")

    again = Ours(root, SystemClock().wall_ms())
    assert again.undecided() == ["undecided"]
    again.scheduler.advance(0.2)
    [check] = again.checks()
    assert (check.body, check.topic, check.key) == (b"their undecided", TOPIC, "")
    again.decide(check.handle, State.COMMIT)
    assert not again.undecided()
    again.leave(kill=killed == "ours")

    settings = settings_for(root) | THEIR_SETTINGS
    with rocket.broker("again", settings) as broker, rocket.client() as client:
        # Its checks would reach this producer, if anything were left to check.
        half(client, b"their last", "commit", keep=True)
        wanted[b"their last"] = 0
        _, messages = client.read(TOPIC, {0: len(wanted) - 1})
        broker.stop()
    assert_once(times_of(messages), {body: due for body, due in wanted.items() if body != b"our far"})

    last = Ours(root, SystemClock().wall_ms())
    last.scheduler.advance(FAR_MS / 1000)
    assert_once(last.stored(), wanted)
    assert last.stored()[b"our far"] == [wanted[b"our far"]]
    assert (last.timers.pending, last.undecided()) == (0, [])
    last.leave(kill=False)
