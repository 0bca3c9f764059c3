"""The asyncio client, and what a synchronous producer has under way, against nodes: order and once, over kills."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from broker.format.record import split
from pyddmq import (
    AsyncConsumer,
    AsyncProducer,
    CancelOutcome,
    ClientMisuse,
    ConnectionLost,
    IllegalMessage,
    OutgoingMessage,
    SendReceipt,
)
from tests import running_node
from tests.insides import opened_of
from tests.integration.proxy.services.test_deduplication_node import TOMORROW_S, run
from tests.integration.pyddmq.test_deduplicating_client import every, has_stored
from tests.integration.relay import Relay
from tests.patient import LINGER_MS, PATIENCE_MS, PATIENCE_SECONDS, Consumer, Producer, until
from tests.running_node import RunningNode

T = TypeVar("T")

KEYS = 5


def run_loop(running: Coroutine[Any, Any, T]) -> T:
    """Run a client on the kind of loop that the nodes of this test have."""
    factory = None
    if running_node.on_uvloop:
        import uvloop

        factory = uvloop.Loop

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await running

    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(bounded())


def message(number: int) -> OutgoingMessage:
    """One of a row; those of a key go to one queue."""
    return OutgoingMessage(topic="orders", body=b"%d" % number, key=f"key-{number % KEYS}")


def by_key(node: RunningNode) -> dict[int, list[int]]:
    """Numbers of the stored messages of each key, in the order of its queue."""

    def read() -> dict[int, list[int]]:
        store, found = opened_of(node.node).store, dict[int, list[int]]()
        for queue in store.topics["orders"].queues:
            for physical, size, _ in queue.read(queue.min_offset, queue.max_offset - queue.min_offset):
                number = int(split(store.read(physical, size))[0])
                found.setdefault(number % KEYS, []).append(number)
        return found

    return node.call(read)


def in_order(count: int) -> dict[int, list[int]]:
    """Each message once, those of a key in order."""
    return {key: list(range(key, count, KEYS)) for key in range(KEYS)}


@contextmanager
def dying_nodes(data: Path, relay: Relay, shares: tuple[int, ...]) -> Iterator[list[RunningNode]]:
    """A node behind a relay, killed and started again whenever so many messages are stored; yields all there were."""
    nodes = [run(data)]
    nodes[0].__enter__()
    relay.backend = nodes[0].producer

    def kill() -> None:
        for share in shares:
            node = nodes[-1]
            until(partial(has_stored, node, share), "messages to be stored")
            relay.backend = None
            node.kill()
            nodes.append(run(data))
            nodes[-1].__enter__()
            relay.backend = nodes[-1].producer

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        yield nodes
        killing.join(PATIENCE_SECONDS)
        assert not killing.is_alive()
    finally:
        nodes[-1].stop()


def test_sends_of_many_tasks_are_stored_once_and_in_order_over_lost_answers(tmp_path: Path) -> None:
    """Every fourth answer takes the connection with it, and all that is under way."""

    async def send_all(address: str) -> list[SendReceipt]:
        options: Any = {"resends": 50, "resend_pause_ms": 0, "timeout_ms": PATIENCE_MS, "in_flight_max": 16}
        async with AsyncProducer(address, **options) as producer, asyncio.TaskGroup() as tasks:
            sends = [tasks.create_task(producer.send("orders", m.body, key=m.key)) for m in map(message, range(200))]
        return [each.result() for each in sends]

    with run(tmp_path) as node, Relay(node.producer) as relay:
        relay.lose = every(4)
        receipts = run_loop(send_all(relay.address))
        assert all(receipt.numbered for receipt in receipts)
        assert max(receipt.attempts for receipt in receipts) > 1
        assert by_key(node) == in_order(200)


def test_messages_under_way_are_stored_once_and_in_order_over_kills(tmp_path: Path) -> None:
    """A node that is killed twice, by a producer of an event loop: whoever has patience loses nothing."""

    async def send_all(address: str) -> None:
        async with AsyncProducer(address, patience_ms=PATIENCE_MS, timeout_ms=PATIENCE_MS) as producer:
            futures = [await producer.send_soon(message(number)) for number in range(2000)]
            await producer.flush()
        assert all(future.result().numbered for future in futures)

    with Relay(None) as relay, dying_nodes(tmp_path, relay, (300, 900)) as nodes:
        run_loop(send_all(relay.address))
        assert by_key(nodes[-1]) == in_order(2000)
    assert len(nodes) == 3


def test_synchronous_producer_keeps_many_under_way_over_kills(tmp_path: Path) -> None:
    """`send_soon` from a thread, likewise; a call that waits comes behind what was given before."""
    with Relay(None) as relay, dying_nodes(tmp_path, relay, (300, 900)) as nodes:
        with Producer(relay.address, patience_ms=PATIENCE_MS) as producer:
            futures = [producer.send_soon(message(number)) for number in range(1999)]
            producer.send("orders", b"1999", key=f"key-{1999 % KEYS}")
            assert all(future.done() for future in futures)
        assert all(future.result().numbered for future in futures)
        assert by_key(nodes[-1]) == in_order(2000)
    assert len(nodes) == 3


def test_failures_of_sends_that_nobody_asks_for_are_told_by_flush(tmp_path: Path) -> None:
    """Also by leaving the block; one whose future was asked is told there alone; the others are stored."""
    with run(tmp_path) as node:
        with Producer(node.producer) as producer:
            first = producer.send_soon(message(0))
            bad = OutgoingMessage(topic="orders", body=b"1", properties={"UNIQ_KEY": "mine"})
            asked = producer.send_soon(bad)
            last = producer.send_soon(message(5))
            assert isinstance(asked.exception(PATIENCE_SECONDS), IllegalMessage)
            producer.flush()
            assert (first.done(), last.done(), last.cancel()) == (True, True, False)
            producer.send_soon(bad)
            with pytest.raises(IllegalMessage):
                producer.flush()
            producer.flush()
        with pytest.raises(IllegalMessage), Producer(node.producer) as producer:
            producer.send_soon(bad)
        with pytest.raises(ClientMisuse, match="closed"):
            producer.send_soon(message(1))
        assert by_key(node) == {0: [0, 5]}


def test_close_gives_up_what_is_under_way(tmp_path: Path) -> None:
    """What may have gone out says so; nothing hangs, of either kind of producer."""

    async def close_early(address: str) -> list[BaseException | None]:
        producer = AsyncProducer(address, patience_ms=PATIENCE_MS, timeout_ms=PATIENCE_MS)
        await producer.send("orders", b"0", key="key-0")
        relay.lose = stall
        futures = [await producer.send_soon(message(number)) for number in range(5, 20, 5)]
        await asyncio.to_thread(until, reached.is_set, "an answer")
        await producer.close()
        await producer.close()
        with pytest.raises(ClientMisuse, match="closed"):
            await producer.send("orders", b"x")
        return [future.exception() for future in futures]

    reached, go = threading.Event(), threading.Event()

    def stall() -> bool:
        reached.set()
        go.wait(PATIENCE_SECONDS)
        return True

    with run(tmp_path) as node, Relay(node.producer) as relay:
        errors = run_loop(close_early(relay.address))
        go.set()
        assert all(isinstance(error, ConnectionLost) and error.undecided for error in errors)
        reached.clear()
        go.clear()
        relay.lose = lambda: False
        producer = Producer(relay.address, patience_ms=PATIENCE_MS)
        producer.send("orders", b"25", key="key-0")
        relay.lose = stall
        future: Future[SendReceipt] = producer.send_soon(message(30))
        until(reached.is_set, "an answer")
        producer.close()
        go.set()
        assert isinstance(future.exception(0), ConnectionLost)


def test_cancelled_send_harms_no_other(tmp_path: Path) -> None:
    """One that waits for room or has not gone out is not sent; one that is out is stored or not; the rest goes on."""

    async def cancel_some(address: str) -> tuple[list[int], list[int]]:
        async with AsyncProducer(address, timeout_ms=PATIENCE_MS, in_flight_max=4) as producer:
            await producer.send("orders", b"0", key="key-0")
            tasks = [
                asyncio.create_task(producer.send("orders", m.body, key=m.key)) for m in map(message, range(1, 60))
            ]
            for number, task in enumerate(tasks, 1):
                if number % 3 == 0:
                    task.cancel()
                if number % 7 == 0:
                    await asyncio.sleep(0)
            done = await asyncio.gather(*tasks, return_exceptions=True)
        sure = [n for n, each in enumerate(done, 1) if isinstance(each, SendReceipt)]
        cancelled = [n for n, each in enumerate(done, 1) if isinstance(each, asyncio.CancelledError)]
        return sure, cancelled

    with run(tmp_path) as node:
        sure, cancelled = run_loop(cancel_some(node.producer))
        assert sorted([*sure, *cancelled]) == list(range(1, 60))
        assert len(cancelled) >= 10
        found = by_key(node)
        stored = [number for numbers in found.values() for number in numbers]
        assert len(stored) == len(set(stored))
        assert {0, *sure} <= set(stored)
        assert all(numbers == sorted(numbers) for numbers in found.values())
        assert len(set(stored) & set(cancelled)) < len(cancelled)


def test_batches_delays_and_misuse_of_the_asyncio_producer(tmp_path: Path) -> None:
    """What the synchronous producer has; a body that is text, and another loop, are told at once."""

    async def use(producer: AsyncProducer) -> None:
        await producer.connect()
        receipts = await producer.send_batch([message(number) for number in range(0, 15, 5)])
        assert [(receipt.offset, receipt.numbered) for receipt in receipts] == [(0, True), (1, True), (2, True)]
        assert await producer.send_batch([]) == []
        delay_id = await producer.send_delay("notes", b"later", at=TOMORROW_S)
        assert await producer.cancel_delay(delay_id, "notes") is CancelOutcome.CANCELLED
        receipt = await producer.send("orders", b"15", key="key-0", delay_level=1)
        assert (receipt.offset, receipt.qid) == (-1, "")
        text: Any = "text"
        with pytest.raises(ClientMisuse, match="give bytes"):
            await producer.send("orders", text)
        with pytest.raises(ClientMisuse, match="cannot be sent"):
            await producer.send("orders", b"x", partition_id=1 << 40)
        assert (await producer.send("orders", b"20", key="key-0")).attempts == 1
        unnumbered = AsyncProducer(producer.address, deduplicate=False, protocol="compact")
        async with unnumbered:
            sent = await asyncio.gather(*(unnumbered.send("orders", b"25", key="key-0") for _ in range(5)))
        assert [each.numbered for each in sent] == [False] * 5
        assert [each.offset for each in sent] == list(range(sent[0].offset, sent[0].offset + 5))
        await producer.close()

    with run(tmp_path) as node:
        producer = AsyncProducer(node.producer, timeout_ms=PATIENCE_MS)
        run_loop(use(producer))
        with pytest.raises(ClientMisuse, match="another event loop"):
            run_loop(producer.connect())
        with pytest.raises(ClientMisuse, match="above 0"):
            AsyncProducer(node.producer, in_flight_max=0)


def consumer(address: str, **options: Any) -> AsyncConsumer:
    """A consumer of the orders that waits long enough."""
    more = {"timeout_ms": PATIENCE_MS, "patience_ms": PATIENCE_MS, "linger_ms": LINGER_MS, **options}
    return AsyncConsumer(address, "billing", "orders", **more)


def test_asyncio_consumer_acks_fails_and_iterates(tmp_path: Path) -> None:
    """Results ride on the next pull; an exception that leaves the block fails the message in hand."""

    async def consume(address: str) -> None:
        async with consumer(address, batch_size=1) as pulling:
            await pulling.connect()
            batch = await pulling.pull(count_max=2)
            pulling.ack(batch[0])
            for other in batch[1:]:
                pulling.fail(other, "not yet")
            assert pulling.unsent == len(batch)
            assert await pulling.flush()
            assert pulling.unsent == 0
            seen = []
            async for each in pulling:
                seen.append(int(each.body))
                if len(seen) == 3:
                    pulling.stop()
        failing = consumer(address, batch_size=1)
        with pytest.raises(ValueError, match="no such account"):
            await fail_one(failing)
        await failing.close()
        with pytest.raises(ClientMisuse, match="closed"):
            await failing.pull()
        async with consumer(address, linger_ms=20) as last:
            rest = [int(each.body) async for each in last.messages(idle_ms=100)]
            (stats,) = await last.stats()
        assert len(seen) == 3
        assert rest
        assert stats.lag <= len(failed) + len(batch)

    async def fail_one(failing: AsyncConsumer) -> None:
        async with failing:
            async for each in failing:
                failed.append(int(each.body))
                raise ValueError("no such account")

    failed: list[int] = []
    with run(tmp_path) as node:
        with Producer(node.producer) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number)
        run_loop(consume(node.consumer))
        assert len(failed) == 1


def test_cancelled_pull_loses_no_message(tmp_path: Path) -> None:
    """Whoever waits for a bounded time gets with the next pull what the one before has brought."""

    async def consume(address: str, send: Callable[[], object]) -> list[bytes]:
        async with consumer(address) as pulling:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pulling.pull(), 0.05)
            waiting = asyncio.create_task(pulling.pull())
            await asyncio.sleep(0)
            with pytest.raises(ClientMisuse, match="another task"):
                await pulling.pull()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.to_thread(send)
            (stats,) = await pulling.stats()
            assert stats.produced
            return [each.body for each in await pulling.pull()]

    with run(tmp_path) as node:
        with Producer(node.producer) as producer:
            found = run_loop(consume(node.consumer, lambda: producer.send("orders", b"7")))
        assert found == [b"7"]
        with Consumer(node.consumer, "billing", linger_ms=0) as other:
            assert other.pull() == []


def test_iteration_goes_on_over_kills_of_the_node(tmp_path: Path) -> None:
    """Every message comes, and its connection back with the node."""
    data = tmp_path / "data"

    async def consume(address: str, kill: Callable[[], None]) -> set[int]:
        seen: set[int] = set()
        async with consumer(address, batch_size=4, linger_ms=20) as pulling:
            async for each in pulling:
                seen.add(int(each.body))
                if len(seen) == 30 and not killed:
                    killed.append(True)
                    await asyncio.to_thread(kill)
                if len(seen) == 100:
                    break
        return seen

    killed: list[bool] = []
    nodes = [run(data)]
    nodes[0].__enter__()
    with Producer(nodes[0].producer) as producer:
        producer.send_batch([message(number) for number in range(100)])
    with Relay(nodes[0].consumer) as relay:

        def kill() -> None:
            relay.backend = None
            nodes[0].kill()
            nodes.append(run(data))
            nodes[1].__enter__()
            relay.backend = nodes[1].consumer

        assert run_loop(consume(relay.address, kill)) == set(range(100))
    nodes[-1].stop()
    assert len(nodes) == 2
