"""The sinks of files as actions: `File` and `Hdfs`; see docs/sinks.md."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import ClassVar

from actions.client_factories import OutsideAction
from actions.sinks.files.folders import Folders, FolderWish
from actions.sinks.files.formats import Format, format_of
from actions.sinks.files.layout import Layout, zone_of
from actions.sinks.files.options import WHOLE_SECONDS_MAX, FileOptions, HdfsOptions
from actions.sinks.files.writer import FileLimits, Writer
from pyddmq.actions import Job, Status
from upstream.views import SinkView

GROWING_SECONDS = 600
WHOLE_MESSAGES = 1_000
END_SECONDS_MAX = 9.0
"""How long the end of a generation waits for the turn that is on its way: less than the close of an action may take."""
LOOK_SECONDS = END_SECONDS_MAX + 5.0
"""When files that an earlier life left open are looked at without a message: the generation before is over then."""


class FilesAction(OutsideAction):
    """What both share: one writer, which begins with the first message."""

    may_be_last = True
    _writer: Writer | None = None
    _is_closing = False

    def open(self) -> None:
        """Prepare; nothing is read or written before the first message comes, or `LOOK_SECONDS` are over."""
        self._folders: Folders | None = None
        self._writer = None
        self._task: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        if self.outside.keep is not None:
            with contextlib.suppress(RuntimeError):  # without a loop no message comes either
                self._later = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def act_many(self, jobs: Sequence[Job]) -> Sequence[Status | Exception]:
        """Take messages over; each is answered once it is durable in its file."""
        return self._begun().take(jobs)

    def drain(self) -> None:
        """Write and close what is open."""
        if self._writer is not None:
            self._writer.close_soon()

    async def close(self) -> None:
        """End after the turn that is on its way; what it does not get to comes again."""
        self._is_closing = True
        if self._later is not None:
            self._later.cancel()
        if self._writer is not None and self._task is not None:
            self._writer.end()
            # It is not cancelled: a thread that writes goes on, and until it ends the next generation has to wait.
            await asyncio.wait({self._task}, timeout=END_SECONDS_MAX)
        if self._folders is not None:
            await self._folders.close()

    def servers_away(self) -> list[SinkView]:
        """Return what it waits for now."""
        view = None if self._writer is None else self._writer.away.view(self.name)
        return [] if view is None else [view]

    def _look(self) -> None:
        self._begun().look()

    def _begun(self) -> Writer:
        if self._writer is None:
            self._writer = self._make_writer()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(self._writer))
            self._task.add_done_callback(self._ended)
        return self._writer

    async def _run(self, writer: Writer) -> None:
        # Files and ledger are those of the generation before, whose last turn may be under way.
        async with self._turn:
            await writer.run()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Note a task that ended by itself; the next message, or `LOOK_SECONDS`, starts it again."""
        if self._is_closing or self._writer is None:
            return
        error = None if task.cancelled() else task.exception()
        self._writer.give_up(error or RuntimeError("it was cancelled"))
        self._later = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _make_writer(self) -> Writer:
        keep = self.outside.kept
        context = self.context
        wish, form, layout = self._plan()
        options = self.options
        assert isinstance(options, FileOptions | HdfsOptions)
        self._folders = self.outside.folders(wish, self.outside)
        whole = options.is_whole
        limits = FileLimits(
            flush_seconds=options.flush_ms / 1000,
            rotate_seconds=options.rotate_seconds or (WHOLE_SECONDS_MAX if whole else GROWING_SECONDS),
            rotate_bytes=options.rotate_bytes,
            rotate_messages=options.rotate_messages or (WHOLE_MESSAGES if whole else None),
            idle_seconds=options.idle_seconds,
            files_max=options.max_file_count,
        )
        name = f"{context.group}/{context.topic}/{self.name}"
        self._turn, state = keep.turn(name), keep.state(name)
        return Writer(context, self._folders, layout=layout, form=form, limits=limits, keep=keep, state=state)

    def _plan(self) -> tuple[FolderWish, Format, Layout]:
        """Return what files are written by, what is in them, and how they are called."""
        options = self.options
        assert isinstance(options, FileOptions | HdfsOptions)
        wish, root, path, form_name = self._wish()
        form = format_of(form_name, bodies_alone=options.content == "body", is_intact=self.is_intact)
        layout = Layout(
            root=root.rstrip("/"),
            path=path,
            group=self.context.group,
            topic=self.context.topic,
            zone=zone_of(options.time_zone),
            suffix=form.suffix,
        )
        return wish, form, layout

    def preview(self, job: Job) -> list[str]:
        """Return the file that would begin with a message, and what would be put into it, where that is text."""
        wish, form, layout = self._plan()
        record = form.record(job)
        stored_ms = job.message.stored_ms
        where = wish.urls[0].rstrip("/") if wish.urls else ""
        path = f"{layout.folder(stored_ms)}/{layout.name(job.qid, job.offset, stored_ms)}"
        lines = [f"into {where}{path}, or the open file of its queue in that folder"]
        if isinstance(record, bytes) and form.suffix not in (".seq",):
            lines.append(record.decode("utf-8", "backslashreplace").rstrip("\n"))
        return lines

    def _wish(self) -> tuple[FolderWish, str, str, str]:
        """Return what files are written by, their root, the template of their folders, and their form."""
        raise NotImplementedError


class FileSink(FilesAction):
    """Files on the node's machine, or where pyarrow reaches."""

    options_model: ClassVar[type[FileOptions]] = FileOptions

    def _wish(self) -> tuple[FolderWish, str, str, str]:
        assert isinstance(self.options, FileOptions)
        options = self.options
        if options.is_local:
            return FolderWish(kind="disk"), options.url.removeprefix("file://"), options.path, options.format
        wish = FolderWish(
            kind="arrow",
            urls=(options.url,),
            token=options.secret_key,
            access_key=options.access_key,
            endpoint=options.endpoint,
            region=options.region,
        )
        return wish, "", options.path, options.format


class HdfsSink(FilesAction):
    """Files in HDFS, over WebHDFS."""

    options_model: ClassVar[type[HdfsOptions]] = HdfsOptions

    def _wish(self) -> tuple[FolderWish, str, str, str]:
        assert isinstance(self.options, HdfsOptions)
        options = self.options
        wish = FolderWish(
            kind="webhdfs",
            urls=tuple(options.urls),
            user=options.user_name,
            token=options.token,
            ca_file=options.ca_file,
            timeout_seconds=options.timeout / 1000,
        )
        return wish, options.root_path, options.file_path, options.file_type
