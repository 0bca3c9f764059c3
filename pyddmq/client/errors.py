"""What can go wrong between a client and a node, one class per thing that a caller may want to handle.

Three families: `Unreachable` (the network), `Refused` (the node answered no, with a stable code) and `ClientMisuse`
(this program's own mistake). docs/client.md lists the codes.
"""

from __future__ import annotations

from pyddmq.codes import PullCode, ResultCode

RETRY_AFTER_MS_MAX = 30_000
"""Longest pause that a client makes since the node says so."""


class ClientError(Exception):
    """Root of everything the client raises, but for `ClientMisuse`.

    Attributes:
        retriable: Whether the same call may succeed later without any change.
        undecided: Whether the call may have taken effect all the same, by any of its attempts.
        attempts: How often it was sent, or was to be sent.
    """

    retriable: bool = False
    undecided: bool = False
    attempts: int = 1

    def count(self, attempts: int, *, undecided: bool) -> None:
        """Have the error speak for all attempts of its call.

        Args:
            attempts: How many there were, the one that it is of included.
            undecided: One of those before may have taken effect: so may the call, whatever became of the last one.
        """
        self.attempts = attempts
        if undecided and not self.undecided:
            self.undecided = True
            self.args = (f"{self}; an earlier attempt may have taken effect", *self.args[1:])


class ClientMisuse(ValueError):
    """The caller asked for something that no node can do: a malformed address, a result for a foreign message."""


class Unreachable(ClientError):
    """No answer came.

    Attributes:
        address: Where the node was expected, `host:port`.
        sent: Whether the request may have reached the node, in any attempt, so that its effect is unknown.
    """

    retriable = True

    def __init__(self, text: str, *, address: str, sent: bool) -> None:
        super().__init__(text)
        self.address = address
        self.undecided = sent

    @property
    def sent(self) -> bool:
        """See the class."""
        return self.undecided


class CannotConnect(Unreachable):
    """No server accepts connections at the address: this attempt sent nothing.

    Attributes:
        reason: What the system says.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot connect to {address}: {reason}", address=address, sent=False)
        self.reason = reason


class TlsFailed(CannotConnect):
    """A connection by TLS cannot be had: a certificate, a name or a version does not fit. Nothing was taken of a call.

    A retry cannot succeed, so none is made.
    """

    retriable = False


class ConnectionLost(Unreachable):
    """The connection ended before the answer was complete; the call may have taken effect."""

    def __init__(self, address: str, method: str, reason: str) -> None:
        super().__init__(f"connection to {address} was lost during {method}: {reason}", address=address, sent=True)


class CallTimedOut(Unreachable):
    """No answer within the call's timeout; the call may have taken effect."""

    def __init__(self, address: str, method: str, timeout_ms: int) -> None:
        super().__init__(f"{address} did not answer {method} within {timeout_ms} ms", address=address, sent=True)


class NotThrift(ClientError):
    """The reply is not framed Thrift: another kind of server listens at this address."""

    undecided = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the server at {address} is not a pyddmq Thrift port: {reason}")
        self.address = address


class Refused(ClientError):
    """The node answered, and the answer is no.

    Attributes:
        code: The stable code of the answer.
        text: The node's sentence.
        retry_after_ms: Time until the next call, as requested by the node; 0 if the node did not say.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} (code {code})" if text else f"code {code}")
        self.code = code
        self.text = text
        self.retry_after_ms = 0


_NEVER_BEGUN = frozenset((1, 2, 3, 7))
"""Kinds of TApplicationException for a request that was not understood."""


class CallRejected(Refused):
    """A TApplicationException: unknown method (1), internal error (6), undecodable arguments (7)."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.undecided = code not in _NEVER_BEGUN


class AccessRefused(Refused):
    """The node does not take the token by which the client says who it is; nothing was done of the call."""


class SendRefused(Refused):
    """A publish was answered with a code other than 0.

    Attributes:
        stored: False when the node certainly stored nothing, in any attempt; None when it cannot be known.
    """

    @property
    def stored(self) -> bool | None:
        """See the class."""
        return None if self.undecided else False


class SendFailed(SendRefused):
    """Code 10: the node failed for a reason of its own; whether the message is stored is unknown."""

    undecided = True


class IllegalMessage(SendRefused):
    """Code 11: the message violates a rule (size, key, tags, property names); sending it again cannot help."""


class SendTimedOut(SendRefused):
    """Code 12: the message was not durable within the timeout of the request; it may be later."""

    undecided = True


class TopicNotAllowed(SendRefused):
    """Code 13: this node does not serve the topic."""


class TopicNotFound(SendRefused):
    """Code 14: the broker knows no such topic."""


class RateLimited(SendRefused):
    """Code 15: above a rate: the topic's, the node's or the client's; this attempt stored nothing."""


class TopicKindMismatch(SendRefused):
    """Codes 18 and 19: a delayed message to a plain topic, or a plain one to a delay topic."""


class NodeShuttingDown(SendRefused):
    """Code 20: the node is stopping; this attempt stored nothing."""


class SequenceGap(SendRefused):
    """Code 48: the node knows nothing of a message numbered before this one; this attempt stored nothing.

    The client continues under another name automatically; it is raised only when an earlier attempt may have been
    stored.
    """


class PullRefused(Refused):
    """A PullException; `retriable` says whether a later retry may succeed."""


SEND_REFUSALS: dict[int, type[SendRefused]] = {
    10: SendFailed,
    11: IllegalMessage,
    12: SendTimedOut,
    13: TopicNotAllowed,
    14: TopicNotFound,
    15: RateLimited,
    18: TopicKindMismatch,
    19: TopicKindMismatch,
    20: NodeShuttingDown,
    48: SequenceGap,
}
"""Result codes of sends and the classes they become; other codes are `SendRefused`."""


def send_refusal(code: int, text: str, retry_after_ms: int | None = None) -> SendRefused:
    """Build the exception for a publish's result code, which is not 0."""
    error = SEND_REFUSALS.get(code, SendRefused)(code, text)
    error.retriable = next((known.retriable for known in ResultCode if known == code), False)
    error.retry_after_ms = _within(retry_after_ms)
    return error


def pull_refusal(code: int, text: str, retry_after_ms: int | None = None) -> PullRefused:
    """Build the exception for a PullException."""
    error = PullRefused(code, text)
    error.retriable = next((known.retriable for known in PullCode if known == code), False)
    error.retry_after_ms = _within(retry_after_ms)
    return error


def _within(retry_after_ms: int | None) -> int:
    """Return what a node says of when to come again, as far as a client believes it."""
    return min(max(0, retry_after_ms or 0), RETRY_AFTER_MS_MAX)
