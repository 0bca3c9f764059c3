"""A synchronous pull consumer: one connection, one thread, results on the next pull, as DDMQ's SDKs do it (S1-S4)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from pyddmq import idl
from pyddmq.client.connection import Connection, WireProtocol
from pyddmq.client.errors import ClientError, ClientMisuse, ConnectionLost, Refused, Unreachable, pull_refusal
from pyddmq.client.reasons import reason_of, reason_text
from pyddmq.client.results import PendingResults, QueueResult

VERSION = "pyddmq-python"

_LINGER_MS_MIN = 20
"""R48: what a node waits at least."""

_UNANSWERED_MAX = 2
"""Connections in a row that may end under a call with results before one without is tried."""

_PAUSE_MS_FIRST = 50
_PAUSE_MS_MAX = 500


class PulledMessage(NamedTuple):
    """One delivered message.

    `topic`, `qid` and `offset` identify it; `key` and `tag` are None when the message has none; `body` holds the
    bytes that were published (R29); `properties` the user properties. `delivery` tells this delivery from others of the
    message, 0 where there can have been none; it goes back with the result.
    """

    topic: str
    qid: str
    offset: int
    key: str | None
    tag: str | None
    body: bytes
    properties: Mapping[str, str]
    delivery: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """Offsets of one group on one topic: qid to committed and to produced offset.

    Attributes:
        group: The group.
        topic: The topic.
        committed: qid to the first offset that is not finished.
        produced: qid to the offset that the next message will get.
    """

    group: str
    topic: str
    committed: Mapping[str, int]
    produced: Mapping[str, int]

    @property
    def lag(self) -> int:
        """Messages between the committed and the produced offset, over all queues."""
        return sum(max(0, end - self.committed.get(qid, 0)) for qid, end in self.produced.items())


class Consumer:
    """Pulls from one node for one group; a context manager.

    Results given with `ack` and `fail` ride on the next pull; `flush` and `close` submit what is left. After a failed
    call they are kept and sent again over a new connection (S2): the node counts a result once. One thread at a time
    makes calls, and another one that tries meanwhile is told so (`ClientMisuse`); `ack`, `fail` and `stop` may come
    from any.
    """

    def __init__(
        self,
        address: str,
        group: str,
        topic: str | None = None,
        *,
        batch_size: int = 8,
        linger_ms: int = 50,
        timeout_ms: int = 5000,
        submit_tries: int = 3,
        patience_ms: int = 30_000,
        protocol: WireProtocol = "binary",
    ) -> None:
        """Set up; the connection is opened by the first call or `connect`.

        Args:
            address: `host:port` of the node's consumer port.
            group: The consumer group.
            topic: Only messages of this topic; None for any topic of the group.
            batch_size: Messages per pull at most; the subscription's maxPullBatchSize may lower it.
            linger_ms: How long a pull without messages waits at the node.
            timeout_ms: How long an answer may take beyond the linger.
            submit_tries: How often `close` tries to submit what is left.
            patience_ms: How long `messages` and `run` go on without any answer before they raise.
            protocol: "binary" or "compact".

        Raises:
            ClientMisuse: A malformed address, unknown protocol or number out of range.
        """
        if batch_size <= 0 or linger_ms < 0 or timeout_ms <= 0 or submit_tries <= 0 or patience_ms < 0:
            raise ClientMisuse(
                "batch_size, timeout_ms and submit_tries must be above 0, linger_ms and patience_ms 0 or above"
            )
        self.group = group
        self.topic = topic
        self._idl: Any = idl.load("consumer")
        self._connection = Connection(address, self._idl.ConsumerService, protocol=protocol)
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._timeout_ms = timeout_ms
        self._submit_tries = submit_tries
        self._patience_ms = patience_ms
        self._results = PendingResults()
        self._unanswered = 0
        """Connections in a row that ended without an answer."""
        self._stopping = threading.Event()
        self._current: PulledMessage | None = None
        self._calling = threading.Lock()
        self._closed = False

    @property
    def address(self) -> str:
        """The node's `host:port`."""
        return self._connection.address

    @property
    def unsent(self) -> int:
        """Results that no answered call has carried yet."""
        return len(self._results)

    def connect(self) -> None:
        """Open the connection now. Raises CannotConnect, or ClientMisuse: it is closed, or in use."""
        with self._in_use():
            self._connection.open(timeout_ms=self._timeout_ms)

    def pull(self, *, count_max: int | None = None, patience_ms: int = 0) -> list[PulledMessage]:
        """Report what is due and take one batch.

        Args:
            count_max: In the place of the consumer's batch_size.
            patience_ms: How long to go on after failures that another try may cure; 0 raises the first.

        Returns:
            Messages of one queue, oldest first; empty when none came within the linger.

        Raises:
            Unreachable: No answer; the results are kept for the next call.
            PullRefused: The node cannot serve the group; it has taken the results.
            CallRejected: The node failed on the call; the results are kept.
            ClientMisuse: The consumer is closed, or another thread is making a call.
        """
        waited_ms, pause_ms = 0, _PAUSE_MS_FIRST
        while True:
            try:
                return self._pull_once(count_max or self._batch_size)
            except (Unreachable, Refused) as error:
                if not error.retriable or waited_ms >= patience_ms:
                    raise
            if self._stopping.wait(pause_ms / 1000):
                return []
            waited_ms += pause_ms
            pause_ms = min(pause_ms * 2, _PAUSE_MS_MAX)

    def _pull_once(self, count_max: int) -> list[PulledMessage]:
        with self._in_use():
            results = self._results.next_chain()
            try:
                reply = self._ask(count_max, results)
            except ConnectionLost:
                # A node that cannot record results leaves calls that bring some unanswered; without any it says why.
                if not results or self._unanswered < _UNANSWERED_MAX:
                    raise
                reply = self._ask(count_max, [])
        if not reply.messages:
            return []
        topic, qid = reply.context.topic, reply.context.qid
        return [
            PulledMessage(topic, qid, message.offset, message.key, message.tag, message.value or b"",
                          message.properties or {}, message.delivery or 0)
            for message in reply.messages
        ]  # fmt: skip

    def _ask(self, count_max: int, results: list[QueueResult]) -> Any:
        request = self._idl.PullRequest(
            groupId=self.group,
            topic=self.topic,
            maxBatchSize=count_max,
            maxLingerTime=self._linger_ms,
            result=self._chain(results),
            version=VERSION,
        )
        return self._call("pull", {"request": request}, results, linger_ms=self._linger_ms)

    def ack(self, message: PulledMessage) -> None:
        """Note that a message is done; told to the node with the next pull, flush or close."""
        self._settle(message, success=True)

    def fail(self, message: PulledMessage, reason: str = "") -> None:
        """Note that a message failed; the node delivers it again after the next of the retryIntervals.

        Args:
            message: The message.
            reason: A few words for people. They stand in the dead letter if this was the last attempt; of more than 300
                characters the beginning.
        """
        self._settle(message, success=False, reason=reason)

    def flush(self) -> bool:
        """Submit what is noted now.

        Returns:
            False when the node took nothing of it (W2): late results, finished meanwhile or not delivered to anybody.

        Raises:
            Unreachable: No answer; the results are kept.
            Refused: The node failed on the call; the results are kept unless it is a PullRefused.
        """
        taken = True
        with self._in_use():
            while self._results:
                results = self._results.next_chain()
                taken &= bool(self._call("submit", {"result": self._chain(results)}, results))
        return taken

    def stats(self, *, topic: str | None = None) -> list[GroupStats]:
        """Ask for the group's offsets, per topic.

        Args:
            topic: Only this topic; None for the consumer's own topic, or all topics when it has none.

        Raises:
            Unreachable: No answer.
            PullRefused: The node is starting.
        """
        request = self._idl.ConsumeStatsRequest(group=self.group, topic=topic or self.topic, version=VERSION)
        with self._in_use():
            rows = self._call("getConsumeStats", {"request": request}, [])
        return [
            GroupStats(
                group=row.group, topic=row.topic, committed=row.consumeOffsets or {}, produced=row.produceOffsets or {}
            )
            for row in rows
        ]

    def __iter__(self) -> Iterator[PulledMessage]:
        return self.messages()

    def messages(self, *, idle_ms: int | None = None) -> Iterator[PulledMessage]:
        """Deliver message after message, pulling as needed.

        Going on to the next message acks the one before, unless `ack`, `fail` or `skip` was called for it. Leaving a
        `with` block with an exception fails the message in hand. Messages of the last batch that were not reached
        are not reported (S8): the node's timeout returns them. Calls that fail are tried again for `patience_ms`.

        Args:
            idle_ms: End after this long without a message; None for never (until `stop`).

        Raises:
            Unreachable: No answer for `patience_ms`.
            PullRefused: The node cannot serve the group, and waiting did not or will not change that.
        """
        idle_left_ms = idle_ms
        while not self._stopping.is_set():
            asked = time.monotonic()
            batch = self.pull(patience_ms=self._patience_ms)
            for message in batch:
                self._current = message
                yield message
                if self._current is message:
                    self.ack(message)
                if self._stopping.is_set():
                    return
            if batch:
                idle_left_ms = idle_ms
                continue
            if idle_left_ms is not None:
                idle_left_ms -= max(self._linger_ms, _LINGER_MS_MIN)
                if idle_left_ms <= 0:
                    return
            # A node that answers empty at once (draining, or a DDMQ proxy with too many waiting) is not hammered.
            self._stopping.wait(max(0.0, asked + self._linger_ms / 1000 - time.monotonic()))

    def skip(self, message: PulledMessage) -> None:
        """Report nothing for the message in hand (S3): the node's timeout decides."""
        if self._current is message:
            self._current = None

    def run(
        self,
        handler: Callable[[PulledMessage], object],
        *,
        on_error: Callable[[PulledMessage, Exception], object] | None = None,
    ) -> None:
        """Call `handler` for each message until `stop`: a return acks, an `Exception` fails the message and goes on.

        Args:
            handler: Does the work.
            on_error: Told of each message that failed and why; nobody else is. What it raises ends the loop.

        Raises:
            ClientError: As `messages` does.
        """
        for message in self.messages():
            try:
                handler(message)
            except Exception as error:
                self.fail(message, reason_of(error))
                if on_error is not None:
                    on_error(message, error)

    def stop(self) -> None:
        """Let `messages` and `run` end after the message in hand; may be called from any thread."""
        self._stopping.set()

    def close(self) -> None:
        """Submit what is noted, in up to `submit_tries` tries, and close the connection (S4).

        Raises:
            ClientError: The last try failed too: those messages will come again.
            ClientMisuse: Another thread is making a call; `stop` ends its loop.
        """
        self._stopping.set()
        if self._closed:
            return
        try:
            for tries_left in range(self._submit_tries - 1, -1, -1):
                try:
                    self.flush()
                    break
                except ClientError as error:
                    if not tries_left or not error.retriable:
                        raise
        except ClientMisuse:
            raise
        except BaseException:
            self._end()
            raise
        self._end()

    def _end(self) -> None:
        self._closed = True
        self._connection.close()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keep other threads from making a call meanwhile. Raises ClientMisuse: one of them is, or it is closed."""
        if self._closed:
            raise ClientMisuse("this consumer is closed: make a new one")
        if not self._calling.acquire(blocking=False):
            raise ClientMisuse(
                "this consumer is making a call in another thread: give each thread a consumer of its own; "
                "only ack, fail and stop may come from any"
            )
        try:
            yield
        finally:
            self._calling.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._current is not None:
            self._settle(self._current, success=error is None, reason="" if error is None else reason_of(error))
        try:
            self.close()
        except ClientError as closing:
            if error is None:
                raise
            error.add_note(f"besides, {len(self._results)} results were not submitted: {closing}")

    def _settle(self, message: PulledMessage, *, success: bool, reason: str = "") -> None:
        self._results.add(
            message.topic,
            message.qid,
            message.offset,
            success=success,
            delivery=message.delivery,
            reason=reason_text(reason),
        )
        if self._current is message:
            self._current = None

    def _chain(self, results: list[QueueResult]) -> Any:
        """Build the nextResult chain, None for no results."""
        head = None
        for result in reversed(results):
            context = self._idl.Context(groupId=self.group, topic=result.topic, qid=result.qid)
            head = self._idl.ConsumeResult(
                context=context,
                successOffsets=result.success,
                failOffsets=result.fail,
                nextResult=head,
                deliveries=result.deliveries,
                reasons=result.reasons or None,
            )
        return head

    def _call(
        self, method: str, arguments: Mapping[str, object], results: list[QueueResult], *, linger_ms: int = 0
    ) -> Any:
        try:
            answer = self._connection.call(method, arguments, timeout_ms=self._timeout_ms + linger_ms)
        except ConnectionLost:
            self._unanswered += 1
            raise
        except self._idl.PullException as error:
            # An answered call: its results were applied before the refusal (D9, D13).
            self._unanswered = 0
            self._results.answered(results)
            raise pull_refusal(error.code or 0, error.message or "") from error
        self._unanswered = 0
        self._results.answered(results)
        return answer
