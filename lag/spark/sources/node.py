"""One node over Thrift: positions of a low-level group, fetches of named queues, acks (docs/low-level.md).

Each call may be made again, so a lost connection, a node that starts and one that is short of memory are waited out for
some seconds. What a node refuses for good is an error with what would be right.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from lag.spark.sources import wire
from lag.spark.sources.options import OptionRefused
from pyddmq.client.calls import Conversation, run_now
from pyddmq.client.connection import SocketStream
from pyddmq.client.errors import ClientError, ClientMisuse
from pyddmq.client.tls import SCHEME, Tls

# TLS towards a node, as options of the sources and the sink say: `node` as `tls://host:port`, and files beside it.
#
# `tlsCa`, `tlsCertificate`, `tlsKey` are paths where Spark's tasks run, on every worker; `tlsServerName` is the name
# that the node's certificate must have. Nothing ever falls back to plain text.


OPTIONS: Final = {"tlsCa": "ca", "tlsCertificate": "certificate", "tlsKey": "key", "tlsServerName": "server_name"}
"""By option, the field that it sets."""
_SENTENCES: Final = {
    "ca, --tls-ca": "option tlsCa",
    "certificate, --tls-certificate": "options tlsCertificate, tlsKey",
    "server_name, --tls-name": "option tlsServerName",
}


def tls_of(options: Mapping[str, str]) -> Tls:
    """Read the options. Raises OptionRefused: they stand beside an address without TLS."""
    given = {name: options[name] for name in OPTIONS if options.get(name)}
    node = options.get("node", "")
    if given and not node.startswith(SCHEME):
        names = ", ".join(given)
        raise OptionRefused(f"options {names} are for TLS, and option 'node' is {node!r}; write {SCHEME}host:port")
    return Tls(**{OPTIONS[name]: value for name, value in given.items()})


def by_option(sentence: str) -> str:
    """Return a sentence of the client's with the names of the options in the place of its own."""
    for name, option in _SENTENCES.items():
        sentence = sentence.replace(name, option)
    return sentence


Positions = Mapping[str, Mapping[str, int]]
"""Offset by qid, by topic."""

CALL_MS: Final = 15_000
"""How long one answer may take, connecting included."""
LINGER_MS: Final = 50
"""How long a fetch of nothing waits at the node."""
VERSION: Final = "pyddmq-spark"
_PAUSE_FIRST: Final = 0.05
_PAUSE_MAX: Final = 1.0
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s\[\]]+):(\d{1,5})")

NO_SUCH_TOPIC: Final = 2
NO_SUCH_QUEUE: Final = 12
CODES: Final = {
    1: "no group {group!r} is configured on this node; use one of its low-level groups",
    NO_SUCH_TOPIC: "group {group!r} does not subscribe to the topic; use one of its topics",
    3: "the node is starting",
    4: "the node is overloaded, or short of memory",
    5: "group {group!r} has no enabled topic; enable one in the node's configuration",
    8: (
        "this client is not allowed to fetch as {group!r}; use a token with that right, or grant it to the "
        "client's network"
    ),
    9: "this client exceeds its limit (`limits` of the node's configuration)",
    11: "group {group!r} is not low level; write `actions: [LowLevel]` for its topics",
    NO_SUCH_QUEUE: "a requested queue does not exist",
    13: "the node is not of the cluster in option 'cluster'",
}
"""What `FetchResponse.code` and `PullException.code` mean here."""
PASSING: Final = frozenset((3, 4, 9))
"""Those that another call may not get."""


class NodeFailed(Exception):
    """A node cannot be reached, or what it says is no answer; the sentence says which."""


class NodeRefused(Exception):
    """A node refuses a call. `code` is one of CODES, or another one of PullException."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(code, sentence)
        self.code = code

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.args[1]} (code {self.code})"


class QueueOffsets(NamedTuple):
    """Offsets of a queue: the first offset that is kept, what the group committed, the end."""

    start: int
    committed: int
    end: int


class FetchedRange(NamedTuple):
    """What a fetch found in one queue: where to continue, and messages as dicts by field id, oldest first."""

    next_offset: int
    messages: list[dict[int, Any]]


class NodeClient:
    """A connection to one port of a node; a context manager. It is opened by the first call.

    Args:
        address: `host:port`, or `tls://host:port`.
        cluster: Expected brokerCluster of the node; another one raises. Empty means any.
        patience: Seconds for which a call that got no answer is made again.
        tls: For an address by TLS.

    Raises:
        OptionRefused: The address is malformed.
    """

    def __init__(self, address: str, *, cluster: str = "", patience: float = 0.0, tls: Tls | None = None) -> None:
        match = _ADDRESS.fullmatch(address.removeprefix(SCHEME))
        if match is None or not 0 < int(match[2]) < 65_536:
            raise OptionRefused(f"option 'node' is {address!r}; write host:port of the node's consumer port")
        self.address = address
        tls = tls if address.startswith(SCHEME) else None
        self._calls = Conversation(SocketStream(), address, wire.ExecutorCodec(address), tls=tls)
        self._cluster = cluster
        self._patience = patience

    def check(self, group: str, topics: Iterable[str]) -> None:
        """Ask whether a group is low level and has these topics. Raises NodeRefused, NodeFailed."""
        for topic in topics:
            try:
                self._fetch(group, {topic: {}}, 1, 0)
            except NodeRefused as refused:
                if refused.code != NO_SUCH_TOPIC:
                    raise
                known = ", ".join(sorted(self.standings(group))) or "none"
                text = f"group {group!r} does not subscribe to {topic!r} on {self.address}; it has {known}"
                raise NodeRefused(NO_SUCH_TOPIC, text) from None

    def standings(self, group: str) -> dict[str, dict[str, QueueOffsets]]:
        """Return the offsets of each queue, by topic and qid; empty: no such group. Raises NodeRefused, NodeFailed."""
        result = self._result("getConsumeStats", [wire.structure(1, [wire.text(1, group)])], group)
        found: dict[str, dict[str, QueueOffsets]] = {}
        try:
            for row in result:
                starts, committed, ends = row.get(101, {}), row[3], row[4]
                found[row[2].decode()] = {
                    qid.decode(): QueueOffsets(int(starts.get(qid, 0)), int(committed[qid]), int(end))
                    for qid, end in ends.items()
                }
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise NodeFailed(f"{self.address} returned no positions: {error!r}") from error
        return found

    def fetch(self, group: str, topic: str, qid: str, offset: int, count: int) -> FetchedRange:
        """Fetch from an offset of one queue on, whichever client owns it.

        Returns:
            Messages whose offsets rise and lie before `next_offset`.

        Raises:
            NodeRefused: The group or the queue is not to be had.
            NodeFailed: No answer, or one that cannot be.
        """
        rows = self._fetch(group, {topic: {qid: offset}}, count, LINGER_MS)
        try:
            [row] = rows
            found = FetchedRange(int(row.get(3, offset)), row[10])
            offsets = [message[4] for message in found.messages]
            is_right = (row[1], row[2]) == (topic.encode(), qid.encode()) and all(
                before < after for before, after in pairwise([*offsets, found.next_offset])
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NodeFailed(f"{self.address} returned an invalid answer to a fetch: {error!r}") from error
        if not is_right:
            raise NodeFailed(f"{self.address} answered a fetch of {topic} {qid} at {offset} with other messages")
        return found

    def ack(self, group: str, offsets: Positions) -> bool:
        """Tell up to where all is done; durable when it returns. False: not all of it counted. Raises NodeFailed."""
        fields = [
            wire.text(1, _consumer()),
            wire.text(2, group),
            wire.text(3, self._cluster),
            wire.positions(4, offsets),
        ]
        return bool(self._result("ack", [wire.structure(1, fields)], group))

    def call(self, method: str, arguments: Iterable[bytes]) -> dict[int, Any]:
        """Make a call once; returns the fields of its result. Raises NodeFailed."""
        try:
            return run_now(self._calls.call(method, arguments, CALL_MS))
        except wire.ThriftFault as error:
            raise NodeFailed(f"{self.address} does not serve {method}: {error}") from error
        except (ClientError, ClientMisuse) as error:
            raise NodeFailed(f"no answer from {self.address}: {by_option(str(error))}") from error

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fetch(self, group: str, offsets: Positions, count: int, linger_ms: int) -> Any:
        fields = [
            wire.text(1, _consumer()),
            wire.text(2, group),
            wire.text(3, self._cluster),
            wire.positions(4, offsets),
            wire.i32(10, count),
            wire.i32(11, linger_ms),
            wire.text(60, VERSION),
            wire.boolean(101, True),
        ]
        found = self._result("fetch", [wire.structure(1, fields)], group)
        return found.get(10) if isinstance(found, dict) else None

    def _result(self, method: str, arguments: list[bytes], group: str) -> Any:
        """Make a call, again where another try may help; returns its value."""
        until, pause = time.monotonic() + self._patience, _PAUSE_FIRST
        while True:
            try:
                return self._call_once(method, arguments, group)
            except (NodeFailed, NodeRefused) as error:
                passing = isinstance(error, NodeFailed) or error.code in PASSING
                if not passing or time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX)

    def _call_once(self, method: str, arguments: list[bytes], group: str) -> Any:
        result = self.call(method, arguments)
        found = result.get(0)
        # A fetch says why it is refused in its answer, the others by an exception.
        reported = found.get(1) if method == "fetch" and isinstance(found, dict) else result.get(1, {}).get(1)
        if reported:
            sentence = CODES.get(reported, "the node refuses the call").format(group=group)
            raise NodeRefused(reported, f"{self.address}: {sentence}")
        if found is None:
            raise NodeFailed(f"{self.address} answered {method} with nothing")
        return found


def number_of(qid: str) -> int:
    """Return the number of a queue, which its qid ends with. Raises NodeFailed."""
    number = qid.rpartition("_")[2]
    if not number.isdecimal():
        raise NodeFailed(f"invalid queue {qid!r}: a node's qid ends with _ and a number")
    return int(number)


def _consumer() -> str:
    """Return the client name under which positions are sent; it owns no queue, so any name works."""
    return f"spark-{os.getpid()}@{socket.gethostname()}"[:255]
