"""The HBase sink: puts, deletes, appends and increments of a batch, in threads (W59)."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

from actions.client_factories import OutsideAction
from actions.sinks.commands import HBaseAppend, HBaseCommand, HBaseDelete, HBaseIncrement, HBasePut
from actions.sinks.faults import ServerAway, ServerRefusedMessage
from actions.sinks.hbase.link import HBaseLink, HBaseWish, RowChange
from actions.sinks.hbase.mutations import Append, Increment, RowMutations, Step, added, steps_of, timestamp_of
from actions.sinks.hbase.options import HBaseOptions, TableMapping
from actions.sinks.redis.options import split_address
from actions.sinks.server_outage import Away
from actions.sinks.templates import FieldMissing, Template
from actions.tombstones import is_tombstone
from pyddmq.actions import Failed, Job, RetryLater, Status, Unprocessable
from upstream.views import SinkView

_Answer = Status | Exception
_Run = Callable[[HBaseLink], None]


class _MessageMutations(NamedTuple):
    """What one message wants, and the timestamp of its cells."""

    place: int
    job: Job
    steps: list[Step]
    at: int


class _Row:
    """One entry of `tables`, compiled."""

    def __init__(self, mapping: TableMapping, *, is_intact: bool) -> None:
        self.mapping = mapping
        self.row = Template(mapping.row, is_intact=is_intact)
        self.columns = {name: Template(text, is_intact=is_intact) for name, text in mapping.columns.items()}


class HBaseSink(OutsideAction):
    """Carries out the mutations of each message; see docs/sinks.md."""

    may_be_last = True
    blocking = True
    time_limit_ms = 120_000
    """More than its own timeouts take: what is over these comes again, uncounted."""
    needs_package = ("happybase", "hbase")
    options_model: ClassVar[type[HBaseOptions]] = HBaseOptions
    _is_open = False

    def open(self) -> None:
        """Compile the mapping; connections are made when the first batch comes."""
        options = self._compile()
        self._links: list[HBaseLink] = []
        for address in options.hosts:
            host, port = split_address(address)
            wish = HBaseWish(
                host=host,
                port=port,
                transport=options.transport,
                protocol=options.protocol,
                timeout_ms=options.timeout,
                pool_size=options.pool_size,
            )
            self._links.append(self.outside.hbase(wish))
        self._used = 0
        self._away = Away("HBase", lambda: self.context)
        # Between reading a cell and putting it again no other command of this subscription may.
        self._once = threading.Lock()
        self._is_open = True

    def _compile(self) -> HBaseOptions:
        assert isinstance(self.options, HBaseOptions)
        options = self._given = self.options
        self._rows = [_Row(mapping, is_intact=self.is_intact) for mapping in options.tables]
        return options

    def servers_away(self) -> list[SinkView]:
        """Return the server that it waits for now."""
        view = self._away.view(self.name) if self._is_open else None
        return [] if view is None else [view]

    def preview(self, job: Job) -> list[str]:
        """Return the mutations of a message, and the server."""
        options = self._compile()
        commands = [*self._own(job), *job.outgoing.commands]
        if not steps_of(commands):
            answer = self._empty()
            if isinstance(answer, Exception):
                raise answer
            return []
        once = "" if options.once_family is None else f", markers in {options.once_family}"
        return [*(_shown(command) for command in commands), f"to {options.hosts[0]}{once}"]

    def close(self) -> None:
        """End all connections."""
        for link in self._links:
            link.close()

    def act_many(self, jobs: Sequence[Job]) -> Sequence[_Answer]:
        """Answer FINISH for each message whose mutations were carried out."""
        answers: list[_Answer] = [Status.FINISH] * len(jobs)
        wanted: list[_MessageMutations] = []
        for place, job in enumerate(jobs):
            try:
                steps = steps_of([*self._own(job), *job.outgoing.commands])
                at = self._timestamp(job) if steps else 0
            except Exception as error:
                answers[place] = error
                continue
            if steps:
                wanted.append(_MessageMutations(place, job, steps, at))
            else:
                answers[place] = self._empty()
        refusal = self._away.refusal()
        if refusal is not None:
            for each in wanted:
                answers[each.place] = refusal
            return answers
        self._carry_out(wanted, answers)
        return answers

    def _empty(self) -> _Answer:
        if self._given.on_empty == "fail":
            return Unprocessable(
                "no mutation for HBase: neither the options nor an earlier action has one for this message"
            )
        self.context.count("without_command")
        return Status.FINISH

    def _own(self, job: Job) -> list[HBaseCommand]:
        made: list[HBaseCommand] = []
        for row in self._rows:
            mapping = row.mapping
            if mapping.tags and job.message.tag not in mapping.tags:
                continue
            try:
                key = self._fill(row.row, job)
            except FieldMissing:
                if self._given.on_missing != "skip":
                    raise
                self.context.count("field_missing")
                continue
            is_delete = mapping.operation == "delete"
            if is_tombstone(job) and not is_delete:
                if mapping.operation != "put":
                    continue
                is_delete = True
            cells = {}
            for name, template in () if is_delete else row.columns.items():
                try:
                    cells[name] = self._fill(template, job)
                except FieldMissing:
                    if self._given.on_missing != "skip":
                        raise
                    self.context.count("field_missing")
            if is_delete:
                made.append(HBaseDelete(mapping.table, key, tuple(row.columns)))
            elif cells:
                made.append(_command(mapping, key, cells))
        return made

    def _fill(self, template: Template, job: Job) -> bytes:
        try:
            return template.fill(job)
        except FieldMissing:
            if self._given.on_missing != "null":
                raise
            self.context.count("field_missing")
            return b""

    def _carry_out(self, wanted: Sequence[_MessageMutations], answers: list[_Answer]) -> None:
        """Send everything; messages that only put and delete go together where table and timestamp are the same."""
        together: dict[tuple[str, int], list[tuple[int, Sequence[RowChange]]]] = {}
        singles = []
        for each in wanted:
            (step, *others) = each.steps
            if not others and isinstance(step, RowMutations):
                together.setdefault((step.table, each.at), []).append((each.place, step.rows))
            else:
                singles.append(each)
        for (table, at), members in together.items():
            self._send_together(table, at, members, answers)
        for each in singles:
            answers[each.place] = self._send(each)

    def _send_together(
        self, table: str, at: int, members: list[tuple[int, Sequence[RowChange]]], answers: list[_Answer]
    ) -> None:
        rows_of_all = [row for _, rows in members for row in rows]
        answer = self._tried(partial(_change, table, rows_of_all, at))
        if isinstance(answer, Exception) and not isinstance(answer, RetryLater) and len(members) > 1:
            # One of them is refused; which one they say only one by one. What was put already is put again.
            for place, rows in members:
                answers[place] = self._tried(partial(_change, table, rows, at))
            return
        for place, _ in members:
            answers[place] = answer

    def _send(self, wanted: _MessageMutations) -> _Answer:
        for number, step in enumerate(wanted.steps):
            answer = self._tried(partial(self._step, wanted.job, step, number, wanted.at))
            if answer is not Status.FINISH:
                return answer
        return Status.FINISH

    def _step(self, job: Job, step: Step, number: int, at: int, link: HBaseLink) -> None:
        if isinstance(step, RowMutations):
            link.change(step.table, step.rows, at)
        elif self._given.once_family is not None:
            self._change_once(link, job, step, number)
        elif isinstance(step, Append):
            link.append(step.table, step.row, step.cells)
        else:
            link.increment(step.table, step.row, step.amounts)

    def _change_once(self, link: HBaseLink, job: Job, step: Append | Increment, number: int) -> None:
        """Put the new values and a marker into the row at once, unless the marker is there.

        The timestamp is the present time, or newer than the present value's: so the new one is seen whatever queue it
        came from, and a marker of an old message lives as long as the family's TTL says.
        """
        family = self._given.once_family
        marker = f"{family}:{job.group}/{job.topic}/{job.qid}/{job.offset}/{job.message.stored_ms}/{number}".encode()
        columns = list(step.cells if isinstance(step, Append) else step.amounts)
        with self._once:
            found = link.read(step.table, step.row, [*columns, marker])
            if marker in found:
                self.context.count("repeat_left_out")
                return
            cells = {marker: b"1"}
            newest = self.context.wall_ms()
            for column in columns:
                value, its = found.get(column, (None, 0))
                newest = max(newest, its + 1)
                if isinstance(step, Append):
                    cells[column] = (value or b"") + step.cells[column]
                else:
                    cells[column] = added(value, step.amounts[column])
            link.change(step.table, [RowChange(step.row, cells, None)], newest)

    def _tried(self, run: _Run) -> _Answer:
        refusal = self._away.refusal()
        if refusal is not None:
            return refusal
        used = self._used
        try:
            run(self._links[used])
        except ServerAway as error:
            self._used = (used + 1) % len(self._links)
            return self._away.failed(str(error))
        except ServerRefusedMessage as error:
            if error.waits:
                return self._away.alone(str(error))
            return Failed(f"HBase refused: {error}")
        except Exception as error:
            # Of this message, not of the server: it counts as an attempt.
            return error
        self._away.answered()
        return Status.FINISH

    def _timestamp(self, job: Job) -> int:
        return timestamp_of(job.message.stored_ms, job.offset, by_order=self._given.timestamp == "storeOrder")


def _change(table: str, rows: Sequence[RowChange], at: int, link: HBaseLink) -> None:
    link.change(table, rows, at)


def _shown(command: HBaseCommand) -> str:
    """Return a mutation as people read it: what, table, row, cells."""
    kind = type(command).__name__.removeprefix("HBase").lower()
    columns = command.columns
    cells = [str(each) for each in columns] if isinstance(command, HBaseDelete) else []
    if not isinstance(columns, tuple):
        cells = [f"{name}={_as_text(value)}" for name, value in columns.items()]
    return " ".join([kind, command.table, _as_text(command.row), *cells])


def _as_text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


_AMOUNT = re.compile(rb"-?[0-9]{1,18}")
"""What a counter grows by: a message says it, and HBase counts in 64 bits."""


def _command(mapping: TableMapping, row: bytes, cells: dict[str, bytes]) -> HBaseCommand:
    if mapping.operation == "append":
        return HBaseAppend(mapping.table, row, cells)
    if mapping.operation == "put":
        return HBasePut(mapping.table, row, cells)
    amounts = {}
    for name, text in cells.items():
        if _AMOUNT.fullmatch(text) is None:
            raise Unprocessable(
                f"column {name} cannot be incremented by {text[:40]!r}; use an integer of at most 18 digits"
            )
        amounts[name] = int(text)
    return HBaseIncrement(mapping.table, row, amounts)
