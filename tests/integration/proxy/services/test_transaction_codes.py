"""What only time, an operator or the half's own history can bring about: the result codes 45, 46 and 47 on the wire."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol

from broker.log.put import Put
from broker.runtime.seams import SystemClock
from broker.transaction.outcomes import EndOutcome
from broker.transaction.transactions import Transactions
from pyddmq.codes import ResultCode
from tests.apache_structs import EndTransaction
from tests.insides import opened_of
from tests.integration.proxy.services.test_transaction_service import COMMIT, ROLLBACK, Side
from tests.integration.store_tools import HOST
from tests.patient import until
from tests.running_node import RunningNode

HOUR_MS = 3_600_000
YAML = """
node: {transactionTimeOut: 1, transactionCheckInterval: %d, transactionCheckMax: 1}
topics:
  orders: {queues: 1}
  short-lived: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [PullServer]}
"""


class LaterClock(SystemClock):
    """The machine's clocks, the wall clock as far ahead as the test says."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms

    def wall_us(self) -> int:
        return super().wall_us() + self.ahead_ms * 1000


@pytest.fixture(params=[TCompactProtocol, TBinaryProtocol], ids=["compact", "binary"])
def with_side(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Run a test's body with a connection to a fresh node whose checks are so many ms apart."""

    def run(body: Callable[[Side], None], *, interval_ms: int = HOUR_MS, clock: SystemClock | None = None) -> None:
        with RunningNode(YAML % interval_ms, tmp_path / "data", clock=clock) as node:
            side = Side(node, request.param)
            body(side)
            side.close()

    return run


def immune_half(side: Side) -> str:
    """Store a half that asks for an immunity of its own, as RocketMQ's producers and the broker's API do."""

    def store() -> str:
        node = side.node.node
        put = opened_of(node).transactions.half(
            Put(opened_of(node).store.topics["orders"], 0, b"immune", b""), group="shop", immunity_seconds=0
        )
        [position] = opened_of(node).store.append([put], born_ms=node.parts.seams.clock.wall_ms(), born_host=HOST)
        opened_of(node).store.flush()
        return Transactions.handle_of(position)

    return side.node.call(store)


def test_past_its_immunity_a_half_takes_only_the_answer_to_a_check(with_side: Callable[..., Any]) -> None:
    """Code 45 for commit and rollback on the producer's own account; as the answer to a check the commit counts."""
    clock = LaterClock()

    def body(side: Side) -> None:
        handle = immune_half(side)
        clock.ahead_ms = HOUR_MS
        for state in (COMMIT, ROLLBACK):
            code, text = side.end(handle, state)
            assert (code, "only the answer to a check" in text) == (ResultCode.FAIL_TOO_LATE, True), text
        assert side.pulled(0) == []
        [check] = side.fetch()
        answer = EndTransaction(producerGroup="shop", handle=check.handle, state=COMMIT, fromCheck=True)
        assert side.fetch(answers=[answer], linger_ms=20) == []
        assert side.pulled(1) == [(b"immune", None)]

    with_side(body, clock=clock)


def test_discarded_half_waits_for_an_operator(with_side: Callable[..., Any]) -> None:
    """Code 46 once its last check went without an answer; resumed, its producer decides it again."""

    def body(side: Side) -> None:
        half = side.half()
        assert side.fetch()[0].transactionId == half.transactionId
        until(lambda: side.counter("pyddmq_transactions_discarded_total", "checks"), "the discard")
        for state in (COMMIT, ROLLBACK):
            code, text = side.end(half.handle, state)
            assert (code, "pyddmq transactions resume" in text) == (ResultCode.FAIL_DISCARDED, True), text
        resumed: list[EndOutcome] = []
        side.node.call(lambda: opened_of(side.node.node).transactions.resume(0, resumed.append))
        until(lambda: resumed, "the resumption")
        assert side.end(half.handle, COMMIT)[0] == ResultCode.OK
        assert side.pulled(1) == [(b"\x00order", None)]

    with_side(body, interval_ms=1)


def test_commit_for_a_topic_that_is_gone_stays_undecided(with_side: Callable[..., Any]) -> None:
    """Code 47 says what is missing; with the topic back the same handle commits."""

    def body(side: Side) -> None:
        half = side.half(topic="short-lived", body=b"kept")
        store = opened_of(side.node.node).store
        side.node.call(store.topic_changes.delete, "short-lived")
        for _ in range(2):
            code, text = side.end(half.handle, COMMIT)
            assert (code, "'short-lived' does not exist" in text) == (ResultCode.FAIL_COMMIT_REFUSED, True), text
        side.node.call(store.create_topic, "short-lived", 1)
        assert side.end(half.handle, COMMIT)[0] == ResultCode.OK
        assert side.node.call(lambda: store.topics["short-lived"].queues[0].max_offset) == 1

    with_side(body)
