"""A synchronous client of a low-level group: it fetches queues by offsets that it keeps, and acks positions."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, Self

from pyddmq import idl
from pyddmq.client.codec import WireProtocol
from pyddmq.client.connection import Connection
from pyddmq.client.errors import ClientError, ClientMisuse, pull_refusal
from pyddmq.client.pulling.fetches import FetchedMessage, FetchedQueue, Hand, Queue, offsets_of, queues_of
from pyddmq.client.pulling.pull_loop import Taking
from pyddmq.client.pulling.pulls import LINGER_MS_MIN, VERSION
from pyddmq.client.tls import Tls
from pyddmq.client.tokens import Token
from pyddmq.codes import PullCode

_numbers = count()


class Fetcher(Taking[FetchedMessage]):
    """Fetches from one node for one low-level group; a context manager.

    The node assigns it some of the group's queues exclusively, until it is silent for 30 s. With `named` it reads
    exactly the queues that it seeks, also in parallel with other clients. It is for one thread at a time: a call of
    another thread raises `ClientMisuse`. For more threads create more of them, each with its own consumer_id; with
    `named` they may share one.

    Attributes:
        group: The group.
        consumer_id: The name under which its queues are its own, also over a new connection or process.
    """

    _name = "fetcher"
    _others = "give each thread its own"

    def __init__(
        self,
        address: str,
        group: str,
        *,
        consumer_id: str | None = None,
        cluster: str = "",
        named: bool = False,
        batch_size: int = 1000,
        linger_ms: int = 50,
        timeout_ms: int = 5000,
        patience_ms: int = 30_000,
        protocol: WireProtocol = "binary",
        tls: Tls | None = None,
        token: Token | None = None,
    ) -> None:
        """Set up; the connection is opened by the first call.

        Args:
            address: `host:port` or `tls://host:port` of the node's consumer port.
            group: The group; its topics have `actions: [LowLevel]`.
            consumer_id: Name of this fetcher; one of its own when absent, `pid@host#n`.
            cluster: Expected brokerCluster of the node; another one raises. Empty means any.
            named: Read exactly the queues that `seek` or `fetch` name, owning none.
            batch_size: Messages per queue and fetch at most; maxPullBatchSize may lower it where `named` is false.
            linger_ms: How long a fetch without messages waits at the node.
            timeout_ms: How long an answer may take beyond the linger.
            patience_ms: How long `messages` continues without any answer before it raises.
            protocol: "binary" or "compact".
            tls: For an address by TLS: the CA, and what the client shows.
            token: Who this is, for nodes with rules: a token, or the path of its file. Left out: PYDDMQ_TOKEN_FILE or
                PYDDMQ_TOKEN of the environment; "" for none.

        Raises:
            ClientMisuse: A malformed address, unknown protocol or number out of range.
        """
        if batch_size <= 0 or linger_ms < 0 or timeout_ms <= 0 or patience_ms < 0:
            raise ClientMisuse("batch_size and timeout_ms must be above 0, linger_ms and patience_ms 0 or above")
        self.group = group
        self.consumer_id = consumer_id or f"{os.getpid()}@{socket.gethostname()}#{next(_numbers)}"
        self._cluster = cluster
        self._named = named
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._timeout_ms = timeout_ms
        self._patience_ms = patience_ms
        self._idl: Any = idl.load("consumer")
        self._connection = Connection(address, self._idl.ConsumerService, protocol=protocol, tls=tls, token=token)
        self._hand = Hand()
        self._begin()
        self._current = None

    def fetch(
        self,
        positions: Mapping[Queue, int] | None = None,
        *,
        count_max: int | None = None,
        linger_ms: int | None = None,
    ) -> list[FetchedQueue]:
        """Fetch what comes next of each queue.

        Where nothing is there it returns after the linger, whatever the node does: so a loop around it does not spin.

        Args:
            positions: Offsets to continue from instead of its own, by (topic, qid); with `named` only those queues are
                read.
            count_max: Messages per queue, in place of batch_size.
            linger_ms: In place of the fetcher's.

        Returns:
            One entry per queue that it owns, or that was named; also of those without a message.

        Raises:
            Unreachable: No answer; nothing was moved, and the next fetch asks for the same.
            PullRefused: The node cannot serve the group, or one of the named queues.
            ClientMisuse: The fetcher is closed, another thread is making a call, or an offset is below 0.
        """
        with self._in_use():
            asked = self._hand.positions() if positions is None else offsets_of(positions)
            if positions is not None:
                self._hand.seek(positions)
                if not self._named:
                    asked = self._hand.positions()
            wait_ms = self._linger_ms if linger_ms is None else linger_ms
            began = time.monotonic()
            response = self._call(
                "fetch",
                self._idl.FetchRequest(
                    consumerId=self.consumer_id,
                    groupId=self.group,
                    cluster=self._cluster,
                    fetchOffset=asked,
                    maxBatchSize=count_max or self._batch_size,
                    maxLingerTime=wait_ms,
                    version=VERSION,
                    onlyNamed=self._named,
                ),
                wait_ms,
            )
            if response.code:
                texts = (known.text for known in PullCode if known == response.code)
                raise pull_refusal(response.code, next(texts, "the node refuses the fetch"))
            queues = queues_of(response)
            self._hand.take(queues, keeps_others=self._named)
        moved = any(asked.get(each.topic, {}).get(each.qid) not in (None, each.next_offset) for each in queues)
        if not moved and not any(each.messages for each in queues):
            # A node that answers empty at once (draining, or another maker's) is not hammered.
            self._stopping.wait(max(0.0, began + max(wait_ms, LINGER_MS_MIN) / 1000 - time.monotonic()))
        return queues

    def seek(self, positions: Mapping[Queue, int]) -> None:
        """Continue from these offsets, by (topic, qid); messages of those queues that were fetched before are dropped.

        Raises:
            ClientMisuse: An offset is below 0.
        """
        offsets_of(positions)
        self._hand.seek(positions)

    def rewind(self) -> None:
        """Continue from the first unacked message of each queue, which is redelivered with all later ones."""
        self._current = None
        self._hand.rewind()

    def ack(self, message: FetchedMessage) -> bool:
        """Mark a message as done; `flush` sends this to the node.

        The position of its queue moves when all earlier messages are done, too: an unacked message is never skipped.

        Returns:
            False where it is not in hand any more: its queue is another fetcher's, who gets it again.
        """
        if self._current is message:
            self._current = None
        return self._hand.finish(message)

    def skip(self, message: FetchedMessage) -> None:
        """Leave a message undone: the position of its queue stays before it, and `rewind` brings it again."""
        if self._current is message:
            self._current = None

    def ack_positions(self, positions: Mapping[Queue, int]) -> bool:
        """Report positions to the node that the caller stores: by (topic, qid) the next offset to consume.

        Returns:
            False where any of them did not count: the queue is another fetcher's, is unknown, or has no such offset.

        Raises:
            Unreachable: No answer; whether they were stored is unknown. They may be reported again.
        """
        with self._in_use():
            counted = bool(self._ack(positions))
            if counted:
                self._hand.acked(positions)
        return counted

    def flush(self) -> bool:
        """Report all positions that moved to the node; they are durable when this returns True.

        Returns:
            False where any of them did not count; they are kept until a fetch says whose queues those are.

        Raises:
            Unreachable: No answer; they are kept for the next call.
        """
        positions = self._hand.due()
        return not positions or self.ack_positions(positions)

    def __iter__(self) -> Iterator[FetchedMessage]:
        return self.messages()

    def messages(self, *, idle_ms: int | None = None) -> Iterator[FetchedMessage]:
        """Yield message after message, fetching as needed and reporting positions before each fetch.

        Advancing to the next message acks the one before, unless `skip` was called for it. Leaving a `with` block with
        an exception leaves the present message unacked.

        Args:
            idle_ms: End after this long without a message; None for never (until `stop`).

        Raises:
            Unreachable: No answer for `patience_ms`.
            PullRefused: The node cannot serve the group, and waiting did not or will not change that.
        """

        def ask() -> list[FetchedMessage]:
            self.flush()
            return [message for queue in self.fetch() for message in queue.messages]

        take = partial(self._patiently, ask, self._patience_ms)
        return self._one_by_one(take, self.ack, idle_ms=idle_ms, linger_ms=self._linger_ms)

    def close(self) -> None:
        """Report done messages to the node, and close the connection. Its queues are reassigned after 30 s of silence.

        Raises:
            ClientError: The report failed: those messages are redelivered.
            ClientMisuse: Another thread is making a call; `stop` ends its loop.
        """
        self._stopping.set()
        if self._closed:
            return
        with self._in_use():
            try:
                if positions := self._hand.due():
                    self._ack(positions)
            finally:
                self._closed = True
                self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._current is not None and error is None:
            self.ack(self._current)
        try:
            self.close()
        except ClientError as closing:
            if error is None:
                raise
            error.add_note(f"also, positions were not reported: {closing}")

    def _ack(self, positions: Mapping[Queue, int]) -> Any:
        result = self._idl.AckResult(
            consumerId=self.consumer_id, groupId=self.group, cluster=self._cluster, offsets=offsets_of(positions)
        )
        return self._connection.call("ack", {"result": result}, timeout_ms=self._timeout_ms)

    def _call(self, method: str, request: Any, wait_ms: int) -> Any:
        return self._connection.call(method, {"request": request}, timeout_ms=self._timeout_ms + wait_ms)
