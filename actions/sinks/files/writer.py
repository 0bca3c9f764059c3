"""Carries messages into files: gathers them, writes them with the ledger ahead, answers them, closes files.

One task does all of it, one turn after the other, so that no two writes of a sink are on their way at once. Messages
wait as jobs, without their bodies (D15); what a turn takes on is bounded in bytes. Files that grow are written and
answered every `flush_ms`. Those that are written whole keep their records in memory, and their messages unanswered,
until they are closed. While the other side is away nothing waits here: every message is answered "again after so long"
at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

from actions.sinks.faults import ServerAway, ServerRefusedMessage
from actions.sinks.files.folders import Folders
from actions.sinks.files.formats import Format
from actions.sinks.files.layout import Layout, aside
from actions.sinks.files.ledger import FORGET_SECONDS, FileLedger, OpenFile, PendingBytes, text_of
from actions.sinks.local_state import Keep, SealedState
from actions.sinks.server_outage import Away
from broker.errors import StoreUnreadable
from pyddmq.actions import Context, Failed, Job, RetryLater, Status, Unprocessable
from upstream.calls.user_code import described, traceback_of

# Finds out, after a kill or a failed write, what of a file is right: see `actions.sinks.files.ledger`.


async def resolve(file: OpenFile, ledger: FileLedger, folders: Folders, context: Context) -> None:
    """Make a file and what the ledger says of it one; a file that nothing more is put into leaves the ledger.

    Raises:
        ServerAway: It could not be asked; the ledger says what it said.
    """
    path = aside(file.path)
    # A length that is read before can be shorter than what was written, and grow when the block is recovered.
    await folders.end_writer(path)
    size = await folders.size(path)
    if size is None:
        await _resolve_closed(file, ledger, folders, context)
        return
    pending = file.pending
    if pending is not None and await _has_pending(file, pending, path, size, folders):
        ledger.found_in(file, pending, context.wall_ms())
    elif size < file.length:
        context.count("file_cut")
        context.note("sink_file_cut", file=file.path, bytes=size, expected=file.length)
        await folders.publish(path, file.path)
        del ledger.files[file.path]
        return
    if size > file.length:
        await folders.truncate(path, file.length)
    file.pending = None
    if file.whole and file.length:
        await folders.publish(path, file.path)
    if file.whole or not file.length:
        del ledger.files[file.path]


async def _resolve_closed(file: OpenFile, ledger: FileLedger, folders: Folders, context: Context) -> None:
    size, pending = await folders.size(file.path), file.pending
    if size is not None and pending is not None and await _has_pending(file, pending, file.path, size, folders):
        ledger.found_in(file, pending, context.wall_ms())
    elif size is None and file.length:
        context.count("file_gone")
        context.note("sink_file_gone", file=file.path, expected=file.length)
    del ledger.files[file.path]


async def _has_pending(file: OpenFile, pending: PendingBytes, path: str, size: int, folders: Folders) -> bool:
    if size < pending.end:
        return False
    found = await folders.read(path, file.length, pending.end - file.length)
    return len(found) == pending.end - file.length and crc32(found) == pending.crc


TURN_BYTES = 8 * 1024 * 1024
TURN_MESSAGES = 4_096
CAREFUL_TURNS = 1_000
"""How many turns after a fault take one message each, so that one that faults alone is found."""
MESSAGES_PER_STEP, BYTES_PER_STEP = 64, 64 * 1024
"""A step makes at most so many records, of at most so many bytes of JSON: a few milliseconds of the loop."""
ROW_BYTES = 200
"""What a row takes beside its body, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """When what is gathered is written, and files are closed; as the options say."""

    flush_seconds: float
    rotate_seconds: float
    rotate_bytes: int
    rotate_messages: int | None
    idle_seconds: float
    files_max: int


class _Member(NamedTuple):
    """A message on its way into a file."""

    job: Job
    record: Any
    stored_ms: int
    folder: str


class _Failed(ServerAway):
    """A write failed with messages in it; those of them that have no answer come again."""

    def __init__(self, text: str, members: Sequence[_Member]) -> None:
        super().__init__(text)
        self.members = members


class _WholeFile:
    """What a file that is written whole will hold."""

    __slots__ = ("bytes", "members")

    def __init__(self) -> None:
        self.members: list[_Member] = []
        self.bytes = 0


class Writer:
    """The files of one subscription.

    Args:
        context: Of the action.
        folders: What they are written by.
        layout: Their names.
        form: What is in them.
        limits: When they are written and closed.
        keep: The node's.
        state: Where the ledger is kept.

    Attributes:
        away: Whether it waits for what its files are written by.
    """

    def __init__(
        self,
        context: Context,
        folders: Folders,
        *,
        layout: Layout,
        form: Format,
        limits: FileLimits,
        keep: Keep,
        state: SealedState,
    ) -> None:
        self._context = context
        self._folders = folders
        self._layout = layout
        self._form = form
        self._limits = limits
        self._keep = keep
        self._state = state
        self._whole = not (form.grows and folders.appends)
        self.away = Away(folders.name, lambda: context)
        self._waiting: deque[Job] = deque()
        self._since = 0.0
        self._wake = asyncio.Event()
        self._ledger: FileLedger | None = None
        self._forget_at: float | None = None
        self._doubtful: dict[str, OpenFile] = {}
        self._current: dict[tuple[str, str], OpenFile] = {}
        self._gathered: dict[str, _WholeFile] = {}
        self._members_of_turn: list[_Member] = []
        self._careful = 0
        self._closing = self._ending = self._looking = False

    # From the loop's thread

    def take(self, jobs: Sequence[Job]) -> Sequence[Status | Exception]:
        """Take messages over, or say when they may come again."""
        refusal = self.away.refusal()
        if refusal is not None:
            return [refusal] * len(jobs)
        if not self._waiting:
            self._since = self._context.monotonic()
        self._waiting.extend(jobs)
        self._wake.set()
        return [Status.ASYNCHRONIZED] * len(jobs)

    def look(self) -> None:
        """Read the ledger though no message has come: files that an earlier life left open are closed in their time."""
        self._looking = True
        self._wake.set()

    def close_soon(self) -> None:
        """Write and close everything, and from now on everything at once."""
        self._closing = True
        self._wake.set()

    def end(self) -> None:
        """Let `run` return after the turn in which it is."""
        self._ending = True
        self._wake.set()

    async def run(self) -> None:
        """Work until `end`."""
        while not self._ending:
            await self._until_due()
            if self._ending or not self._work_is_due():
                continue
            await self._tried_turn()
        if self._closing and self._work_is_due():
            await self._tried_turn()

    def give_up(self, error: BaseException) -> None:
        """Send back what it has, after `run` ended by an error; a new `run` reads the ledger again."""
        self._context.count("task_ended")
        self._fault(error if isinstance(error, Exception) else RuntimeError(described(error)))

    async def _tried_turn(self) -> None:
        if (refusal := self.away.refusal()) is not None:
            self._refuse(refusal)
            return
        try:
            await self._turn()
        except (ServerAway, ServerRefusedMessage) as error:
            # A refusal that concerns an open file, and no message, is waited for as the server is.
            # What came again and was refused comes once more.
            self._forget_at = None
            refusal = self.away.failed(str(error))
            for each in error.members if isinstance(error, _Failed) else ():
                each.job.answer(refusal)
            self._refuse(refusal)
        except Exception as error:
            self._fault(error)
        else:
            self.away.answered()
            self._careful = max(0, self._careful - 1)

    def _fault(self, error: Exception) -> None:
        """Go on after a fault of the sink's own: nothing of the turn is believed, and the ledger is read again.

        What a turn of many messages failed with may be about one of them: all come again, and the turns after it take
        one message each. That of a single message is its own error, and counts as an attempt.
        """
        self._context.count("turn_failed")
        self._context.note("sink_turn_failed", error=described(error), traceback=traceback_of(error))
        refusal = self.away.failed(described(error))
        gathered = [each for file in self._gathered.values() for each in file.members]
        for each in [*self._members_of_turn, *gathered]:
            each.job.answer(error if self._careful and each in self._members_of_turn else refusal)
        self._refuse(refusal)
        self._careful = CAREFUL_TURNS
        self._ledger = self._forget_at = None
        self._looking = True
        for kept in (self._doubtful, self._current, self._gathered):
            kept.clear()

    # When

    async def _until_due(self) -> None:
        """Wait until there is something to do, or it is time to look."""
        while not self._ending:
            self._wake.clear()
            seconds = self._seconds_left()
            if seconds is not None and seconds <= 0:
                return
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                return

    def _seconds_left(self) -> float | None:
        """Seconds until something is due; None: nothing will be by itself."""
        now = self._context.monotonic()
        left = [self._close_at(file) - now for file in self._current.values()]
        if self._doubtful or (self._looking and self._ledger is None):
            left.append(0.0)
        if self._waiting:
            full = self._closing or self._whole or len(self._waiting) >= TURN_MESSAGES
            left.append(0.0 if full else self._since + self._limits.flush_seconds - now)
        if not left:
            return None
        refusal = self.away.refusal()
        return max(min(left), refusal.delay_ms / 1000 if refusal is not None and not self._waiting else 0.0)

    def _work_is_due(self) -> bool:
        seconds = self._seconds_left()
        return seconds is not None and seconds <= 1e-4

    def _close_at(self, file: OpenFile) -> float:
        """Monotonic seconds when a file is to be closed."""
        limits = self._limits
        if self._closing or self._is_full(file) or not file.path.endswith(self._form.suffix):
            return 0.0
        at = file.opened + limits.rotate_seconds
        return min(at, file.used + limits.idle_seconds) if file.whole else at

    def _is_full(self, file: OpenFile) -> bool:
        limits = self._limits
        gathered = self._gathered.get(file.path)
        size = file.length if gathered is None else gathered.bytes
        return size >= limits.rotate_bytes or (
            limits.rotate_messages is not None and file.messages >= limits.rotate_messages
        )

    # A turn

    async def _turn(self) -> None:
        ledger = self._ledger or await self._load()
        for path, file in list(self._doubtful.items()):
            if path in ledger.files:
                await resolve(file, ledger, self._folders, self._context)
            del self._doubtful[path]
            if path in ledger.files:
                self._current.setdefault((path.rpartition("/")[0], file.qid), file)
        if self._waiting and self._forget_at is None:
            # From the first message on: a group may be paused, or the server away, when the node starts.
            self._forget_at = self._context.monotonic() + FORGET_SECONDS
        if ledger.done and self._forget_at is not None and self._context.monotonic() > self._forget_at:
            ledger.done.clear()
        self._members_of_turn = members = await self._members(ledger)
        try:
            if members:
                await self._place(ledger, members)
        except ServerAway as error:
            raise _Failed(str(error), members) from error
        await self._close_due(ledger)

    async def _load(self) -> FileLedger:
        """Read the ledger; every file in it is to be looked at before anything is put into it."""
        try:
            ledger = FileLedger.from_json(await self._keep.apart(self._state.load))
        except (StoreUnreadable, ValueError) as error:
            # What was on its way is written again, and the open files stay aside: said, and not lost.
            self._context.count("ledger_damaged")
            self._context.note("sink_ledger_damaged", error=str(error))
            ledger = FileLedger()
        except OSError as error:
            raise ServerAway(f"the ledger cannot be read: {error.strerror}") from error
        now = self._context.monotonic()
        for file in ledger.files.values():
            file.opened = file.used = now
        self._doubtful = dict(ledger.files)
        self._ledger = ledger
        return ledger

    async def _members(self, ledger: FileLedger) -> list[_Member]:
        """Make records of messages that wait; what cannot become one is answered."""
        members: list[_Member] = []
        size = seen = yielded = 0
        most = 1 if self._careful else TURN_MESSAGES
        while self._waiting and size < TURN_BYTES and len(members) < most:
            job = self._waiting.popleft()
            seen += 1
            if seen % MESSAGES_PER_STEP == 0 or size - yielded >= BYTES_PER_STEP:
                yielded = size
                await asyncio.sleep(0)
            try:
                stored_ms = job.message.stored_ms
                if ledger.take_done(job.qid, job.offset, stored_ms, self._context.wall_ms()):
                    self._context.count("repeat_left_out")
                    job.answer(Status.FINISH)
                    continue
                record = self._form.record(job)
                members.append(_Member(job, record, stored_ms, self._layout.folder(stored_ms)))
            except Exception as error:
                job.answer(error)
                continue
            size += _bytes_of(record)
        self._since = self._context.monotonic()
        return members

    async def _place(self, ledger: FileLedger, members: Sequence[_Member]) -> None:
        """Put messages into their files, in the order in which they came."""
        groups: dict[tuple[str, str], list[_Member]] = {}
        for each in members:
            groups.setdefault((each.folder, each.job.qid), []).append(each)
        files = [(self._file(key, group[0], ledger), group) for key, group in groups.items()]
        now = self._context.monotonic()
        for file, group in files:
            file.used = now
            file.messages += len(group)
        if not self._whole:
            await self._append(ledger, files)
            return
        for file, group in files:
            gathered = self._gathered.setdefault(file.path, _WholeFile())
            gathered.members += group
            gathered.bytes += sum(_bytes_of(each.record) for each in group)

    def _file(self, key: tuple[str, str], first: _Member, ledger: FileLedger) -> OpenFile:
        """Return the file that messages of a folder and queue go to; named by the first of them when it is new."""
        file = self._current.get(key)
        if file is None:
            job = first.job
            path = f"{key[0]}/{self._layout.name(job.qid, job.offset, first.stored_ms)}"
            file = OpenFile(path, job.qid, whole=self._whole, opened=self._context.monotonic())
            self._current[key] = file
            if not self._whole:
                ledger.files[path] = file
        return file

    async def _append(self, ledger: FileLedger, files: Sequence[tuple[OpenFile, list[_Member]]]) -> None:
        """Write messages behind their files, with the ledger ahead, and answer them."""
        written = []
        for file, group in files:
            name = file.path.rpartition("/")[2]
            parts = [self._form.mark(name, file.length)] if file.length else [self._form.begin(name)]
            data = b"".join([*parts, *(each.record for each in group)])
            pending = file.pending = _pending(file.length, data, group)
            written.append((file, group, data, pending))
        try:
            await self._save(ledger)
        except ServerAway:
            for file, _ in files:
                file.pending = None
            raise
        failed: ServerAway | None = None
        for file, group, data, pending in written:
            try:
                if failed is None:
                    await self._folders.append(aside(file.path), file.length, data)
            except ServerRefusedMessage as error:
                self._refuse_file(file, group, error, ledger)
                continue
            except ServerAway as error:
                failed = error
            if failed is None:
                ledger.committed(file, pending, self._context.wall_ms())
                self._answer(group)
            else:
                self._doubt(file)
        if failed is not None:
            # Those answered above keep their answers: a second one changes nothing.
            raise failed

    def _refuse_file(
        self, file: OpenFile, members: Sequence[_Member], fault: ServerRefusedMessage, ledger: FileLedger
    ) -> None:
        """Answer messages whose file is refused; other files are written."""
        if fault.is_partial:
            self._doubt(file)
        else:
            file.pending = None
            if not file.length:
                ledger.files.pop(file.path, None)
                self._leave(file)
        reason = f"{self._folders.name} refused: {fault}"
        for each in members:
            each.job.answer(self.away.alone(str(fault)) if fault.waits else Failed(reason))

    def _doubt(self, file: OpenFile) -> None:
        """Nobody knows what of a file is right; it is looked at before anything else is put into it."""
        self._doubtful[file.path] = file
        self._leave(file)

    def _leave(self, file: OpenFile) -> None:
        """Put nothing more into a file."""
        for key in [key for key, each in self._current.items() if each is file]:
            del self._current[key]

    async def _save(self, ledger: FileLedger) -> None:
        value = ledger.as_json()
        try:
            await self._keep.apart(lambda: self._state.save(value))
        except OSError as error:
            raise ServerAway(f"the ledger cannot be written: {error.strerror}") from error

    # Closing

    async def _close_due(self, ledger: FileLedger) -> None:
        now = self._context.monotonic()
        for key, file in list(self._current.items()):
            if self._close_at(file) <= now:
                await self._close(ledger, key, file)
        while len(self._current) > self._limits.files_max:
            key = min(self._current, key=lambda each: self._current[each].used)
            await self._close(ledger, key, self._current[key])
        while sum(each.bytes for each in self._gathered.values()) >= self._limits.rotate_bytes:
            path = max(self._gathered, key=lambda each: self._gathered[each].bytes)
            key = next(key for key, file in self._current.items() if file.path == path)
            await self._close(ledger, key, self._current[key])

    async def _close(self, ledger: FileLedger, key: tuple[str, str], file: OpenFile) -> None:
        """Give a file its name, with everything in it. Raises ServerAway: one that grows stays open."""
        if file.whole:
            del self._current[key]
            await self._put(ledger, file)
        else:
            await self._folders.publish(aside(file.path), file.path)
            del self._current[key]
            del ledger.files[file.path]
        self._context.count("file_closed")

    async def _put(self, ledger: FileLedger, file: OpenFile) -> None:
        """Write a whole file, with the ledger ahead, and answer its messages."""
        members = self._gathered.pop(file.path).members
        try:
            data, members = await self._made(members)
            if not members:
                return
            pending = file.pending = _pending(0, data, members)
            ledger.files[file.path] = file
            try:
                await self._save(ledger)
            except ServerAway:
                del ledger.files[file.path]
                raise
            try:
                await self._folders.put(file.path, data)
            except ServerRefusedMessage as error:
                self._refuse_file(file, members, error, ledger)
                return
            except ServerAway:
                self._doubt(file)
                raise
        except ServerAway as error:
            raise _Failed(str(error), members) from error
        except Exception:
            # A fault of the sink's own, which sends back what is gathered.
            self._gathered.setdefault(file.path, _WholeFile()).members += members
            raise
        ledger.committed(file, pending, self._context.wall_ms())
        del ledger.files[file.path]
        self._answer(members)

    async def _made(self, members: list[_Member]) -> tuple[bytes, list[_Member]]:
        """Return a whole file and the messages in it; those that no file can hold are answered."""
        form, apart = self._form, self._keep.apart
        try:
            return await apart(lambda: form.whole([each.record for each in members])), members
        except Exception:
            fit = []
            for each in members:
                if (error := await apart(partial(self._refused, each))) is None:
                    fit.append(each)
                else:
                    each.job.answer(Unprocessable(f"no row of a file can represent it: {described(error)}"))
        return await apart(lambda: form.whole([each.record for each in fit])) if fit else b"", fit

    def _refused(self, member: _Member) -> Exception | None:
        try:
            self._form.check(member.record)
        except Exception as error:
            return error
        return None

    def _answer(self, members: Sequence[_Member]) -> None:
        self._context.count("written", len(members))
        for each in members:
            each.job.answer(Status.FINISH)

    def _refuse(self, refusal: RetryLater) -> None:
        """Answer everything that waits that it is to come again."""
        waiting, self._waiting = self._waiting, deque()
        for job in waiting:
            job.answer(refusal)


def _pending(length: int, data: bytes, members: Sequence[_Member]) -> PendingBytes:
    """Return the ledger's entry for bytes that are about to be appended to a file of this length."""
    offsets = text_of(each.job.offset for each in members)
    return PendingBytes(length + len(data), crc32(data), offsets, max(each.stored_ms for each in members))


def _bytes_of(record: Any) -> int:
    return len(record) if isinstance(record, bytes) else len(record[-1] or b"") + ROW_BYTES
