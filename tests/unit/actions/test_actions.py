"""Built-in actions, the registry, and the pipeline around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from actions.json_action import JsonAction
from actions.registry import BUILT_IN, Registry
from pyddmq.actions import Action, Job, Status, Unprocessable
from tests.insides import place_of
from tests.unit.upstream_world import Client, World

PATH = "$['case id']"


class Probe(Action):
    """Answers what its script says, per message body, and remembers what it saw."""

    may_be_last = True
    needs_json = False
    script: ClassVar[dict[int, list[Any]]] = {}
    seen: ClassVar[list[tuple[int, Any]]] = []
    kept: ClassVar[list[Job]] = []
    lives: ClassVar[list[str]] = []

    def open(self) -> None:
        self.lives.append("open")

    def close(self) -> None:
        self.lives.append("close")

    def act(self, job: Job) -> Status:
        number = int(job.message.properties["n"])
        self.seen.append((number, job.data))
        answers = self.script.get(number, [])
        answer = answers.pop(0) if answers else Status.CONTINUE
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Status)
        if answer is Status.ASYNCHRONIZED:
            self.kept.append(job)
        return answer


class Short(Action):
    """Answers too few statuses."""

    def act_many(self, jobs: Sequence[Job]) -> Sequence[Status | Exception]:
        return []


class Options(BaseModel):
    """Options of `WithOptions`."""

    limit: int = 3


class WithOptions(Action):
    """Takes options."""

    options_model = Options


@pytest.fixture
def probe() -> type[Probe]:
    """Give the probe class with nothing in its script."""
    Probe.script, Probe.seen, Probe.kept, Probe.lives = {}, [], [], []
    return Probe


def scripted(probe: type[Probe], *actions: str, **settings: object) -> World:
    """Make a group whose pipeline has the probe in it."""
    registry = Registry({**BUILT_IN, "Probe": probe, "Short": Short})
    return World({"topic": "t", "actions": list(actions), **settings}, queues=1, registry=registry)


def send(world: World, number: int, key: str | None = None, body: object = None) -> None:
    """Publish message `number`."""
    world.publish(key, properties=[("n", str(number))], body={"case id": key, "n": number} if body is None else body)


def numbers(world: World, client: Client) -> list[int]:
    """Pull everything; the numbers of the messages."""
    return [int(job.message.properties["n"]) for job in world.pull_all(client)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "body is empty"),
        (b"  ", "body is empty"),
        (b"null", "body is null"),
        (b"[1]", "body is a list"),
        (b'"x"', "body is a text"),
        (b"1.5", "body is a number"),
        (b"true", "body is true or false"),
        (b"{a: 1}", "body is not JSON"),
        (b'{"a": 1', "body is not JSON"),
        (b'{"a": "\xff"}', "body is not JSON"),
        (b"[" * 100_000, "body is not JSON"),
    ],
)
def test_json_refuses_whatever_is_no_object(body: bytes, reason: str) -> None:
    """Empty, null, malformed, scalar and list bodies each name what is wrong (D17, W17)."""
    with pytest.raises(Unprocessable, match=reason):
        JsonAction().parse(body)


def test_json_keeps_large_numbers_exact() -> None:
    """Integers of any size stay exact, so they can be keys."""
    assert JsonAction().parse(b'{"a": 123456789012345678901234567890}') == {"a": 123456789012345678901234567890}


def test_unprocessable_body_goes_to_the_dead_letters_at_once() -> None:
    """What Json cannot take is dead-lettered without a retry, and its neighbours go on (D17)."""
    world = World({"topic": "t", "actions": ["Json", "Async", "PullServer"], "orderKey": PATH}, queues=1)
    world.publish(None, body={"case id": 1})
    world.publish(None, body=b"oops")
    world.publish(None, body={"case id": 2})
    assert [world.body(job) for job in world.pull_all(Client())] == [{"case id": 1}, {"case id": 2}]
    assert [letter["body"] for letter in world.dead_letters()] == ["oops"]
    assert world.count("pyddmq_dead_letters_total", "g", "t", "unprocessable") == 1


@pytest.mark.parametrize(
    "actions", [["Json", "Async", "PullServer"], ["Json", "NonBlockAsync", "PullServer"], ["Json", "PullServer"]]
)
def test_json_path_orders_over_queues_with_and_without_a_gate(actions: list[str]) -> None:
    """The key comes from the body; order holds over all queues, with the gate or without one (D14, W56)."""
    world = World({"topic": "t", "actions": actions, "orderKey": PATH}, queues=4)
    client = Client()
    for number, case in enumerate([7, "7", 8, 7, None, {"x": 1}, 8]):
        world.publish(None, body={"case id": case, "n": number}, queue=3 - number % 4)
    jobs = world.pull_all(client)
    assert sorted(world.body(job)["n"] for job in jobs) == [0, 2, 4, 5]
    assert world.count("pyddmq_unordered_messages_total", "g", "t") == 2
    order = []
    while jobs:
        job = jobs.pop(0)
        order.append((str(world.body(job)["case id"]), world.body(job)["n"]))
        world.answer(client, job)
        jobs += world.pull_all(client)
    assert [n for case, n in order if case == "7"] == [0, 1, 3]
    assert [n for case, n in order if case == "8"] == [2, 6]


def test_waiting_jobs_hold_no_body_and_are_parsed_again_only_when_needed(probe: type[Probe]) -> None:
    """A job behind its key drops its data; it is parsed again when a later action looks at it (D15)."""
    world = scripted(probe, "Json", "Async", "Probe", "PullServer", orderKey=PATH)
    client = Client()
    send(world, 1, "a")
    send(world, 2, "a")
    [group_queue] = world.group.queues_by_topic["t"].values()
    waiting = group_queue.live[1]
    assert (waiting.record, waiting._data, waiting._message) == (None, None, None)
    job = world.pull_all(client)[0]
    assert job._data is None
    world.answer(client, job)
    assert numbers(world, client) == [2]
    assert [data["n"] for _, data in probe.seen] == [1, 2]


def test_statuses_finish_fail_and_go_on(probe: type[Probe]) -> None:
    """CONTINUE goes on, FINISH consumes, FAIL walks retryIntervals, an exception counts an error (R16, D17)."""
    probe.script = {2: [Status.FINISH], 3: [Status.FAIL], 4: [ValueError("boom")]}
    world = scripted(probe, "Probe", "PullServer", retryIntervals=[100])
    client = Client()
    for number in (1, 2, 3, 4):
        send(world, number)
    assert numbers(world, client) == [1]
    world.advance(0.1)
    assert numbers(world, client) == [3]
    world.advance(0.9)
    assert numbers(world, client) == [4]
    assert world.count("pyddmq_finished_messages_total", "g", "t") == 1
    assert world.count("pyddmq_error_attempts_total", "g", "t") == 1


def test_exception_is_retried_max_retry_times_and_then_dead_lettered(probe: type[Probe]) -> None:
    """The dead letter carries the exception's text; the key waits all the while (W12)."""
    probe.script = {1: [ValueError("boom")] * 3}
    world = scripted(probe, "Async", "Probe", "PullServer", orderKey="KEY", maxRetry=2)
    client = Client()
    send(world, 1, "a")
    send(world, 2, "a")
    world.advance(2.9)
    assert numbers(world, client) == []
    world.advance(0.1)
    assert [letter["DLQ_REASON"] for letter in world.dead_letters()] == ["ValueError: boom"]
    assert numbers(world, client) == [2]


def test_asynchronized_job_is_resumed_or_finished_once(probe: type[Probe]) -> None:
    """A kept job goes on by `resume`; `finish` settles once, a second time changes nothing (W36)."""
    probe.script = {number: [Status.ASYNCHRONIZED] for number in (1, 2, 3)}
    world = scripted(probe, "Probe", "PullServer", concurrency=3, retryIntervals=[])
    client = Client()
    for number in (1, 2, 3, 4):
        send(world, number)
    assert numbers(world, client) == []
    resumed, consumed, failed = probe.kept
    resumed.resume()
    resumed.resume()
    assert consumed.finish(True)
    assert not consumed.finish(True)
    assert failed.finish(False, "sink down")
    assert not failed.finish(True)
    world.turn_end()
    assert sorted(numbers(world, client)) == [1, 4]
    assert [letter["DLQ_REASON"] for letter in world.dead_letters()] == ["failed 1 times: sink down"]
    subscription = place_of(world.group).subscription
    assert subscription is not None
    assert subscription.permits.used == 2


def test_past_the_last_action_a_job_has_succeeded(probe: type[Probe]) -> None:
    """A pipeline that ends with CONTINUE consumes the message (R15)."""
    world = scripted(probe, "Probe")
    send(world, 1)
    assert world.group.stats().topics[0].queues[0].lag == 0


def test_failure_before_the_gate_holds_up_what_was_read_after_it(probe: type[Probe]) -> None:
    """Before a JSON-path gate a retried job's key is not known: nothing passes it, and order holds (D14)."""
    probe.script = {2: [Status.FAIL, ValueError("again")]}
    world = scripted(probe, "Json", "Probe", "Async", "PullServer", orderKey=PATH, retryIntervals=[100])
    client = Client()
    world.stage("a", properties=[("n", "1")], body={"case id": "a"})
    for number, case in ((2, "b"), (3, "b"), (4, "c")):
        world.stage(case, properties=[("n", str(number))], body={"case id": case})
    world.turn_end()
    assert numbers(world, client) == [1]
    world.advance(0.1)
    assert numbers(world, client) == []
    world.advance(1)
    assert numbers(world, client) == [2, 4]


def test_asynchronized_before_the_gate_is_an_error(probe: type[Probe]) -> None:
    """An action before a JSON-path gate has to answer at once; the reason says so."""
    probe.script = {1: [Status.ASYNCHRONIZED]}
    world = scripted(probe, "Json", "Probe", "Async", "PullServer", orderKey=PATH, maxRetry=0)
    send(world, 1, "a")
    assert "before the order gate" in world.dead_letters()[0]["DLQ_REASON"]


def test_action_that_answers_too_few_statuses_costs_only_its_jobs(probe: type[Probe]) -> None:
    """A broken action is an error of the jobs it had, with a reason that names it."""
    world = scripted(probe, "Short", "PullServer", maxRetry=0)
    send(world, 1)
    assert world.dead_letters()[0]["DLQ_REASON"] == "ActionMisbehaved: Short returned 0 statuses for 1 jobs"


def test_late_success_while_an_action_has_the_job_wins_over_its_failure(probe: type[Probe]) -> None:
    """A success of a delivery before the restart finishes the offset although an action holds the job again."""
    world = scripted(probe, "Probe", "PullServer")
    send(world, 1)
    probe.script = {1: [Status.ASYNCHRONIZED]}
    world.kill()
    [job] = probe.kept
    applied = world.group.apply("t", job.qid, [0], [], Client())
    assert applied.finished == 1
    assert job.finish(False, "too late")
    world.advance(1)
    assert world.dead_letters() == []
    assert world.pull_all(Client()) == []


def test_actions_are_opened_and_closed_once_per_generation(probe: type[Probe]) -> None:
    """`open` before the first job, `close` after the last, for each generation."""
    world = scripted(probe, "Probe", "PullServer")
    send(world, 1)
    assert probe.lives == ["open"]
    world.group.stop()
    assert probe.lives == ["open", "close"]
