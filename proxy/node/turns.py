"""The turns of a node: what came in with a turn of the loop is flushed together, and answered after that.

See docs/architecture.md.
"""

from __future__ import annotations

import asyncio

from broker.log.group_commit import CommitDriver
from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from proxy.node.opened import Opened
from proxy.port.memory import MemoryWatch
from proxy.port.server import ThriftServer
from proxy.recording.visible_end import ShownEnd
from upstream.progress.progress import ProgressFailed

TURNS = declare("pyddmq_turns_total", "Turns of the event loop that flushed data")

_FLUSH_ROUNDS_MAX = 8
"""Flushes of one turn: what a flush makes (dead letters) is flushed too, but a turn ends."""


class NodeTurns(CommitDriver):
    """Flushes the store of one node, and has its ports send what may leave.

    Attributes:
        count: Turns so far.
        stopped: No turn does anything any more.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        servers: list[ThriftServer],
        memory: MemoryWatch,
        shown_end: ShownEnd,
        runtime: Runtime,
    ) -> None:
        """Set up; until `open` a turn sends refusals alone.

        Args:
            loop: Makes the turns.
            servers: The consumers' port and the producers', once they are made.
            memory: Watches what they hold.
            shown_end: Tells others up to where they may read the store.
            runtime: The node's.
        """
        self._loop = loop
        self._servers = servers
        self._memory = memory
        self._budget = memory.budget
        self._shown_end = shown_end
        self._limited_log = runtime.limited_log
        self.count = runtime.metrics.counter(TURNS)
        self.stopped = False
        self._asked = self._was_asked = False
        self._opened: Opened | None = None

    def open(self, opened: Opened) -> None:
        """Flush what was opened from now on."""
        self._opened = opened

    def request(self) -> None:
        """Have the turn end after everything that arrived with it."""
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self.end)

    def disk_at_work(self) -> bool:
        """Whether a flush is under way."""
        return self._opened is not None and self._opened.store.commit.is_under_way

    def end(self) -> None:
        """Begin to make durable what came, and answer what is. Nothing leaves before what it promises is written."""
        self._asked = False
        opened = self._opened
        if opened is None:
            self._send()
        elif not self.stopped:
            self.take(opened, wait=opened.store.commit.syncs is None)

    def take(self, opened: Opened, *, wait: bool) -> None:
        """Flush and answer; with `wait` the loop waits for the disk, else the flush is begun."""
        # What the pass and the flushes lead to (replies, deliveries) leaves with this turn and needs no other one.
        self._asked = True
        self.count.value += 1
        for server in self._servers:
            if wait:
                server.run_pass()
            else:
                server.run_ready_pass()
        flushed = wait and self._flush(opened)
        if not wait:
            opened.store.commit.begin()
        self._asked = False
        if wait and opened.store.pending:
            self.request()
        self._answer_all(opened, flushed=flushed)

    def make_durable(self, opened: Opened) -> None:
        """End the turn now and make all that it changed durable: for changes that show only once they are kept.

        The loop waits for the disk; where only the request may wait, see `proxy.operate.change_steps.durable`. Raises
        StoreError where it could not be written; it may be undone by a restart.
        """
        self.take(opened, wait=True)
        if opened.store.failed is not None:
            raise opened.store.failed
        opened.progress.sync()

    # What the group commit calls

    def on_staged(self) -> None:
        """Have the turn flush it."""
        self.request()

    def on_begun(self) -> None:
        """The disk is at work on what was staged."""
        self._budget.begin()

    def on_visible(self, end: int) -> None:
        """Others may read the batch, too."""
        self._shown_end.set(end)

    def on_shown(self, flushes: int) -> None:
        """Those that wait are called next: what follows from it leaves with them, and needs no turn."""
        self._was_asked, self._asked = self._asked, True
        self._budget.end(flushes)
        # What was sent meanwhile goes to the disk before the replies are made: it works while the loop does.
        for server in self._servers:
            server.run_ready_pass()

    def on_disk_free(self) -> None:
        """Handle what gathered for the next flush, in a turn of its own."""
        if any(server.has_gathered for server in self._servers):
            self.request()

    def on_reported(self, raised: Exception | None) -> None:
        """Send what it made of replies and deliveries."""
        if raised is not None:
            self._limited_log.fault("turn_callback_failed", raised, kind="settle")
        self._asked = self._was_asked
        if self._opened is not None:
            self._answer_all(self._opened, flushed=True)

    def _flush(self, opened: Opened) -> bool:
        """Write, sync and call who waits; whether there was anything."""
        flushed = False
        for _ in range(_FLUSH_ROUNDS_MAX):
            if not opened.store.unsettled:
                break
            flushed = True
            try:
                opened.store.flush()
            except Exception as error:
                # A fault in one callback must not keep the replies of all others from going out.
                self._limited_log.fault("turn_callback_failed", error, kind="flush")
            self._budget.end(len(self._budget.begun))
        return flushed

    def _send(self) -> None:
        for server in self._servers:
            server.flush()
        if self._opened is None or not self._opened.store.commit.unsettled:
            self._budget.flushed()
        if self._budget.level:
            self._memory.recount()

    def _answer_all(self, opened: Opened, *, flushed: bool) -> None:
        """Send what may leave, and do what follows a flush."""
        try:
            opened.progress.flush()
        except ProgressFailed:
            # Acks that cannot be kept must not be answered as if they were (D5): those clients see a broken
            # connection and keep their results. No message leaves either: it may follow from an ack or a failed
            # attempt that a restart would not know. What remains are refusals, which say why.
            self._servers[0].abort_unkept()
        self._send()
        if flushed:
            opened.steps.synced()
            # Acks become durable with the log (D9), but no reply waits for that: they are on their way.
            try:  # noqa: SIM105 - in every turn
                opened.progress.sync_after_log()
            except ProgressFailed:
                pass
            opened.index_work.stored()
