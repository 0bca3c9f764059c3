"""Topics and `config/topics.json`, the truth about them (D6): queue counts only rise, nothing is deleted.

The file has RocketMQ's shape; fields that this program does not use are kept as they were read. Topics that are made
for their first message are appended to `pyddmq/topics_opened.json`, a sealed line for those of one write of the log, so
that each costs the same however many there are. A line holds on top of the version of the file that it names, and the
next write of the file, at a checkpoint or a stop, has them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import Any

from broker.errors import NO_SPACE, REPAIR_ADVICE, MessageRefused, StoreUnreadable
from broker.format.message_type import ATTRIBUTE, MessageType, type_of
from broker.format.record import TOPIC_BYTES_MAX
from broker.queues.consume_queue import Checker, ConsumeQueue
from broker.queues.open_files import OPEN_FILES_MAX, OpenFiles
from broker.queues.topic_lives import TopicLives
from broker.runtime.disks.unreadable import Unreadable, ignored
from broker.runtime.file_writes import AT_ONCE, TURN, FileWrite, at_once
from broker.runtime.names import check_stored, is_number, queue_folder
from broker.runtime.sealed_file import read_whole, sealed, sealed_lines
from broker.runtime.seams import Clock, Disk
from broker.runtime.state_file import StateFile, data_version, next_version
from broker.runtime.steps import run_now

GROUP_BYTES_MAX = 120
QUEUES_MAX = 1024
DEAD_LETTER_PREFIX = "%DLQ%"
RETRY_PREFIX = "%RETRY%"
SYSTEM_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "TBW102",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "BenchmarkTest",
    }
)
"""RocketMQ's own, with all that begin with `rmq_sys_`; clients may neither publish nor subscribe to them (D34)."""
SYSTEM_PREFIX = "rmq_sys_"

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_PERM_READ_WRITE = 6
_LOADED_AT_ONCE = 128
"""Topics that a step of `loading` makes: a few milliseconds with a few queues each."""


def is_system(name: str) -> bool:
    """Whether clients may not publish to a topic of that name: RocketMQ's own, dead letters and retries."""
    return (
        name in SYSTEM_TOPICS
        or name.lower().startswith(SYSTEM_PREFIX)
        or name.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX))
    )


def dead_letter_topic(group: str) -> str:
    """Name of a group's dead-letter topic; a group name of up to 120 bytes fits."""
    return DEAD_LETTER_PREFIX + group


def retry_topic(group: str) -> str:
    """Name of the topic from which a group gets again what it failed."""
    return RETRY_PREFIX + group


def check_name(name: str) -> None:
    """Check a topic name against RocketMQ's rules.

    Raises:
        MessageRefused: It is empty, longer than 127 bytes, or has a character beyond `% | a-z A-Z 0-9 _ -`.
    """
    if not name or len(name) > TOPIC_BYTES_MAX or not _NAME.fullmatch(name):
        raise MessageRefused(
            f"topic name {name[:140]!r} is not allowed; use 1 to {TOPIC_BYTES_MAX} of the characters %|a-zA-Z0-9_-"
        )


def check_wanted(name: str, queues: int) -> None:
    """Check a topic that is asked for.

    Raises:
        MessageRefused: The name is not allowed.
        ValueError: The number of queues is out of range.
    """
    check_name(name)
    if not 1 <= queues <= QUEUES_MAX:
        raise ValueError(f"a topic has 1 to {QUEUES_MAX} queues, got {queues}")


class Topic:
    """A topic and its queues.

    Attributes:
        name: Its name.
        name_bytes: The same in UTF-8.
        queues: By queue id.
        system: Clients may not publish to it.
        message_type: What it takes. Who publishes for others asks; `Store.append` does not, as RocketMQ's broker does
            not.
        listeners: Called, in their order, at the end of a flush that made records of this topic visible.
        prefix: Length byte and name, as in a record. Empty for a name of more than 127 bytes, which only RocketMQ's
            retry topics have: such topics are read and never written.
    """

    __slots__ = ("listeners", "message_type", "name", "name_bytes", "prefix", "queues", "system")

    def __init__(self, name: str, *, system: bool) -> None:
        self.name = name
        self.name_bytes = name.encode("utf-8")
        size = len(self.name_bytes)
        self.prefix = bytes([size]) + self.name_bytes if size <= TOPIC_BYTES_MAX else b""
        self.queues: list[ConsumeQueue] = []
        self.system = system
        self.message_type = MessageType.MIXED
        self.listeners: list[Callable[[], None]] = []

    @property
    def kind(self) -> str:
        """What it is for, to people: `user`, `retries` or `dead letters` of a group, or `system`."""
        if self.name.startswith(RETRY_PREFIX):
            return "retries"
        if self.name.startswith(DEAD_LETTER_PREFIX):
            return "dead letters"
        return "system" if self.system else "user"

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, queues={len(self.queues)})"


def _admit_all(_: str) -> None:
    """Let a topic be made."""


class Topics:
    """All topics of a store, by name.

    Attributes:
        admit: Called with the name before a topic is made in memory; raises StoreError when the store cannot have it.
        planned: Queues, by name, that the file has and memory is about to get (`broker.topic_changes`).
        unsaved: Names of topics of which memory has more queues than the files.
        opened_bytes: Size of what was appended since the file was written.
        is_writing: A write of the file is under way.

    Args:
        root: The store.
        disk: Where.
        clock: Stamps the file.
        queue_file_units: Units of one queue file.
        queue_files_max: Files of all queues that are open at once.
        unreadable: Told of what the disk does not give out.
        admit: As the attribute.
    """

    def __init__(
        self,
        root: str,
        *,
        disk: Disk,
        clock: Clock,
        queue_file_units: int,
        queue_files_max: int = OPEN_FILES_MAX,
        unreadable: Unreadable = ignored,
        admit: Callable[[str], None] = _admit_all,
    ) -> None:
        self.by_name: dict[str, Topic] = {}
        self.planned: dict[str, int] = {}
        self.unsaved: set[str] = set()
        self.opened_bytes = 0
        self.is_writing = False
        self._opened_path = f"{root}/pyddmq/topics_opened.json"
        self._root = root
        self._disk = disk
        self._clock = clock
        self._file_units = queue_file_units
        self._open_files = OpenFiles(queue_files_max)
        self._file = StateFile(disk, root, "topics.json")
        self._table: dict[str, dict[str, Any]] = {}
        self._version: dict[str, Any] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        self._rest: dict[str, Any] = {}
        self._checker: Checker | None = None
        self.lives = TopicLives(root, disk=disk, queue_file_units=queue_file_units)
        self._unreadable = unreadable
        self.admit = admit

    def check_with(self, checker: Checker) -> None:
        """Have units of an earlier process, of present queues and those to come, compared with their records."""
        self._checker = checker
        for queue in self.queues():
            queue.checker = checker

    def queues(self) -> Iterator[ConsumeQueue]:
        """Return the queues of all topics."""
        return chain.from_iterable(topic.queues for topic in self.by_name.values())

    @property
    def damaged(self) -> list[str]:
        """Paths of the copies of the file that `load` found damaged."""
        return self._file.damaged

    def load(self) -> None:
        """`loading` at once. Raises the same."""
        run_now(self.loading())

    def loading(self) -> Generator[None, None, None]:
        """Read the files and make the topics' queues, still empty, in steps.

        Raises:
            StoreUnreadable: The file and its copies are damaged, or `pyddmq/topic_lives.json` is; or one has a shape of
                its own, or a name that no topic can have.
        """
        self.lives.load()
        content = self._file.load()
        try:
            yield from self._taking({} if content is None else content)
            self._take_opened()
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise StoreUnreadable(f"{self._file.path} is not a table of topics ({error}); {REPAIR_ADVICE}") from error

    def _taking(self, content: dict[str, Any]) -> Generator[None, None, None]:
        self._rest = {name: value for name, value in content.items() if name not in ("topicConfigTable", "dataVersion")}
        self._version = data_version(content.get("dataVersion"))
        for number, (name, entry) in enumerate(content.get("topicConfigTable", {}).items(), start=1):
            if number % _LOADED_AT_ONCE == 0:
                yield
            check_stored(name, self._file.path)
            self._table[name] = {**entry, "attributes": {**(entry.get("attributes") or {})}}
            if self.lives.of(name).deleted and not self._file.changed_outside:
                # A stop came between the two files of a deletion. (Changed outside: another program made the topic
                # again.)
                continue
            queues = max(int(entry.get("readQueueNums", 1)), int(entry.get("writeQueueNums", 1)), 1)
            self.grow(name, min(queues, QUEUES_MAX))

    def _take_opened(self) -> None:
        """Take what was appended to the version of the file that was the last one here; a torn line was never kept."""
        for line in sealed_lines(read_whole(self._disk, self._opened_path) or b""):
            if line["base"] not in self._file.sums:
                continue
            self.opened_bytes += len(sealed(line))
            for name, queues in line["topics"].items():
                if not self.lives.of(check_stored(name, self._opened_path)).deleted:
                    self.grow(name, min(int(queues), QUEUES_MAX))

    def grow(self, name: str, queues: int) -> Topic:
        """Make sure in memory that a topic has so many queues or more; `save` makes it durable. Raises as `admit`."""
        if self.planned.get(name, 0) <= queues:
            self.planned.pop(name, None)
        topic = self.by_name.get(name)
        if topic is None:
            self.admit(name)
            topic = self.by_name[name] = Topic(name, system=is_system(name))
            topic.message_type = type_of(self._table.get(name, {}))
        for queue_id in range(len(topic.queues), queues):
            queue = ConsumeQueue(
                name,
                queue_id,
                root=self._root,
                disk=self._disk,
                file_units=self._file_units,
                unreadable=self._reported,
                open_files=self._open_files,
            )
            base = self.lives.base(name, queue_id)
            queue.begin_life(base, void_from=self.lives.of(name).end(queue_id) or base)
            queue.checker = self._checker
            topic.queues.append(queue)
        return topic

    def _reported(self, kind: str, where: str, count: int) -> None:
        self._unreadable(kind, where, count)

    def was_deleted(self, name: str) -> bool:
        """Whether RocketMQ has deleted a topic of which the log, or a checkpoint, still has traces.

        It writes a topic down before its first message, so what its file does not name is no topic there. Topics of the
        broker's own are taken up all the same.
        """
        return self._file.foreign and name not in self._table and name not in self.by_name and not is_system(name)

    @property
    def is_file_deleted(self) -> bool:
        """Whether the file is to be written again since it, or its twin, is there no more. Raises OSError."""
        return self._file.is_deleted()

    def save_if_changed(self) -> None:
        """Write the file when it, by itself, says something else of a topic's queues than memory does.

        A full disk postpones that: what the file lacks was found in the log, and is found there again.

        Raises:
            OSError: Another failure.
        """
        topics = self.by_name
        if self._table.keys() - topics.keys() or any(self._entry_differs(topic) for topic in topics.values()):
            try:
                self.save()
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise

    def _entry_differs(self, topic: Topic) -> bool:
        entry = self._table.get(topic.name)
        return entry is None or entry.get("readQueueNums") != len(topic.queues)

    def files_of(self, name: str) -> list[ConsumeQueue]:
        """Return queues for whatever folders a topic has, in memory or not."""
        known = self.by_name.get(name)
        if known is not None:
            return known.queues
        folder = queue_folder(self._root, name, 0).rpartition("/")[0]
        numbers = [int(text) for text in self._disk.list(folder) if is_number(text)]
        return [
            ConsumeQueue(name, number, root=self._root, disk=self._disk, file_units=self._file_units)
            for number in numbers
        ]

    def said_type(self, name: str) -> str | None:
        """Type that the file names for a topic, None when it names none."""
        found: str | None = self._table.get(name, {}).get("attributes", {}).get(ATTRIBUTE)
        return found

    def save(self, grown: Mapping[str, int] | None = None, *, types: Mapping[str, MessageType] | None = None) -> None:
        """Write the file with every topic's present count of queues.

        Args:
            grown: New counts, by name, of topics that are to be made or grown in memory afterwards.
            types: Types that topics are to have from now on, in memory, too, once the file is written.

        Raises:
            OSError: The file could not be written.
        """
        at_once(self._disk, self.writing(grown, types=types))

    def append_opened(self) -> None:
        """Make the topics of `unsaved` durable beside the file. Raises OSError: nothing was appended."""
        queues = {name: len(self.by_name[name].queues) for name in sorted(self.unsaved)}
        line = sealed({"base": self._file.written, "topics": queues})
        with closing(self._disk.open(self._opened_path, create=True)) as file:
            if not self.opened_bytes:
                file.truncate(0)
            file.write(self.opened_bytes, [line])
            file.sync()
        if not self.opened_bytes:
            self._disk.sync_folder(self._opened_path.rpartition("/")[0])
        self.opened_bytes += len(line)
        self.unsaved.clear()

    def writing(
        self, grown: Mapping[str, int] | None = None, *, types: Mapping[str, MessageType] | None = None
    ) -> FileWrite:
        """`save` in steps; no other save of the file may come between. Raises the same."""
        assert not self.is_writing, "one write of the file at a time"
        self.is_writing = True
        try:
            yield from self._writing(grown or {}, types or {})
        finally:
            self.is_writing = False

    def _writing(self, grown: Mapping[str, int], types: Mapping[str, MessageType]) -> FileWrite:
        saved = frozenset(self.unsaved)
        counts = {name: len(topic.queues) for name, topic in self.by_name.items()}
        for name, queues in chain(self.planned.items(), grown.items()):
            counts[name] = max(queues, counts.get(name, 0))
        table = {}
        for number, (name, count) in enumerate(counts.items(), start=1):
            if number % AT_ONCE == 0:
                yield TURN
            table[name] = self._entry(name, count)
        for name, wanted in types.items():
            # A copy: the entry may be that of the table in force, which stays as it is where the write fails.
            attributes = {**table[name]["attributes"], ATTRIBUTE: wanted.value}
            table[name] = {**table[name], "attributes": attributes}
        version = next_version(self._version, self._clock.wall_ms())
        yield from self._file.writing({**self._rest, "dataVersion": version, "topicConfigTable": table})
        self._table = table
        self._version = version
        self.unsaved -= saved
        if self.opened_bytes:
            # What it says is in the file now, and holds on top of the version before.
            self.opened_bytes = 0
            self._disk.remove(self._opened_path)
        for name in types:
            self.by_name[name].message_type = type_of(table[name])

    def close(self) -> None:
        """Close all queues' files."""
        for queue in self.queues():
            queue.close()

    def _entry(self, name: str, queues: int) -> dict[str, Any]:
        known = self._table.get(name)
        if known is not None and known.get("readQueueNums") == known.get("writeQueueNums") == queues:
            return known
        fresh = {
            "attributes": {},
            "order": False,
            "perm": _PERM_READ_WRITE,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
        }
        return {**fresh, **self._table.get(name, {}), "readQueueNums": queues, "writeQueueNums": queues}
