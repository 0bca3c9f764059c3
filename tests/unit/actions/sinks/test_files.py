"""Sinks of files over a simulated disk: exactly once in the file, whatever is killed, torn or full (D46, W61)."""

from __future__ import annotations

import asyncio
import errno
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from actions.client_factories import Outside
from actions.sinks.files.layout import Layout
from actions.sinks.files.local import LocalFolders
from actions.sinks.files.sink import LOOK_SECONDS, FileSink
from actions.sinks.files.writer import Writer
from actions.sinks.local_state import Keep
from pyddmq.actions import RetryLater, Status, Unprocessable
from pyddmq.testing.loop import VirtualLoop
from pyddmq.testing.sim_disk import PowerCut, SimDisk
from tests.unit.actions.sinks.surroundings import FakeJob, InlineKeep, SeenJob, bodies_by_turn, opened

DATA, OUT = "/data", "/out"


class Ground:
    """One disk, and sinks on it one after the other, as nodes that are killed and started."""

    def __init__(self, disk: SimDisk | None = None, **options: Any) -> None:
        self.disk = disk or SimDisk()
        self.options = {"url": OUT, "path": "${topic}", "flushMs": 1, **options}

    def sink(self) -> Any:
        return opened(FileSink, self.options, Outside(keep=InlineKeep(self.disk, DATA)))

    def read(self, *, hidden: bool = False) -> dict[str, bytes]:
        """All files of the topic's folder that readers see, or those that they do not."""
        folder = f"{OUT}/orders"
        found = {}
        for name in self.disk.list(folder):
            if name.startswith(".") == hidden:
                file = self.disk.open(f"{folder}/{name}")
                found[name] = file.read(0, file.size())
        return found

    def offsets(self) -> list[int]:
        """Offsets of the lines that readers see, by file."""
        return [json.loads(line)["offset"] for each in self.read().values() for line in each.splitlines()]


class SlowKeep(Keep):
    """A `Keep` of which one call takes so many seconds in its thread, and does what it does at their end."""

    def __init__(self, disk: SimDisk, data: str, *, slow: int, seconds: float) -> None:
        self.calls = 0
        super().__init__(disk, data, threads=self, tasks=asyncio.get_running_loop())
        self._slow = slow, seconds

    def run(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        """Run it, later."""
        self.calls += 1
        slow, seconds = self._slow
        asyncio.get_running_loop().call_later(seconds * (self.calls == slow), lambda: done(work()))


def jobs(*offsets: int, **more: Any) -> list[FakeJob]:
    """Messages with their number as body."""
    return [FakeJob(offset, b'{"n": %d}' % offset, **more) for offset in offsets]


def task_of(sink: Any) -> asyncio.Task[None]:
    """What the writer of a sink runs in."""
    task: asyncio.Task[None] = sink._task
    return task


async def over(sink: Any, given: Sequence[FakeJob]) -> None:
    """Wait until all are answered, or the writer is over, as a kill has it."""
    while not all(job.answers for job in given) and not task_of(sink).done():  # noqa: ASYNC110
        await asyncio.sleep(0.0005)


async def written(sink: Any, given: Sequence[FakeJob], *, close: bool = True) -> None:
    """Hand messages to a sink, have them answered, and drain it."""
    for job, answer in zip(given, sink.act_many(given), strict=True):
        if answer is not Status.ASYNCHRONIZED:
            job.answer(answer)
    if close:
        sink.drain()
    await over(sink, given)
    if task_of(sink).done():
        task_of(sink).result()
    if close:
        await sink.close()
        task_of(sink).result()


def test_json_lines_hold_the_message_in_the_order_of_its_queue() -> None:
    """One line per message, one file per queue, named by its first offset; answered when durable."""
    ground = Ground()
    given = [*jobs(5, 6, 7), *jobs(1, qid="q1"), FakeJob(8, b"\xff", key="k", tag="t", properties={"p": "v"})]

    asyncio.run(written(ground.sink(), given))

    assert [job.answered for job in given] == [Status.FINISH] * 5
    files = ground.read()
    assert list(files) == [
        "g.orders.q0.00000000000000000005.1700000000005.jsonl",
        "g.orders.q1.00000000000000000001.1700000000001.jsonl",
    ]
    lines = [json.loads(line) for line in files["g.orders.q0.00000000000000000005.1700000000005.jsonl"].splitlines()]
    assert [line["offset"] for line in lines] == [5, 6, 7, 8]
    assert lines[0]["body"] == {"n": 5}
    assert lines[3]["bodyBase64"] == "/w=="
    assert lines[3]["properties"] == {"p": "v"}
    assert ground.read(hidden=True) == {}


@pytest.mark.parametrize("form", ["json", "parquet"])
@pytest.mark.parametrize("power", [False, True])
def test_each_message_is_once_in_the_files_whatever_moment_the_node_dies(form: str, power: bool) -> None:
    """A kill, or a power cut, at every change of the disk; then all that was not answered comes again (D46).

    After a power cut, what was answered within the last 100 ms may come again too: so all of it does here.
    """
    died = 0
    for moment in range(200):
        ground = Ground(format=form, idleSeconds=1)
        first, again = jobs(*range(6)), jobs(*range(6))
        sink = ground.sink()
        ground.disk.stop_after(moment)
        try:
            asyncio.run(_two_batches(sink, first))
            cut = False
        except PowerCut:
            cut = True
        died += cut
        if power:
            ground.disk.crash(random.Random(moment))
        else:
            ground.disk.kill()
        ground.disk.stop_after(1_000_000)
        left = [job for job, before in zip(again, first, strict=True) if power or before.answered is not Status.FINISH]
        sink = ground.sink()
        asyncio.run(written(sink, left))
        # What is still open is closed by the next message's generation.
        asyncio.run(written(ground.sink(), jobs(6)))
        assert all(job.answered is Status.FINISH for job in left), moment
        assert sorted(_offsets(ground, form)) == list(range(7)), moment
        if not cut:
            break
    assert died > 10


async def _two_batches(sink: Any, given: Sequence[FakeJob]) -> None:
    await written(sink, given[:3], close=sink.options.format == "parquet")
    if sink.options.format == "parquet":
        sink.open()
    await written(sink, given[3:])


def _offsets(ground: Ground, form: str) -> list[int]:
    if form == "json":
        return ground.offsets()
    import pyarrow
    import pyarrow.parquet

    found: list[int] = []
    for raw in ground.read().values():
        read: Any = pyarrow.parquet.read_table
        found += read(pyarrow.BufferReader(raw))["offset"].to_pylist()
    return found


@pytest.mark.parametrize("operation", ["write", "sync", "create", "replace"])
def test_failing_disk_loses_nothing_and_says_so(operation: str) -> None:
    """ENOSPC at any operation: messages come again, uncounted; when there is room each is in the file once."""
    for skip in range(8):
        ground = Ground()
        sink = ground.sink()
        ground.disk.fail(operation, error=errno.ENOSPC, skip=skip)

        async def tries(sink: Any = sink, ground: Ground = ground) -> int:
            given = jobs(0, 1, 2)
            await written(sink, given, close=False)
            refused = [job for job in given if isinstance(job.answered, RetryLater)]
            ground.disk.heal()
            sink.context.ahead += 60
            again = jobs(*(job.offset for job in refused))
            await written(sink, [*again, *jobs(3)])
            assert all(job.answered is Status.FINISH for job in again)
            return len(refused)

        refused = asyncio.run(tries())
        asyncio.run(written(ground.sink(), jobs(4)))

        assert sorted(ground.offsets()) == [0, 1, 2, 3, 4], skip
        assert sink.context.counts["server_away"] >= bool(refused)


def test_file_that_somebody_cut_is_closed_and_said() -> None:
    """Nothing is put behind a hole: the file is closed as it is, and a new one begins."""
    ground = Ground()
    sink = ground.sink()
    asyncio.run(_in_turn(sink, [jobs(0, 1), jobs(3)]))
    [name] = ground.read(hidden=True)
    ground.disk.kill()
    ground.disk.open(f"{OUT}/orders/{name}").truncate(10)

    sink = ground.sink()
    asyncio.run(written(sink, jobs(2)))

    assert sink.context.counts["file_cut"] == 1
    assert len(ground.read()) == 2


async def _in_turn(sink: Any, batches: Sequence[Sequence[FakeJob]]) -> None:
    for batch in batches:
        await written(sink, batch, close=False)


def test_what_comes_again_only_after_a_second_kill_is_not_written_twice() -> None:
    """The second life writes others for longer than answers are kept in doubt, and is killed, too (D46)."""
    ground = Ground()
    asyncio.run(written(ground.sink(), jobs(*range(6)), close=False))

    async def second() -> None:
        sink = ground.sink()
        for offset in (6, 7, 8):
            sink.context.ahead += 60.0
            await written(sink, jobs(offset), close=False)

    ground.disk.kill()
    asyncio.run(second())
    ground.disk.kill()
    third = ground.sink()
    third.context.ahead = 180.0
    again = jobs(*range(6))
    asyncio.run(written(third, again))

    assert [job.answered for job in again] == [Status.FINISH] * 6
    assert sorted(ground.offsets()) == list(range(9))
    assert third.context.counts["repeat_left_out"] == 6


@pytest.mark.parametrize("away", [False, True])
def test_repeats_are_known_however_long_a_pause_or_an_outage_takes(away: bool) -> None:
    """Ten minutes count from the first message that comes after the start, and anew when the server was away."""
    ground = Ground()
    asyncio.run(written(ground.sink(), jobs(0, 1), close=False))
    ground.disk.kill()
    sink = ground.sink()

    async def story() -> list[FakeJob]:
        sink._begun().look()
        if away:
            ground.disk.fail("write", path_part=OUT)
            first = jobs(5)
            await written(sink, first, close=False)
            assert isinstance(first[0].answered, RetryLater)
            ground.disk.heal()
        sink.context.ahead += 3_600.0
        again = jobs(0, 1)
        await written(sink, again)
        return again

    assert [job.answered for job in asyncio.run(story())] == [Status.FINISH] * 2
    assert ground.offsets() == [0, 1]


@pytest.mark.parametrize("kills", [0, 1])
def test_messages_of_a_topic_that_was_made_again_are_no_repeats(kills: int) -> None:
    """In Kafka its offsets begin at 0 again; what an idle sink wrote last may be those, however long ago."""
    ground = Ground()
    asyncio.run(written(ground.sink(), jobs(*range(5))))
    for _ in range(kills):
        asyncio.run(written(ground.sink(), jobs(0, 1), close=False))
        ground.disk.kill()
    sink = ground.sink()
    sink.context.ahead = 86_400.0
    later = [FakeJob(offset, b"{}", stored_ms=1_700_086_400_000 + offset) for offset in range(5)]
    asyncio.run(written(sink, later))

    assert [job.answered for job in later] == [Status.FINISH] * 5
    assert sorted(ground.offsets()) == sorted([*range(5)] * 2)


def test_ledger_of_many_messages_that_do_not_follow_each_other_is_soon_encoded() -> None:
    """As a filter of tags leaves them: a thread that encodes a list for each holds up the loop, with every turn."""
    ground, sizes = Ground(), []

    async def story() -> None:
        sink = ground.sink()
        for turn in range(10):
            await written(sink, jobs(*range(turn * 2_000, (turn + 1) * 2_000, 2)), close=False)
            [name] = ground.disk.list(f"{DATA}/pyddmq/sinks")
            file = ground.disk.open(f"{DATA}/pyddmq/sinks/{name}")
            sizes.append(file.read(0, file.size()).count(b"["))

    asyncio.run(story())
    assert max(sizes) < 100
    ground.disk.kill()
    again = jobs(*range(0, 20_000, 2))
    asyncio.run(written(ground.sink(), again))
    assert sorted(ground.offsets()) == [*range(0, 20_000, 2)]


def test_records_of_large_bodies_leave_the_loop_to_others() -> None:
    """JSON of a hundred kilobytes takes milliseconds, and a turn has megabytes of it."""
    ground = Ground()
    given = [SeenJob(offset, json.dumps(["x"] * 20_000).encode()) for offset in range(60)]

    _, looked = asyncio.run(bodies_by_turn(written(ground.sink(), given)))
    assert sum(looked) >= 60
    assert max(looked) <= 2
    assert sorted(ground.offsets()) == list(range(60))


def test_file_that_a_killed_life_left_open_is_closed_though_no_message_comes() -> None:
    """Readers pass over open files: what was answered must not stay in one for ever."""
    ground = Ground(rotateSeconds=60)
    asyncio.run(written(ground.sink(), jobs(0), close=False))
    assert ground.read() == {}

    async def waited() -> None:
        ground.disk.kill()
        sink = ground.sink()
        await asyncio.sleep(LOOK_SECONDS + 61)
        assert ground.offsets() == [0]
        await sink.close()

    VirtualLoop().run_task(waited())


@pytest.mark.parametrize(("form", "write"), [("json", 3), ("parquet", 4)])
@pytest.mark.parametrize("seconds", [5, 60])
def test_generation_that_ends_amid_a_write_and_the_next_one_lose_nothing(form: str, write: int, seconds: int) -> None:
    """A position that is moved, or a partition that is, ends a generation at once, and the disk takes its time."""
    ground = Ground(format=form, idleSeconds=1)
    earlier, later = jobs(*range(5)), jobs(*range(10))

    async def story() -> None:
        keep = SlowKeep(ground.disk, DATA, slow=write, seconds=seconds)
        first, second = [opened(FileSink, ground.options, Outside(keep=keep)) for _ in range(2)]
        first.act_many(earlier)
        while keep.calls < write:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        first.drain()
        ended = asyncio.create_task(first.close())
        await written(second, later)
        await ended
        await asyncio.sleep(seconds)

    VirtualLoop().run_task(story())
    assert [job.answered for job in later] == [Status.FINISH] * 10
    assert ground.read(hidden=True) == {}
    assert sorted(_offsets(ground, form)) == list(range(10))


def test_damaged_ledger_is_said_and_nothing_is_lost() -> None:
    """What was on its way is written again."""
    ground = Ground()
    asyncio.run(written(ground.sink(), jobs(0), close=False))
    folder = f"{DATA}/pyddmq/sinks"
    [name] = ground.disk.list(folder)
    ground.disk.open(f"{folder}/{name}").write(3, [b"xxx"])

    sink = ground.sink()
    asyncio.run(written(sink, jobs(1)))

    assert sink.context.counts["ledger_damaged"] == 1
    assert ground.offsets() == [1]


def test_text_lines_are_escaped() -> None:
    """A body with a line feed is one line (W61)."""
    ground = Ground(format="text")
    asyncio.run(written(ground.sink(), [FakeJob(0, b"a\nb\\c\r"), FakeJob(1, b"d")]))

    assert list(ground.read().values()) == [b"a\\nb\\\\c\\r\nd\n"]


def test_path_is_by_the_messages_time() -> None:
    """A message that comes again goes where it was, whatever the time is now (W61)."""
    ground = Ground(path="${topic}/${yyyy}-${MM}-${dd}/${HH}", timeZone="Asia/Shanghai")
    asyncio.run(written(ground.sink(), jobs(1)))

    # 1,700,000,000 s is 22:13 UTC of 14 November 2023.
    assert ground.disk.list(f"{OUT}/orders/2023-11-15") == ["06"]


def test_open_files_are_bounded() -> None:
    """Beyond `maxFileCount` the file that was used longest ago is closed."""
    ground = Ground(maxFileCount=2)
    sink = ground.sink()
    given = [job for number in range(5) for job in jobs(0, qid=f"q{number}")]

    async def until_closed() -> None:
        """Files are closed after what is in them was answered."""
        await written(sink, given, close=False)
        async with asyncio.timeout(10):
            while len(ground.read(hidden=True)) > 2:  # noqa: ASYNC110
                await asyncio.sleep(0.0005)

    asyncio.run(until_closed())

    assert len(ground.read()) == 3
    assert len(ground.read(hidden=True)) == 2


ABSURD = (2**63 - 1, 253_402_300_799_000, 1_700_000_000_000_000, -(2**62))
"""Store times that producers of Kafka write: no time at all, the last second of 9999, microseconds, before all time."""


@pytest.mark.parametrize("form", ["json", "text", "parquet"])
def test_message_of_a_time_beyond_every_calendar_alone_is_unprocessable(form: str) -> None:
    """The messages before and after it are in the files, and the writer goes on."""
    ground = Ground(format=form, path="${topic}/${yyyy}", timeZone="Asia/Shanghai")
    given = [*jobs(0, 1), *(FakeJob(2 + at, stored_ms=each) for at, each in enumerate(ABSURD)), *jobs(8, 9)]
    asyncio.run(written(ground.sink(), given))

    answers = [job.answered for job in given]
    assert answers[:2] == answers[-2:] == [Status.FINISH] * 2
    assert all(isinstance(each, Unprocessable) for each in answers[2:6])
    assert ground.disk.list(f"{OUT}/orders") == ["2023"]


def test_times_do_not_matter_where_no_folder_is_named_by_them() -> None:
    """A path without a time takes every message."""
    ground = Ground(path="${topic}")
    given = [FakeJob(at, stored_ms=each) for at, each in enumerate(ABSURD)]
    asyncio.run(written(ground.sink(), given))
    assert [job.answered for job in given] == [Status.FINISH] * len(ABSURD)


def test_row_that_no_file_can_hold_costs_no_other_its_file() -> None:
    """A file that is written whole is made of the others; the message says what is wrong with it."""
    ground = Ground(format="parquet")
    given = [*jobs(0, 1), FakeJob(2, key="\ud800"), FakeJob(3, stored_ms=2**70), *jobs(4)]
    asyncio.run(written(ground.sink(), given))
    assert [type(job.answered) for job in given] == [Status, Status, Unprocessable, Unprocessable, Status]
    assert len(ground.read()) == 1


def test_fault_of_the_writer_itself_is_said_and_the_writer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that makes a turn fail in a way that nobody foresaw uses up attempts; all others are written."""
    name = Layout.name

    def faulty(layout: Layout, qid: str, offset: int, stored_ms: int) -> str:
        if qid == "bad":
            raise ZeroDivisionError("unforeseen")
        return name(layout, qid, offset, stored_ms)

    monkeypatch.setattr(Layout, "name", faulty)
    ground, counts = Ground(), Counter[str]()

    async def story() -> None:
        sink = ground.sink()
        left = [*jobs(0, 1), *jobs(0, qid="bad"), *jobs(2, 3)]
        for _ in range(40):
            await written(sink, left, close=False)
            counts.update(f"{job.qid} {type(job.answered).__name__}" for job in left)
            again = [job for job in left if isinstance(job.answered, RetryLater)]
            left = [FakeJob(job.offset, job.message.body, qid=job.qid) for job in again]
            sink.context.ahead += 20
            if not left:
                break
        assert not task_of(sink).done()
        assert sink.context.counts["turn_failed"] == 2
        assert [event for event, _ in sink.context.notes].count("sink_turn_failed") == 2
        sink.drain()
        await sink.close()

    asyncio.run(story())
    assert counts["bad ZeroDivisionError"] == 1
    assert counts["q0 Status"] == 4
    assert sorted(ground.offsets()) == [0, 1, 2, 3]


def test_fault_while_a_whole_file_is_written_sends_its_messages_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an answer of another kind than HDFS gives: none of them may be forgotten."""
    ground = Ground(format="parquet", idleSeconds=5)
    sink = ground.sink()

    async def odd(*_: object) -> None:
        raise KeyError("Location")

    async def story() -> None:
        given = jobs(0, 1)
        assert sink.act_many(given) == [Status.ASYNCHRONIZED] * 2
        await asyncio.sleep(1)
        monkeypatch.setattr(LocalFolders, "put", odd)
        await asyncio.sleep(10)
        assert [type(job.answered) for job in given] == [RetryLater] * 2
        monkeypatch.undo()
        sink.context.ahead += 20
        again = jobs(0, 1)
        await written(sink, again)
        assert [job.answered for job in again] == [Status.FINISH] * 2

    VirtualLoop().run_task(story())
    assert _offsets(ground, "parquet") == [0, 1]


def test_full_disk_is_shown_with_its_cause_until_there_is_room() -> None:
    """An operator sees what the sink waits for, and since when."""
    ground = Ground()
    sink = ground.sink()
    ground.disk.fail("write", error=errno.ENOSPC)

    async def story() -> None:
        assert sink.servers_away() == []
        await written(sink, jobs(0), close=False)
        [view] = sink.servers_away()
        assert "No space left" in view.reason
        assert not view.messages_alone
        ground.disk.heal()
        sink.context.ahead += 20
        await written(sink, jobs(0))
        assert sink.servers_away() == []

    asyncio.run(story())


@pytest.mark.parametrize("error", [ZeroDivisionError("unforeseen"), None])
def test_task_that_ends_is_shown_and_started_again(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """Its messages come again, an operator sees why, and they are written then; also after a cancellation."""
    ground = Ground()
    sink = ground.sink()
    until_due = Writer._until_due

    async def ending(writer: Writer) -> None:
        monkeypatch.setattr(Writer, "_until_due", until_due)
        raise error or asyncio.CancelledError

    async def story() -> None:
        monkeypatch.setattr(Writer, "_until_due", ending)
        given = jobs(0)
        assert sink.act_many(given) == [Status.ASYNCHRONIZED]
        await asyncio.wait({task_of(sink)})
        await asyncio.sleep(0)
        assert isinstance(given[0].answered, RetryLater)
        assert sink.context.counts["task_ended"] == 1
        [view] = sink.servers_away()
        assert ("unforeseen" if error else "cancelled") in view.reason
        sink.context.ahead += 20
        await written(sink, jobs(0))
        assert sink.servers_away() == []

    asyncio.run(story())
    assert ground.offsets() == [0]
