"""The Redis sink: what a message asks for, in one transaction each, and one round trip per batch and server (W60)."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from actions.outside import OutsideAction
from actions.sinks.away import Away, ServerAway
from actions.sinks.commands import RedisCommand
from actions.sinks.redis.link import RedisLink, RedisWish, Refused, Secretive
from actions.sinks.redis.names import Words, checked
from actions.sinks.redis.options import RedisOptions, split_address
from actions.sinks.redis.script import load, once
from actions.sinks.templates import FieldMissing, Template
from pyddmq.actions import Failed, Job, RetryLater, Status, Unprocessable

_Answer = Status | Exception

AWAY = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "MISCONF", "NOAUTH", "WRONGPASS",
        "NOREPLICAS", "NOPERM", "BUSY ", "max number of clients")  # fmt: skip
"""How refusals begin that say nothing of the command: the server cannot take any now, or does not know us."""


class _Wanted(NamedTuple):
    """What one message wants."""

    place: int
    commands: list[Words]
    marker: str | None


class RedisSink(OutsideAction):
    """Carries out the commands of each message; see docs/sinks.md."""

    may_be_last = True
    time_limit_ms = 120_000
    """More than its own timeouts take: what is over these comes again, uncounted."""
    needs_package = ("redis", "redis")
    options_model: ClassVar[type[RedisOptions]] = RedisOptions

    def open(self) -> None:
        """Read the password and compile the commands; connections are made when the first batch comes.

        Raises:
            SecretUnreadable: There is no password where it should be.
        """
        options = self._compile()
        password = Secretive(options.password.read() if options.password is not None else "")
        self._wishes = []
        for address in options.hosts:
            host, port = split_address(address)
            self._wishes.append(
                RedisWish(
                    host=host,
                    port=port,
                    username=options.username,
                    password=password,
                    database=options.database,
                    tls=options.tls,
                    ca_file=options.ca_file,
                    timeout_seconds=options.timeout / 1000,
                )
            )
        self._links: list[RedisLink | None] = [None] * len(options.hosts)
        self._away = [Away(f"Redis at {address}", lambda: self.context) for address in options.hosts]

    def _compile(self) -> RedisOptions:
        assert isinstance(self.options, RedisOptions)
        options = self._given = self.options
        self._templates = [
            (words[0], [Template(word, is_intact=self.is_intact) for word in words[1:]]) for words in options.commands
        ]
        return options

    def preview(self, job: Job) -> list[str]:
        """Return the commands of a message, and their server."""
        hosts = self._compile().hosts
        commands, idempotent = self._commands(job)
        if not commands:
            answer = self._empty()
            return _raised(answer) if isinstance(answer, Exception) else []
        lines = [" ".join(_text(word) for word in command) for command in commands]
        once = "" if idempotent or not self._given.once else f", once, by the marker {self._marker(job)}"
        return [*lines, f"to {hosts[_host_of(commands[0], len(hosts))]}{once}"]

    async def close(self) -> None:
        """End all connections."""
        for link in self._links:
            if link is not None:
                await link.close()

    async def act_many(self, jobs: Sequence[Job]) -> Sequence[_Answer]:
        """Answer FINISH for each message whose commands were carried out."""
        answers: list[_Answer] = [Status.FINISH] * len(jobs)
        wanted: dict[int, list[_Wanted]] = {}
        for place, job in enumerate(jobs):
            try:
                commands, idempotent = self._commands(job)
            except Exception as error:
                answers[place] = error
                continue
            if not commands:
                answers[place] = self._empty()
                continue
            marker = None if idempotent or not self._given.once else self._marker(job)
            wanted.setdefault(_host_of(commands[0], len(self._wishes)), []).append(_Wanted(place, commands, marker))
        done = await asyncio.gather(*(self._send(host, each) for host, each in wanted.items()))
        for each, host_answers in zip(wanted.values(), done, strict=True):
            for one, answer in zip(each, host_answers, strict=True):
                answers[one.place] = answer
        return answers

    def _empty(self) -> _Answer:
        if self._given.on_empty == "fail":
            return Unprocessable("no command of Redis: neither the options nor an action before has one for it")
        self.context.count("without_command")
        return Status.FINISH

    def _commands(self, job: Job) -> tuple[list[Words], bool]:
        """Return what a message wants, and whether a repeat of all of it is harmless. Raises Unprocessable."""
        commands, idempotent = [], True
        for gathered in (*self._own(job), *job.outgoing.commands):
            words, harmless = checked(gathered)
            commands.append(words)
            idempotent = idempotent and harmless
        return commands, idempotent

    def _own(self, job: Job) -> list[RedisCommand]:
        """Fill in the commands of the options."""
        made = []
        for name, templates in self._templates:
            try:
                made.append(RedisCommand(name, tuple(self._fill(template, job) for template in templates)))
            except FieldMissing:
                if self._given.on_missing != "skip":
                    raise
                self.context.count("field_missing")
        return made

    def _fill(self, template: Template, job: Job) -> bytes:
        try:
            return template.fill(job)
        except FieldMissing:
            if self._given.on_missing != "null":
                raise
            self.context.count("field_missing")
            return b""

    def _marker(self, job: Job) -> str:
        """Name of a message's marker; with its time, for offsets begin again in a new data directory."""
        message = job.message
        return f"pyddmq:once:{job.group}:{job.topic}:{job.qid}:{job.offset}:{message.stored_ms}"

    async def _send(self, host: int, wanted: list[_Wanted]) -> list[_Answer]:
        away = self._away[host]
        refusal = away.refusal()
        if refusal is not None:
            return [refusal] * len(wanted)
        sent: list[Words] = [load()] if any(each.marker is not None for each in wanted) else []
        ends = []
        for each in wanted:
            sent += self._words(each)
            ends.append(len(sent) - 1)
        try:
            answers = await self._link(host).round_trip(sent)
        except ServerAway as error:
            return [away.failed(str(error))] * len(wanted)
        told: list[_Answer] = []
        later: RetryLater | None = None
        for each, end in zip(wanted, ends, strict=True):
            reason = _refusal(answers[: end + 1] if each.marker is None else answers[end : end + 1], each)
            if reason is None:
                told.append(Status.FINISH)
            elif reason.startswith(AWAY) or AWAY[-1] in reason:
                later = later or away.failed(reason)
                told.append(later)
            else:
                told.append(Failed(f"Redis refused: {reason}"))
        if later is None:
            away.answered()
        return told

    def _words(self, wanted: _Wanted) -> list[Words]:
        """Return what is sent for one message; the last answer says what became of all of it."""
        if wanted.marker is not None:
            return [once(wanted.commands, wanted.marker, self._given.once_seconds)]
        if len(wanted.commands) == 1:
            return wanted.commands
        return [("MULTI",), *wanted.commands, ("EXEC",)]

    def _link(self, host: int) -> RedisLink:
        link = self._links[host]
        if link is None:
            link = self._links[host] = self.outside.redis(self._wishes[host])
        return link


def _host_of(command: Words, hosts: int) -> int:
    """Return the server of a message: that of the first Redis key it names, so that a key is on one alone."""
    key = command[1]
    raw = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")
    return zlib.crc32(raw) % hosts


def _raised(error: Exception) -> list[str]:
    raise error


def _refusal(answers: Sequence[Any], wanted: _Wanted) -> str | None:
    """Return why one of a message's commands was refused; None when all had their effect."""
    last = answers[-1]
    if wanted.marker is not None:
        if isinstance(last, Refused):
            return str(last)
        return f"{_text(last[1])} ({_text(wanted.commands[last[0] - 1][0])})" if last[0] else None
    if isinstance(last, Refused):
        # A transaction that was given up for what one of its commands is: that one says more.
        queued = answers[-1 - len(wanted.commands) : -1] if len(wanted.commands) > 1 else []
        return next((str(each) for each in queued if isinstance(each, Refused)), str(last))
    if len(wanted.commands) > 1:
        for command, answer in zip(wanted.commands, last, strict=True):
            if isinstance(answer, Refused):
                return f"{answer} ({_text(command[0])})"
    return None


def _text(raw: object) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
