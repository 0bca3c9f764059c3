"""Random use of a consumer group against a plain model.

Invariants, with "in flight" as D12 defines it (handed out by this process, unanswered, its timeout not passed):

- per key never two messages are in flight (promise 3), whatever answers of earlier deliveries arrive meanwhile (D40);
- per key no message is handed out before every earlier one, in commit-log order, is finished (promise 3);
- an acknowledged message never comes again, also not after a kill (promise 2);
- in the end every message is acknowledged, skipped by the operator, or in the dead-letter topic with a reason
  (promises 2 and 6), and only messages that were failed, timed out or given up by the operator are there;
- while the operator has paused the group nothing is handed out, also not after a kill or a reload;
- what the operator does to a message without force never touches one that is in flight, and a refused action nothing.
"""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.upstream_world import Client, World
from upstream.job import UpstreamJob
from upstream.operate import heads
from upstream.state import JobState
from upstream.waiting.buffer import PulledBatch

TIMEOUT_SECONDS = 10.0
KEYS = ("a", "b", "a", None)
JSON_PATH = "$.key"


class Flight:
    """A message that is out: whose, until when, and whether its success can be of no other delivery."""

    def __init__(self, client: Client, until: float, certain: bool) -> None:
        self.client = client
        self.until = until
        self.certain = certain


class GroupMachine(RuleBasedStateMachine):
    """Publish, pull, park, answer (also late, twice, by others), wait, give back, operate, pause, reload, kill."""

    @initialize(
        order=st.sampled_from(["KEY", JSON_PATH]), concurrency=st.sampled_from([2, 5, 1000]), queues=st.integers(1, 3)
    )
    def start(self, order: str, concurrency: int, queues: int) -> None:
        """Start with one of several shapes of subscription."""
        self.settings = {
            "topic": "t",
            "actions": ["Json", "Async", "PullServer"],
            "orderKey": order,
            "concurrency": concurrency,
            "timeout": int(TIMEOUT_SECONDS * 1000),
            "retryIntervals": [1000, 2000],
            "maxRetry": 2,
            "maxPullBatchSize": 3,
        }
        self.world = World(self.settings, queues=queues)
        self.clients = [Client(f"10.0.0.{number}:{number}") for number in range(3)]
        self.published: dict[int, str | None] = {}
        self.acked: set[int] = set()
        self.troubled: set[int] = set()
        self.skipped: set[int] = set()
        self.paused = False
        self.flights: dict[int, Flight] = {}
        self.owed: Counter[tuple[Client, int]] = Counter()
        self.handed: list[tuple[int, UpstreamJob]] = []
        self.deliveries: dict[int, int] = {}
        self.old: set[int] = set()
        self.batches: list[tuple[PulledBatch, Client]] = []
        self.calls = 0
        for queue in range(queues):
            self.publish(["a", "b", "a", None, "b", "a"], queue)

    def number(self, job: UpstreamJob) -> int:
        """Number of a message."""
        body = self.world.body(job)
        assert isinstance(body, dict)
        return int(body["n"])

    def dead(self) -> set[int]:
        """Numbers of the dead-lettered messages."""
        return {int(json.loads(letter["body"])["n"]) for letter in self.world.dead_letters()}

    def end_turn(self) -> None:
        """End a turn and let go of flights whose timeout passed."""
        self.world.turn_end()
        now = self.world.clock.monotonic()
        for number in [each for each, flight in self.flights.items() if flight.until <= now]:
            self.time_out(number)

    def time_out(self, number: int) -> None:
        """End a flight that nobody has answered: its answer may still come."""
        self.troubled.add(number)
        self.owed[self.flights.pop(number).client, number] += 1

    def ends_flight(self, number: int, client: Client, *, fail: bool = False) -> bool:
        """Whether an answer is of the present flight, which then ends; else it may be of an earlier delivery (D40)."""
        flight = self.flights.get(number)
        if self.owed[client, number]:
            self.owed[client, number] -= 1
            return False
        if flight is None or not (flight.client is client or (not fail and flight.certain)):
            return False
        del self.flights[number]
        return True

    def delivered(self, batch: PulledBatch, client: Client) -> None:
        """Check a batch against the model and note it."""
        self.end_turn()
        dead = self.dead()
        assert not self.paused, "handed out while paused"
        self.batches.append((batch, client))
        now = self.world.clock.monotonic()
        for job in batch.jobs:
            number = self.number(job)
            key = self.published[number]
            assert number not in self.acked, "acknowledged and handed out again"
            assert number not in dead, "dead-lettered and handed out again"
            assert number not in self.skipped, "skipped and handed out again"
            assert number not in self.flights, "handed out while in flight"
            if key is not None:
                others = [each for each in self.flights if self.published[each] == key]
                assert not others, f"two of key {key} in flight"
                before = [each for each in self.published if each < number and self.published[each] == key]
                over = self.acked | dead | self.skipped
                assert all(each in over for each in before), "out of order"
            self.deliveries[number] = self.deliveries.get(number, 0) + 1
            certain = self.deliveries[number] == 1 and number not in self.old
            self.flights[number] = Flight(client, now + TIMEOUT_SECONDS, certain)
            self.handed.append((number, job))
            self.calls += 1

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6), queue=st.integers(0, 2))
    def publish(self, keys: list[str | None], queue: int) -> None:
        """Publish a few messages to one queue."""
        for key in keys:
            number = len(self.published)
            self.world.stage(key, body={"n": number, "key": key}, queue=queue % self.world.queues)
            self.published[number] = key
        self.end_turn()

    @rule(who=st.integers(0, 2), count=st.integers(1, 4))
    def pull(self, who: int, count: int) -> None:
        """Pull, and park when there is nothing."""
        client = self.clients[who]
        batch = self.world.group.pull(None, count, client)
        if batch is not None:
            self.delivered(batch, client)
        elif self.world.group.stats().parked_pulls < 2:
            self.world.group.park(None, count, client, lambda found: self.delivered(found, client))

    @precondition(lambda self: self.handed)
    @rule(which=st.integers(0, 10**6), who=st.integers(0, 2), recent=st.booleans(), fail=st.booleans())
    def answer(self, which: int, who: int, recent: bool, fail: bool) -> None:
        """Ack or fail something handed out at any time, as its holder or as somebody else."""
        if recent and self.flights:
            number = sorted(self.flights)[which % len(self.flights)]
            job = next(each for mark, each in reversed(self.handed) if mark == number)
            client = self.flights[number].client if which % 3 else self.clients[who]
        else:
            number, job = self.handed[which % len(self.handed)]
            client = self.clients[who]
        before = set(self.dead()) | self.acked | self.skipped
        # What the answer frees may be handed to a parked pull inside the call, so the model goes first.
        ended = self.ends_flight(number, client, fail=fail)
        if not fail:
            self.acked.add(number)
        elif ended:
            self.troubled.add(number)
        offsets = [job.offset]
        applied = self.world.group.apply("t", job.qid, [] if fail else offsets, offsets if fail else [], client)
        if not fail:
            assert applied.finished + applied.repeated == 1
            assert not (applied.finished and number in before)
        self.end_turn()
        if number in self.dead():
            self.acked.discard(number)

    @precondition(lambda self: self.flights)
    @rule(which=st.integers(0, 100), who=st.integers(0, 2))
    def overtake(self, which: int, who: int) -> None:
        """Let a delivery time out, hand it to somebody else, and have the first one's success come late."""
        number = sorted(self.flights)[which % len(self.flights)]
        first = self.flights[number].client
        self.wait(TIMEOUT_SECONDS)
        for _ in range(3):
            self.pull(who, 4)
        if number in self.flights and self.flights[number].client is not first and number not in self.dead():
            job = next(each for mark, each in reversed(self.handed) if mark == number)
            self.acked.add(number)
            self.ends_flight(number, first)
            assert self.world.group.apply("t", job.qid, [job.offset], [], first).counted
            self.end_turn()
            for _ in range(3):
                self.pull(2, 4)

    @precondition(lambda self: self.flights)
    @rule(which=st.integers(0, 100), times=st.integers(1, 3))
    def fail_again(self, which: int, times: int) -> None:
        """Fail a message as often as it comes, up to three times: that is its end."""
        number = sorted(self.flights)[which % len(self.flights)]
        for _ in range(times):
            flight = self.flights.get(number)
            if flight is None or number in self.acked:
                return
            job = next(each for mark, each in reversed(self.handed) if mark == number)
            self.troubled.add(number)
            ended = self.ends_flight(number, flight.client, fail=True)
            assert self.world.group.apply("t", job.qid, [], [job.offset], flight.client).counted == ended
            self.end_turn()
            self.wait(2.0)
            for _ in range(4):
                self.pull(0, 4)

    @precondition(lambda self: self.batches)
    @rule()
    def give_back(self) -> None:
        """Take back the last batch as if its reply never left; what is still out of it comes again at once."""
        batch, client = self.batches.pop()
        for job in batch.jobs:
            if (
                job.state in (JobState.OUT, JobState.HELD)
                and job.delivery is not None
                and job.delivery.jobs is batch.jobs
            ):
                number = self.number(job)
                self.flights.pop(number, None)
                if job.state is JobState.OUT:
                    # No client ever saw this delivery, so none can answer it.
                    self.deliveries[number] -= 1
                    last = max(place for place, (mark, _) in enumerate(self.handed) if mark == number)
                    del self.handed[last]
        self.world.group.give_back(batch, client)
        self.end_turn()

    @rule(
        which=st.integers(0, 100),
        action=st.sampled_from(["retry", "skip", "dead letter"]),
        force=st.booleans(),
    )
    def operate(self, which: int, action: str, force: bool) -> None:
        """Let the operator act on some message that was read, first of its key or not."""
        world = self.world
        group_queues = [group_queue for group_queue in world.group.group_queues() if group_queue.live]
        if not group_queues:
            return
        group_queue = group_queues[which % len(group_queues)]
        offset = sorted(group_queue.live)[which % len(group_queue.live)]
        job = group_queue.live[offset]
        number, state = self.number(job), job.state
        was_out = number in self.flights
        # What the action frees may be handed to a parked pull inside the call, so the model goes first.
        flight = self.flights.pop(number, None) if force else None
        ends = force or not was_out
        added = action == "skip" and ends and state is not JobState.WAITING and number not in self.acked
        if added:
            self.skipped.add(number)
        try:
            head = heads.find_head(world.group, group_queue, offset)
            assert head.job is job
            if action == "retry":
                heads.retry_now(head, force=force, progress=world.progress, clock=world.clock)
            elif action == "skip":
                heads.skip(head, force=force, progress=world.progress)
            else:
                self.troubled.add(number)
                heads.dead_letter(head, force=force, who="test")
        except heads.HeadRefused:
            if flight is not None:
                self.flights[number] = flight
            if added:
                self.skipped.discard(number)
            assert job.state is state
        else:
            assert force or not was_out, "an action without force touched what is in flight"
            if action == "retry" and state is JobState.OUT and flight is not None:
                self.owed[flight.client, number] += 1
        self.end_turn()

    @rule(seconds=st.sampled_from([0.0, 1.0, 11.0]))
    def pause(self, seconds: float) -> None:
        """Pause the group, let time pass, and resume it."""
        self.world.pause()
        self.paused = True
        self.wait(seconds)
        assert self.world.group.pull(None, 4, self.clients[0]) is None
        if seconds == 1.0:
            self.kill()
            assert self.world.group.pull(None, 4, self.clients[0]) is None
        self.paused = False
        self.world.resume()
        self.end_turn()

    @rule(who=st.integers(0, 2), share=st.integers(1, 3))
    def work(self, who: int, share: int) -> None:
        """Pull twice and ack every `share`-th message that is out, oldest first."""
        for _ in range(2):
            self.pull(who, 3)
        for number in sorted(self.flights)[::share]:
            flight = self.flights.get(number)
            if flight is None or number in self.acked:
                continue
            self.ends_flight(number, flight.client)
            job = next(each for mark, each in reversed(self.handed) if mark == number)
            self.acked.add(number)
            assert self.world.group.apply("t", job.qid, [job.offset], [], flight.client).counted
            self.end_turn()

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 5.0, 10.0, 10.5]))
    def wait(self, seconds: float) -> None:
        """Let time pass in small steps, so that flights end in the model before anything is handed out again."""
        end = self.world.clock.monotonic() + seconds
        while (now := self.world.clock.monotonic()) < end:
            step = min([end, *(flight.until for flight in self.flights.values() if flight.until > now)]) - now
            for number in [each for each, flight in self.flights.items() if flight.until <= now + step + 1e-9]:
                self.time_out(number)
            self.world.advance(max(step, 1e-6))
        self.end_turn()

    @precondition(lambda self: self.calls >= 4)
    @rule()
    def reload(self) -> None:
        """Start a new generation; it begins when the old one has drained."""
        self.calls = 0
        self.settings = {**self.settings, "pressureTraffic": not self.settings.get("pressureTraffic", False)}
        self.world.subscriptions = (self.settings,)
        self.world.group.reconfigure(self.world.config())
        self.old |= set(self.published)
        self.end_turn()

    @precondition(lambda self: self.calls >= 4)
    @rule()
    def kill(self) -> None:
        """Kill the process and start it again; acks were flushed, so they hold."""
        self.calls = 0
        self.flights.clear()
        self.batches.clear()
        self.deliveries.clear()
        self.owed.clear()
        self.old |= set(self.published)
        self.world.kill()

    @invariant()
    def permits_are_within_bounds(self) -> None:
        """Never more jobs past the gate than permits, and never fewer than none."""
        if not hasattr(self, "world"):
            return
        subscription = self.world.group._slots["t"].subscription
        if subscription is not None:
            assert 0 <= subscription.permits.used <= subscription.permits.maximum
            assert self.world.group._buffer.bytes >= 0

    def teardown(self) -> None:
        """Answer everything until nothing comes any more: each message is acknowledged or dead-lettered."""
        if not hasattr(self, "world"):
            return
        quiet = 0
        while quiet < 8:
            for client in self.clients:
                while (batch := self.world.group.pull(None, None, client)) is not None:
                    self.delivered(batch, client)
            quiet = 0 if self.flights else quiet + 1
            for number in sorted(self.flights):
                flight = self.flights.get(number)
                if flight is not None:
                    self.ends_flight(number, flight.client)
                    job = next(each for mark, each in reversed(self.handed) if mark == number)
                    self.acked.add(number)
                    assert self.world.group.apply("t", job.qid, [job.offset], [], flight.client).counted
            self.end_turn()
            if quiet:
                self.wait(11.0)
        dead = self.dead()
        assert set(self.published) == self.acked | dead | self.skipped
        assert not self.acked & dead
        assert not self.skipped & dead
        assert dead <= self.troubled
        assert all(queue.lag == 0 for queue in self.world.group.stats().topics[0].queues)


GroupMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestGroupMachine = GroupMachine.TestCase
