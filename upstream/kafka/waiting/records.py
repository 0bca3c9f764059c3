"""Keys and values of the waiting topic, and of the answers: what is written, and read again by any node."""

from __future__ import annotations

import json
import struct
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote
from zlib import crc32

import msgspec

from broker.transaction.outcomes import End, EndOutcome
from upstream.kafka.link import Headers

VERSION = 1
_SIZE = struct.Struct(">BI")
HEAD_START = _SIZE.size
"""Bytes of a value that say how long its head is (`head_size`)."""
_HANDLE_CHARS_MAX = 1024
_DECODE_KEY = msgspec.json.Decoder(list[str]).decode

DELIVERED = "delivered"
CANCELLED = "cancelled"
REFUSED = "refused"
COMMITTED = "committed"
ROLLED_BACK = "rolled back"
"""Outcomes of an ended message: in its topic, cancelled, in the dead-letter topic of its target; of a half decided."""
MOVED = "moved"
TOO_LATE = "too late"
UNKNOWN_ID = "unknown"
"""Further answers to a request."""


_TEXTS = {
    End.OK: "",
    End.ALREADY_SAME: "",
    End.ALREADY_OTHER: "the transaction was decided otherwise before",
    End.DISCARDED: "the transaction was discarded after its checks; an operator can resume or decide it",
    End.UNKNOWN_HANDLE: "no such transaction, or it ended long ago",
    End.WRONG_GROUP: "the transaction belongs to another producer group",
    End.REFUSED: "the transaction is not discarded; only discarded ones can be resumed",
    End.TOO_LATE: "the transaction is older than it requested: only the answer to a check decides it now",
}
_SILENT = EndOutcome(
    End.SEARCH_FAILED, "the node that owns the transaction has not responded; it may be decided; send again"
)


class NewerRecord(Exception):
    """A record of a newer version of pyddmq: its partition cannot be served by this one."""


class Damaged(Exception):
    """A record that no version of pyddmq wrote."""


class KeyState(IntEnum):
    """What a key of the waiting topic has."""

    WAITING = 0
    ENDED = 1
    REQUEST = 2
    REPEAT = 3
    HALF = 4
    DISCARDED = 5
    CHECKS = 6


class Identity(NamedTuple):
    """What names a waiting message; `principal` is "" without sign-in."""

    topic: str
    principal: str
    id: str

    @property
    def text(self) -> bytes:
        """What is in keys, and chooses the partition."""
        return json.dumps(list(self), ensure_ascii=True, separators=(",", ":")).encode()

    def partition(self, count: int) -> int:
        """Return its partition of so many."""
        return crc32(self.text) % count

    def key(self, nonce: str, request: str = "") -> bytes:
        """Return the key of an attempt, or of a request."""
        return json.dumps([*self, nonce, *([request] if request else [])], separators=(",", ":")).encode()


def identity_text(key: bytes) -> bytes:
    """Return `Identity.text` of a key: its first three elements, since `,"` is in no string of JSON."""
    return b',"'.join(key.split(b',"', 3)[:3]) + b"]"


def parse_key(key: bytes | None) -> tuple[Identity, bool]:
    """Return whose a key is, and whether it is a request's. Raises Damaged."""
    try:
        topic, principal, name, _, *rest = _DECODE_KEY(key or b"")
    except (ValueError, msgspec.MsgspecError) as error:
        raise Damaged(f"{(key or b'')[:80]!r} is not a key of this topic") from error
    return Identity(topic, principal, name), bool(rest)


def half_handle(cluster: str, identity: Identity) -> str:
    """Return what names a half on the wire and for operators: `kafka/<cluster>/<topic>/<principal>/<id>`, quoted."""
    return "/".join(["kafka", *(quote(each, safe="") for each in (cluster, *identity))])


def parse_half_handle(text: str) -> tuple[str, Identity] | None:
    """Return cluster and identity of a handle; None: it is not one of Kafka's."""
    parts = text.split("/") if len(text) <= _HANDLE_CHARS_MAX else []
    if len(parts) != 5 or parts[0] != "kafka":
        return None
    cluster, *identity = map(unquote, parts[1:])
    return cluster, Identity(*identity)


def half_outcome(text: str) -> EndOutcome:
    """Return what an owner's answer means for a producer."""
    try:
        end = End(text)
    except ValueError:
        return _SILENT
    return EndOutcome(end, _TEXTS.get(end, ""))


class WaitingHalf(NamedTuple):
    """What makes a waiting message one of a transaction.

    Attributes:
        group: Its producer group.
        state: "undecided", "discarded", or "committed" while the delay that its commit began runs.
        deliver_at_ms, delay_ms: When a commit delivers it; 0, 0: at once.
        immunity_ms: Age at its first check, if its producer asked for one; -1: as configured.
    """

    group: str
    state: str = "undecided"
    deliver_at_ms: int = 0
    delay_ms: int = 0
    immunity_ms: int = -1


class WaitingRecord(NamedTuple):
    """A message that waits.

    Attributes:
        due_ms: Wall clock, ms since the epoch; of a half its first check, of a discarded one when that was.
        partition: Of its target topic; None: by the key.
        key, body, headers: Of the record that is delivered.
        kind: "timer", "level" or "loop", for listings.
        level: Its delay level; 0: it waits in none.
        loop: The id of the pending occurrence of a delay message of DDMQ's; "": it is none.
        owned: The owner wrote it: a move, or a loop's next occurrence.
        at_ms: When it was first written.
        half: Of a message in a transaction.
    """

    due_ms: int
    partition: int | None
    key: bytes | None
    body: bytes
    headers: Headers
    kind: str = "timer"
    loop: str = ""
    owned: bool = False
    at_ms: int = 0
    half: WaitingHalf | None = None
    level: int = 0


class EndedMessage(NamedTuple):
    """How a message ended, and when; `group` is the producer group of a half."""

    outcome: str
    at_ms: int
    group: str = ""


class HalfChecks(NamedTuple):
    """How often a half was checked, and when it may be again; a record of its own beside the half."""

    times: int
    next_ms: int


class WaitingRequest(NamedTuple):
    """A cancel, or a move to `due_ms` where that is above 0; `request` names it in its answer."""

    request: str
    due_ms: int = 0


class HalfDecision(NamedTuple):
    """What is to become of a half.

    Attributes:
        request: Names it in its answer.
        state: "commit", "rollback", "unknown", or "resume" for a discarded one.
        group: The producer group that decides; "": an operator, who may decide any.
        principal: Who asks; "": for all halves.
        from_check: It answers a check.
    """

    request: str
    state: str
    group: str = ""
    principal: str = ""
    from_check: bool = False


Content = WaitingRecord | EndedMessage | WaitingRequest | HalfChecks | HalfDecision
_NAMES: dict[type[Content], str] = {
    EndedMessage: "ended",
    WaitingRequest: "request",
    HalfChecks: "checks",
    HalfDecision: "decision",
}


def encode(content: Content) -> bytes:
    """Return the value of a record."""
    body = b""
    if isinstance(content, WaitingRecord):
        facts: dict[str, Any] = content._asdict()
        body = facts.pop("body")
        facts["key"] = _text(content.key)
        facts["headers"] = [[name, _text(value)] for name, value in content.headers]
        facts["half"] = content.half and content.half._asdict()
        if not content.level:
            del facts["level"]
        facts["what"] = "waiting"
    else:
        facts = {**content._asdict(), "what": _NAMES[type(content)]}
    head = msgspec.json.encode(facts)
    return b"".join((_SIZE.pack(VERSION, len(head)), head, body))


_Whole = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
"""What SQLite takes."""


class _HalfHead(msgspec.Struct):
    group: str
    state: str = "undecided"
    deliver_at_ms: _Whole = 0
    delay_ms: _Whole = 0
    immunity_ms: _Whole = -1


class WaitingHead(msgspec.Struct, tag_field="what", tag="waiting"):
    """A `WaitingRecord` without its body; the next ones have what their contents have, in the same order."""

    due_ms: _Whole
    partition: _Whole | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    owned: bool
    at_ms: _Whole
    half: _HalfHead | None
    kind: str = "timer"
    loop: str = ""
    level: _Whole = 0


class EndedHead(msgspec.Struct, tag_field="what", tag="ended"):
    """Of an `EndedMessage`."""

    outcome: str
    at_ms: _Whole
    group: str


class ChecksHead(msgspec.Struct, tag_field="what", tag="checks"):
    """Of `HalfChecks`."""

    times: _Whole
    next_ms: _Whole


class RequestHead(msgspec.Struct, tag_field="what", tag="request"):
    """Of a `WaitingRequest`."""

    request: str
    due_ms: _Whole = 0


class DecisionHead(msgspec.Struct, tag_field="what", tag="decision"):
    """Of a `HalfDecision`."""

    request: str
    state: str
    group: str = ""
    principal: str = ""
    from_check: bool = False


Head = WaitingHead | EndedHead | ChecksHead | RequestHead | DecisionHead
_CONTENTS: dict[type[Head], Callable[..., Content]] = {
    EndedHead: EndedMessage,
    ChecksHead: HalfChecks,
    RequestHead: WaitingRequest,
    DecisionHead: HalfDecision,
}
_DECODE_HEAD: Callable[[bytes], Head] = msgspec.json.Decoder(Head).decode


def head_size(start: bytes) -> int:
    """Return how many bytes of a value are its head, behind those at its start."""
    size: int = _SIZE.unpack(start)[1]
    return size


def head_of(value: bytes) -> Head:
    """Return all of a value but a message's body: what is cached can be decoded. Raises Damaged, NewerRecord."""
    try:
        version, size = _SIZE.unpack_from(value)
        if version > VERSION:
            raise NewerRecord(f"version {version}")
        return _DECODE_HEAD(value[_SIZE.size : _SIZE.size + size])
    except (struct.error, msgspec.MsgspecError) as error:
        raise Damaged(f"not a record of this topic: {error}") from error


def decode(value: bytes) -> Content:
    """Return what a value says. Raises Damaged, NewerRecord."""
    head = head_of(value)
    if not isinstance(head, WaitingHead):
        return _CONTENTS[type(head)](*msgspec.structs.astuple(head))
    return WaitingRecord(
        head.due_ms,
        head.partition,
        head.key,
        value[HEAD_START + head_size(value[:HEAD_START]) :],
        head.headers,
        head.kind,
        head.loop,
        head.owned,
        head.at_ms,
        None if head.half is None else WaitingHalf(*msgspec.structs.astuple(head.half)),
        head.level,
    )


def encode_answer(request: str, outcome: str) -> bytes:
    """Return the value of an answer."""
    return json.dumps({"version": VERSION, "request": request, "outcome": outcome}).encode()


class PartitionStatus(NamedTuple):
    """What an owner says of its partition every second.

    Attributes:
        partition: Which.
        node: Its owner.
        state: As in the package's docstring.
        wall_ms: The owner's wall clock.
        pending: Messages that wait.
        late_ms: How long the first one is overdue.
        takeover_ms: How long the last takeover took.
        counts: Of each topic and principal how many wait.
        troubles: Sentences.
        undecided, undecided_ms: Halves among them that no one has decided or discarded, and the age of the oldest.
        overdue: Messages whose moment has passed.
        behind_ms: As `late_ms`, but for targets that take nothing.
        halves: Of each principal how many halves are undecided.
        discarded: Halves among them that were discarded.
    """

    partition: int
    node: str
    state: str
    wall_ms: int
    pending: int
    late_ms: int
    takeover_ms: int
    counts: list[tuple[str, str, int]]
    troubles: list[str]
    undecided: int = 0
    undecided_ms: int = 0
    overdue: int = 0
    behind_ms: int = 0
    halves: Sequence[tuple[str, int]] = ()
    discarded: int = 0


def encode_status(status: PartitionStatus) -> bytes:
    """Return its value in the answers topic."""
    return json.dumps({"version": VERSION, "status": status._asdict()}).encode()


def decode_answer(value: bytes | None) -> tuple[str, str] | PartitionStatus | None:
    """Return request and outcome, or a status; None: neither is in it."""
    try:
        facts = json.loads(value or b"")
        if "status" in facts:
            status = PartitionStatus(**facts["status"])
            return status._replace(
                counts=[(topic, owner, count) for topic, owner, count in status.counts],
                halves=tuple([(owner, count) for owner, count in status.halves]),
            )
        return str(facts["request"]), str(facts["outcome"])
    except (ValueError, TypeError, KeyError):
        return None


def _text(value: bytes | None) -> str | None:
    return None if value is None else b2a_base64(value, newline=False).decode()
