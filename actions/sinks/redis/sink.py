"""The Redis sink: what a message asks for, in one transaction each, and one round trip per batch and server (W60)."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from actions.client_factories import OutsideAction
from actions.sinks.commands import RedisCommand
from actions.sinks.faults import ConnectionStale, ServerAway, ServerRefusedMessage
from actions.sinks.redis.link import CommandRefused, RedisLink, RedisMap, RedisWish
from actions.sinks.redis.names import Words, checked, deletes_of
from actions.sinks.redis.options import RedisOptions, split_address
from actions.sinks.server_outage import Away
from actions.sinks.templates import FieldMissing, Template
from actions.tombstones import is_tombstone
from pyddmq.actions import Failed, Job, RetryLater, Status, Unprocessable
from upstream.views import SinkView

# Commands that leave no second effect on a repeat: one script that counts in a marker how far it has come.
#
# A script runs alone, and its writes reach the server's log together. So marker and effect are always of one state: a
# repeat continues behind the last command that had its effect, also where one of them was refused in between.

SCRIPT = b"""\
local done = tonumber(redis.call('GET', KEYS[1]) or '0')
local at = 2
for number = 1, tonumber(ARGV[2]) do
  local size = tonumber(ARGV[at + 1])
  if number > done then
    local answer = redis.pcall(unpack(ARGV, at + 2, at + 1 + size))
    if type(answer) == 'table' and answer.err then
      return {number, answer.err}
    end
    redis.call('SET', KEYS[1], number, 'EX', ARGV[1])
  end
  at = at + 1 + size
end
return {0, done}
"""
SCRIPT_SUM = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest()
"""Name of the script at the server."""


def once(commands: Sequence[Words], marker: str, seconds: int) -> Words:
    """Return the call of the script for one message; `SCRIPT LOAD` comes before it in the same round trip.

    It answers the number of the command that was refused, from 1, and why; or 0, and how many had been done before.
    """
    words: list[str | bytes | int | float] = ["EVALSHA", SCRIPT_SUM, 1, marker, seconds, len(commands)]
    for command in commands:
        words += [len(command), *command]
    return tuple(words)


def load() -> Words:
    """Return the command that makes the script known; harmless when it is."""
    return ("SCRIPT", "LOAD", SCRIPT)


# Sorts what Redis answers into the kinds of `actions.sinks.faults`.

STALE = ("READONLY", "MOVED ", "ASK ", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH", "WRONGPASS")
"""The address leads to a server of another role, or the password changed: a new connection may reach the right one."""

AWAY = ("MISCONF", "NOREPLICAS", "BUSY ", "ERR max number of clients")
"""The server takes no writes now."""

WAITS = ("OOM", "TRYAGAIN")
"""The server has no room for this command, or its keys are between two servers; other commands still work."""


def fault_of(reason: str) -> Exception:
    """Return the fault that a refusal means; anything unknown is about the message."""
    if reason.startswith(STALE):
        hint = "; the server is a node of a Redis Cluster: set `cluster: true`" if reason.startswith("MOVED ") else ""
        return ConnectionStale(reason + hint)
    if reason.startswith(AWAY):
        return ServerAway(reason)
    return ServerRefusedMessage(reason, waits=reason.startswith(WAITS))


def redirect_of(reason: str, server: str) -> str | None:
    """Return the address to which ASK sends one message; None for another refusal.

    Args:
        reason: `ASK SLOT HOST:PORT`; without a host it is that of the server which answered.
        server: The server which answered.
    """
    if not reason.startswith("ASK "):
        return None
    host, _, port = reason.split(" ")[2].rpartition(":")
    return f"{host or server.rpartition(':')[0]}:{port}"


ROUND_TRIP_BYTES = 8 * 1024 * 1024
"""What messages of one round trip have together, unless one alone has more."""
BYTES_PER_STEP = 64 * 1024
"""Bodies whose commands are made before other work of the loop gets its turn: parsing them takes some milliseconds."""
_Answer = Status | Exception


class _MessageCommands(NamedTuple):
    """What one message wants."""

    place: int
    commands: list[Words]
    marker: str | None
    server: str | None = None
    """Server that another one named for this message alone, while a slot is on its way there."""

    @property
    def key(self) -> bytes:
        """The first Redis key of the message; all its commands go to the server of this key."""
        key = self.commands[0][1]
        return key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")


class _Server(NamedTuple):
    """One server: its connections, and whether it is away."""

    link: RedisLink
    away: Away


class RedisSink(OutsideAction):
    """Carries out the commands of each message; see docs/sinks.md."""

    may_be_last = True
    time_limit_ms = 120_000
    """More than its own timeouts take: what is over these comes again, uncounted."""
    needs_package = ("redis", "redis")
    options_model: ClassVar[type[RedisOptions]] = RedisOptions
    _is_open = False

    def open(self) -> None:
        """Check the password and compile the commands; connections are made when the first batch comes.

        Raises:
            SecretUnreadable: There is no password where it should be.
        """
        options = self._compile()
        if options.password is not None:
            options.password.read()
        self._servers: dict[str, _Server] = {}
        self._map: RedisMap | None = None
        self._is_open = True
        self._map_away = Away("the Redis Cluster", lambda: self.context)

    def _wish(self, address: str) -> RedisWish:
        options = self._given
        host, port = split_address(address)
        return RedisWish(
            host=host,
            port=port,
            username=options.username,
            password=options.password,
            database=options.database,
            tls=options.tls,
            ca_file=options.ca_file,
            timeout_seconds=options.timeout / 1000,
        )

    def _compile(self) -> RedisOptions:
        assert isinstance(self.options, RedisOptions)
        options = self._given = self.options
        self._templates = [self._template(words) for words in options.commands]
        deletes = options.deletes
        if deletes is None:
            deletes = [delete for words in options.commands for delete in deletes_of(words)]
        self._deletes = [self._template(words) for words in deletes]
        self._parses = any(each.needs_json for _, templates in self._templates for each in templates)
        return options

    def _template(self, words: Sequence[str]) -> tuple[str, list[Template]]:
        return words[0], [Template(word, is_intact=self.is_intact) for word in words[1:]]

    def servers_away(self) -> list[SinkView]:
        """Return the servers that it waits for now."""
        aways = [self._map_away, *(each.away for each in self._servers.values())] if self._is_open else []
        return [view for away in aways if (view := away.view(self.name)) is not None]

    def preview(self, job: Job) -> list[str]:
        """Return the commands of a message, and their server."""
        hosts = self._compile().hosts
        commands, idempotent = self._commands(job)
        if not commands:
            answer = self._empty()
            return _raised(answer) if isinstance(answer, Exception) else []
        lines = [" ".join(_text(word) for word in command) for command in commands]
        once = "" if idempotent or not self._given.once else f", once, by the marker {self._marker(job)}"
        where = (
            "the Redis Cluster"
            if self._given.cluster
            else hosts[_host_of(_MessageCommands(0, commands, None).key, len(hosts))]
        )
        return [*lines, f"to {where}{once}"]

    async def close(self) -> None:
        """End all connections."""
        for server in self._servers.values():
            await server.link.close()
        if self._map is not None:
            await self._map.close()

    async def act_many(self, jobs: Sequence[Job]) -> Sequence[_Answer]:
        """Answer FINISH for each message whose commands were carried out."""
        answers: list[_Answer] = [Status.FINISH] * len(jobs)
        wanted: list[_MessageCommands] = []
        size = 0
        for place, job in enumerate(jobs):
            if size >= BYTES_PER_STEP:
                size = 0
                await asyncio.sleep(0)
            try:
                # One that an action before has parsed costs no more, however large.
                size += len(data) if self._parses and isinstance(data := job.data, bytes) else 0
                commands, idempotent = self._commands(job)
            except Exception as error:
                answers[place] = error
                continue
            if not commands:
                answers[place] = self._empty()
                continue
            marker = None if idempotent or not self._given.once else self._marker(job)
            wanted.append(_MessageCommands(place, commands, marker))
        again = await self._carry_out(wanted, answers, is_last=False)
        if again:
            await self._carry_out(again, answers, is_last=True)
        return answers

    async def _carry_out(
        self, wanted: Sequence[_MessageCommands], answers: list[_Answer], *, is_last: bool
    ) -> list[_MessageCommands]:
        """Send messages, each to its server; returns those to send again over renewed connections."""
        by_server: dict[str, list[_MessageCommands]] = {}
        for each in wanted:
            try:
                by_server.setdefault(each.server or await self._server_of(each.key), []).append(each)
            except ServerAway as error:
                answers[each.place] = self._map_away.refusal() or self._map_away.failed(str(error))
        again: list[_MessageCommands] = []

        async def send(server: str, wanted: Sequence[_MessageCommands]) -> None:
            for part in _parts(wanted):
                await self._send(server, part, answers, None if is_last else again)

        await asyncio.gather(*(send(*each) for each in by_server.items()))
        return again

    async def _server_of(self, key: bytes) -> str:
        """Return the address of a key's server. Raises ServerAway: the cluster does not say."""
        hosts = self._given.hosts
        if not self._given.cluster:
            return hosts[_host_of(key, len(hosts))]
        refusal = self._map_away.refusal()
        if refusal is not None:
            raise ServerAway(str(refusal))
        if self._map is None:
            self._map = self.outside.redis_map([self._wish(address) for address in hosts])
        server = await self._map.server_of(key)
        self._map_away.answered()
        return server

    def _empty(self) -> _Answer:
        if self._given.on_empty == "fail":
            return Unprocessable(
                "no command of Redis: neither the options nor an earlier action has one for this message"
            )
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
        for name, templates in self._deletes if is_tombstone(job) else self._templates:
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

    async def _send(
        self, address: str, wanted: list[_MessageCommands], answers: list[_Answer], again: list[_MessageCommands] | None
    ) -> None:
        """Send messages to one server and note their answers.

        Args:
            address: The server.
            wanted: The messages.
            answers: By place in the batch.
            again: Takes messages without effect, to send again over a renewed connection; None: this was the last try.
        """
        server = self._server(address)
        refusal = server.away.refusal()
        if refusal is not None:
            for each in wanted:
                answers[each.place] = refusal
            return
        try:
            faults = await self._round_trip(server.link, wanted)
        except ConnectionStale as error:
            faults = [error] * len(wanted)
        except ServerAway as error:
            faults = [error] * len(wanted)
            await self._forget_map()
        later: RetryLater | None = None
        stale = False
        for each, fault in zip(wanted, faults, strict=True):
            if fault is None:
                answers[each.place] = Status.FINISH
            elif isinstance(fault, ServerRefusedMessage):
                reason = f"Redis refused: {fault}"
                answers[each.place] = server.away.alone(str(fault)) if fault.waits else Failed(reason)
            elif isinstance(fault, ConnectionStale) and again is not None:
                owner = redirect_of(str(fault), address)
                stale = stale or owner is None
                again.append(each._replace(server=owner))
            else:
                stale = stale or isinstance(fault, ConnectionStale)
                later = later or server.away.failed(str(fault))
                answers[each.place] = later
        if stale:
            await server.link.renew()
            await self._forget_map()
        elif later is None:
            server.away.answered()

    async def _round_trip(self, link: RedisLink, wanted: Sequence[_MessageCommands]) -> list[Exception | None]:
        """Send messages at once; returns the fault of each, None where all commands had their effect."""
        sent: list[Words] = [load()] if any(each.marker is not None for each in wanted) else []
        ends = []
        for each in wanted:
            if each.server is not None:
                sent.append(("ASKING",))
            sent += self._words(each)
            ends.append(len(sent) - 1)
        reported = await link.round_trip(sent)
        faults: list[Exception | None] = []
        for each, end in zip(wanted, ends, strict=True):
            reason = _refusal(reported[: end + 1] if each.marker is None else reported[end : end + 1], each)
            faults.append(None if reason is None else fault_of(reason))
        return faults

    async def _forget_map(self) -> None:
        if self._map is not None:
            await self._map.renew()

    def _words(self, wanted: _MessageCommands) -> list[Words]:
        """Return what is sent for one message; the last answer says what became of all of it."""
        if wanted.marker is not None:
            return [once(wanted.commands, wanted.marker, self._given.once_seconds)]
        if len(wanted.commands) == 1:
            return wanted.commands
        return [("MULTI",), *wanted.commands, ("EXEC",)]

    def _server(self, address: str) -> _Server:
        server = self._servers.get(address)
        if server is None:
            away = Away(f"Redis at {address}", lambda: self.context)
            server = self._servers[address] = _Server(self.outside.redis(self._wish(address)), away)
        return server


def _parts(wanted: Iterable[_MessageCommands]) -> Iterator[list[_MessageCommands]]:
    """Cut messages into round trips for which a server's timeout suffices; one that is larger goes alone."""
    part: list[_MessageCommands] = []
    left = ROUND_TRIP_BYTES
    for each in wanted:
        size = sum(len(word) for words in each.commands for word in words if isinstance(word, str | bytes))
        if part and size > left:
            yield part
            part, left = [], ROUND_TRIP_BYTES
        part.append(each)
        left -= size
    yield part


def _host_of(key: bytes, hosts: int) -> int:
    """Return the place of a key's server, so that a key is on one alone."""
    return zlib.crc32(key) % hosts


def _raised(error: Exception) -> list[str]:
    raise error


def _refusal(answers: Sequence[Any], wanted: _MessageCommands) -> str | None:
    """Return why one of a message's commands was refused; None when all had their effect."""
    last = answers[-1]
    if wanted.marker is not None:
        if isinstance(last, CommandRefused):
            return str(last)
        return f"{_text(last[1])} ({_text(wanted.commands[last[0] - 1][0])})" if last[0] else None
    if isinstance(last, CommandRefused):
        # A transaction that was abandoned because of one of its commands: the error of that one says more.
        queued = answers[-1 - len(wanted.commands) : -1] if len(wanted.commands) > 1 else []
        return next((str(each) for each in queued if isinstance(each, CommandRefused)), str(last))
    if len(wanted.commands) > 1:
        for command, answer in zip(wanted.commands, last, strict=True):
            if isinstance(answer, CommandRefused):
                return f"{answer} ({_text(command[0])})"
    return None


def _text(raw: object) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
