"""`pyddmq store stat`, `dump` and `find`: what a data directory holds, with no node and no index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.commands.send_command import pairs_of
from proxy.cli.errors import CliError
from proxy.cli.moments import moment_option
from proxy.cli.options import AsJson
from proxy.cli.output import body_fields, print_json, print_line, print_table, progress
from proxy.cli.store.store_files import DataFolder, folder_bytes, opened
from proxy.operate.moments import moment_text
from proxy.operate.text import amount, printable
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from broker.tools.readonly import ReadOnlyStore

Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Stored at or after this time.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Stored before this time.")]
Limit = Annotated[int, typer.Option(min=0, help="Maximum number; 0 means no limit.")]
WithBody = Annotated[bool, typer.Option("--body", help="Show bodies.")]

Place = tuple[int, int]
"""Commit-log offset and size of a record."""
Wanted = Callable[["Shown"], bool]


def stat(*, data: DataFolder, as_json: AsJson = False) -> int:
    """Show sizes, settings, times, and the offsets of every queue."""
    with opened(data, as_json=as_json) as store:
        shown = _stat(store, data)
    if as_json:
        return print_json(shown)
    print_line(f"{data}: {'open in a node' if shown['live'] else 'not open'}")
    for name in ("segmentBytes", "queueFileUnits", "logMin", "logEnd", "logFiles"):
        print_line(f"  {name:<16} {shown[name]:,}")
    for name, size in shown["bytes"].items():
        print_line(f"  {name + ' bytes':<16} {size:,}")
    for name in ("first", "last"):
        print_line(f"  {name + ' stored':<16} {moment_text(shown[name]) if shown[name] is not None else 'none'}")
    if shown["holes"]:
        print_line(f"  {amount(len(shown['holes']), 'damaged place')}; `pyddmq store check` shows more")
    rows = [
        [each["topic"], str(queue["queue"]), str(queue["min"]), str(queue["max"]), str(queue["max"] - queue["min"])]
        for each in shown["topics"]
        for queue in each["queues"]
    ]
    return print_table("Queues", ["topic", "queue", "first", "end", "messages"], rows, right=(1, 2, 3, 4))


def _stat(store: ReadOnlyStore, data: Path) -> dict[str, Any]:
    topics = [
        {
            "topic": name,
            "messageType": topic.message_type,
            "queues": [
                {"queue": queue.queue_id, "min": queue.min_offset, "max": queue.max_offset} for queue in topic.queues
            ],
        }
        for name, topic in sorted(store.topics.items())
    ]
    first = next(store.records(), None)
    units = [unit for topic in store.topics.values() for queue in topic.queues if (unit := queue.last_unit())]
    latest = max((unit for unit in units if unit[1] != 0x7FFFFFFF), default=None)
    last = next(store.records(latest[0]), None) if latest is not None else None
    sizes = store.geometry
    return {
        "data": str(data),
        "live": store.live,
        "segmentBytes": sizes.segment_bytes,
        "queueFileUnits": sizes.queue_file_units,
        "indexSlots": sizes.index_slots,
        "indexEntries": sizes.index_entries,
        "logMin": store.min_offset,
        "logEnd": store.end,
        "logFiles": len(store.log.segments),
        "bytes": {name: folder_bytes(data / name) for name in ("commitlog", "consumequeue", "index", "pyddmq")},
        "first": first.store_ms if first is not None else None,
        "last": last.store_ms if last is not None else None,
        "holes": [list(hole) for hole in store.holes],
        "topics": topics,
    }


def dump(
    *,
    data: DataFolder,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue of the topic.")] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="Start at this queue offset; needs --topic and --queue.")
    ] = None,
    position: Annotated[int | None, typer.Option(min=0, help="Start at the record at this commit-log offset.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
    body: WithBody = False,
    as_json: AsJson = False,
) -> int:
    """Print records in the order of the log, or of one queue: one line each."""
    times = _times(since, until)
    if offset is not None and (topic is None or queue is None):
        raise CliError(
            "--offset needs --topic and --queue; use --position for an offset in the whole log", ExitCode.USAGE
        )
    if queue is not None and topic is None:
        raise CliError("--queue needs --topic", ExitCode.USAGE)
    if offset is not None and position is not None:
        raise CliError("--offset and --position exclude each other", ExitCode.USAGE)
    with opened(data, as_json=as_json) as store:
        _check_topic(store, topic, queue)
        if topic is not None and queue is not None and position is None:
            places = _places_of_queue(store, topic, queue, offset, times[0])
        else:
            places = _places(store, position, times[0])
        in_queue = _in_queue(topic, queue)
        _print_all(store, places, _all_of([in_queue, _between(*times)]), limit=limit, body=body, as_json=as_json)
    return ExitCode.OK


def find(
    *,
    data: DataFolder,
    key: Annotated[str | None, typer.Option(help="One of the message's keys.")] = None,
    unique_key: Annotated[str | None, typer.Option(help="The UNIQ_KEY, the id that producers receive.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property; repeatable.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Text that the body contains.")] = None,
    hex_bytes: Annotated[str | None, typer.Option("--hex", help="Bytes that the body contains, in hex digits.")] = None,
    pattern: Annotated[str | None, typer.Option("--regex", help="Regular expression that the body matches.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue of the topic.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
    body: WithBody = False,
    as_json: AsJson = False,
) -> int:
    """Scan the log, without any index, for messages that meet all conditions."""
    times = _times(since, until)
    pairs = pairs_of(properties or ())
    conditions = [_in_queue(topic, queue), _between(*times)]
    if key is not None:
        conditions.append(lambda shown: key in shown.properties.get("KEYS", "").split(" "))
    if unique_key is not None:
        conditions.append(lambda shown: shown.properties.get("UNIQ_KEY") == unique_key)
    if pairs:
        conditions.append(lambda shown: all(shown.properties.get(name) == value for name, value in pairs))
    for wanted in _body_conditions(text, hex_bytes, pattern):
        conditions.append(wanted)
    if len(conditions) == 2 and topic is None and since is None and until is None:
        raise CliError("pass a condition: --key, --unique-key, --property, --text, --hex, --regex", ExitCode.USAGE)
    with opened(data, as_json=as_json) as store:
        _check_topic(store, topic, queue)
        places = _places(store, None, times[0])
        with progress("scanning", store.end - store.min_offset, unit="bytes", enabled=not as_json) as advance:
            base = store.min_offset

            def watched() -> Iterator[Place]:
                for number, place in enumerate(places):
                    if number % 1024 == 0:
                        advance(place[0] - base)
                    yield place

            found = _print_all(store, watched(), _all_of(conditions), limit=limit, body=body, as_json=as_json)
    return ExitCode.OK if found else ExitCode.NOT_FOUND


class Shown:
    """One record, taken apart as far as it is asked for."""

    def __init__(self, store: ReadOnlyStore, record: memoryview) -> None:
        self._limit = store.options.message_bytes_max
        self.record = record
        self._properties: dict[str, str] | None = None
        self._block: bytes | None = None

    @property
    def topic(self) -> str:
        """Name of its topic."""
        from broker.format.record import topic_of

        return topic_of(self.record).decode("utf-8", "replace")

    @property
    def queue(self) -> int:
        """Its queue's number."""
        from broker.format.record import queue_id

        return queue_id(self.record)

    @property
    def stored_ms(self) -> int:
        """When it was stored, ms since the epoch."""
        from broker.format.record import store_timestamp

        return store_timestamp(self.record)

    @property
    def properties(self) -> dict[str, str]:
        """Its properties, without those that close every record."""
        from broker.format.properties import parse_properties
        from broker.format.record import split

        if self._properties is None:
            self._properties = parse_properties(split(self.record)[1])
        return self._properties

    @property
    def body(self) -> bytes:
        """Its body, unpacked; as it is stored where it cannot be unpacked."""
        from broker.errors import BodyUnusable
        from broker.format.body import split_body
        from broker.format.record import split

        try:
            return bytes(split_body(self.record, self._limit)[0])
        except BodyUnusable:
            return bytes(split(self.record)[0])

    def fields(self, *, body: bool) -> dict[str, Any]:
        """Return it as `--json` shows it."""
        from broker.format.record import born_host, born_timestamp, physical_offset, queue_offset, reconsume_times

        properties = self.properties
        return {
            "position": physical_offset(self.record),
            "size": len(self.record),
            "topic": self.topic,
            "queue": self.queue,
            "offset": queue_offset(self.record),
            "storedMs": self.stored_ms,
            "bornMs": born_timestamp(self.record),
            "bornHost": host_text(born_host(self.record)),
            "reconsumeTimes": reconsume_times(self.record),
            "keys": properties.get("KEYS"),
            "tag": properties.get("TAGS"),
            "uniqKey": properties.get("UNIQ_KEY"),
            "properties": properties,
            **(body_fields(self.body) if body else {}),
        }

    def line(self, *, body: bool) -> str:
        """Return it as one line of text."""
        shown = self.fields(body=False)
        parts = [
            f"{shown['position']:>12}",
            moment_text(shown["storedMs"]),
            shown["topic"],
            f"{shown['queue']}@{shown['offset']}",
            amount(shown["size"], "byte"),
        ]
        parts += [f"{name}={shown[name]}" for name in ("keys", "tag", "uniqKey") if shown[name]]
        if body:
            parts.append(self.body.decode(errors="backslashreplace"))
        return "  ".join(printable(part) for part in parts)


def host_text(host: bytes) -> str:
    """Return an address (4 or 16 bytes) with an i32 port as text."""
    import ipaddress

    address = ipaddress.ip_address(host[:-4])
    port = int.from_bytes(host[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _print_all(
    store: ReadOnlyStore, places: Iterator[Place], wanted: Wanted, *, limit: int, body: bool, as_json: bool
) -> int:
    from broker.errors import DamagedRecord, RecordGone

    found = damaged = 0
    for physical, size in places:
        try:
            shown = Shown(store, store.read(physical, size))
        except RecordGone:
            # Retention of the node that has the store open.
            continue
        except DamagedRecord:
            damaged += 1
            continue
        if not wanted(shown):
            continue
        found += 1
        if as_json:
            print_json(shown.fields(body=body))
        else:
            print_line(shown.line(body=body))
        if found == limit:
            break
    if damaged and not as_json:
        print_line(f"skipped: {amount(damaged, 'damaged record')}; `pyddmq store check` shows more")
    return found


def _places(store: ReadOnlyStore, position: int | None, since_ms: int) -> Iterator[Place]:
    start = store.segment_at(since_ms) if position is None and since_ms else position
    return ((entry.physical, entry.size) for entry in store.records(start))


def _places_of_queue(
    store: ReadOnlyStore, topic: str, queue_id: int, offset: int | None, since_ms: int
) -> Iterator[Place]:
    from broker.queues.consume_queue import FILLER_SIZE
    from broker.queues.time_search import offset_at

    queue = store.topics[topic].queues[queue_id]
    at = offset_at(store, queue, since_ms) if offset is None else max(offset, queue.min_offset)
    while at < queue.max_offset:
        units = queue.read(at, 256)
        yield from ((physical, size) for physical, size, _ in units if size != FILLER_SIZE)
        at += len(units)


def _check_topic(store: ReadOnlyStore, topic: str | None, queue: int | None) -> None:
    if topic is not None and topic not in store.topics:
        raise CliError(f"the store has no topic {topic!r}; `pyddmq store stat` lists its topics", ExitCode.NOT_FOUND)
    if topic is not None and queue is not None and queue >= len(store.topics[topic].queues):
        count = len(store.topics[topic].queues)
        raise CliError(f"topic {topic} has no queue {queue}; its queues are 0 to {count - 1}", ExitCode.NOT_FOUND)


def _times(since: str | None, until: str | None) -> tuple[int, int | None]:
    clock = SystemClock()
    return (
        0 if since is None else moment_option(since, option="--since", clock=clock),
        None if until is None else moment_option(until, option="--until", clock=clock),
    )


def _in_queue(topic: str | None, queue: int | None) -> Wanted:
    return lambda shown: (topic is None or shown.topic == topic) and (queue is None or shown.queue == queue)


def _between(since_ms: int, until_ms: int | None) -> Wanted:
    return lambda shown: since_ms <= shown.stored_ms and (until_ms is None or shown.stored_ms < until_ms)


def _all_of(conditions: list[Wanted]) -> Wanted:
    return lambda shown: all(condition(shown) for condition in conditions)


def _body_conditions(text: str | None, hex_bytes: str | None, pattern: str | None) -> Iterator[Wanted]:
    if text is not None:
        needle = text.encode("utf-8", "surrogateescape")
        yield lambda shown: needle in shown.body
    if hex_bytes is not None:
        try:
            raw = bytes.fromhex(hex_bytes)
        except ValueError as error:
            raise CliError(f"--hex {hex_bytes!r} is not valid; pass pairs of hex digits", ExitCode.USAGE) from error
        yield lambda shown: raw in shown.body
    if pattern is not None:
        try:
            compiled = re.compile(pattern.encode("utf-8", "surrogateescape"))
        except (re.error, OverflowError, RecursionError) as error:
            raise CliError(f"--regex {pattern!r} is not a valid regular expression: {error}", ExitCode.USAGE) from error
        yield lambda shown: compiled.search(shown.body) is not None
