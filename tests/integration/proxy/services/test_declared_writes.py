"""Declarations of writes at a node: answered when they are durable, and known after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyddmq.codes import Repeat
from tests.integration.ddmq_tools import NODE, Peer
from tests.integration.keyed_tools import NAME
from tests.running_node import RunningNode
from tests.simulation.wire import producer_idl

YAML = NODE % "" + "topics: {orders: {queues: 1}}\n"
ONE, TWO = "1" * 32, "2" * 32


def declare(peer: Peer, run: str = ONE, *, messages: Any = (), **more: Any) -> Any:
    """Declare a partition; the Result."""
    fields: dict[str, Any] = {"batch": 7, "partition": 0, "rows": 3, "digest": "d" * 32, "ends": False}
    fields |= {"name": NAME.decode(), "producer": NAME.decode(), "topic": "orders", "run": run, **more}
    write = producer_idl.Write(**fields)
    return peer.call("sendBatchSync", messages=list(messages), receipts=False, declaration=write).value


def test_declarations_are_known_after_a_restart(tmp_path: Path) -> None:
    """A partition goes on with its own rows; another one waits, other rows are refused; an ended batch is skipped."""
    with RunningNode(YAML, tmp_path / "data") as node, Peer(node.producer) as peer:
        first = declare(peer)
        assert (first.code, first.repeat, first.msgId) == (0, None, NAME.decode())
    with RunningNode(YAML, tmp_path / "data") as node, Peer(node.producer) as peer:
        assert declare(peer, TWO, partition=1).code == 50
        assert declare(peer, TWO, rows=2).code == 49
        assert declare(peer, TWO).code == 0
        ended = declare(peer, TWO, partition=1, ends=True, digest="e" * 32)
        assert (ended.code, ended.repeat) == (0, Repeat.FIRST_RECEIPT)
        assert (declare(peer).code, declare(peer).repeat) == (0, Repeat.FIRST_RECEIPT)
    assert (tmp_path / "data" / "pyddmq" / "writes.json").exists()


def test_damaged_file_of_writes_is_counted_and_all_are_new(tmp_path: Path) -> None:
    """The node starts."""
    with RunningNode(YAML, tmp_path / "data") as node, Peer(node.producer) as peer:
        assert declare(peer).code == 0
    (tmp_path / "data" / "pyddmq" / "writes.json").write_bytes(b"{")
    with RunningNode(YAML, tmp_path / "data") as node, Peer(node.producer) as peer:
        assert declare(peer, rows=2).code == 0
        assert node.node.runtime.metrics.value("pyddmq_store_files_damaged_total", "pyddmq/writes.json") == 1


@pytest.mark.parametrize(
    "wrong",
    [{"name": "w"}, {"producer": "FE"}, {"run": ""}, {"digest": "D" * 32}, {"batch": -1}, {"partition": 10_001}],
)
def test_declaration_of_another_form_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """With code 11; the connection goes on, and a call without messages and without a declaration is a 0 as ever."""
    with RunningNode(YAML, tmp_path / "data") as node, Peer(node.producer) as peer:
        assert declare(peer, **wrong).code == 11
        assert peer.call("sendBatchSync", messages=[], receipts=False).value.code == 0
