"""The client's AsyncTransactionProducer: against a real node as the synchronous one, and against a scripted one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from pyddmq import (
    AsyncTransactionProducer,
    ClientMisuse,
    LocalState,
    TransactionMessage,
)
from pyddmq.client.checks import CLOSE_SECONDS
from pyddmq.testing.client import ScriptedNode
from tests.integration.pyddmq.test_transaction_producer import YAML, order, pulled
from tests.patient import PATIENCE_SECONDS
from tests.running_node import RunningNode
from tests.unit.pyddmq.test_client_transactions import Node, check_of


class Listener:
    """Answers what it is told to, an exception by raising it, and remembers what it was asked."""

    def __init__(self, execute: object = LocalState.COMMIT, check: object = LocalState.COMMIT) -> None:
        self._answers = {"execute": execute, "check": check}
        self.executed: list[tuple[TransactionMessage, Any]] = []
        self.checked: list[TransactionMessage] = []
        self.asked = asyncio.Semaphore(0)

    async def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Note and answer."""
        await asyncio.sleep(0)
        self.executed.append((message, arg))
        return self._answer("execute")  # type: ignore[no-any-return]  # tests answer what no program should

    async def check(self, message: TransactionMessage) -> LocalState | None:
        """Note and answer."""
        self.checked.append(message)
        self.asked.release()
        return self._answer("check")  # type: ignore[no-any-return]

    def _answer(self, name: str) -> Any:
        answer = self._answers[name]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def run(running: Coroutine[Any, Any, None]) -> None:
    """Run it, not for ever."""
    asyncio.run(asyncio.wait_for(running, PATIENCE_SECONDS))


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_transactions_end_as_their_listeners_say(tmp_path: Path, protocol: Any) -> None:
    """Commit delivers, rollback does not, an exception of execute is left to the check; many are under way at once."""

    async def program(address: str) -> None:
        commit = Listener()
        async with AsyncTransactionProducer(address, "shop", commit, protocol=protocol) as producer:
            results = await asyncio.gather(*(producer.send_in_transaction(order(f"{n}"), n) for n in range(20)))
        assert [(each.status, each.decided, each.problem) for each in results] == [("SEND_OK", True, "")] * 20
        assert {arg: shown.transaction_id for shown, arg in commit.executed} == {
            n: result.transaction_id for n, result in enumerate(results)
        }
        away = Listener(execute=OSError("the database is away"))
        async with AsyncTransactionProducer(address, "shop", away, protocol=protocol) as producer:
            late = await producer.send_in_transaction(order("checked"))
            assert (late.state, late.remark) == (LocalState.UNKNOWN, "OSError: the database is away")
            assert not late.decided
            await away.asked.acquire()
        seen = away.checked[0]
        assert (seen.transaction_id, seen.body, seen.check_times) == (late.transaction_id, b"checked", 1)
        async with AsyncTransactionProducer(address, "shop", Listener(execute=LocalState.ROLLBACK)) as producer:
            assert (await producer.send_in_transaction(order("rolled back"))).decided

    with RunningNode(YAML, tmp_path) as node:
        run(program(node.producer))
        assert sorted(pulled(node, 21)) == sorted([b"checked", *(b"%d" % n for n in range(20))])


def test_checks_go_on_over_a_lost_connection_and_another_process_decides(tmp_path: Path) -> None:
    """What a producer that has gone left undecided is asked of another of its group, which connects again by itself."""

    async def program(node: RunningNode) -> None:
        leaving = AsyncTransactionProducer(node.producer, "shop", Listener(execute=None, check=None))
        left = await leaving.send_in_transaction(order("left behind"))
        await leaving.close()
        with pytest.raises(ClientMisuse, match="closed"):
            await leaving.send_in_transaction(order("too late"))
        heard: list[Exception] = []
        listener = Listener()
        async with AsyncTransactionProducer(node.producer, "shop", listener, on_check_error=heard.append):
            await asyncio.sleep(0.1)
            for each in list(node.node.producer.connections):
                await asyncio.to_thread(node.call, each.abort)
            await listener.asked.acquire()
        assert listener.checked[0].transaction_id == left.transaction_id
        assert len(heard) == 1

    with RunningNode(YAML, tmp_path) as node:
        run(program(node))
        assert pulled(node, 1) == [b"left behind"]


def test_listener_whose_own_work_was_cancelled_has_failed_and_nothing_else_has() -> None:
    """A cancellation of what it waits for is not one of the task that asks it: checks go on, and decide the half."""
    node = Node(checks=[[check_of("h")]])
    cancelled = Listener(execute=asyncio.CancelledError(), check=asyncio.CancelledError())

    async def program(address: str) -> None:
        async with AsyncTransactionProducer(address, "shop", cancelled) as producer:
            await asyncio.to_thread(node.wait, lambda: len(node.fetches) == 2)
            result = await producer.send_in_transaction(order("left to its check"))
            assert (result.state, result.remark) == (LocalState.UNKNOWN, "RuntimeError: it raised CancelledError")

    with ScriptedNode("producer", node) as scripted:
        run(program(scripted.address))
    [answer] = node.fetches[1].answers
    assert (answer.handle, answer.state) == ("h", LocalState.UNKNOWN)


def test_close_waits_for_no_fetch_that_had_only_begun_to_connect() -> None:
    """It would be parked at the node, with nothing to bring, for as long as a producer that is closed waits at most."""

    async def program(address: str) -> None:
        clock = asyncio.get_running_loop()
        began = clock.time()
        async with AsyncTransactionProducer(address, "shop", Listener()):
            await asyncio.sleep(0)
        assert clock.time() - began < CLOSE_SECONDS / 2

    with ScriptedNode("producer", Node()) as scripted:
        run(program(scripted.address))


def test_what_a_check_answered_is_told_before_the_end_and_it_cannot_close_its_producer() -> None:
    """An answer rides on the next fetch or is told by itself; an exception is not known, with its text."""
    node = Node(checks=[[check_of("h1")], [check_of("h2")]])

    class Closing(Listener):
        async def check(self, message: TransactionMessage) -> LocalState | None:
            await producer.close()
            return LocalState.COMMIT

    producer: Any = None

    async def program(address: str) -> None:
        nonlocal producer
        async with AsyncTransactionProducer(address, "shop", Closing()) as producer:
            await asyncio.to_thread(node.wait, lambda: len(node.fetches) == 3)

    with ScriptedNode("producer", node) as scripted:
        run(program(scripted.address))
    reported = [*(each for fetch in node.fetches for each in fetch.answers or ()), *node.ended]
    # Those of the fetch that the end interrupts are told once more.
    assert list(dict.fromkeys((each.handle, each.state) for each in reported)) == [("h1", 0), ("h2", 0)]
    assert "another task" in reported[0].remark
    with pytest.raises(ClientMisuse, match="producer group"):
        AsyncTransactionProducer("127.0.0.1:1", "", Listener())
    with pytest.raises(ClientMisuse, match="check_batch_size"):
        AsyncTransactionProducer("127.0.0.1:1", "shop", Listener(), check_batch_size=0)
