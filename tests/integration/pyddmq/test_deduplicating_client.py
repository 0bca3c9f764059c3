"""The Python client and `pyddmq send` against nodes whose answers get lost: all is stored once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.format.record import split
from proxy.cli.app import run as run_command
from proxy.process.exit_codes import ExitCode
from pyddmq import (
    CancelOutcome,
    ConnectionLost,
    LocalState,
    OutgoingMessage,
    Producer,
    SequenceGap,
    TransactionProducer,
)
from tests.insides import opened_of
from tests.integration.proxy.services.test_deduplication_node import TOMORROW_S, run
from tests.integration.relay import Relay
from tests.patient import until
from tests.running_node import RunningNode


def bodies(node: RunningNode, *topics: str) -> Counter[bytes]:
    """How often each body is stored."""

    def read() -> Counter[bytes]:
        store = opened_of(node.node).store
        found: Counter[bytes] = Counter()
        for name in topics or tuple(store.topics):
            for queue in store.topics[name].queues if name in store.topics else ():
                for physical, size, _ in queue.read(queue.min_offset, queue.max_offset - queue.min_offset):
                    found[bytes(split(store.read(physical, size))[0])] += 1
        return found

    return node.call(read)


def has_stored(node: RunningNode, least: int) -> bool:
    """Whether so many messages are there."""
    return sum(bodies(node).values()) >= least


def every(count: int, *, start: int = 0) -> Callable[[], bool]:
    """Says yes each so many times."""
    asked = [start]

    def ask() -> bool:
        asked[0] += 1
        return asked[0] % count == 0

    return ask


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_sends_whose_answers_get_lost_are_stored_once(tmp_path: Path, protocol: Any) -> None:
    """Every third answer is lost: single messages, batches, levels and timers."""
    with run(tmp_path) as node, Relay(node.producer) as relay:
        relay.lose = every(3)
        with Producer(relay.address, resends=5, resend_pause_ms=0, protocol=protocol) as producer:
            for number in range(60):
                body = b"%d" % number
                waits: dict[str, Any] = {3: {"delay_level": 18}, 4: {"delay_ms": 3_600_000}}.get(number % 5, {})
                if number % 2:
                    receipt = producer.send("orders", body, **waits)
                    assert receipt.numbered
                    assert (receipt.offset < 0) == bool(waits)
                else:
                    messages = [OutgoingMessage(topic="orders", body=body + b"-%d" % n, **waits) for n in range(7)]
                    receipts = producer.send_batch(messages)
                    assert all(each.numbered for each in receipts)
        wanted = {b"%d" % n for n in range(1, 60, 2)} | {b"%d-%d" % (n, m) for n in range(0, 60, 2) for m in range(7)}
        assert bodies(node) == dict.fromkeys(wanted, 1)
        assert node.node.runtime.metrics.value("pyddmq_sends_gaps_total") == 0


def test_loops_and_halves_whose_answers_get_lost_are_stored_once(tmp_path: Path) -> None:
    """A delayed message is one; a half is one, is sent again once the node is known to know it, and is decided."""

    class Listener:
        def execute(self, _message: object, _arg: object) -> LocalState:
            return LocalState.COMMIT

        def check(self, _message: object) -> LocalState:
            return LocalState.UNKNOWN

    with run(tmp_path) as node, Relay(node.producer) as relay:
        with TransactionProducer(relay.address, "shop", Listener(), resends=5, resend_pause_ms=0) as producer:
            producer.send("orders", b"first")
            relay.lose = every(2)
            delay_id = producer.send_delay("notes", b"loop", at=TOMORROW_S, every=60, times=2)
            for number in range(6):
                result = producer.send_in_transaction(OutgoingMessage(topic="orders", body=b"half-%d" % number))
                assert (result.decided, result.problem) == (True, "")
            relay.lose = lambda: False
            assert bodies(node, "rmq_sys_wheel_timer") == {b"loop": 1}
            assert producer.cancel_delay(delay_id, "notes") is CancelOutcome.CANCELLED
        found = bodies(node, "orders")
        assert found == dict.fromkeys([b"first", *[b"half-%d" % number for number in range(6)]], 1)
        assert bodies(node, "RMQ_SYS_TRANS_HALF_TOPIC") == dict.fromkeys([b"half-%d" % n for n in range(6)], 1)


def test_producer_that_does_not_number_stores_twice(tmp_path: Path) -> None:
    """What `deduplicate=False` is: as DDMQ's libraries do it."""
    with run(tmp_path) as node, Relay(node.producer) as relay:
        relay.lose = every(2, start=1)
        with Producer(relay.address, resend_pause_ms=0, deduplicate=False) as producer:
            receipt = producer.send("orders", b"x")
        assert (receipt.attempts, receipt.numbered) == (2, False)
        assert bodies(node) == {b"x": 2}


def test_producer_goes_on_after_what_stays_undecided(tmp_path: Path) -> None:
    """The number may be taken: what follows goes under a new name, and is not refused."""
    with run(tmp_path) as node, Relay(node.producer) as relay:
        with Producer(relay.address, resends=0) as producer:
            producer.send("orders", b"one")
            relay.lose = lambda: True
            with pytest.raises(ConnectionLost) as caught:
                producer.send("orders", b"two")
            assert caught.value.undecided
            relay.lose = lambda: False
            assert producer.send("orders", b"three").attempts == 1
        assert bodies(node) == dict.fromkeys([b"one", b"two", b"three"], 1)
        assert node.node.runtime.metrics.value("pyddmq_producers_known") == 2


def test_producer_that_was_forgotten_takes_a_new_name(tmp_path: Path) -> None:
    """Nobody notices, and it is no resend; only what was under way then is undecided."""
    with run(tmp_path, ", deduplicationProducers: 1") as node, Relay(node.producer) as relay:
        with Producer(relay.address, resends=2, resend_pause_ms=0) as producer, Producer(node.producer) as other:
            producer.send("orders", b"one")
            other.send("orders", b"two")
            receipt = producer.send("orders", b"three")
            assert (receipt.attempts, receipt.repeat) == (1, 0)

            def forgotten() -> bool:
                relay.lose = lambda: False
                other.send("orders", b"other")
                return True

            relay.lose = forgotten
            with pytest.raises(SequenceGap) as caught:
                producer.send("orders", b"four")
            assert (caught.value.undecided, caught.value.stored) == (True, None)
            producer.send("orders", b"five")
        assert bodies(node) == dict.fromkeys([b"one", b"two", b"three", b"four", b"five", b"other"], 1)


def test_lines_of_a_file_are_stored_once_over_kills_of_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`pyddmq send` goes on when the node is there again: every line is stored, none twice, and the command says so."""
    lines = [b"line-%d" % number for number in range(3000)]
    file, data = tmp_path / "lines", tmp_path / "data"
    file.write_bytes(b"\n".join(lines) + b"\n")
    with Relay(None) as relay:
        nodes = [run(data)]
        nodes[0].__enter__()
        relay.backend = nodes[0].producer
        relay.lose = every(4)

        def kill() -> None:
            for share in (600, 1500):
                until(partial(has_stored, nodes[-1], share), "lines to be stored")
                relay.backend = None
                nodes[-1].kill()
                nodes.append(run(data))
                nodes[-1].__enter__()
                relay.backend = nodes[-1].producer

        killing = threading.Thread(target=kill)
        killing.start()
        command = ["send", "orders", "--file", str(file), "--batch", "10", "--patience", "60s", "--json"]
        code = run_command([*command, "--producer", relay.address])
        killing.join(120)
        assert not killing.is_alive()
        found = bodies(nodes[-1], "orders")
        nodes[-1].stop()
    assert (code, len(nodes)) == (ExitCode.OK, 3)
    assert found == dict.fromkeys(lines, 1)
    assert capsys.readouterr().out.count('"offset"') == len(lines)
