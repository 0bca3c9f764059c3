"""What tests of redrives share: dead letters without a consumer, and a redrive run to its end."""

from __future__ import annotations

from typing import Any

import msgspec

from broker.errors import NO_SPACE
from broker.format.message import LogMessage
from broker.log.durability import saved
from broker.query import at_offset
from broker.retry.dead_letter import dead_letter
from broker.retry.letters import DeadLetterFilter
from broker.retry.redrive import Redrives
from broker.runtime.steps import run_now
from broker.store import Store
from proxy.operate.lookups.dead_letters import LetterPage
from proxy.operate.lookups.redrives import Redrive
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import open_store
from tests.integration.waiting_tools import drive, make_durable, put_durably

BIG = {"segment_bytes": 1 << 20}


class Failed:
    """What `dead_letter` asks of a message."""

    def __init__(self, message: LogMessage, attempts: int) -> None:
        self.topic, self.queue_id, self.offset = message.topic, message.queue_id, message.offset
        self.physical, self.attempts = message.physical, attempts


def dead_lettered(
    store: Store,
    body: bytes,
    *,
    queue_id: int = 0,
    reason: str = "it failed",
    scheduler: ManualScheduler | None = None,
    **options: Any,
) -> LogMessage:
    """Publish a message to `t` and make its dead letter, of group g; returns the dead letter."""
    scheduler = scheduler or ManualScheduler(ManualClock())
    put = put_durably(store, scheduler, "t", body, queue_id=queue_id, **options)
    first = at_offset(store, "t", queue_id, put.offset)
    record = store.read(first.physical, first.size)
    made, born_ms, host = dead_letter(store, "g", Failed(first, 3), reason, record)
    [position] = store.append([made], born_ms=born_ms, born_host=host)
    make_durable(store, scheduler)
    return at_offset(store, "%DLQ%g", 0, position.offset)


def opened(disk: SimDisk | None = None, clock: ManualClock | None = None, **options: Any) -> Store:
    """A store with topic t of two queues."""
    store = open_store(disk or SimDisk(), clock=clock or ManualClock(), **{**BIG, **options})
    store.create_topic("t", 2)
    return store


def redrives(store: Store, disk: SimDisk) -> Redrives:
    """What was redriven in it, as a start finds it."""
    found = Redrives(store, disk=disk)
    run_now(found.opening())
    return found


def redrive(
    store: Store, known: Redrives, *, scheduler: ManualScheduler | None = None, **options: Any
) -> dict[str, Any]:
    """Run one page to its end; return its result as JSON has it."""
    scheduler = scheduler or ManualScheduler(ManualClock())
    page = LetterPage(store, "g", DeadLetterFilter(**options.pop("wanted", {})), cursor=None, limit=1000)
    settings: dict[str, Any] = {"to": None, "again": False, "dry": False}
    settings.update(options)
    work = Redrive(store, known, "g", page, **settings)
    for _ in work.steps():
        pass
    make_durable(store, scheduler)
    if not settings["dry"]:
        try:
            drive(saved(store.writes, known.writing()), scheduler)
        except OSError as error:
            # As the node does: a full disk costs the checkpoint alone.
            if error.errno not in NO_SPACE:
                raise
    answer: dict[str, Any] = msgspec.to_builtins(work.result())
    return answer
