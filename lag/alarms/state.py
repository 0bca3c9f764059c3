"""The alarm state as a file: one small JSON document with its sum, put in place in one step.

A kill at any moment leaves the state before or the state after. What is read back is checked value by value: a file
that somebody changed, or a disk did, is told as damaged and begun anew, never half believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from broker.runtime.file_writes import FileWrite, at_once
from broker.runtime.json_sum import sealed, unsealed
from broker.runtime.seams import Disk
from lag.alarms.model import CLOSED, OPENED, REPEATED, STATUSES, Alarm, AlarmState, Mute

FOLDER: Final = "pyddmq/lag-alarms"
"""In a node's data directory."""
NAME: Final = "state"
_FORM = 1
_KINDS: Final = {"str": (str,), "int": (int,), "int | None": (int, type(None)), "str | None": (str, type(None))}


class AlarmFile:
    """Keeps an `AlarmState` in a folder.

    Attributes:
        trouble: Why what was there was not believed; null: it was, or nothing was there.

    Args:
        disk: Where.
        folder: Its folder; made when it is not there.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self.trouble: str | None = None
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{NAME}"

    def load(self) -> AlarmState:
        """Return what was kept; a new state, and `trouble`, where that cannot be believed. Raises OSError."""
        self.trouble = None
        self._disk.make_folder(self._folder)
        if not self._disk.exists(self._path):
            return AlarmState()
        file = self._disk.open(self._path)
        try:
            return state_of(unsealed(file.read(0, file.size())))
        except ValueError as error:
            self.trouble = f"{self._path}: {error}"
            return AlarmState()
        finally:
            file.close()

    def save(self, state: AlarmState) -> None:
        """Keep it; durable when this returns. Raises OSError: what was kept before still is."""
        at_once(self._disk, self.writing(state))

    def writing(self, state: AlarmState) -> FileWrite:
        """`save` in steps, of the state as it is at the first of them. Raises the same."""
        # Not by `broker.runtime.state_file`: a cluster has this module and no structlog.
        data, spare = sealed(plain_state(state)), f"{self._path}.new"
        file = self._disk.open(spare, create=True)
        try:
            file.truncate(0)
            file.write(0, [data])
            yield file
        finally:
            file.close()
        self._disk.replace(spare, self._path)
        yield self._folder


def plain_state(state: AlarmState) -> dict[str, Any]:
    """Return a state as JSON."""
    return {
        "form": _FORM,
        "alarms": [asdict(alarm) for alarm in state.alarms.values()],
        "mutes": {group: asdict(mute) for group, mute in state.mutes.items()},
        "outbox": [{"event": event, "sinks": list(sinks)} for event, sinks in state.outbox],
        "marks": dict(state.marks),
        "dropped": state.dropped,
    }


def state_of(data: Any) -> AlarmState:
    """Return a state from its JSON.

    Raises:
        ValueError: It is none; the text says where.
    """
    outer = _mapping(data, "it")
    if outer.get("form") != _FORM:
        raise ValueError(f"it has form {outer.get('form')!r}, this version reads {_FORM}")
    state = AlarmState(dropped=_whole(outer.get("dropped"), "dropped"))
    for place, each in enumerate(_list(outer.get("alarms"), "alarms")):
        alarm = _made(Alarm, each, f"alarms[{place}]")
        if alarm.status not in STATUSES:
            raise ValueError(f"alarms[{place}] has a status {alarm.status!r}, which is none")
        state.alarms[alarm.cluster, alarm.node, alarm.group, alarm.status] = alarm
    for group, each in _mapping(outer.get("mutes"), "mutes").items():
        state.mutes[group] = _made(Mute, each, f"mutes of {group}")
    for name, value in _mapping(outer.get("marks"), "marks").items():
        state.marks[name] = _whole(value, f"mark {name}")
    for place, each in enumerate(_list(outer.get("outbox"), "outbox")):
        waiting = _mapping(each, f"outbox[{place}]")
        sinks = _list(waiting.get("sinks"), f"sinks of outbox[{place}]")
        if not all(isinstance(sink, str) for sink in sinks):
            raise ValueError(f"sinks of outbox[{place}] are no texts")
        state.outbox.append((_event(waiting.get("event"), f"outbox[{place}]"), tuple(sinks)))
    return state


def _event(data: Any, where: str) -> dict[str, Any]:
    event = dict(_mapping(data, where))
    texts = [event.get(name) for name in ("key", "id", "group", "status")]
    if not all(isinstance(text, str) and text for text in (texts[0], texts[1])) or not isinstance(texts[2], str):
        raise ValueError(f"the event of {where} has no key, id or group")
    if event.get("event") not in (OPENED, REPEATED, CLOSED):
        raise ValueError(f"the event of {where} is {event.get('event')!r}")
    _whole(event.get("number"), f"number of {where}")
    return event


def _made(kind: type[Any], data: Any, where: str) -> Any:
    given = _mapping(data, where)
    expected = {each.name: str(each.type) for each in fields(kind)}
    if set(given) != set(expected):
        raise ValueError(f"{where} has the fields {sorted(given)}, and not {sorted(expected)}")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, _KINDS[expected[name]]):
            raise ValueError(f"{name} of {where} is {value!r}, and no {expected[name]}")
    return kind(**given)


def _mapping(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is no mapping")
    return data


def _list(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"{where} is no list")
    return data


def _whole(data: Any, where: str) -> int:
    if isinstance(data, bool) or not isinstance(data, int):
        raise ValueError(f"{where} is {data!r}, and no whole number")
    return data
