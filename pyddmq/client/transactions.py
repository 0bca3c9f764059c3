"""Transactions as a program sees them: states, listener, message, result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from pyddmq.client.requests import NodeRequest, body_bytes
from pyddmq.client.sends import HALF, OutgoingMessage


class LocalState(IntEnum):
    """What became of a local transaction; the numbers are RocketMQ's in a record's flags and on the wire.

    UNKNOWN: not known yet, the node asks again. COMMIT: the message is delivered. ROLLBACK: it never is.
    """

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMessage:
    """A message of a transaction, as listeners see it.

    Attributes:
        transaction_id: Its id, known before the local transaction begins; consumers see it as the message's UNIQ_KEY.
        topic: The topic it is meant for.
        body: Its bytes.
        key: Message key, or None.
        tags: RocketMQ's TAGS, or None.
        properties: The user properties.
        queue: Number of the queue it is meant for; -1 in `execute`, when only the node knows it.
        check_times: Which check this is, from 1 on; 0 in `execute`.
        born_ms: When the half arrived, wall clock ms of the node; 0 in `execute`.
    """

    transaction_id: str
    topic: str
    body: bytes
    key: str | None = None
    tags: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    queue: int = -1
    check_times: int = 0
    born_ms: int = 0


class TransactionListener(Protocol):
    """What a program gives to a `TransactionProducer`. None, or an exception, means UNKNOWN."""

    def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Run the local transaction of a half that is stored.

        Called in the thread that sends. Store the transaction id with what the transaction writes, so that `check`
        finds it in this process and in any other of the producer group.

        Args:
            message: The message with its transaction id.
            arg: What `send_in_transaction` was given.
        """

    def check(self, message: TransactionMessage) -> LocalState | None:
        """Say what became of a local transaction, perhaps of another process.

        Called in a separate thread, one check after the other. An unknown id belongs to a transaction that never began:
        return ROLLBACK, if no other process may still be in `execute` with it.

        Args:
            message: The message with its transaction id and the number of the check.
        """


class AsyncTransactionListener(Protocol):
    """What a program gives to an `AsyncTransactionProducer`; as `TransactionListener`, in the producer's event loop."""

    async def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Run the local transaction of a half that is stored; see `TransactionListener.execute`.

        Awaited in the task that sends. What is cancelled there is left to `check`.

        Args:
            message: The message with its transaction id.
            arg: What `send_in_transaction` was given.
        """

    async def check(self, message: TransactionMessage) -> LocalState | None:
        """Say what became of a local transaction; see `TransactionListener.check`.

        Awaited in a task of its own, one check after the other.

        Args:
            message: The message with its transaction id and the number of the check.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """What became of a message that was sent in a transaction.

    Attributes:
        status: "SEND_OK": the half is stored; everything else is an exception.
        message_id: Id (UNIQ_KEY) of the message; also the transaction's.
        queue_offset: Offset of the half message in the node's half queue; -1 if unknown.
        transaction_id: Known to `execute`.
        state: What `execute` answered; UNKNOWN when it failed.
        remark: Text of its exception; "" without one.
        decided: Whether the node has answered that the state, COMMIT or ROLLBACK, is durable. If not, it asks `check`.
        problem: Why the decision could not be sent, or was refused; "" otherwise.
        attempts: How often the half was sent.
    """

    status: str
    message_id: str
    queue_offset: int
    transaction_id: str
    state: LocalState
    remark: str
    decided: bool
    problem: str
    attempts: int


REMARK_CHARS_MAX = 1000


def half_request(message: Any, group: str, timeout_ms: int) -> NodeRequest[tuple[Any, int]]:
    """Return the call that stores a half; what it returns is with the number of attempts."""
    arguments = {"message": message, "producerGroup": group, "timeout": timeout_ms}
    return NodeRequest(HALF, arguments, timeout_ms, [message], lambda result, attempts: (result, attempts))


def end_request(decision: Any, timeout_ms: int) -> NodeRequest[None]:
    """Return the call that sends a decision."""
    return NodeRequest("endTransaction", {"decision": decision}, timeout_ms, (), lambda _result, _attempts: None)


def executed_message(message: OutgoingMessage, half: Any) -> TransactionMessage:
    """Message of a half that the node has just stored, as `execute` sees it."""
    return TransactionMessage(
        transaction_id=half.transactionId or "",
        topic=message.topic,
        body=body_bytes(message.body),
        key=message.key,
        tags=message.tags,
        properties=dict(message.properties or {}),
    )


def transaction_result(half: Any, state: LocalState, remark: str, problem: str, attempts: int) -> TransactionResult:
    """Build what `send_in_transaction` returns; `problem` is why the decision was not kept, "" when it is."""
    transaction_id = half.transactionId or ""
    return TransactionResult(
        status="SEND_OK",
        message_id=transaction_id,
        queue_offset=-1 if half.offset is None else half.offset,
        transaction_id=transaction_id,
        state=state,
        remark=remark,
        decided=not problem and state is not LocalState.UNKNOWN,
        problem=problem,
        attempts=attempts,
    )


def judged(answer: object) -> tuple[LocalState, str]:
    """State that a listener's answer means, and a remark when it is none."""
    if answer is None:
        return LocalState.UNKNOWN, ""
    if isinstance(answer, LocalState):
        return answer, ""
    return LocalState.UNKNOWN, f"the listener answered {answer!r}, which is not a LocalState"[:REMARK_CHARS_MAX]


def remark_of(error: Exception) -> str:
    """Text of a listener's exception, as it travels to the node."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text[:REMARK_CHARS_MAX]
