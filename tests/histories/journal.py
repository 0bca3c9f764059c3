"""What clients did and saw, as events in one order: a line of JSON each.

An event is a dict with `op`, `n` (its place in the order of all events), `t` (seconds of a clock that is never stepped)
and, by `op`:

| op | fields | means |
| --- | --- | --- |
| `wall` | `ms` | the wall clock shows `ms` from now on: written at the start and at each step |
| `send` | `id`, `who`, `topic`, `keys`, `due` | is about to be sent; `keys`: order keys by group, "" for none |
| `sent` | `id`, `result`, `place` | the answer: `stored`, `refused` or `unknown`; `place` where it is known |
| `change` | `id`, `due` | about to be cancelled (`due` null) or moved |
| `changed` | `id`, `result` | the answer: `cancelled`, `rescheduled`, `tooLate` or `unknown` |
| `undone` | `id`, `result` | such an answer, of which a power loss under `flush: async` may have taken the record |
| `half` | `id`, `who` | a transaction is about to be sent |
| `decide` | `id`, `state`, `call` | a decision is about to be sent: `commit`, `rollback` |
| `decided` | `id`, `state`, `result`, `call` | its answer: `taken`, `refused` or `unknown` |
| `try` | `who`, `number`, `count`, `call` | so many messages from a number on are about to be sent, again perhaps |
| `tried` | `call`, `result` | the answer: `stored`, `repeat`, `gap`, `refused` or `unknown` |
| `get` | `group`, `who`, `place`, `id`, `turn`, `asked`, `asked_t`, `life`, `late`, `copy` | a client has read it |
| `ack` | `group`, `who`, `place`, `success`, `turn`, `life` | a result has reached the node |
| `acked` | `group`, `place`, `copy`, `turn`, `life` | the call that carried a success was answered |
| `poll` | `who`, `queue`, `offsets` | what a reader with a position of its own got from a queue, in order |
| `seek` | `who`, `queue`, `offset` | its position was moved |
| `reset` | `group`, `topic`, `to`, `turn` | an operator moved a group: offsets by queue |
| `end` | `life`, `acks_lost` | the process ended; acks of its last `acks_lost` seconds may be lost |
| `uncommitted` | `node`, `since`, `until` | acks that a node ("" for any) answered in this time may be lost |
| `committed` | `group`, `place` | the source's coordinator says that a message is finished for good |
| `cut` | `ids`, `queues` | a power loss under `flush: async` may have taken these, and something of these queues |
| `lost` | `place` | the node said that this message is lost |
| `stored` | `id`, `place`, `at`, `log` | is in the log at the end; `at`: its place in the log, of several |
| `visible` | `id` | a transaction's message is in its topic at the end |
| `dead` | `group`, `place`, `id` | is in the group's dead-letter topic at the end |
| `group` | `group`, `timeout` | seconds until an unanswered delivery is taken back |

`due` is `[kind, ms]` of a message that waits: `at` a moment, or for a time (`delay`, `level`). In a `get`, `asked` is
the first turn in which the node can have decided the delivery, `asked_t` likewise in seconds; `late`: that is unknown;
`copy` is where it was read, which differs from `place` in a retry topic.

Where a source has several nodes at once, `get`, `ack` and `acked` have a `node`, and a `life` is one node's time with
the same partitions. A place is `[topic, queue, offset]`. A turn counts rounds of the node in which it may settle events
in either order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Journal:
    """Events of one run, in the order in which they are added."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, op: str, t: float, n: int | None = None, **fields: Any) -> None:
        """Add an event; `n` where the order of the run is finer than that of the calls."""
        self.events.append({"op": op, "t": t, "n": n, **fields})

    def ordered(self) -> list[Event]:
        """Return the events by `n`; one without a place follows all before it."""
        last = 0
        placed = []
        for number, event in enumerate(self.events):
            place = last if event["n"] is None else event["n"]
            last = max(last, place)
            placed.append((place, number, event))
        return [event for _, _, event in sorted(placed, key=lambda each: each[:2])]

    def save(self, path: Path) -> None:
        """Write a line of JSON for each event."""
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(event) + "\n" for event in self.events)


def load(path: Path) -> list[Event]:
    """Read what `save` wrote."""
    return in_order(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def in_order(events: Iterable[Event]) -> list[Event]:
    """Return events in the order of the run."""
    journal = Journal()
    journal.events.extend(events)
    return journal.ordered()
