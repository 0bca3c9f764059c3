"""Messages of a topic in Kafka, by the parameters of `proxy.operate.lookups.messages`.

The cluster is read beside the loop, at most 16 MiB of records per request; masks hold for what is shown and for what
is found.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import UNSET

from broker.errors import StoreError
from broker.format.numbers import whole_number
from broker.query import ALL_MS, LIMIT_DEFAULT, NotFound, QueryRefused
from broker.scheduled.timer.handle import parse_handle
from proxy.operate.lookups.masks import MASKED, TopicMask
from proxy.operate.lookups.messages import (
    BODY_CUT_BYTES,
    DESCRIBE_BYTES,
    KEY_NAME,
    LIMIT_MAX,
    PAGE_BYTES,
    PARAMETERS,
    TAIL,
    TEXT_BYTES,
    WHOLE_BYTES,
    text_of,
)
from proxy.operate.lookups.parameters import check_names, time_span
from proxy.operate.views.messages import MessagesAnswer, MessageView
from upstream.figures.tracing import Tracing, trace_id_of
from upstream.kafka.headers import TAG_NAME, decode, message_id
from upstream.kafka.link import KafkaFailure, KafkaRecord, ScanFound, TopicScan

Scan = Callable[[TopicScan], Awaitable[ScanFound]]
"""Looks through a topic of the cluster. Raises KafkaFailure."""

_CURSOR = re.compile(r"(\d{1,9}):(\d{1,18})")
_TAIL = re.compile(r"(\d{1,9})-(\d{1,18})")
MISSING = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC", "UNKNOWN_PARTITION"})


class ClusterUnavailable(StoreError):
    """A Kafka cluster does not respond, or refuses."""


@contextmanager
def kafka_errors(cluster: str) -> Iterator[None]:
    """Raise NotFound or ClusterUnavailable where a cluster has failed."""
    try:
        yield
    except KafkaFailure as failure:
        text = f"Kafka cluster {cluster}: {failure}"
        raise (NotFound if failure.code in MISSING else ClusterUnavailable)(text) from failure


class KafkaMessageSearch:
    """One request for messages of a topic in Kafka.

    Args:
        cluster: Name of its cluster.
        given: Of `PARAMETERS`; as text.
        now_ms: What `ago` means, ms since the epoch.
        mask: What is not shown.
        tracing: The node's; None where nothing is traced.

    Raises:
        QueryRefused: The parameters make no sense.
    """

    def __init__(
        self, cluster: str, given: Mapping[str, str], *, now_ms: int, mask: TopicMask, tracing: Tracing | None = None
    ) -> None:
        self._cluster = cluster
        self._given = given
        self._now_ms = now_ms
        self._mask = mask
        self._tracing = tracing
        check_names(given, PARAMETERS)
        self._body = given.get("body", "cut")
        if self._body not in ("none", "cut", "whole"):
            raise QueryRefused(f"body must be none, cut or whole, got {self._body!r}")
        if "physical" in given:
            raise QueryRefused("messages in Kafka have no commit-log offset; pass queue and offset")
        if "key" in given and KEY_NAME in mask.names:
            raise QueryRefused(f"keys of topic {given['topic']} are masked; search by id, offset or time")
        if "offset" in given and "queue" not in given:
            raise QueryRefused("an offset belongs to a queue; pass the queue, too")
        named = given.get("uniqKey", given.get("id", ""))
        handle = parse_handle(named)
        self._unique_key = named if handle is None else handle.unique_key
        self._text = given.get("text", "").encode("utf-8", "surrogatepass")
        self._begin_ms, self._end_ms = time_span(given, now_ms)
        self._is_one = "offset" in given and not {"limit", "cursor", "text", "key", "id", "uniqKey"} & given.keys()
        self._tail: dict[int, int] | None = None
        """By partition, the first offset that a tail has not shown; None where the search is not a tail."""
        self._scan = self._asked()

    async def found(self, scan: Scan) -> MessagesAnswer:
        """Search.

        Raises:
            NotFound: The topic, the partition or the message at the offset is not there.
            ClusterUnavailable: The cluster does not respond, or refuses.
        """
        with kafka_errors(self._cluster):
            found = await scan(self._scan)
        if self._is_one and [each.offset for each in found.records] != [self._scan.offset]:
            topic, queue = self._scan.topic, self._scan.partition
            raise NotFound(f"partition {queue} of topic {topic} has no message at offset {self._scan.offset}")
        left, described_bytes = WHOLE_BYTES, 0
        described = []
        for record in found.records:
            allowed = {"none": 0, "cut": BODY_CUT_BYTES, "whole": max(left, BODY_CUT_BYTES)}[self._body]
            described.append(self._described(record, allowed))
            left -= described[-1].body_bytes
            described_bytes += len(record.value or b"") + BODY_CUT_BYTES
            if described_bytes > DESCRIBE_BYTES:
                described_bytes = 0
                await asyncio.sleep(0)
        return MessagesAnswer(
            now_ms=self._now_ms, log_end=0, messages=described, cursor=self._next(found), share=found.share
        )

    def _next(self, found: ScanFound) -> str | None:
        """Return where the next request continues; a tail does so at each partition's end."""
        if self._tail is None:
            return None if found.cursor is None or self._is_one else f"{found.cursor[0]}:{found.cursor[1]}"
        is_begin = self._given["cursor"] == TAIL
        places = {each: end for each, (_, end) in found.bounds.items()} if is_begin else found.reached
        return tail_cursor(places)

    def _asked(self) -> TopicScan:
        given = self._given
        text = given.get("cursor", "0:0")
        pairs = [_TAIL.fullmatch(each) for each in text.split(".")]
        if text == TAIL or all(pairs):
            self._tail = {int(pair[1]): int(pair[2]) for pair in pairs if pair is not None}
        cursor = _CURSOR.fullmatch(text) if self._tail is None else _CURSOR.fullmatch("0:0")
        if cursor is None:
            raise QueryRefused(f"invalid cursor {text!r}; use the cursor returned by the previous page, or `{TAIL}`")
        is_search = bool({"text", "key", "id", "uniqKey"} & given.keys())
        return TopicScan(
            topic=given["topic"],
            matches=self._matches,
            partition=self._number("queue", 0) if "queue" in given else None,
            offset=self._number("offset", 0),
            begin=(int(cursor[1]), int(cursor[2])),
            from_ms=self._begin_ms or None,
            to_ms=None if self._end_ms == ALL_MS else self._end_ms,
            count_max=1 if self._is_one else min(self._number("limit", LIMIT_DEFAULT), LIMIT_MAX),
            # What is shown must be written as JSON in the loop; what does not match costs the loop nothing.
            bytes_max=0 if text == TAIL else TEXT_BYTES if is_search else PAGE_BYTES,
            offsets=self._tail or {},
        )

    def _matches(self, record: KafkaRecord) -> bool:
        """Whether a record is meant, as far as it is shown; called in another thread."""
        stamp = record.timestamp_ms
        # Producers set timestamps, so they need not rise with the offsets.
        if not self._is_one and stamp >= 0 and not self._begin_ms <= stamp < self._end_ms:
            return False
        if self._unique_key and message_id(record) != self._unique_key:
            return False
        if "key" in self._given and decode(record).key != self._given["key"]:
            return False
        return not self._text or self._contains(record)

    def _contains(self, record: KafkaRecord) -> bool:
        if self._text in self._mask.body(record.value or b""):
            return True
        found = self._shown(record)
        return any(self._text in each.encode("utf-8", "surrogatepass") for pair in found.items() for each in pair)

    def _described(self, record: KafkaRecord, body_bytes_max: int) -> MessageView:
        body, properties = self._mask.body(record.value or b""), self._shown(record)
        unique_key = message_id(record)
        trace_id = trace_id_of(decode(record).properties, unique_key, self._tracing)
        link = None if self._tracing is None or trace_id is None else self._tracing.link(trace_id)
        text, encoding = text_of(body, body_bytes_max)
        stamp = max(0, record.timestamp_ms)
        sizes = [len(name) + len(value or b"") for name, value in record.headers]
        return MessageView(
            topic=record.topic,
            queue=record.partition,
            offset=record.offset,
            cluster=self._cluster,
            id="",
            unique_key=unique_key,
            key=properties.get(KEY_NAME),
            tag=properties.get(TAG_NAME),
            store_ms=stamp,
            store_host="",
            born_ms=stamp,
            born_host="",
            physical=-1,
            bytes=len(record.key or b"") + len(record.value or b"") + sum(sizes),
            sys_flag=0,
            flag=0,
            reconsume_times=0,
            prepared_offset=0,
            properties=properties,
            trace_id=trace_id,
            trace_link=UNSET if link is None else link,
            body_bytes=len(body),
            body=text,
            body_encoding=encoding,
            body_cut=len(body) > body_bytes_max,
            masked=sorted((*self._mask.names, *self._mask.paths)) if self._mask else UNSET,
        )

    def _shown(self, record: KafkaRecord) -> dict[str, str]:
        """Return key, tag and properties, masked."""
        key, tag, properties = decode(masked(record, self._mask))
        named = {KEY_NAME: key, TAG_NAME: tag}
        if record.value is None:
            properties = {**properties, "BODY;null": "null"}
        return self._mask.properties({**{name: value for name, value in named.items() if value}, **properties})

    def _number(self, name: str, default: int) -> int:
        text = self._given.get(name)
        number = default if text is None else whole_number(text)
        if number is None:
            raise QueryRefused(f"{name} must be an integer >= 0, got {text!r}")
        return number


def tail_cursor(places: Mapping[int, int]) -> str:
    """Return the cursor of a tail that continues at these offsets, by partition."""
    return ".".join(f"{partition}-{offset}" for partition, offset in sorted(places.items()))


def masked(record: KafkaRecord, mask: TopicMask) -> KafkaRecord:
    """Return a record with masked key and headers: by their own names, not those of the properties that they become."""
    if not mask.names:
        return record
    hidden = MASKED.encode()
    headers = [(name, hidden if name in mask.names else value) for name, value in record.headers]
    key = hidden if KEY_NAME in mask.names and record.key is not None else record.key
    return record._replace(key=key, headers=headers)
