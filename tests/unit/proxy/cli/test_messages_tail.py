"""`pyddmq messages tail`: what it asks for, and what it prints."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import UNSET, UnsetType

from proxy.cli.app import run
from proxy.cli.commands import messages_command
from proxy.operate.views.messages import MessagesAnswer, MessageView
from proxy.process.exit_codes import ExitCode


def message(offset: int, *, cluster: str | UnsetType = UNSET) -> MessageView:
    """A message of one queue; of the store it begins at 100 times its offset."""
    return MessageView(
        topic="orders", queue=0, offset=offset, cluster=cluster, id="", unique_key="", key="k", tag=None, store_ms=0,
        store_host="", born_ms=0, born_host="", physical=-1 if cluster else 100 * offset, bytes=1, sys_flag=0, flag=0,
        reconsume_times=0, prepared_offset=0, properties={}, trace_id=None, body_bytes=1, body=f"b{offset}",
        body_encoding="utf-8", body_cut=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "cursors"),
    [
        ([(100, [], 100, 0), (300, [1, 2], None, 0), (300, [3], None, 0)], ["end", "100", "300"]),
        ([(0, [], "0-1", 0), (0, [1], "0-2", 0.5), (0, [2, 3], "0-4", 1)], ["end", "0-1", "0-2"]),
    ],
)
def test_tail_prints_each_message_once_and_continues_where_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answers: list[Any], cursors: list[str]
) -> None:
    """In the store from the log's end on, in Kafka from each partition's; it waits only when it is up to date."""
    parameters: list[Mapping[str, str]] = []
    waits: list[float] = []

    def get(*_: object, parameters: Mapping[str, str], seen: Any = parameters, **__: object) -> MessagesAnswer:
        seen.append(parameters)
        log_end, offsets, cursor, share = answers[len(seen) - 1]
        cluster = UNSET if log_end else "main"
        found = [message(each, cluster=cluster) for each in offsets]
        return MessagesAnswer(now_ms=0, log_end=log_end, messages=found, cursor=cursor, share=share or UNSET)

    monkeypatch.setattr(messages_command, "get", get)
    monkeypatch.setattr(messages_command, "check_reader", lambda: None)
    monkeypatch.setattr(time, "sleep", waits.append)
    assert run(["messages", "tail", "orders", "--text", "b", "--count", "3", "--json"]) == ExitCode.OK
    assert [json.loads(line)["body"] for line in capsys.readouterr().out.splitlines()] == ["b1", "b2", "b3"]
    assert [each["cursor"] for each in parameters] == cursors
    assert [each["limit"] for each in parameters][::2] == ["3", str(3 - len(answers[1][1]))]
    assert {each["text"] for each in parameters} == {"b"}
    assert len(waits) == (1 if answers[0][0] else 0)
