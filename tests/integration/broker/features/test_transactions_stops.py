"""Transactions over every stop: killed or cut from power at any change of the disk, nothing is lost, seen or twice."""

from __future__ import annotations

import contextlib
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import StoreError
from broker.retention import RetentionLimits
from broker.transaction.names import State
from broker.transaction.outcomes import End, EndOutcome
from broker.transaction.retention_hold import TransactionHold
from pyddmq.testing import ManualClock, PowerCut, SimDisk
from tests.integration.store_tools import bodies
from tests.integration.transaction_tools import GROUP, START_MS, TOPIC, Broker, broker, remove

FILES = (
    "config/consumerOffset.json",
    "config/consumerOffset.json.bak",
    "pyddmq/consumerOffset.json",
    "pyddmq/transactions.json",
    "pyddmq/checkpoint.json",
)
"""What tells how far transactions are; the log can do without."""


class Ledger:
    """What callers were told: bodies by handle, and the decisions asked for and answered."""

    def __init__(self) -> None:
        self.halves: dict[str, bytes] = {}
        self.asked: dict[str, set[State]] = {}
        self.reported: dict[str, State] = {}
        self.seen: dict[int, bytes] = {}
        """What the topic showed, by queue offset, also what went with its log file since."""

    def note(self, handle: str, outcome: EndOutcome) -> None:
        """Take an answer; it must agree with those before."""
        if outcome.decided is not None:
            assert self.reported.setdefault(handle, outcome.decided) is outcome.decided, "decided otherwise before"

    def decide(self, made: Broker, handle: str, state: State) -> None:
        """Ask for a decision, by the first handle of a transaction or a later one."""
        first = next(each for each in self.halves if each.split("-")[2] == handle.split("-")[2])
        self.asked.setdefault(first, set()).add(state)
        made.transactions.end(handle, group=GROUP, state=state, done=partial(self.note, first))

    def look(self, made: Broker) -> list[bytes]:
        """Remember what can be seen; return all that ever could."""
        queue = made.store.topics[TOPIC].queues[0]
        # A power cut may have taken what nobody was told of.
        for offset in [offset for offset in self.seen if offset >= queue.max_offset]:
            del self.seen[offset]
        for offset, body in bodies(made.store, TOPIC).items():
            assert body is not None
            assert self.seen.setdefault(offset, body) == body
        return list(self.seen.values())

    def check(self, made: Broker) -> None:
        """Compare with what can be seen, then decide all that is left, and compare again."""
        visible = self.look(made)
        assert len(visible) == len(set(visible)), "committed twice"
        for handle, body in self.halves.items():
            reported, asked = self.reported.get(handle), self.asked.get(handle, set())
            if reported is State.COMMIT:
                assert body in visible, "a commit was lost"
            elif reported is State.ROLLBACK or State.COMMIT not in asked:
                assert body not in visible, "seen without a commit"
        final: dict[str, EndOutcome] = {}
        for handle in self.halves:
            made.transactions.end(handle, group=GROUP, state=State.ROLLBACK, done=partial(final.__setitem__, handle))
        made.scheduler.run_until_idle()
        for handle, body in self.halves.items():
            outcome = final[handle]
            if outcome.end is End.UNKNOWN_HANDLE and made.store.min_offset and self.asked.get(handle):
                # It was decided, and its records went with their log files.
                continue
            assert outcome.end in (End.OK, End.ALREADY_SAME, End.ALREADY_OTHER), f"stuck: {outcome}"
            self.note(handle, outcome)
            assert (body in visible) is (outcome.decided is State.COMMIT)
        assert self.look(made) == visible


def run(disk: SimDisk, clock: ManualClock, random: Random, ledger: Ledger, *, retain: bool) -> None:
    """Store halves, decide some, fetch checks, let time and log files go."""
    made = broker(disk, clock, segment_bytes=8192)
    ledger.look(made)
    if retain:
        made.store.retention.holds.append(TransactionHold(made.transactions, made.metrics))
        made.store.retention.limits = RetentionLimits(log_bytes=3 * 8192)
    for _ in range(8):
        for _ in range(random.randrange(4)):
            body = b"%d" % random.randrange(1 << 60)
            ledger.halves[made.half(body)] = body
        known = list(ledger.halves)
        for handle in random.sample(known, min(len(known), random.randrange(4))):
            ledger.decide(made, handle, random.choice((State.COMMIT, State.COMMIT, State.ROLLBACK)))
        if random.random() < 0.3:
            made.scheduler.run_until_idle()
        for check in made.transactions.fetch_checks(GROUP, random.randrange(3)):
            if any(each.endswith(check.transaction_id) for each in ledger.halves):
                ledger.decide(made, check.handle, random.choice((State.COMMIT, State.ROLLBACK, State.UNKNOWN)))
        if retain:
            made.store.put("filling", bytes(3000))
            made.clock.advance(11)
            made.store.checkpoint()
            ledger.look(made)
            while made.store.retention.step():
                pass
        made.scheduler.advance(random.choice((0.3, 3.0, 7.0)))
    ledger.look(made)
    if random.random() < 0.5:
        made.close()
    else:
        made.leave()


def stopped(disk: SimDisk, clock: ManualClock, random: Random, ledger: Ledger, changes: int, *, retain: bool) -> None:
    """Do that until the disk stops."""
    disk.stop_after(changes)
    with contextlib.suppress(PowerCut, StoreError, OSError):
        run(disk, clock, random, ledger, retain=retain)


POINTS = 24
"""Places of a run at which it is stopped; those of different seeds interlock."""


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_stop_at_every_change_loses_shows_and_repeats_nothing(seed: int, retain: bool) -> None:
    """A kill or a power cut at changes of the disk all over a run; files that go besides."""
    disk = SimDisk()
    run(disk, ManualClock(START_MS), Random(seed), Ledger(), retain=retain)
    for place in range(POINTS):
        changes = disk.operations * (3 * place + seed) // (3 * POINTS) + 1
        cut, clock, ledger = SimDisk(), ManualClock(START_MS), Ledger()
        stopped(cut, clock, Random(seed), ledger, changes, retain=retain)
        if place % 2:
            cut.crash(Random(changes))
        else:
            cut.kill()
        remove(cut, FILES[: place % (len(FILES) + 1)])
        made = broker(cut, clock, segment_bytes=8192)
        ledger.check(made)
        made.close()


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(1, 400), min_size=2, max_size=4), st.integers(0, 1 << 30), st.integers(0, 31), st.booleans()
)
def test_stops_in_a_row(stops: list[int], seed: int, lost: int, retain: bool) -> None:
    """One stop after the other, each anywhere, some of the files gone after the last."""
    disk, clock, ledger = SimDisk(), ManualClock(START_MS), Ledger()
    random = Random(seed)
    for changes in stops:
        stopped(disk, clock, random, ledger, changes, retain=retain)
        if random.random() < 0.5:
            disk.crash(random)
        else:
            disk.kill()
    remove(disk, tuple(name for place, name in enumerate(FILES) if lost >> place & 1))
    made = broker(disk, clock, segment_bytes=8192)
    ledger.check(made)
    made.close()
