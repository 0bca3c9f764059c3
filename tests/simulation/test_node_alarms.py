"""Alarms of a node in virtual time: raised by its rounds, told once, over stops, kills, reloads and mutes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.runtime.state_file import read_whole
from conf.sections.alarms import AlarmStatus
from lag.alarms.lines import AlarmLines
from lag.alarms.model import STATUSES, event_of
from lag.alarms.places import FilePlace
from lag.alarms.state import FOLDER, AlarmFile
from lag.alarms.watching import SeenRound, Watcher
from lag.journal.columns import queue_sample
from lag.journal.reader import JournalReader
from lag.journal.scan import Block
from lag.journal.writer import FOLDER as JOURNAL
from proxy.operate.changes.alarms import MuteBody
from proxy.operate.lookups.alarms import alarms_of
from proxy.recording.alarms import FAILURES, OPEN
from proxy.recording.limits import limits_of_config
from tests.simulation.operator import change
from tests.simulation.test_queue_samples import now_ms, rounds, ward_of
from tests.simulation.ward import Ward
from tests.simulation.world import DATA
from tests.unit.lag.alarms.written import lines_of

PATH = f"{DATA}/{FOLDER}/alarms.jsonl"
RULE: dict[str, Any] = {"statuses": ["NOT_CONSUMED", "STOP"], "closeAfter": "0s"}


def ward_with(**alarms: Any) -> Ward:
    """Return a node with one rule, one queue, and one group that reads nothing."""

    def prepare(wanted: dict[str, Any]) -> None:
        wanted["lag"] = {"alarms": {"rules": [RULE], **alarms}}
        wanted["topics"]["told"] = {"queues": 1}

    return ward_of(prepare)


def told(ward: Ward) -> list[tuple[str, str, str]]:
    """Return what stands in the file: group, status, event."""
    return [(each["group"], each["status"], each["event"]) for each in lines_of(ward.disk, PATH)]


def neglect(ward: Ward) -> None:
    """Let a message lie until nobody can overlook it."""
    ward.send("orders", "k")
    ward.run(230)


OPENED = ("by-key", "NOT_CONSUMED", "opened")
CLOSED = ("by-key", "NOT_CONSUMED", "closed")


def test_group_that_nobody_reads_is_an_alarm_until_somebody_does() -> None:
    """Opened once, shown and counted while it is open, closed once."""
    ward = ward_with()
    neglect(ward)
    assert told(ward) == [OPENED]
    answer = alarms_of(ward.node, limit=10)
    assert answer is not None
    [shown] = answer.alarms
    assert (shown.group, shown.status, shown.severity, shown.cause) == (
        "by-key", "NOT_CONSUMED", "critical", "no_consumer",
    )  # fmt: skip
    assert shown.id == lines_of(ward.disk, PATH)[0]["id"]
    assert ward.node.metrics.value(OPEN, "critical") == 1
    ward.finish()
    ward.run(40)
    assert told(ward) == [OPENED, CLOSED]
    assert ward.node.metrics.value(OPEN, "critical") == 0


@pytest.mark.parametrize("kill", [True, False])
def test_restart_tells_nothing_twice_and_forgets_nothing(kill: bool) -> None:
    """The alarm is open over it, and closed by the next process; a line that was lost is written again."""
    ward = ward_with()
    neglect(ward)
    ward.restart(lambda: put_back(ward, "file", cut=0), kill=kill)
    ward.run(60)
    assert told(ward) == [OPENED]
    ward.restart(lambda: put_back(ward, "file", cut=10), kill=kill)
    ward.run(60)
    assert told(ward) == [OPENED]
    ward.restart(kill=kill)
    ward.finish()
    ward.run(60)
    assert told(ward) == [OPENED, CLOSED]


def test_topic_gets_each_telling_once_over_a_kill() -> None:
    """By its key: what was stored before the kill is not stored again."""
    ward = ward_with(rules=[{**RULE, "sinks": ["topic"]}], topic="told")
    neglect(ward)
    ward.run(20)
    topic = ward.node.store.topics["told"]
    assert topic.queues[0].max_offset == 1
    ward.restart(lambda: put_back(ward, "topic"), kill=True)
    ward.run(30)
    assert ward.node.store.topics["told"].queues[0].max_offset == 1
    ward.finish()
    ward.run(40)
    assert ward.node.store.topics["told"].queues[0].max_offset == 2


def put_back(ward: Ward, sink: str, cut: int | None = None) -> None:
    """Write the state as it was before a place took the first telling; perhaps tear the line of that."""
    file = AlarmFile(ward.disk, f"{DATA}/{FOLDER}")
    state = file.load()
    [found] = [each for each in state.alarms.values() if each.opened_ms is not None]
    assert state.waiting(sink) == []
    event = event_of(replace(found, told=0), "opened", found.opened_ms or 0)
    state.outbox.append((event, (sink,)))
    file.save(state)
    if cut is not None:
        lines = ward.disk.open(PATH)
        lines.truncate(lines.size() - cut)


def test_muted_group_is_told_when_the_mute_ends() -> None:
    """It outlives a kill; meanwhile the alarm is shown as muted."""
    ward = ward_with()
    until_ms = now_ms(ward) + 400_000
    assert (
        change(ward.world, "mute_alarms", MuteBody(group="by-key", until_ms=until_ms, reason="import\nx")) is not None
    )
    assert change(ward.world, "mute_alarms", MuteBody(group="nobody", until_ms=until_ms)) is None
    neglect(ward)
    ward.restart(kill=True)
    ward.run(60)
    answer = alarms_of(ward.node, limit=10, group="by-key")
    assert answer is not None
    assert [each.muted for each in answer.alarms] == [True]
    assert [(each.reason, each.configured) for each in answer.mutes] == [("import x", False)]
    assert told(ward) == []
    ward.run(150)
    assert told(ward) == [OPENED]


def test_reload_turns_alarms_off_and_on() -> None:
    """Without rules what is open is closed; `enableAlarm: false` does it for one group."""
    ward = ward_with()
    neglect(ward)
    ward.edit_group(lambda groups: groups[0].update(enableAlarm=False))
    ward.run(30)
    assert told(ward) == [OPENED, CLOSED]
    ward.edit_group(lambda groups: groups[0].update(enableAlarm=True, alarmGroup=["on-call"]))
    ward.run(30)
    assert told(ward) == [OPENED, CLOSED, OPENED]
    assert lines_of(ward.disk, PATH)[-1]["alarmGroup"] == ["on-call"]
    ward.wanted["lag"] = {}
    assert ward.edit().accepted
    ward.run(30)
    assert told(ward) == [OPENED, CLOSED, OPENED, CLOSED]


def test_place_that_fails_is_told_in_the_log_and_tried_again() -> None:
    """A topic that is deleted meanwhile; the file does not wait for it."""
    ward = ward_with(rules=[{**RULE, "sinks": ["file", "topic"]}], topic="told")
    ward.node.store.topics.pop("told")  # type: ignore[attr-defined]  # behind everybody's back
    with capture_logs() as logs:
        neglect(ward)
        ward.run(30)
    assert told(ward) == [OPENED]
    said = [line for line in logs if line["event"] == "lag_alarm_not_told"]
    assert [(line["sink"], line["fault"]) for line in said][:1] == [("topic", "there is no topic 'told'")]
    assert ward.node.metrics.value(FAILURES, "topic") >= 2
    answer = alarms_of(ward.node, limit=10)
    assert answer is not None
    assert (answer.waiting, dict(answer.troubles)) == (1, {"topic": "there is no topic 'told'"})


def test_damaged_state_is_said_and_begun_anew() -> None:
    """The node serves all the same."""
    ward = ward_with()
    neglect(ward)
    with capture_logs() as logs:
        ward.restart(lambda: ward.flip(f"{FOLDER}/state", 20), kill=True)
    assert [line["event"] for line in logs if line["event"].startswith("lag_alarm")] == ["lag_alarms_unreadable"]
    rounds(ward)


def test_statuses_of_the_configuration_are_those_of_the_rules() -> None:
    """All but OK, in their order."""
    assert list(AlarmStatus.__args__) == [name for name in STATUSES if name != "OK"]  # type: ignore[attr-defined]


def test_topic_has_the_alarm_as_json() -> None:
    """With the event as tag, and the id as key."""
    ward = ward_with(rules=[{**RULE, "sinks": ["topic"]}], topic="told")
    neglect(ward)
    ward.run(20)
    raw = b"".join(
        read_whole(ward.disk, f"{DATA}/commitlog/{name}") or b"" for name in ward.disk.list(f"{DATA}/commitlog")
    )
    assert b'"status": "NOT_CONSUMED"' in raw
    assert b"TAGS\x01opened" in raw


def test_watch_comes_to_the_same_alarms_from_the_journal() -> None:
    """The same ids, events and moments, in whatever batches, and with a restart between them."""
    ward = ward_with(rules=[{**RULE, "statuses": [*RULE["statuses"], "NO_OFFSET", "INCOMPLETE"]}])
    neglect(ward)
    ward.finish()
    ward.run(60)
    for number in range(3):
        ward.send("orders", f"k{number}")
        ward.run(200)
    blocks = [each for each in JournalReader(ward.disk, f"{DATA}/{JOURNAL}").blocks() if isinstance(each, Block)]
    config = ward.node.groups["by-key"].config
    watcher = None
    for number in range(0, len(blocks), 7):
        if watcher is None or number == 35:
            watcher = Watcher(
                ward.disk, "watch", {"file": FilePlace(AlarmLines(ward.disk, "watch/alarms.jsonl"))},
                policy=ward.node.recorder.alarms.policy,
                limits_of=lambda group, topic: limits_of_config(config, topic),
            )  # fmt: skip
            watcher.recall(ward.disk, [f"{DATA}/{JOURNAL}"])
        watcher.take(number, [round_of(block) for block in blocks[number : number + 7]])
    mine, theirs = lines_of(ward.disk, PATH), lines_of(ward.disk, "watch/alarms.jsonl")
    assert len(mine) > 4
    assert theirs == mine


def round_of(block: Block) -> SeenRound:
    """Return a round as `watch` takes it."""
    samples = [(key, queue_sample(time_ms, row)) for key, time_ms, row in block.queues]
    whose = (block.head.cluster, block.head.node)
    return SeenRound(whose=whose, time_ms=block.time_ms, samples=samples, events=block.events)
