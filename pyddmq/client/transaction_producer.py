"""A producer of transactions: a message is stored half, the program's own transaction runs, its outcome decides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

from pyddmq.client.calls import run_now
from pyddmq.client.check_thread import AtOnce, CheckThread
from pyddmq.client.checks import CLOSE_SECONDS, Checks, run_transaction
from pyddmq.client.codec import WireProtocol
from pyddmq.client.connection import Connection
from pyddmq.client.errors import ClientMisuse
from pyddmq.client.producer import Producer
from pyddmq.client.requests import Request
from pyddmq.client.sends import OutgoingMessage
from pyddmq.client.tls import Tls
from pyddmq.client.tokens import Token
from pyddmq.client.transactions import TransactionListener, TransactionResult

T = TypeVar("T")


class TransactionProducer(Producer):
    """Sends messages in transactions, as RocketMQ's TransactionMQProducer does; a context manager.

    `start`, or entering the context, begins to answer the node's checks in a background thread with a connection of
    its own. Every process of a producer group answers checks of the whole group, so that another one decides when this
    one has died. Threads may share it: `execute` runs in the thread that sends, `check` in the background.
    """

    _service = "TransactionProducerService"

    def __init__(
        self,
        address: str,
        group: str,
        listener: TransactionListener,
        *,
        timeout_ms: int = 5000,
        resends: int = 1,
        resend_pause_ms: int = 50,
        protocol: WireProtocol = "binary",
        tls: Tls | None = None,
        token: Token | None = None,
        on_resend: Callable[[Exception], None] | None = None,
        deduplicate: bool = True,
        patience_ms: int = 0,
        check_batch_size: int = 16,
        check_linger_ms: int = 15_000,
        on_check_error: Callable[[Exception], None] | None = None,
    ) -> None:
        """Set up; `start` opens the connection for checks, the first send the other one.

        Args:
            address: As for `Producer`, like those up to `on_resend`.
            group: The producer group: programs that can say what became of each other's transactions.
            listener: Runs local transactions and knows what became of them.
            timeout_ms: How long the node may take for a half, and for a decision.
            resends: How often a half is sent again, and a decision that was not answered. A half that may be stored
                only where the node has told that it knows messages by their numbers.
            resend_pause_ms: Wait before each.
            protocol: "binary" or "compact".
            tls: For an address by TLS: the CA, and what the client shows.
            token: Who this is, for nodes with rules: a token, or the path of its file. Left out: PYDDMQ_TOKEN_FILE or
                PYDDMQ_TOKEN of the environment; "" for none.
            on_resend: Called with the failure before each.
            deduplicate: Number messages, as for `Producer`, like the next one.
            patience_ms: How long a send goes on, beyond `resends`, while nobody answers.
            check_batch_size: Checks fetched at once.
            check_linger_ms: How long a fetch waits at the node.
            on_check_error: Told of each fetch that failed, in the background thread; the next one follows after a
                pause of 0.1 to 5 s.

        Raises:
            ClientMisuse: A malformed address, no group, unknown protocol, or a number out of range.
        """
        super().__init__(
            address,
            timeout_ms=timeout_ms,
            resends=resends,
            resend_pause_ms=resend_pause_ms,
            protocol=protocol,
            tls=tls,
            token=token,
            on_resend=on_resend,
            deduplicate=deduplicate,
            patience_ms=patience_ms,
        )
        self.group = group
        self._listener = AtOnce(listener)
        self._checks = CheckThread(
            Connection(address, self._idl.TransactionProducerService, protocol=protocol, tls=tls, token=token),
            Checks(
                self._idl,
                group,
                batch_size=check_batch_size,
                linger_ms=check_linger_ms,
                on_error=on_check_error,
            ),
            self._listener,
        )
        self._started = threading.Event()

    def start(self) -> None:
        """Begin to answer checks; harmless the second time."""
        if not self._started.is_set():
            self._started.set()
            self._checks.start()

    def send_in_transaction(
        self, message: OutgoingMessage, arg: Any = None, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Store a message half, run the local transaction, and tell the node its outcome.

        Once the half is stored nothing raises but what is no `Exception` (an interrupt): a failure of `execute` is the
        state UNKNOWN with its text as remark, a decision that could not be told is in the result's `problem`, and the
        node asks `check`.

        Args:
            message: What is delivered on commit. A delay begins with the commit.
            arg: Handed to `execute`.
            timeout_ms: In the place of the producer's own.

        Raises:
            Unreachable: No answer; where its `sent` says so the half may be stored: `check` is asked about an id that
                `execute` never saw.
            SendRefused: The node refused the half; `execute` has not run.
        """
        if self._closing.is_set():
            raise ClientMisuse("this producer is closed: make a new one")
        self.start()
        timeout_ms = timeout_ms or self._timeout_ms
        steps = run_transaction(
            self._idl, self.group, message, arg, timeout_ms, listener=self._listener, call=self._call_at_once
        )
        return run_now(steps)

    async def _call_at_once(self, request: Request[T]) -> T:
        return self._call(request)

    def close(self) -> None:
        """End the background thread, once the check it is at has been answered, and close both connections.

        Raises:
            ClientMisuse: Called from `check`.
        """
        if self._started.is_set():
            self._checks.close(CLOSE_SECONDS)
        super().close()

    def __enter__(self) -> Self:
        self.start()
        return self
