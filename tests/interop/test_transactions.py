"""Transactions that one side began are known to the other: none is committed twice, none rolled back is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.format.record import split
from broker.log.put import Put
from broker.queues.offsets import ConsumerOffsets
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import SystemClock
from broker.runtime.steps import run_now
from broker.store import Store
from broker.transaction.names import State
from broker.transaction.outcomes import EndOutcome
from broker.transaction.transactions import Transactions
from pyddmq.testing import ManualClock, ManualScheduler
from tests.interop.conftest import Surroundings
from tests.interop.contents import open_store
from tests.interop.sides import settings_for
from tests.interop.test_their_store import foreign_options, foreign_settings

pytestmark = pytest.mark.long

TOPIC = "permits"
THEIR_GROUP = "interchange-transactions"
QUICK = {"transactionOpBatchInterval": "100", "transactionCheckInterval": "1000", "transactionTimeOut": "1000"}
"""Decisions are gathered for so many milliseconds before they are stored; checks come soon."""


def served(store: Store) -> tuple[Transactions, ManualScheduler]:
    """Open the transactions of a store, at moments that the test chooses."""
    clock = ManualClock(SystemClock().wall_ms())
    scheduler = ManualScheduler(clock)
    offsets = ConsumerOffsets.open(store.root, disk=RealDisk(), clock=clock)
    steps = Transactions.opening(
        store,
        offsets=offsets,
        disk=RealDisk(),
        clock=clock,
        scheduler=scheduler,
        metrics=Metrics(),
        limited_log=RateLimitedLog(clock),
    )
    transactions = run_now(steps)
    transactions.start()
    return transactions, scheduler


def bodies(store: Store) -> list[bytes]:
    """Bodies of the topic, all its queues."""
    queues = store.topics[TOPIC].queues
    units = [unit for queue in queues for unit in queue.read(queue.min_offset, queue.max_offset)]
    return [bytes(split(store.read(physical, size))[0]) for physical, size, _ in units]


def decide(transactions: Transactions, handle: str, state: State, group: str) -> EndOutcome:
    """Decide, at once."""
    found: list[EndOutcome] = []
    transactions.end(handle, group=group, state=state, from_check=True, done=found.append)
    transactions._ops.write()
    transactions.store.flush()
    return found[0]


def test_what_rocketmq_left_undecided_is_decided_here(rocket: Surroundings) -> None:
    """Checked here, committed once or rolled back; RocketMQ then sees what was decided and checks nothing."""
    root = rocket.folder / "store"
    settings = foreign_settings(root, sums=False) | {
        "transactionOpBatchInterval": "100",
        "transactionCheckInterval": "600000",
    }
    with rocket.broker("broker", settings) as broker, rocket.client() as client:
        client.make_topic(broker, TOPIC, 1)
        for outcome in ("commit", "rollback", "unknown", "unknown", "unknown"):
            assert client.ask(do="half", group=THEIR_GROUP, topic=TOPIC, body="half", outcome=outcome) == [
                {"status": "SEND_OK"}
            ]
        broker.stop()
    store = open_store(root, foreign_options(root))
    transactions, scheduler = served(store)
    assert (bodies(store), transactions.halves.states.undecided) == ([b"half"], 3)
    scheduler.advance(7)
    checks = transactions.fetch_checks(THEIR_GROUP, 9)
    assert [(check.body, check.topic, check.times) for check in checks] == [(b"half", TOPIC, 1)] * 3
    assert decide(transactions, checks[0].handle, State.COMMIT, THEIR_GROUP).resolved
    assert decide(transactions, checks[1].handle, State.ROLLBACK, THEIR_GROUP).resolved
    transactions.close()
    store.close()
    with rocket.broker("again", settings_for(root)), rocket.client() as client:
        bounds, messages = client.read(TOPIC, {0: 2})
    assert bounds[0] == (0, 2)
    assert [message.body for message in messages] == [b"half", b"half"]
    store = open_store(root, foreign_options(root))
    transactions, _ = served(store)
    assert (len(bodies(store)), transactions.halves.states.undecided) == (2, 1)
    transactions.close()
    store.close()


def ours_first(root: Path) -> None:
    """Leave a commit, a rollback and one that is undecided, of RocketMQ's producer group."""
    store = open_store(root)
    store.create_topic(TOPIC, 1)
    transactions, _ = served(store)
    handles = []
    for body in (b"committed", b"rolled back", b"undecided"):
        put = transactions.half(Put(store.topics[TOPIC], 0, body, b"KEYS\x01k\x02"), group=THEIR_GROUP)
        [position] = store.append([put], born_ms=SystemClock().wall_ms(), born_host=store.options.store_host)
        store.flush()
        handles.append(transactions.handle_of(position))
    assert decide(transactions, handles[0], State.COMMIT, THEIR_GROUP).resolved
    assert decide(transactions, handles[1], State.ROLLBACK, THEIR_GROUP).resolved
    transactions.close()
    store.close()


def test_what_ours_decided_stays_decided_in_rocketmq(rocket: Surroundings) -> None:
    """Its checks go to the undecided one alone: it commits that, as it is told, and nothing else."""
    root = rocket.folder / "store"
    ours_first(root)
    with rocket.broker("broker", settings_for(root) | QUICK) as broker, rocket.client() as client:
        # A producer of the group lives as long as this takes; its listener commits whatever it is asked about.
        request = {"do": "half", "group": THEIR_GROUP, "topic": TOPIC, "body": "half", "outcome": "commit"}
        assert client.ask(**request, keep=True) == [{"status": "SEND_OK"}]
        bounds, messages = client.read(TOPIC, {0: 3})
        broker.stop()
    assert bounds[0] == (0, 3)
    assert sorted(message.body for message in messages) == [b"committed", b"half", b"undecided"]
