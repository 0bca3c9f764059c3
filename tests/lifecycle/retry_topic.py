"""docs/states.md: messages of a subscription with `retryTopic`: sent back, retried in place, dead-lettered."""

from __future__ import annotations

from random import Random

from broker.format.record import split
from broker.queues.topics import dead_letter_topic
from pyddmq.testing import ManualScheduler
from tests.integration.waiting_tools import make_durable
from tests.lifecycle.account import Account
from tests.lifecycle.scenario import WHEEL, Moment, Scenario
from tests.lifecycle.walk import Walk
from tests.unit.retry_world import RetryWorld
from tests.unit.upstream_world import ROOT, Client
from upstream.job import UpstreamJob
from upstream.state import JobState

GROUP = "g"
FAILURE = "it fails, attempts are left"
LAST_FAILURE = "it fails, no attempts are left"
SENT = "the retry record is durable"


class Life(RetryWorld):
    """One process on the moment's disk and clock; its client tells the account what it is handed."""

    segment_bytes = 1 << 16
    message_bytes_max = 1 << 15

    def __init__(self, moment: Moment) -> None:
        self.clock, self.sim, self.disk = moment.clock, moment.disk, moment.disk
        self.account: Account = moment.account
        self.client = Client()
        self._moment = moment
        super().__init__(made=False, retryIntervals=[100], timeout=1000)
        self.scheduler = ManualScheduler(self.clock)
        self.random_numbers = Random(int(self.clock.monotonic() * 1000))
        self.open()

    def store_opened(self) -> None:
        """End the turns as the run does."""
        self._moment.run(self.store, self.scheduler, after=self._durable)

    def _durable(self) -> None:
        self.progress.flush()
        self.progress.sync_after_log()

    def turn_end(self) -> None:
        """End the turn, and wait for what it leads to."""
        if self.store.commit.syncs is None:
            super().turn_end()
            return
        self.progress.flush()
        make_durable(self.store, self.scheduler)
        self.progress.flush()

    def take(self) -> list[UpstreamJob]:
        """Pull all that is there."""
        jobs = self.pull_all(self.client)
        for job in jobs:
            self.account.hand(job.physical)
        return jobs

    def succeed(self, job: UpstreamJob) -> None:
        """Answer with success, and note that it counts once the answer is durable."""
        body = bytes(job.body)
        self.account.see(("success", body), body)
        self.answer(self.client, job)
        self.progress.sync()
        self.account.finish(job.physical)


class RetryTopicRetries(Scenario):
    """One group and one client that is told what to answer."""

    table = "states.md: Retries with `retryTopic`"
    root = ROOT
    losses = ((), *[(name,) for name in WHEEL], WHEEL)
    saves = False

    def walk(self, walk: Walk) -> None:
        """Go along every row."""
        self._walk = walk
        self._jobs: dict[bytes, UpstreamJob] = {}
        self._life = Life(self.moment)
        self._succeed_and_fail()
        self._time_out()
        self._fill_the_disk()
        self._kill()
        self._fail_syncs()
        self._life.group.stop()

    # What happens

    def _succeed_and_fail(self) -> None:
        for body in (b"a", b"b", b"c"):
            self._send(body)
        self._hand()
        self._life.succeed(self._jobs[b"a"])
        self._walk.saw(b"a", self._state(b"a"))
        for body in (b"b", b"c"):
            self._send_back(body)
        self._again()
        for body in (b"b", b"c"):
            self._walk.went(body, self._state(body), "kill, power loss")
        self._walk.went(b"a", self._state(b"a"), "kill, power loss")
        self._life.advance(0.1)
        for body in (b"b", b"c"):
            self._walk.went(body, self._state(body), "its time has come")
        self._hand()
        self._life.succeed(self._jobs[b"b"])
        self._walk.saw(b"b", self._state(b"b"))
        self._fail(b"c")
        self._walk.went(b"c", self._state(b"c"), LAST_FAILURE)
        self._life.turn_end()
        self._walk.went(b"c", self._state(b"c"), "the record in `%DLQ%")
        self._again()
        self._walk.went(b"c", self._state(b"c"), "kill, power loss")

    def _time_out(self) -> None:
        self._send(b"t")
        self._hand()
        self._life.advance(1)
        self._walk.went(b"t", self._state(b"t"), "no answer")
        # Another client: an answer of the first one might be of the delivery that timed out (D40).
        self._life.client = Client("10.0.0.2:5000")
        self._hand()
        self._fail(b"t")
        self._life.turn_end()
        self._walk.went(b"t", self._state(b"t"), "it fails, attempts are left, and it timed out before")
        self._life.advance(0.1)
        self._hand()
        self._life.succeed(self._jobs[b"t"])
        self._walk.saw(b"t", self._state(b"t"))

    def _fill_the_disk(self) -> None:
        self._send(b"f")
        self._hand()
        self._life.fill_disk()
        self._fail(b"f")
        self._life.turn_end()
        self._walk.went(b"f", self._state(b"f"), "it fails, attempts are left, and the disk is full")
        self.disk.capacity_bytes = None
        self._life.advance(0.1)
        self._hand()
        self._life.succeed(self._jobs[b"f"])
        self._walk.saw(b"f", self._state(b"f"))

    def _kill(self) -> None:
        for body in (b"p", b"q"):
            self._send(body)
        self._hand()
        self._fail(b"q")
        self._walk.went(b"q", self._state(b"q"), FAILURE)
        self._again()
        for body in (b"p", b"q"):
            self._walk.went(body, self._state(body), "kill, power loss")
        for job in self._life.take():
            self._life.succeed(job)

    def _fail_syncs(self) -> None:
        for body, event, power_lost in (
            (b"u", "kill, and the log has the retry record", False),
            (b"v", "power loss, and the log has no record", True),
            (b"w", "kill, and the log has the record in", False),
            (b"x", "power loss, and the log has no record", True),
        ):
            self._send(body)
            self._hand()
            if body in (b"w", b"x"):
                self._send_back(body)
                self._life.advance(0.1)
                self._walk.went(body, self._state(body), "its time has come")
                self._hand()
                self._fail(body)
                self._walk.went(body, self._state(body), LAST_FAILURE)
            else:
                self._fail(body)
                self._walk.went(body, self._state(body), FAILURE)
            self.disk.fail("sync", path_part="/commitlog/")
            self._life.turn_end()
            self._walk.went(body, self._state(body), "the sync fails")
            self._life.advance(0.05)
            assert self._life.take() == []
            self.disk.heal()
            self._again(power_lost=power_lost)
            self._walk.went(body, self._state(body), event)
            self._life.advance(0.1)
            for job in self._life.take():
                self._walk.begins(bytes(job.body), "out")
                self._life.succeed(job)
                self._walk.saw(bytes(job.body), "finished")

    # How it runs

    def _send(self, body: bytes) -> None:
        self.account.asked(body)
        self._life.publish("k", body=body, queue=0)
        self.account.answered(body)
        self._walk.saw(body, "unfinished")

    def _hand(self) -> None:
        for job in self._life.take():
            body = bytes(job.body)
            self._jobs[body] = job
            self._walk.saw(body, self._state(body))

    def _fail(self, body: bytes) -> None:
        job = self._jobs[body]
        self._life.group.apply("t", job.qid, [], [job.offset], self._life.client)

    def _send_back(self, body: bytes) -> None:
        job = self._jobs[body]
        self._fail(body)
        self._walk.went(body, self._state(body), FAILURE)
        self._life.turn_end()
        self._life.progress.sync()
        self.account.finish(job.physical)
        self._walk.went(body, self._state(body), SENT)

    def _again(self, *, power_lost: bool = False) -> None:
        if power_lost:
            self.moment.power_off()
        self.moment.stop()
        self._jobs.clear()
        self._life = Life(self.moment)

    # What can be seen

    def _state(self, body: bytes) -> str:
        life = self._life
        topic, queue_id, offset = self._last_place(body)
        if topic == dead_letter_topic(GROUP):
            return "dead"
        if topic.startswith("rmq_sys"):
            return "waiting"
        tracker = life.progress.trackers[GROUP, topic, queue_id]
        if tracker.is_finished(offset):
            return "finished" if ("success", body) in self.account.visible else "lost"
        group_queue = next(
            each for each in life.group.group_queues() if (each.topic, each.queue_id) == (topic, queue_id)
        )
        job = group_queue.live.get(offset)
        if job is None:
            return "unfinished"
        states = {
            JobState.OUT: "out",
            JobState.SENDING: "sending",
            JobState.BURYING: "burying",
            JobState.UNDECIDED: "undecided",
        }
        return states.get(job.state, "unfinished")

    def _last_place(self, body: bytes) -> tuple[str, int, int]:
        """Topic, queue and offset of a message's newest record."""
        found = []
        for topic in self._life.store.topics.values():
            for queue in topic.queues:
                for offset, (physical, size, _) in enumerate(queue.read(0, queue.max_offset)):
                    if bytes(split(self._life.store.read(physical, size))[0]) == body:
                        found.append((physical, topic.name, queue.queue_id, offset))
        return max(found)[1:]

    def finish(self) -> None:
        """Start, answer everything with success, and look at the dead letters."""
        life = Life(self.moment)
        for _ in range(4):
            for job in life.take():
                life.succeed(job)
            life.advance(1)
        topic = life.store.topics.get(dead_letter_topic(GROUP))
        for queue in topic.queues if topic else ():
            for physical, size, _ in queue.read(0, queue.max_offset):
                self.account.see(physical, bytes(split(life.store.read(physical, size))[0]))
        for group_queue in life.group.group_queues():
            if group_queue.tracker.unfinished(group_queue.queue.max_offset):
                self.account.open_ones.add((group_queue.topic, group_queue.queue_id))
