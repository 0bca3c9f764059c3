"""ConsumerService: pull, submit and getConsumeStats over the groups of this node.

Rules: results are applied before anything else and never fail their pull (D13); each result counts for its own group
(W4) and may be null, unknown or late (counted, W2, W5, W46); a pull that cannot be served for a reason the client
can act on is a PullException with a code of `pyddmq.codes` (W6), after its results were taken: where those cannot
be recorded, the call ends without an answer, since libraries throw results away with an exception; a known group
without messages parks the request for max(maxLingerTime, 20 ms), at most `linger_ms_max` (R48, W7).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from proxy.limits.quota import AFTER_MS, LimitExceeded
from proxy.port.calls_pass import PassLine
from proxy.port.connection import Connection
from proxy.port.reply_slot import Leased, Lost, ReplySlot
from proxy.port.server import Handler
from proxy.services.access.guard import Guard
from proxy.services.results.durable import DurableWait, ReadyReply, Resumed, not_durable
from proxy.services.results.held_calls import carries_results, leave_unanswered
from proxy.services.results.partition_waits import PartitionWaits
from proxy.services.results.result_steps import STEP_RESULTS, is_long, pieces
from proxy.services.waiting_pulls import LINGER_MS_MIN, Lingers, WaitingPull
from proxy.wire.call import Call
from proxy.wire.errors import TextError
from proxy.wire.pull_reply import encode_pull_reply
from proxy.wire.replies import encode_bool_reply, encode_empty_pull_reply, encode_pull_exception, encode_stats_reply
from proxy.wire.scanning.scan import scan_pull, scan_stats, scan_submit
from proxy.wire.values import ConsumeResult, PullRequest
from pyddmq.codes import PullCode
from upstream.budget import Budget
from upstream.delivery.group import ConsumerGroup, ParkedFull, PulledBatch
from upstream.job import Generation, Slices, UpstreamJob
from upstream.progress.progress import ProgressFailed, ProgressFull

PULLS_REFUSED = declare("pyddmq_pulls_refused_total", "Pulls answered with a PullException", ("reason",))
RESULTS_IGNORED = declare(
    "pyddmq_results_ignored_total",
    "Results that could not be attributed: null_context, no_such_group, low_level (per result, not per offset)",
    ("reason",),
)
RECORDS_LOST_AT_PULL = declare(
    "pyddmq_pull_records_unreadable_total", "Records found damaged or deleted when a reply was assembled", ("topic",)
)

_LOW_LEVEL = "group {!r} is low level; use fetch and ack, or remove LowLevel from its actions"


_Pull = tuple[ReplySlot, PullRequest, ProgressFailed | None]
"""A pull whose results were applied, and why no more of them can be recorded, or None."""
_Taken = tuple[ReplySlot, ConsumerGroup, PulledBatch]
"""A pull that has its messages, and no reply yet."""
_Located = Mapping[Generation, Iterator[tuple[int, Slices]] | None]
"""By subscription its messages of a pass, in the order of the pulls; None: each is to be looked at by itself."""


class ConsumerService:
    """The pulls and results of the consumer port, and the handlers of the rest.

    Attributes:
        line: Handles the pulls and submits of a pass.
    """

    def __init__(
        self,
        groups: Mapping[str, ConsumerGroup],
        *,
        runtime: Runtime,
        linger_ms_max: int,
        acks_refused: Callable[[], ProgressFailed | None],
        budget: Budget,
        guard: Guard,
        fetch_handlers: Mapping[str, Handler] = MappingProxyType({}),
        leaving: Callable[[str], ConsumerGroup | None] = lambda _: None,
        awaits_durability: bool = False,
        awaits_partitions: bool = False,
    ) -> None:
        """Set up.

        Args:
            groups: The node's live groups by name; read at each call, so that a reload shows at once.
            runtime: Monotonic time and the event loop, for the end of a linger; counts; log lines.
            linger_ms_max: Cap of maxLingerTime (W7).
            acks_refused: Why results cannot be recorded at present, or None. Nothing is handed out then, since it
                would come again and again.
            budget: The node's account of memory.
            guard: Looks at rights, where there are rules.
            fetch_handlers: Answer fetch and ack (`FetchService`).
            leaving: Finds a group that was taken out and drains: results for it still count.
            awaits_durability: Whether groups have results that are durable later than with the turn, and answers wait.
            awaits_partitions: Whether there are groups whose partitions a cluster gives them.
        """
        self._groups = groups
        self._guard = guard
        self._fetch_handlers = fetch_handlers
        self._leaving = leaving
        self._awaits_durability = awaits_durability
        self._waits = PartitionWaits(groups, runtime, self.resume) if awaits_partitions else None
        self._lingers = Lingers(clock=runtime.clock, scheduler=runtime.scheduler, start=self._start, send=self._send)
        self._runtime = runtime
        self._metrics = runtime.metrics
        self._acks_refused = acks_refused
        self._budget = budget
        self.linger_ms_max = linger_ms_max
        self.line = PassLine(("pull", "submit"), self.take, is_one_each=True)

    def handlers(self) -> dict[str, Handler]:
        """Method name to handler."""
        return {
            "getConsumeStats": self.get_consume_stats,
            **self._fetch_handlers,
        }

    def take(self, slots: Sequence[ReplySlot]) -> None:
        """Handle the pulls and submits of a pass: the results of all count before any of them takes messages.

        Their messages are looked up in the log together.
        """
        pulls: list[_Pull] = []
        taken: list[_Taken] = []
        for slot in slots:
            try:
                if slot.call.method == "submit":
                    self._submit(slot)
                elif (pull := self._results_of(slot)) is not None:
                    pulls.append(pull)
            except Exception as error:
                slot.connection.fail(slot, error)
        for slot, request, refused in pulls:
            try:
                self._pull(slot, request, refused, taken)
            except Exception as error:
                slot.connection.fail(slot, error)
        located = _located(taken) if len(taken) > 1 else None
        for slot, group, batch in taken:
            try:
                self._send(slot, group, batch, located)
            except Exception as error:
                slot.connection.fail(slot, error)

    def _results_of(self, slot: ReplySlot) -> _Pull | None:
        """Scan a pull, look at its rights and apply the results that ride on it; None: it is not to be served now."""
        call, connection = slot.call, slot.connection
        request = scan_pull(call)
        if not connection.client:
            connection.note_client(request.version)
        rights = connection.rights
        if rights is not None:
            # The guard's looks, inline for what was decided before: there is one for every pull.
            consumes = rights.consumes
            if request.group not in consumes and not self._guard.pull(connection, call, request, slot):
                return None
            for each in request.results:
                if each.group not in consumes:
                    request = request._replace(results=self._guard.results(connection, request.results, "pull"))
                    break
        quota = connection.quota
        if quota is not None and quota.over is not None:
            reply = self._over_reply(call, request, quota.over)
            self._take(slot, request.results, reply, reply)
            return None
        refused = self._acks_refused()
        if request.results:
            if self._waits is not None and self._waits.needed(request.results):
                self._waits.hold(slot, request.results)
                return None
            if refused is not None and carries_results(request.results):
                self._leave_unanswered(connection, refused)
                return None
            # Each result and offset takes a byte at least.
            if refused is None and len(call.frame) > STEP_RESULTS and is_long(request.results):
                slot.wait()
                connection.work(self._pulling(slot, request))
                return None
            self._apply(request.results, slot, refused)
            if self._awaits_durability and refused is None and self._pull_later(slot, request):
                return None
        return slot, request, refused

    def _over_reply(self, call: Call, request: PullRequest, over: LimitExceeded) -> bytes:
        """Encode the answer to a pull of a client above its rate, whose results are taken.

        With results it is that of a pull that found nothing: libraries send them again and again while they get an
        exception.
        """
        if request.results:
            return encode_empty_pull_reply(call)
        self._metrics.counter(PULLS_REFUSED, PullCode.LIMITED.name.lower()).add()
        return encode_pull_exception(call, PullCode.LIMITED, over.text, retry_after_ms=over.after_ms)

    def _pulling(self, slot: ReplySlot, request: PullRequest) -> Generator[None, None, None]:
        """Apply a long chain of results in steps, then serve the pull that carried it."""
        counted = yield from self._applying(request.results, slot)
        if counted is not None and not (self._awaits_durability and self._pull_later(slot, request)):
            self._pull(slot, request._replace(results=[]), self._acks_refused())

    def _pull_later(self, slot: ReplySlot, request: PullRequest) -> bool:
        """Serve a pull once the results that it carried are durable; False: they are with this turn."""
        groups = not_durable(request.results, self._groups)
        if groups:
            slot.wait()
            DurableWait(_LatePull(slot, request._replace(results=[]), self), groups)
        return bool(groups)

    def _pull(
        self,
        slot: ReplySlot,
        request: PullRequest,
        refused: ProgressFailed | None,
        taken: list[_Taken] | None = None,
    ) -> None:
        """Have a pull take messages, or wait for its turn or for them; its reply is left to who gives `taken`."""
        call, connection = slot.call, slot.connection
        group = self._groups.get(request.group)
        if group is None or refused is not None or self._budget.refuses_pulls or not self._serves(group, request):
            slot.answer(self._refuse(call, *self._refusal(request, group, refused), connection))
        elif connection.may_start(slot):
            self._start(slot, request, group, taken)
        else:
            WaitingPull(slot, request._replace(results=[]), group, self._lingers).wait_turn()

    def _submit(self, slot: ReplySlot) -> None:
        """Apply a chain of results; false only when it took nothing (D13)."""
        call, connection = slot.call, slot.connection
        results = scan_submit(call)
        holds_offsets = carries_results(results)
        if connection.rights is not None:
            allowed = self._guard.submit(connection, results)
            if allowed is None:
                slot.answer(encode_bool_reply(call, False))
                return
            results = allowed

        low_level = [group.name for each in results if (group := self._low_level(each)) is not None]
        if results and len(low_level) == len(results):
            # None of them can ever count: it is no loss that libraries throw away what an exception answers.
            text = _LOW_LEVEL.format(low_level[0])
            slot.answer(self._refuse(call, PullCode.LOW_LEVEL, text, connection))
        else:
            taken = encode_bool_reply(call, True)
            self._take(slot, results, taken, encode_bool_reply(call, False) if holds_offsets else taken)

    def _take(self, slot: ReplySlot, results: list[ConsumeResult], taken: bytes, ignored: bytes) -> None:
        """Take results and answer: `ignored` where no offset of them counted."""
        refused = self._acks_refused()
        if self._waits is not None and self._waits.needed(results):
            self._waits.hold(slot, results)
        elif refused is not None and carries_results(results):
            self._leave_unanswered(slot.connection, refused)
        elif refused is None and is_long(results):
            slot.wait()
            slot.connection.work(self._taking(slot, results, taken, ignored))
        else:
            counted = self._apply(results, slot, refused)
            self._answer_durable(ReadyReply(slot, taken if counted else ignored), results, counted=counted)

    def _taking(
        self, slot: ReplySlot, results: list[ConsumeResult], taken: bytes, ignored: bytes
    ) -> Generator[None, None, None]:
        """Take a long chain in steps, and answer."""
        counted = yield from self._applying(results, slot)
        if counted is not None:
            self._answer_durable(ReadyReply(slot, taken if counted else ignored), results, counted=counted)

    def _answer_durable(self, call: Resumed, results: list[ConsumeResult], *, counted: bool) -> None:
        """Have a call continue when its results are durable, at once where nothing of them counted."""
        if self._awaits_durability and counted and (groups := not_durable(results, self._groups)):
            DurableWait(call, groups)
        else:
            call.go_on()

    def resume(self, held: Sequence[ReplySlot]) -> None:
        """Take the results of all calls that were held, then answer those calls in order.

        They came while the node was starting, or before a group had its partitions: if that is still so, they wait on.
        """
        refused = self._acks_refused()
        waiting: list[tuple[ReplySlot, PullRequest | None, list[ConsumeResult], bool]] = []
        for slot in held:
            call, connection = slot.call, slot.connection
            request = scan_pull(call) if call.method == "pull" else None
            results = scan_submit(call) if request is None else request.results
            if connection.rights is not None:
                # Its group's right was looked at before it was held; those of its results may be others.
                results = self._guard.results(connection, results, call.method)
            if request is not None:
                connection.note_client(request.version)
            if self._waits is not None and self._waits.needed(results):
                self._waits.hold_again(slot, results)
            elif refused is None:
                waiting.append((slot, request, results, self._apply(results, slot, None)))
            elif not connection.closed:
                self._leave_unanswered(connection, refused)
        for slot, request, results, counted in waiting:
            slot.wait()
            if request is None:
                resumed: Resumed = ReadyReply(slot, encode_bool_reply(slot.call, counted))
            else:
                resumed = _LatePull(slot, request._replace(results=[]), self)
            self._answer_durable(resumed, results, counted=counted)

    def resume_pull(self, slot: ReplySlot, request: PullRequest) -> None:
        """Serve a pull that was held, or waited for its results, in its turn."""
        connection, group = slot.connection, self._groups.get(request.group)
        if connection.ended:
            slot.answer(encode_empty_pull_reply(slot.call))
        elif group is None or not self._serves(group, request):
            slot.answer(self._refuse(slot.call, *self._refusal(request, group, None), connection))
        else:
            WaitingPull(slot, request, group, self._lingers).wait_turn()
            connection.advance()

    def get_consume_stats(self, connection: Connection, call: Call) -> None:
        """Committed, produced and first offsets per topic of a group; none of an unknown one (R76 as intended; W1)."""
        try:
            request = scan_stats(call)
        except TextError:
            # No group has such a name, and none has rows.
            connection.answer(encode_stats_reply(call, []))
            return
        connection.note_client(request.version)
        if connection.rights is not None and not self._guard.stats(connection, call, request.group):
            return
        group = self._groups.get(request.group)
        rows = [] if group is None else [(request.group, *each) for each in group.offsets(request.topic)]
        connection.answer(encode_stats_reply(call, rows))

    def _applying(self, results: list[ConsumeResult], slot: ReplySlot) -> Generator[None, None, bool | None]:
        """Apply a long chain in steps; returns whether any offset of it counted.

        Where results cannot be recorded any more before the end (None), no client may be answered that they were: the
        connection ends (D5), and the client sends them again over another one.
        """
        counted = False
        for piece in pieces(results):
            counted |= self._apply(piece, slot, None)
            yield
            if (refused := self._acks_refused()) is not None:
                self._leave_unanswered(slot.connection, refused)
                return None
        return counted

    def _apply(self, results: list[ConsumeResult], slot: ReplySlot, refused: ProgressFailed | None) -> bool:
        """Apply a flattened chain; returns whether any offset of it counted."""
        counted = False
        connection = slot.connection
        connection.heard = slot.heard
        if refused is None:
            connection.promise(slot.number)
        for result in results:
            if result.group is None or result.topic is None or result.qid is None:
                self._ignore("null_context", connection)
                continue
            group = self._groups.get(result.group) or self._leaving(result.group)
            if group is None:
                self._ignore("no_such_group", connection)
                continue
            if group.is_low_level:
                self._ignore("low_level", connection)
                continue
            applied = group.apply(
                result.topic, result.qid, result.success, result.fail, connection, result.deliveries, result.reasons
            )
            if applied.finished or applied.counted:
                counted = True
        return counted

    def _low_level(self, result: ConsumeResult) -> ConsumerGroup | None:
        """Return the group of a result, if it is low level."""
        group = None if result.group is None else self._groups.get(result.group)
        return group if group is not None and group.is_low_level else None

    def _refuse(
        self, call: Call, code: PullCode, text: str, connection: Connection, *, after_ms: int | None = None
    ) -> bytes:
        """Count a refused pull, log it once a minute for each code (D25), and encode the answer."""
        self._metrics.counter(PULLS_REFUSED, code.name.lower()).add()
        self._runtime.limited_log.note(
            "pull_refused", kind=code.name, code=int(code), client=connection.address, text=text
        )
        return encode_pull_exception(call, code, text, retry_after_ms=after_ms)

    def _ignore(self, reason: str, connection: Connection) -> None:
        self._metrics.counter(RESULTS_IGNORED, reason).add()
        self._runtime.limited_log.note("result_ignored", kind=reason, reason=reason, client=connection.address)

    def _refusal(
        self, request: PullRequest, group: ConsumerGroup | None, refused: ProgressFailed | None
    ) -> tuple[PullCode, str]:
        """Say why a pull cannot be served."""
        if group is None:
            return PullCode.NO_SUCH_GROUP, f"no group {request.group!r} is configured on this node"
        if group.is_low_level:
            return PullCode.LOW_LEVEL, _LOW_LEVEL.format(group.name)
        if not group.consumes:
            text = f"group {request.group!r} has no enabled topic; enable one in the configuration"
            return PullCode.GROUP_DISABLED, text
        if request.topic is not None and not group.has_topic(request.topic):
            return self._topic_refusal(group, request.topic)
        if refused is None or self._budget.refuses_pulls:
            return PullCode.OVERLOADED, "the node is short of memory (memoryMax); pull again later"
        return _code_of(refused), str(refused)

    @staticmethod
    def _topic_refusal(group: ConsumerGroup, topic: str) -> tuple[PullCode, str]:
        if any(each.topic == topic for each in group.config.topics):
            text = f"topic {topic!r} is disabled for group {group.name!r}; enable it in the configuration"
            return PullCode.GROUP_DISABLED, text
        known = ", ".join(group.topic_names())
        return PullCode.NO_SUCH_TOPIC, f"group {group.name!r} does not subscribe to {topic!r}; it has {known}"

    def _leave_unanswered(self, connection: Connection, refused: ProgressFailed) -> None:
        leave_unanswered(connection, _code_of(refused), self._runtime)

    @staticmethod
    def _serves(group: ConsumerGroup, request: PullRequest) -> bool:
        """Whether pulls of a group are served, for its topic where it has one."""
        is_there = group.consumes if request.topic is None else group.has_topic(request.topic)
        return is_there and not group.is_low_level

    def _start(
        self, slot: ReplySlot, request: PullRequest, group: ConsumerGroup, taken: list[_Taken] | None = None
    ) -> None:
        """Serve a pull whose turn on its connection has come (D18); behind the end of its client it takes nothing."""
        connection = slot.connection
        if connection.ended or connection.closed:
            slot.answer(encode_empty_pull_reply(slot.call))
            return
        batch = group.pull(request.topic, request.count_max, connection)
        if batch is None:
            self._park(slot, request, group)
        elif taken is None:
            self._send(slot, group, batch)
        else:
            taken.append((slot, group, batch))

    def _park(self, slot: ReplySlot, request: PullRequest, group: ConsumerGroup) -> None:
        """Wait for messages until the linger ends, the client goes, or a batch comes."""
        call, connection = slot.call, slot.connection
        quota = connection.quota
        if quota is not None and (over := quota.full(group.name, group.parked_free)) is not None:
            quota.refused(over)
            connection.rest(AFTER_MS / 1000)
            if connection.has_promised(slot.number):
                slot.answer(encode_empty_pull_reply(call))
            else:
                slot.answer(self._refuse(call, PullCode.LIMITED, over.text, connection, after_ms=over.after_ms))
            return
        linger_ms = min(max(request.linger_ms or 0, LINGER_MS_MIN), self.linger_ms_max)
        try:
            WaitingPull(slot, request, group, self._lingers).park(linger_ms)
        except ParkedFull as error:
            slot.answer(self._refuse(call, PullCode.OVERLOADED, f"{error}; use fewer connections", connection))

    def _send(self, slot: ReplySlot, group: ConsumerGroup, batch: PulledBatch, located: _Located | None = None) -> None:
        """Assemble the reply from slices of the messages; `located`: those of its pass."""
        call, connection = slot.call, slot.connection
        topic, qid, jobs = batch
        first = jobs[0]
        delivery = first.delivery
        assert delivery is not None, "it was handed out just now"
        delivery.reply = connection.carried = slot.number
        if located is None:
            messages = first.subscription.slices(jobs)
        else:
            rest = located[first.subscription]
            messages = None if rest is None else list(islice(rest, len(jobs)))
        if messages is None:
            messages = self._readable(group, batch)
        data = encode_pull_reply(call, group.name, topic, qid, messages, delivery.number)
        lost: Lost = partial(_give_back, call.protocol, call.seqid, group, batch, connection)
        if (holds := group.node.may_hand_out) is not None:
            lost = Leased(lost, holds)
        slot.answer(data, lost)

    def _readable(self, group: ConsumerGroup, batch: PulledBatch) -> list[tuple[int, Slices]]:
        """Look at a batch's messages one by one.

        Those that cannot be read are finished and counted, those whose body cannot be unpacked are dead-lettered, and
        those that would make the reply too long once unpacked go back; all of them are left out.
        """
        reply = batch.jobs[0].subscription.sort_out(batch.jobs, group.reply_bytes_max)
        if reply.unreadable:
            self._metrics.counter(RECORDS_LOST_AT_PULL, batch.topic).add(len(reply.unreadable))
        group.settle(reply)
        return reply.messages


class _LatePull(NamedTuple):
    """A pull that is served when the results that it carried are durable."""

    slot: ReplySlot
    request: PullRequest
    service: ConsumerService

    def go_on(self) -> None:
        """Serve it."""
        self.service.resume_pull(self.slot, self.request)


def _located(taken: Sequence[_Taken]) -> _Located:
    """Look up the messages of several pulls at once: of each subscription all, in order.

    None where one of them needs a look by itself, or a fault is met: it costs its own call alone.
    """
    jobs_of: dict[Generation, list[UpstreamJob]] = {}
    for _, _, batch in taken:
        jobs_of.setdefault(batch.jobs[0].subscription, []).extend(batch.jobs)
    located: dict[Generation, Iterator[tuple[int, Slices]] | None] = {}
    for subscription, jobs in jobs_of.items():
        try:
            found = subscription.slices(jobs)
        except Exception:
            # It is met again, and reported, where its call is answered.
            found = None
        located[subscription] = None if found is None else iter(found)
    return located


def _give_back(protocol: int, seqid: int, group: ConsumerGroup, batch: PulledBatch, connection: Connection) -> bytes:
    """Take back a batch that reached no client; returns the reply without messages, for one that still reads."""
    group.give_back(batch, connection)
    return encode_empty_pull_reply(Call(protocol, "pull", seqid, 0, b""))


def _code_of(refused: ProgressFailed) -> PullCode:
    return PullCode.ACKS_REFUSED if isinstance(refused, ProgressFull) else PullCode.STORE_FAILED
