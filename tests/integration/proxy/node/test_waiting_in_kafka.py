"""What operators see and do of messages that wait on Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal, cast

import msgspec
import pytest
from aiohttp import web

from actions.registry import Registry
from broker.query import NotFound, QueryRefused
from broker.runtime.steps import run_now
from broker.transaction.settings import CheckSettings
from conf import loads
from proxy.access.audit import Who
from proxy.node.kafka_letters import KafkaLetters
from proxy.node.reload import Reloader
from proxy.operate.attention.findings import judged
from proxy.operate.changes.dead_letters import RedriveBody
from proxy.operate.changes.delays import DelayCancelBody, delay_changes
from proxy.operate.changes.desk import Asker, Change, ChangeBody, ChangeDesk, ChangeRefused
from proxy.operate.changes.groups import PauseBody
from proxy.operate.changes.node import node_changes
from proxy.operate.changes.publish import PublishBody
from proxy.operate.changes.steps import MessageName
from proxy.operate.changes.timers import RescheduleBody, TimerCancelBody, timer_changes
from proxy.operate.changes.transactions import DecisionBody, TransactionBody, transaction_changes
from proxy.operate.live_node import LiveNode
from proxy.operate.lookups import waiting_in_kafka
from proxy.operate.lookups.lag import lag_of
from proxy.operate.lookups.transactions import TransactionQuery
from proxy.operate.lookups.waiting_in_kafka import WaitingInKafka
from proxy.operate.views.lag import LagWaiting
from proxy.recording.scheduled_samples import HALF, TIMER, kafka_samples
from pyddmq.codes import ResultCode
from tests.contract.test_time import UUID
from tests.contract.time_grounds import BareKafkaGround, KafkaTimeGround
from tests.insides import opened_of
from tests.simulation.wire import producer_idl
from tests.waiting_world import TOPIC
from upstream.kafka.link import KafkaPartition
from upstream.kafka.waiting.requests import OwnerRequests
from upstream.kafka.waiting.statuses import OWNED, PENDING, UNDECIDED_OLDEST


class Desk:
    """An operator of one node."""

    def __init__(self, ground: KafkaTimeGround) -> None:
        self.ground = ground
        self.node = LiveNode(ground.node, Reloader(ground.node, lambda: loads(ground.yaml, actions=Registry())))
        self.waiting = WaitingInKafka(ground.config, ground.node.parts.kafka.waiting)

    def change(self, name: str, due_ms: int = 0, *, topic: str | None = "orders") -> Any:
        """Cancel or move."""
        named = self.waiting.named(name, topic)
        assert named is not None
        return self.run(self.waiting.change(named, due_ms))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Make a change."""
        task = self.ground.loop.create_task(work)
        self.ground.loop.run(task.done, seconds=20)
        return task.result()

    def decide(self, name: str, state: Literal["commit", "rollback", "resume"]) -> Any:
        """Commit, roll back or resume a transaction; the refusal's text where there is one."""
        changes = {each.name: each for each in transaction_changes(self.ground.node)}
        if state == "resume":
            work = changes["resume_transaction"].run(TransactionBody(id=name))
        else:
            work = changes["decide_transaction"].run(DecisionBody(id=name, state=state))
        try:
            return self.run(cast(Coroutine[Any, Any, Any], work))
        except ChangeRefused as refused:
            return str(refused)

    def halves(self, **given: str) -> Any:
        """Transactions of the topic, or one by its handle."""
        asked = TransactionQuery.of({"topic": "orders", **given}, limit=10)
        return self.waiting.transactions(asked, self.ground.now_ms)

    def delays(self, **given: str) -> Any:
        """Delay levels, and what waits in them."""
        levels = opened_of(self.ground.node).delays
        return run_now(self.waiting.delays(levels, given, limit=2, now_ms=self.ground.now_ms))

    def due(self, **chosen: Any) -> list[int]:
        """How many fall due within a minute, within an hour, later."""
        ends_ms = [self.ground.now_ms + 60_000, self.ground.now_ms + 3_600_000]
        return run_now(self.waiting.due_counts(ends_ms, **chosen))

    def cancel_delays(self, *names: str) -> list[str]:
        """Cancel messages of delay levels; returns the outcomes."""
        [change] = delay_changes(self.ground.node)
        body = DelayCancelBody(messages=[MessageName(id=name, topic="orders") for name in names])
        work = cast(Coroutine[Any, Any, Any], change.run(body))
        return [each.outcome for each in self.run(work).results]

    def list(self, **given: str) -> Any:
        """A page."""
        return run_now(self.steps(**given))

    def steps(self, **given: str) -> Any:
        """The steps of a page."""
        return self.waiting.timers("orders", given, limit=2, now_ms=self.ground.now_ms)


def test_waiting_messages_are_listed_by_due_time() -> None:
    """Page after page, of every kind; other topics are the store's."""
    ground = KafkaTimeGround()
    desk = Desk(ground)
    at = ground.now_ms // 1000 + 500
    ids = [ground.send(b"x", delayMs=100_000 * (3 - number), key=f"k{number}").msgId for number in range(3)]
    loop = ground.delay(b"a", UUID, timestamp=at, dmsgtype=3, interval=4, times=9, expire=at + 1_000).uniqDelayMsgId
    ground.wait(3)
    first = desk.list()
    assert (first.pending_total, len(first.timers)) == (4, 2)
    second = desk.list(cursor=first.cursor)
    found = [*first.timers, *second.timers]
    assert [each.id for each in found] == [*reversed(ids), loop]
    assert [each.key for each in found] == ["k2", "k1", "k0", loop]
    assert found[-1].loop.left == 9
    assert WaitingInKafka(ground.config, {}).timers("orders", {}, limit=1, now_ms=0) is None


def test_waiting_messages_are_listed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some at a time; one that was cancelled meanwhile is left out."""
    monkeypatch.setattr(waiting_in_kafka, "STEP_ROWS", 1)
    ground = KafkaTimeGround()
    desk = Desk(ground)
    first, second = (ground.send(b"x", delayMs=delay_ms) for delay_ms in (100_000, 200_000))
    ground.wait(3)
    steps = desk.steps()
    next(steps)
    assert desk.change(second.msgId).outcome == "cancelled"
    ground.wait(3)
    assert [each.id for each in run_now(steps).timers] == [first.msgId]
    delayed = desk.waiting.delays(None, {"topic": "orders", "messages": "true"}, limit=2, now_ms=ground.now_ms)
    assert run_now(delayed).messages == []


def test_operator_cancels_and_moves_by_id_or_handle() -> None:
    """A move keeps the id; each outcome is said."""
    ground = KafkaTimeGround()
    desk = Desk(ground)
    kept, moved = (ground.send(b, delayMs=60_000) for b in (b"kept", b"moved"))
    due = ground.now_ms + 5_000
    answer = desk.change(moved.handle, due, topic=None)
    assert (answer.outcome, answer.new_id) == ("rescheduled", moved.msgId)
    assert desk.change(kept.msgId).outcome == "cancelled"
    ground.wait(8)
    assert ground.bodies == [b"moved"]
    assert desk.change(answer.handle, topic=None).outcome == "tooLate"
    assert desk.change("0" * 32).outcome == "unknown"


def test_handle_of_another_topic_than_named_changes_nothing() -> None:
    """The right is looked at for the named topic: a handle leads to no other."""
    ground = KafkaTimeGround()
    desk = Desk(ground)
    kept = ground.send(b"kept", delayMs=5_000)
    changes = {each.name: each for each in (*timer_changes(ground.node), *delay_changes(ground.node))}
    name = MessageName(id=kept.handle, topic="mine")
    for change, body in (
        ("cancel_timers", TimerCancelBody(timers=[name])),
        ("reschedule_timer", RescheduleBody(id=name.id, topic="mine", deliver_at_ms=ground.now_ms)),
        ("cancel_delays", DelayCancelBody(messages=[name])),
    ):
        assert changes[change].on(body) == ("mine",)
        with pytest.raises(ChangeRefused, match="the handle is for topic orders, not mine"):
            desk.run(cast(Coroutine[Any, Any, Any], changes[change].run(body)))
    ground.wait(8)
    assert ground.bodies == [b"kept"]


class _Everybody:
    """A gate that is open."""

    def enter(self, request: web.Request, *, is_change: bool = False) -> Asker:
        return Asker(Who(), None)

    def allow_change(self, request: web.Request, asker: Asker, change: Change, body: ChangeBody) -> None: ...


class _Request:
    """A request with a body."""

    remote, content_type = "10.0.0.1", "application/json"

    def __init__(self, body: ChangeBody) -> None:
        self._body = body

    async def read(self) -> bytes:
        return msgspec.json.encode(self._body)


def test_change_that_waits_for_an_owner_lets_others_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that is gone has ten seconds for each message: a page of cancels would keep a pause waiting for long."""
    ground = KafkaTimeGround()
    node = ground.node
    names = [MessageName(id=ground.send(b"x", delayMs=60_000).msgId, topic="orders") for _ in range(20)]
    half = ground.half(b"h").handle
    ground.wait(1)
    made = {each.name: each for each in node_changes(node)}
    desk = ChangeDesk(node.runtime.metrics, _Everybody(), None)

    def begin(name: str, body: ChangeBody) -> asyncio.Task[Any]:
        return ground.loop.create_task(desk.run(cast(Any, _Request(body)), made[name]))

    monkeypatch.setattr(OwnerRequests, "_request", lambda *_: None)
    monkeypatch.setattr(KafkaLetters, "open", lambda _: ground.loop.create_future())
    group = next(iter(node.in_force.groups))
    for name, body in (
        ("cancel_timers", TimerCancelBody(timers=names)),
        ("cancel_delays", DelayCancelBody(messages=names)),
        ("reschedule_timer", RescheduleBody(id=names[0].id, topic="orders", deliver_at_ms=ground.now_ms)),
        ("decide_transaction", DecisionBody(id=half, state="commit")),
        ("resume_transaction", TransactionBody(id=half)),
        ("publish_message", PublishBody(topic="orders", body="x")),
        ("redrive_dead_letters", RedriveBody(group=group)),
    ):
        ground.kafka.down = name == "publish_message"
        waits = begin(name, body)
        ground.wait(0.5)
        for other in ("pause", "resume"):
            done = begin(other, PauseBody(group=group))
            ground.loop.run(done.done, seconds=5)
            assert done.result().changed, (name, other)
        assert not waits.done()
        waits.cancel()
        ground.wait(0.1)


def test_delay_levels_are_listed_and_cancelled() -> None:
    """Level by level, with those of the store; messages of a topic by due time; timers are none of them."""
    ground = KafkaTimeGround()
    desk = Desk(ground)
    ids = [ground.send(b"x", delayLevel=level, key=f"k{level}").msgId for level in (5, 4, 5, 6)]
    ground.send(b"timer", delayMs=60_000)
    ground.wait(1)
    levels = {each.level: each for each in desk.delays(topic="orders").levels}
    assert {number: each.pending for number, each in levels.items() if each.pending} == {4: 1, 5: 2, 6: 1}
    assert levels[4].next_due_ms == pytest.approx(ground.now_ms + 29_000, abs=1_500)
    assert [each.pending for each in desk.delays().levels] == [each.pending for each in levels.values()]
    first = desk.delays(topic="orders", messages="true")
    assert (first.pending_total, first.cut, [each.level for each in first.messages]) == (4, True, [4, 5])
    second = desk.delays(topic="orders", messages="true", cursor=first.cursor)
    assert [each.id for each in [*first.messages, *second.messages]] == [ids[1], ids[0], ids[2], ids[3]]
    assert [each.key for each in desk.delays(topic="orders", messages="true", level="6").messages] == ["k6"]
    with pytest.raises(NotFound, match="delay level 99 does not exist"):
        desk.delays(topic="orders", level="99")
    with pytest.raises(QueryRefused, match="invalid cursor"):
        desk.delays(topic="orders", messages="true", cursor="4-7")
    assert desk.cancel_delays(*ids[:2]) == ["cancelled", "cancelled"]
    ground.wait(0.2)
    assert desk.delays(topic="orders").pending_total == 2
    ground.wait(130)
    assert sorted(ground.bodies) == [b"timer", b"x", b"x"]
    assert desk.cancel_delays(ids[0], ids[2]) == ["cancelled", "tooLate"]


def test_what_waits_is_counted_by_when_it_falls_due() -> None:
    """Timers, loops by their next occurrence, levels; halves by their next check; of a topic, or of all."""
    ground = KafkaTimeGround()
    desk = Desk(ground)
    ground.node.parts.kafka.configure_checks(CheckSettings(checks_max=5, interval_ms=120_000, timeout_ms=5_000))
    for delay_ms in (30_000, 600_000, 7_200_000):
        ground.send(b"x", delayMs=delay_ms)
    at = ground.now_ms // 1000 + 40
    ground.delay(b"a", UUID, timestamp=at, dmsgtype=3, interval=100, times=9, expire=at + 2_000)
    for level in (4, 16, 18):
        ground.send(b"x", delayLevel=level)
    for body in (b"a", b"b"):
        ground.half(body)
    ground.wait(1)
    assert desk.due() == desk.due(topic="orders") == [3, 2, 2]
    assert (desk.due(level=0), desk.due(level=16), desk.due(topic="none")) == ([1, 1, 1], [0, 1, 0], [0, 0, 0])
    assert (desk.due(halves=True), desk.due(halves=True, topic="none")) == ([2, 0, 0], [0, 0, 0])
    ground.wait(10)
    ground.checks()
    ground.wait(1)
    assert desk.due(halves=True) == [0, 2, 0]
    ground.wait(60)
    assert desk.due(topic="orders") == [0, 3, 2]


def test_operator_lists_and_decides_transactions() -> None:
    """By handle, undecided and discarded ones; a decision is final, and a half that is not discarded not resumed."""
    ground = KafkaTimeGround()
    desk = Desk(ground)
    ground.node.parts.kafka.configure_checks(CheckSettings(checks_max=1, interval_ms=1_000, timeout_ms=1_000))
    halves = [ground.half(body, key="K", group=group) for body, group in ((b"a", "shop"), (b"b", "shop"), (b"c", "x"))]
    first, second, other = (each.handle for each in halves)
    ground.wait(1)
    found = desk.halves(group="shop")
    assert {each.id for each in found.transactions} == {first, second}
    assert (found.undecided_total, found.transactions[0].state, found.transactions[0].key) == (3, "undecided", "K")
    assert desk.decide(other, "resume") == "The transaction is not discarded; only discarded ones can be resumed."
    assert desk.decide(other, "rollback").state == "rollback"
    assert desk.decide(other, "rollback").already
    assert desk.decide(other, "commit") == "The transaction was decided otherwise before."
    assert desk.decide("kafka/main/orders//none", "commit") == "No such transaction, or it ended long ago."
    for _ in range(6):
        ground.checks()
        ground.wait(1)
    found = desk.halves(state="discarded")
    assert {each.id for each in found.transactions} == {first, second}
    assert (found.undecided_total, found.discarded_total, found.oldest_ms) == (0, 2, None)
    assert ground.end_half(first, 8) == ResultCode.FAIL_DISCARDED
    assert desk.decide(first, "resume").group == "shop"
    ground.wait(0.2)
    assert [each.id for each in desk.halves().transactions] == [first]
    assert desk.decide(second, "commit").was_discarded
    ground.wait(0.2)
    [ended] = desk.halves(id=second).transactions
    assert ended.state == "committed"
    with pytest.raises(NotFound):
        desk.halves(id="kafka/main/orders//none")
    assert WaitingInKafka(ground.config, {}).transactions(TransactionQuery(1, topic="orders"), 0) is None
    ground.wait(3)
    assert ground.bodies == [b"b"]


class TwoTopicsGround(KafkaTimeGround):
    """With a second topic in Kafka."""

    yaml = KafkaTimeGround.yaml.replace("topics:\n  orders", "topics:\n  events: {brokerCluster: main}\n  orders", 1)


def test_all_transactions_of_a_topic_are_listed_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many older ones of other topics, other groups and discarded ones there are."""
    monkeypatch.setattr("proxy.operate.lookups.waiting_in_kafka.LIMIT_MAX", 3)
    ground = TwoTopicsGround()
    desk = Desk(ground)
    ground.node.parts.kafka.configure_checks(CheckSettings(checks_max=1, interval_ms=1_000, timeout_ms=1_000))
    ground.topic = "events"
    for number in range(5):
        ground.half(b"event%d" % number)
    ground.topic = "orders"
    for number in range(5):
        ground.half(b"old%d" % number)
    for _ in range(6):
        ground.checks()
        ground.wait(1)
    ground.node.parts.kafka.configure_checks(CheckSettings())
    wanted = [ground.half(b"new%d" % number, group="shop").handle for number in range(8)]
    ground.half(b"other", group="other")
    ground.wait(1)
    found, place = [], "0"
    for _ in range(5):
        answer = desk.halves(group="shop", **{"from": place})
        found += [each.id for each in answer.transactions]
        if answer.next is None:
            break
        place = str(answer.next)
    assert sorted(found) == sorted(wanted)
    assert len(desk.halves(state="discarded").transactions) == 3


def test_checks_that_no_producer_fetches_are_a_finding() -> None:
    """With the producer group and the node."""
    ground = KafkaTimeGround()
    desk = Desk(ground)
    ground.half(b"a")
    ground.wait(45)
    [finding] = [each for each in judged(desk.node).findings if each.finding == "kafka_waiting"]
    assert "no producer of the group fetches checks from node" in finding.text
    assert "producer group shop" in finding.text
    ground.checks()
    ground.wait(2)
    assert [each for each in judged(desk.node).findings if each.finding == "kafka_waiting"] == []


class BothGround(KafkaTimeGround):
    """With a topic in the node's own store, too."""

    yaml = KafkaTimeGround.yaml.replace("topics:\n  orders", "topics:\n  local: {queues: 1}\n  orders", 1)


def test_due_checks_of_kafka_do_not_hold_up_those_of_the_store() -> None:
    """A fetch takes them in turn."""
    ground = BothGround()
    for number in range(20):
        ground.half(b"kafka%d" % number)
    ground.topic = "local"
    ground.half(b"store")
    ground.wait(8)
    assert b"store" in [each.message.body for each in ground.checks()]


def test_checks_of_which_too_few_are_fetched_are_a_finding() -> None:
    """Another one: there are producers, and what helps is to decide the halves."""
    ground = KafkaTimeGround()
    desk = Desk(ground)
    for number in range(300):
        ground.half(b"h%d" % number)
    for _ in range(20):
        ground.wait(4)
        ground.checks()
    [finding, *_] = [each for each in judged(desk.node).findings if each.finding == "kafka_waiting"]
    assert "its producers fetch fewer checks than come due" in finding.text


def test_metrics_and_findings_say_how_it_stands() -> None:
    """Pending and owned partitions; a finding while a target refuses its messages."""
    ground = KafkaTimeGround()
    desk = Desk(ground)
    ground.send(b"x" * 100, delayMs=2_000)
    ground.send(b"y", delayMs=60_000)
    ground.wait(1.5)
    counter = ground.node.runtime.metrics.counter
    assert (counter(PENDING, "main").value, counter(OWNED, "main").value) == (2, 3)
    ground.kafka.limits["orders"] = 10
    ground.wait(5)
    [finding] = [each for each in judged(desk.node).findings if each.finding == "kafka_waiting"]
    assert "topic orders takes no waiting messages" in finding.text
    ground.kafka.partitions("orders.WAITING.DLQ", 1)
    ground.wait(40)
    assert [each.finding for each in judged(desk.node).findings if each.finding == "kafka_waiting"] == []
    assert ground.kafka.partition(KafkaPartition("orders.WAITING.DLQ", 0)).records


def test_lag_has_what_waits_on_kafka() -> None:
    """Timers and halves of the partitions that the node owns; late and undecided ones are judged as the store's."""
    ground = KafkaTimeGround()
    ground.send(b"y", delayMs=600_000)
    ground.half(b"h")
    ground.kafka.limits["orders"] = 10
    ground.send(b"x" * 100, delayMs=2_000)

    def rows() -> dict[str, LagWaiting]:
        return {each.kind: each for each in lag_of(ground.node, limit=10).waiting}

    ground.wait(30)
    assert {each.topic for each in rows().values()} == {"main:__pyddmq_waiting"}
    assert (rows()["timer"].scheduled, rows()["timer"].overdue) == (1, 1)
    assert (rows()["half"].scheduled, rows()["half"].status) == (1, "IN_TIME")
    assert 29 <= ground.node.parts.runtime.metrics.counter(UNDECIDED_OLDEST, "main").value <= 33
    ground.wait(600)
    assert (rows()["timer"].status, rows()["half"].status) == ("LATE", "UNDECIDED")


def test_missing_topics_are_a_finding_with_the_command() -> None:
    """What creates them."""
    ground = BareKafkaGround()
    [finding] = [each for each in judged(Desk(ground).node).findings if each.finding == "kafka_waiting"]
    assert "kafka-topics.sh" in finding.text


def test_delay_message_that_is_added_again_after_its_moment_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a client that had no answer, to a node that does not know the first add: the owner does."""
    monkeypatch.setattr("proxy.services.delay_service.RECENT_MAX", 2)
    ground = KafkaTimeGround()
    at_s = ground.now_ms // 1000 + 1
    once = {"timestamp": at_s, "dmsgtype": 2, "interval": 0, "times": 0, "expire": at_s + 172_800}
    names = {body: f"{UUID[:-1]}{number}" for number, body in enumerate((b"a", b"b", b"c"))}
    for body, uuid in names.items():
        assert ground.delay(body, uuid, **once).code == 0
    ground.wait(5)
    assert sorted(ground.bodies) == [b"a", b"b", b"c"]
    assert ground.delay(b"a", names[b"a"], **once).code == 0
    ground.wait(3)
    assert sorted(ground.bodies) == [b"a", b"b", b"c"]


def test_cancel_waits_for_its_owner_and_says_when_that_did_not_respond() -> None:
    """Also where its client gives no time: that is no time of 0."""
    ground = KafkaTimeGround()
    at = ground.now_ms // 1000 + 500
    more = {"timestamp": at, "dmsgtype": 2, "interval": 0, "times": 0, "expire": at + 172_800}
    added = ground.delay(b"x", UUID, **more).uniqDelayMsgId
    message = producer_idl.DelayMessage(topic="orders", tags="", action=2, uniqDelayMsgId=added, body=b"-")
    assert ground.call("sendDelaySync", delayMessage=message, timeout=-1).cancelOutcome == 1
    ground.kafka.down = True
    silent = ground.call("sendDelaySync", delayMessage=message, timeout=1_000)
    assert silent.cancelOutcome == 3
    assert "has not responded" in silent.msg


class LimitedGround(KafkaTimeGround):
    """One whose clients are one principal, which has a limit."""

    yaml = (
        KafkaTimeGround.yaml
        + """
access:
  networks: [{cidr: 10.0.0.0/8, principal: shop}]
  rules: [{principals: [shop], produce: ["*"], consume: ["*"], transact: ["*"]}]
limits: {principals: [{principals: [shop], openTransactions: 2}]}
"""
    )


def test_undecided_transactions_on_kafka_count_for_the_limit_of_their_principal() -> None:
    """As those of the store, within about a second; a decision makes room."""
    desk = Desk(LimitedGround())
    first, second = desk.ground.half(b"a"), desk.ground.half(b"b")
    assert (first.code, second.code) == (0, 0)
    desk.ground.wait(1)
    refused = desk.ground.half(b"c")
    assert refused.code == ResultCode.FAIL_REFUSED_BY_RATE_LIMITER
    assert "at its limit, 2 undecided transactions" in refused.msg
    answer = desk.node.limits(limit=10, name="shop")
    assert answer is not None
    assert [each.open_transactions for each in answer.clients] == [2]
    assert desk.ground.end_half(first.handle, 8) == 0
    desk.ground.wait(1)
    assert desk.ground.half(b"d").code == 0


def test_discarded_transactions_on_kafka_are_not_counted_as_undecided_ones() -> None:
    """Neither for a limit nor for lag, where they are no timers either."""
    ground = LimitedGround()
    for body in (b"a", b"b"):
        assert ground.half(body).code == 0
    ground.node.parts.kafka.configure_checks(CheckSettings(age_seconds_max=1))
    ground.wait(5)
    [waiting] = ground.node.parts.kafka.waiting.values()
    samples = kafka_samples("main", waiting.owned(), ground.now_ms)
    assert [(each.kind, each.pending, each.oldest_ms) for each in samples] == [(TIMER, 0, None), (HALF, 0, None)]
    assert ground.half(b"c").code == 0


class LimitedTimersGround(KafkaTimeGround):
    """Likewise, of messages that wait."""

    yaml = LimitedGround.yaml.replace("openTransactions: 2", "pendingTimers: 2")


def test_message_that_a_cluster_did_not_take_does_not_count_for_the_limit_of_its_principal() -> None:
    """It waits nowhere; one that may be stored counts."""
    ground = LimitedTimersGround()
    at = ground.now_ms // 1000 + 500
    more = {"timestamp": at, "dmsgtype": 2, "interval": 0, "times": 0, "expire": at + 172_800}
    ground.kafka.limits[TOPIC] = 10
    for _ in range(3):
        assert ground.send(b"x", delayMs=600_000).code == ResultCode.FAIL_ILLEGAL_MSG
        assert ground.delay(b"x", UUID, **more).code == ResultCode.FAIL_ILLEGAL_MSG
    del ground.kafka.limits[TOPIC]
    assert ground.send(b"a", delayMs=600_000).code == ground.delay(b"b", UUID, **more).code == 0
    for refused in (ground.send(b"c", delayMs=600_000), ground.delay(b"d", f"{UUID[:-1]}x", **more)):
        assert refused.code == ResultCode.FAIL_REFUSED_BY_RATE_LIMITER
