"""docs/states.md: half messages, from the put to the decision."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import split, store_timestamp
from broker.retention import RetentionLimits
from broker.transaction.names import DISCARD_TOPIC, HALF_TOPIC, State
from broker.transaction.outcomes import End, EndOutcome
from broker.transaction.retention_hold import TransactionHold
from broker.transaction.settings import CheckSettings
from broker.transaction.states import HalfState
from tests.integration.store_tools import ROOT
from tests.integration.transaction_tools import GROUP, TOPIC, Broker, broker
from tests.integration.waiting_tools import put_durably, retain
from tests.lifecycle.scenario import DERIVED, MADE_ANEW, Moment, Scenario
from tests.lifecycle.walk import NotInTable, Walk

GONE = "gone"
CHECKS = CheckSettings(timeout_ms=1000, interval_ms=2000, checks_max=2)
LEVEL_1_MS = 1000


class Halves(Scenario):
    """Producers that commit, roll back, keep silent until they are asked, and never answer."""

    table = "states.md: Half messages"
    losses = DERIVED
    spoils = MADE_ANEW

    def __init__(self, moment: Moment) -> None:
        super().__init__(moment)
        self._handles: dict[bytes, str] = {}
        self._committed: set[bytes] = set()
        self._rolled_back: set[bytes] = set()
        self._known: dict[int, bytes] = {}

    def walk(self, walk: Walk) -> None:
        """Go along every row."""
        self._walk = walk
        self._open()
        self._decide_at_once()
        self._decide_when_due()
        self._ask()
        self._discard()
        self._put_again()
        self._fail_syncs()
        self._damage()
        self._made.close()

    # What happens

    def _decide_at_once(self) -> None:
        for body in (b"a", b"b"):
            self._half(body)
        self._half(b"level", delay_level=1)
        self._end(b"a", State.COMMIT)
        self._walk.went(b"a", self._state(b"a"), "commit: the commit record")
        self._end(b"b", State.ROLLBACK)
        self._walk.went(b"b", self._state(b"b"), "rollback: the op record")
        self._end(b"level", State.COMMIT, not_before=self.clock.wall_ms() + LEVEL_1_MS)
        for body, state in ((b"a", State.ROLLBACK), (b"b", State.COMMIT)):
            assert self._made.end(self._handles[body], state).end is End.ALREADY_OTHER

    def _decide_when_due(self) -> None:
        for body in (b"c", b"d"):
            self._half(body)
        self._made.scheduler.advance(1.1)
        for body, state, event in ((b"c", State.COMMIT, "commit"), (b"d", State.ROLLBACK, "rollback")):
            self._walk.went(body, self._state(body), "it is old enough")
            self._end(body, state)
            self._walk.went(body, self._state(body), event)

    def _ask(self) -> None:
        for body in (b"e", b"f"):
            self._half(body)
        self._made.scheduler.advance(1.1)
        checks = self._made.transactions.fetch_checks(GROUP, 10)
        for body in (b"e", b"f"):
            self._walk.went(body, self._state(body), "it is old enough", "a producer of its group")
        self._made.transactions.give_back(checks[0])
        self._walk.went(checks[0].body, self._state(checks[0].body), "its reply never left")
        self._made.transactions.fetch_checks(GROUP, 10)
        self._walk.went(checks[0].body, self._state(checks[0].body), "a producer of its group")
        self._end(b"e", State.COMMIT, from_check=True)
        self._walk.went(b"e", self._state(b"e"), "the answer is commit")
        self._end(b"f", State.ROLLBACK, from_check=True)
        self._walk.went(b"f", self._state(b"f"), "the answer is rollback")

    def _discard(self) -> None:
        """Two checks without an answer, the discard topic, and back by hand; then by age."""
        self._half(b"never")
        made = self._made
        made.scheduler.advance(1.1)
        made.transactions.fetch_checks(GROUP, 10)
        self._walk.went(b"never", self._state(b"never"), "it is old enough", "a producer of its group")
        made.scheduler.advance(2.1)
        self._walk.went(b"never", self._state(b"never"), "the interval has passed")
        made.transactions.fetch_checks(GROUP, 10)
        self._walk.went(b"never", self._state(b"never"), "a producer of its group")
        made.scheduler.advance(2.1)
        self._walk.went(b"never", self._state(b"never"), "it was the last check")
        resume_all(made)
        self._walk.went(b"never", self._state(b"never"), "it is resumed")
        made.scheduler.advance(1.1)
        made.transactions.settings = replace(CHECKS, age_seconds_max=3200.0)
        made.scheduler.advance(3300)
        self._walk.went(b"never", self._state(b"never"), "it is old enough", "it is too old")
        made.transactions.settings = CHECKS
        resume_all(made)
        self._walk.went(b"never", self._state(b"never"), "it is resumed")
        self._end(b"never", State.ROLLBACK)
        self._walk.went(b"never", self._state(b"never"), "rollback: the op record")

    def _put_again(self) -> None:
        made, store = self._made, self._made.store
        self._half(b"old")
        made.scheduler.advance(1.1)
        self._walk.went(b"old", self._state(b"old"), "it is old enough")
        for number in range(16):
            put_durably(store, made.scheduler, "other", b"%d" % number * 900)
        self.clock.advance(11)
        store.checkpoint()
        self.moment.saved()
        report(self, made)
        store.retention.holds.append(TransactionHold(made.transactions, made.metrics))
        store.retention.limits = RetentionLimits(log_bytes=2 * store.options.segment_bytes)
        retain(store, made.scheduler)
        store.retention.limits = RetentionLimits()
        state = self._state(b"old")
        # The syncs of all that may have taken longer than it takes to be old enough.
        late = ("it is old enough",) if state == "due" else ()
        self._walk.went(b"old", state, "its log file is to be deleted", *late)
        self._end(b"old", State.COMMIT)

    def _damage(self) -> None:
        for body in (b"broken", b"last"):
            self._half(body)
        at = self._records(b"broken")[-1][1]
        del self._handles[b"broken"]
        self._made.close()
        size = self._made.store.options.segment_bytes
        self.disk.flip_bit(f"{ROOT}/commitlog/{at - at % size:020d}", at % size + 90)
        self.moment.stop()
        self._open()
        self._made.scheduler.advance(1.1)
        self._walk.went(b"broken", self._state(b"broken"), "it is old enough", "its record is damaged")

    def _fail_syncs(self) -> None:
        """A sync fails while a decision is written: a life each, since the store writes no more."""
        for body, state, event in (
            (b"g", State.COMMIT, "kill, and the log has the commit"),
            (b"h", State.ROLLBACK, "kill, and the log has the op"),
            (b"i", State.COMMIT, "power loss, and the log"),
            (b"j", State.ROLLBACK, "power loss, and the log"),
        ):
            self._half(body)
            if state is State.COMMIT:
                self._ask_for(body)
            self.disk.fail("sync", path_part="/commitlog/")
            self._fails_to_end(body, state)
            self._walk.went(body, self._state(body), "its end is asked for, and the sync fails")
            self._fails_to_end(body, state)
            self.disk.heal()
            self._made.store.abandon()
            if event.startswith("power"):
                self.moment.power_off()
            self.moment.stop()
            self._open()
            self._walk.went(body, self._state(body), event)
            self._end(body, state)

    def _fails_to_end(self, body: bytes, state: State) -> None:
        answer = self._made.end(self._handles[body], state).end
        if answer is not End.FAILED:
            raise NotInTable(f"{body!r} was answered with {answer.name}, though the sync failed")

    # How it runs

    def _open(self) -> None:
        self._made = broker(self.disk, self.clock, checks=CHECKS)
        self.moment.run(self._made.store, self._made.scheduler)
        self._made.store.create_topic("other", 1)

    def _half(self, body: bytes, *, topic: str = TOPIC, delay_level: int = 0) -> None:
        handle = self._made.half(body, topic=topic, delay_level=delay_level)
        self._handles[body] = handle
        self._walk.saw(body, self._state(body))

    def _ask_for(self, body: bytes, not_before: int = 0) -> None:
        self.account.asked(body, not_before)

    def _end(self, body: bytes, state: State, *, not_before: int = 0, from_check: bool = False) -> None:
        if state is not State.UNKNOWN:
            self._ask_for(body, not_before)
        outcome = self._made.end(self._handles[body], state, from_check=from_check)
        assert outcome.resolved, outcome
        if state is State.COMMIT:
            self.account.answered(body)
            self._committed.add(body)
        elif state is State.ROLLBACK:
            self.account.forbid(body)
            self._rolled_back.add(body)
        report(self, self._made)

    # What can be seen

    def _records(self, body: bytes) -> list[tuple[str, int, int]]:
        """Topic, commit-log offset and queue offset of a half's records, in the log's order."""
        found = []
        for name in (HALF_TOPIC, DISCARD_TOPIC):
            topic = self._made.store.topics.get(name)
            queue = topic.queues[0] if topic else None
            for offset in range(queue.min_offset, queue.max_offset) if queue else ():
                [(physical, size, _)] = queue.read(offset, 1) if queue else []
                with contextlib.suppress(DamagedRecord, RecordGone):
                    self._known[physical] = bytes(split(self._made.store.read(physical, size))[0])
                if self._known.get(physical) == body:
                    found.append((name, physical, offset))
        return [(name, physical, offset) for name, physical, offset in sorted(found, key=lambda each: each[1])]

    def _state(self, body: bytes) -> str:
        report(self, self._made)
        records = self._records(body)
        if not records:
            return "gone"
        name, _, offset = records[-1]
        if name == DISCARD_TOPIC:
            return "discarded"
        halves = self._made.transactions.halves
        known = halves.states.get(offset)
        if self._made.store.failed is not None:
            return "in doubt"
        if known is not HalfState.UNDECIDED:
            return {HalfState.COMMITTED: "committed", HalfState.ROLLED_BACK: "rolled back"}.get(
                known or HalfState.ELSEWHERE, "lost"
            )
        asked = halves.checks.asked.get(offset)
        if asked is not None and asked.out:
            return "checking"
        return "due" if any(offset in line for line in halves.checks.lines.values()) else "undecided"

    def finish(self) -> None:
        """Start, commit at every check, bring back what was discarded, and ask again for what was decided."""
        made = broker(self.disk, self.clock, checks=CHECKS)
        made.store.create_topic(GONE, 1)
        for _ in range(8):
            made.scheduler.advance(2.1)
            resume_all(made)
            for check in made.transactions.fetch_checks(GROUP, 100):
                self._ask_again(made, check.handle, check.body)
        made.scheduler.advance(2)
        report(self, made)
        for body, handle in self._handles.items():
            self._contradict(made, body, handle)
        if made.undecided:
            self.account.open_ones.add(f"{made.undecided} halves")
        made.close()

    def _ask_again(self, made: Broker, handle: str, body: bytes) -> None:
        if body in self._rolled_back or body in self._committed:
            self.account.open_ones.add(f"the check of {body!r}, which was decided")
        self.account.possible.setdefault(body, 0)
        if made.commit(handle, from_check=True).resolved:
            self.account.answered(body)

    def _contradict(self, made: Broker, body: bytes, handle: str) -> None:
        """Every half that was answered is decided by now, for good."""
        known = self._decision(made, handle)
        if known is None and int(handle.split("-")[1]) < made.store.min_offset:
            # Retention took the record that would tell.
            return
        wanted = State.ROLLBACK if body in self._rolled_back else State.COMMIT if body in self._committed else known
        if known is None or known is not wanted:
            self.account.open_ones.add(f"{body!r} ({known}, answered {wanted})")

    def _decision(self, made: Broker, handle: str) -> State | None:
        """What a half's decision is, told by whether a rollback is the same or the other."""
        found: list[EndOutcome] = []
        made.transactions.end(handle, group=GROUP, state=State.ROLLBACK, done=found.append, from_check=True)
        made.scheduler.run_until_idle()
        return found[0].decided


def resume_all(made: Broker) -> None:
    """Bring back every half that lies in the discard topic."""
    topic = made.store.topics.get(DISCARD_TOPIC)
    if topic is not None:
        queue = topic.queues[0]
        for offset in range(queue.min_offset, queue.max_offset):
            made.transactions.resume(offset, lambda _: None)
        made.store.flush()
        made.scheduler.run_until_idle()


def report(scenario: Scenario, made: Broker) -> None:
    """Tell the account what is in the topics that messages were committed to."""
    for name in (TOPIC, GONE):
        topic = made.store.topics.get(name)
        for queue in topic.queues if topic else ():
            for physical, size, _ in queue.read(queue.min_offset, queue.max_offset):
                try:
                    record = made.store.read(physical, size)
                except (DamagedRecord, RecordGone):
                    continue
                scenario.account.see(physical, bytes(split(record)[0]), store_timestamp(record))
