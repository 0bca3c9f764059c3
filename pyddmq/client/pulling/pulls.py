"""What consumers of both kinds share, without I/O: what they pull and report, and the calls that carry it (S1-S4).

Offsets acked and failed are kept per queue until an answered call has carried them.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from pyddmq import idl
from pyddmq.client.calls import Conversation
from pyddmq.client.codec import WireProtocol
from pyddmq.client.errors import ClientError, ClientMisuse, ConnectionLost, Refused, Unreachable, pull_refusal
from pyddmq.client.tls import Tls
from pyddmq.client.tokens import Token

REASON_CHARS_MAX = 300
"""More is not sent; the node keeps no more."""


def reason_text(reason: str) -> str:
    """Return a reason as it may be sent: short, and always to be encoded."""
    return reason[:REASON_CHARS_MAX].encode("utf-8", "replace").decode()


def reason_of(error: BaseException) -> str:
    """Return the kind of an exception and what it says; the kind alone where it cannot say anything."""
    kind = type(error).__name__
    try:
        said = str(error)
    except Exception:
        said = ""
    return f"{kind}: {said}" if said else kind


CHAIN_LENGTH_MAX = 100
"""Queues per nextResult chain: thriftpy2 writes a chain recursively, and what is left rides on the next call."""


class QueueResult(NamedTuple):
    """Results for one queue: offsets that succeeded and that failed; by offset numbers of deliveries, and reasons."""

    topic: str
    qid: str
    success: list[int]
    fail: list[int]
    deliveries: dict[int, int]
    reasons: dict[int, str]


class PendingResults:
    """Results in the order in which their queues were first heard of. Any thread may add to them."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], QueueResult] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return sum(len(result.success) + len(result.fail) for result in self._queues.values())

    def add(self, topic: str, qid: str, offset: int, *, success: bool, delivery: int = 0, reason: str = "") -> None:
        """Note one outcome.

        Args:
            topic, qid, offset: The message.
            success: Whether it is done.
            delivery: Number of its delivery; 0: it had none.
            reason: Why it failed.
        """
        with self._lock:
            result = self._queues.get((topic, qid))
            if result is None:
                result = self._queues[topic, qid] = QueueResult(topic, qid, [], [], {}, {})
            (result.success if success else result.fail).append(offset)
            if delivery:
                # The answer to an earlier delivery of it may come last; what is told of is the present one.
                result.deliveries[offset] = max(delivery, result.deliveries.get(offset, 0))
            if reason:
                result.reasons[offset] = reason

    def next_chain(self) -> list[QueueResult]:
        """Results of up to `CHAIN_LENGTH_MAX` queues for one call; they stay until `answered` (S2)."""
        with self._lock:
            return [
                result._replace(
                    success=result.success.copy(),
                    fail=result.fail.copy(),
                    deliveries=result.deliveries.copy(),
                    reasons=result.reasons.copy(),
                )
                for result in itertools.islice(self._queues.values(), CHAIN_LENGTH_MAX)
            ]

    def answered(self, chain: Iterable[QueueResult]) -> None:
        """Forget what an answered call has carried, and keep what was added since `next_chain`."""
        with self._lock:
            for carried in chain:
                result = self._queues[carried.topic, carried.qid]
                del result.success[: len(carried.success)]
                del result.fail[: len(carried.fail)]
                if not result.success and not result.fail:
                    del self._queues[carried.topic, carried.qid]
                    continue
                for said in (result.deliveries, result.reasons):
                    for offset in said.keys() - {*result.success, *result.fail}:
                        del said[offset]


VERSION = "pyddmq-python 0.3.0"
"""What the node shows of this client, at most 64 characters; a test holds the number against that of the package."""

LINGER_MS_MIN = 20
"""R48: what a node waits at least."""

UNANSWERED_MAX = 2
"""Connections in a row that may end under a call with results before one without is tried."""

PAUSE_MS_FIRST = 50
PAUSE_MS_MAX = 500


M = TypeVar("M")


class PulledMessage(NamedTuple):
    """One delivered message.

    `topic`, `qid` and `offset` identify it; `key` and `tag` are None when the message has none; `body` holds the
    bytes that were published (R29); `properties` the user properties. `delivery` distinguishes this delivery from
    others of the message; 0 if there is only one. It is returned with the result.
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


class Pulls:
    """A consumer over its connection: settings, results that wait for a call, and the calls.

    Attributes:
        address: The node's `host:port`.
        group: The consumer group.
        topic: Only messages of this topic; None for any topic of the group.
    """

    _connection: Any
    _connection_class: ClassVar[Any]
    """What it is connected by."""

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
        tls: Tls | None = None,
        token: Token | None = None,
    ) -> None:
        """Set up; the connection is opened by the first call or `connect`.

        Args:
            address: `host:port` or `tls://host:port` of the node's consumer port.
            group: The consumer group.
            topic: Only messages of this topic; None for any topic of the group.
            batch_size: Messages per pull at most; the subscription's maxPullBatchSize may lower it.
            linger_ms: How long a pull without messages waits at the node.
            timeout_ms: How long an answer may take beyond the linger.
            submit_tries: How often `close` tries to submit what is left.
            patience_ms: How long `messages` and `run` continue without any answer before they raise.
            protocol: "binary" or "compact".
            tls: For an address by TLS: the CA, and what the client shows.
            token: Who this is, for nodes with rules: a token, or the path of its file. Left out: PYDDMQ_TOKEN_FILE or
                PYDDMQ_TOKEN of the environment; "" for none.

        Raises:
            ClientMisuse: A malformed address, unknown protocol or number out of range.
        """
        if batch_size <= 0 or linger_ms < 0 or timeout_ms <= 0 or submit_tries <= 0 or patience_ms < 0:
            raise ClientMisuse(
                "batch_size, timeout_ms and submit_tries must be above 0, linger_ms and patience_ms 0 or above"
            )
        self.address = address
        self.group = group
        self.topic = topic
        self._idl: Any = idl.load("consumer")
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._timeout_ms = timeout_ms
        self._submit_tries = submit_tries
        self._patience_ms = patience_ms
        self._results = PendingResults()
        self._unanswered = 0
        """Connections in a row that ended without an answer."""
        self._current: PulledMessage | None = None
        """The message in hand."""
        self._closed = False
        self._connection = self._connection_class(
            address, self._idl.ConsumerService, protocol=protocol, tls=tls, token=token
        )
        self._calls: Conversation = self._connection.conversation
        self._begin()

    def _begin(self) -> None:
        """Make what keeps calls apart."""

    @property
    def unsent(self) -> int:
        """Results that no answered call has carried yet."""
        return len(self._results)

    def ack(self, message: PulledMessage) -> None:
        """Mark a message as done; the next pull, flush or close sends this to the node."""
        self._complete(message, success=True)

    def fail(self, message: PulledMessage, reason: str = "") -> None:
        """Note that a message failed; the node delivers it again after the next of the retryIntervals.

        Args:
            message: The message.
            reason: A few words for people. The dead letter contains them if this was the last attempt; at most 300
                characters are kept.
        """
        self._complete(message, success=False, reason=reason)

    def skip(self, message: PulledMessage) -> None:
        """Report nothing for the present message (S3): the node's timeout decides."""
        if self._current is message:
            self._current = None

    def _complete(self, message: PulledMessage, *, success: bool, reason: str = "") -> None:
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

    def _pull_arguments(self, count_max: int, results: list[QueueResult]) -> dict[str, object]:
        request = self._idl.PullRequest(
            groupId=self.group,
            topic=self.topic,
            maxBatchSize=count_max,
            maxLingerTime=self._linger_ms,
            result=self._chain(results),
            version=VERSION,
        )
        return {"request": request}

    async def _pull_now(self, count_max: int) -> list[PulledMessage]:
        """Report what is due and take one batch."""
        results = self._results.next_chain()
        try:
            return messages_of(await self._pull(count_max, results))
        except ConnectionLost:
            # A node that cannot record results leaves calls that bring some unanswered; without any it says why.
            if not results or self._unanswered < UNANSWERED_MAX:
                raise
            return messages_of(await self._pull(count_max, []))

    async def _pull(self, count_max: int, results: list[QueueResult]) -> Any:
        arguments = self._pull_arguments(count_max, results)
        return await self._call("pull", arguments, results, linger_ms=self._linger_ms)

    async def _submit(self) -> bool:
        """Submit what is noted; False when the node took nothing of it."""
        taken = True
        while self._results:
            results = self._results.next_chain()
            taken &= bool(await self._call("submit", {"result": self._chain(results)}, results))
        return taken

    async def _submit_rest(self, submit: Callable[[], Awaitable[object]]) -> None:
        """Submit what is left, in up to `submit_tries` tries."""
        for tries_left in range(self._submit_tries - 1, -1, -1):
            try:
                await submit()
                break
            except ClientError as error:
                if not tries_left or not error.retriable:
                    raise

    async def _fetch_stats(self, topic: str | None) -> list[GroupStats]:
        request = self._idl.ConsumeStatsRequest(group=self.group, topic=topic or self.topic, version=VERSION)
        return stats_of(await self._call("getConsumeStats", {"request": request}, []))

    async def _call(
        self,
        method: str,
        arguments: Mapping[str, object],
        results: list[QueueResult],
        *,
        linger_ms: int = 0,
    ) -> Any:
        try:
            answer = await self._calls.call(method, arguments, self._timeout_ms + linger_ms)
        except ConnectionLost:
            self._unanswered += 1
            raise
        except self._idl.PullException as error:
            self._answered(results)
            raise pull_refusal(error.code or 0, error.message or "", error.retryAfterMs) from error
        self._answered(results)
        return answer

    def _leave(self, error: BaseException | None) -> None:
        """Report the message in hand where a `with` block is left."""
        if self._current is not None:
            self._complete(self._current, success=error is None, reason="" if error is None else reason_of(error))

    def _note_unsent(self, error: BaseException | None, closing: ClientError) -> None:
        """Have what ended a `with` block say that closing failed too; without such an error raise that."""
        if error is None:
            raise closing
        error.add_note(f"also, {len(self._results)} results were not submitted: {closing}")

    def _answered(self, results: list[QueueResult]) -> None:
        """An answer came, a refusal or not: what the call carried was taken (D9, D13)."""
        self._unanswered = 0
        self._results.answered(results)


async def patiently(
    pull: Callable[[], Awaitable[list[M]]], patience_ms: int, is_stopped_within: Callable[[float], Awaitable[bool]]
) -> list[M]:
    """Go on after failures that another try may cure, no sooner than a refusal says; empty when it is stopped."""
    first_failed: float | None = None
    pause_ms = PAUSE_MS_FIRST
    while True:
        try:
            return await pull()
        except (Unreachable, Refused) as error:
            now = time.monotonic()
            first_failed = now if first_failed is None else first_failed
            # Calls count too: each may take as long as its time limit.
            if not error.retriable or (now - first_failed) * 1000 >= patience_ms:
                raise
            reported_ms = error.retry_after_ms if isinstance(error, Refused) else 0
        if await is_stopped_within(max(pause_ms, reported_ms) / 1000):
            return []
        pause_ms = min(pause_ms * 2, PAUSE_MS_MAX)


def messages_of(reply: Any) -> list[PulledMessage]:
    """Return the messages of a pull's reply."""
    if not reply.messages:
        return []
    topic, qid = reply.context.topic, reply.context.qid
    return [
        PulledMessage(topic, qid, message.offset, message.key, message.tag, message.value or b"",
                      message.properties or {}, message.delivery or 0)
        for message in reply.messages
    ]  # fmt: skip


def stats_of(rows: Any) -> list[GroupStats]:
    """Return what a reply says of a group."""
    return [
        GroupStats(
            group=row.group, topic=row.topic, committed=row.consumeOffsets or {}, produced=row.produceOffsets or {}
        )
        for row in rows
    ]
