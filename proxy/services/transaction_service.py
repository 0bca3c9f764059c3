"""TransactionProducerService: halves, decisions, and the checks of those that stay undecided (D33).

A half is checked as any message is (`proxy.services.message_checks`) and stored where no consumer reads it. A decision
is answered when it is durable. A fetch of checks takes the answers that ride on it first, then what is due, or waits in
its connection's turn like a pull (D18); a check whose reply never left our buffer is given back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial

from broker.errors import StoreError
from broker.format.properties import is_system_property, parse_properties
from broker.log.put import LogPosition, Put
from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from broker.transaction import metrics as counted
from broker.transaction.checker import HalfCheck
from broker.transaction.names import HALF_NAME, State
from broker.transaction.outcomes import End, EndOutcome
from broker.transaction.transactions import Transactions
from conf import NodeConfig
from proxy.limits.quota import CHECKS, LimitExceeded
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.port.server import Handler
from proxy.services.access.guard import Guard, owner_of
from proxy.services.client_counts import HalfCount
from proxy.services.encoders import Stored
from proxy.services.kafka.halves import KafkaHalves
from proxy.services.kafka.ports import KafkaPort
from proxy.services.kafka.sends import KafkaSends
from proxy.services.keyed_sends import Again, KeyedSends
from proxy.services.limited_sends import LimitedSends
from proxy.services.message_checks import MessageChecks, give_tokens_back, store_refusal
from proxy.services.message_rules import Refusal
from proxy.services.publishing import Publishing
from proxy.services.sinks import CheckedSend, Route
from proxy.services.topic_port import BYTES_SENT, MESSAGES_SENT, TopicPort
from proxy.services.waiting_fetches import FetchLine, Found
from proxy.wire.call import Call
from proxy.wire.errors import APPLICATION_INTERNAL_ERROR, TextError
from proxy.wire.generic.calls import encode_application_exception
from proxy.wire.replies import encode_result_reply
from proxy.wire.transactions import (
    CheckCall,
    CheckRow,
    EndRequest,
    HalfCall,
    encode_checks_reply,
    encode_half_reply,
    scan_end,
    scan_fetch_checks,
    scan_half,
)
from proxy.wire.values import SendMessage
from pyddmq.codes import Repeat, ResultCode
from upstream.budget import Pressure
from upstream.kafka.waiting.records import WaitingHalf

FETCHES_REFUSED = declare(
    "pyddmq_check_fetches_refused_total",
    "Fetches of checks answered with a TApplicationException, by reason",
    ("reason",),
)
HALVES = declare("pyddmq_transactions_halves_total", "Half messages stored, by topic", ("topic",))

CHECKS_MAX = 256
"""Checks of one reply."""
STEP_ANSWERS = 64
"""Answers that are taken at a time; more take several turns."""
GROUP_BYTES_MAX = 255
"""RocketMQ's limit of a group's name."""

_CODES = {
    End.OK: ResultCode.OK,
    End.ALREADY_SAME: ResultCode.OK,
    End.ALREADY_OTHER: ResultCode.FAIL_DECIDED_OTHERWISE,
    End.DISCARDED: ResultCode.FAIL_DISCARDED,
    End.UNKNOWN_HANDLE: ResultCode.FAIL_NO_SUCH_HALF,
    End.WRONG_GROUP: ResultCode.FAIL_OTHER_PRODUCER_GROUP,
    End.TOO_LATE: ResultCode.FAIL_TOO_LATE,
    End.REFUSED: ResultCode.FAIL_COMMIT_REFUSED,
    End.DISK_FULL: ResultCode.FAIL_UNKNOWN,
    End.SEARCH_FAILED: ResultCode.FAIL_UNKNOWN,
    End.FAILED: ResultCode.FAIL_UNKNOWN,
}
_STATES = {int(state): state for state in State}

_Check = tuple[CheckRow, Callable[[], None], int]
"""A check as its producer gets it, what gives it back, and its size in bytes."""


class _CheckFetch:
    """A fetch of checks.

    Args:
        service: Has them.
        slot: Its place.
        request: What it asks for.
    """

    __slots__ = ("_request", "_service", "_slot", "_unlisten")

    def __init__(self, service: TransactionService, slot: ReplySlot, request: CheckCall) -> None:
        self._service = service
        self._slot = slot
        self._request = request

    def read(self) -> Found | None:
        """Return what is due; it is given back where the reply is lost."""
        checks = self._service.due(self._request, self._slot.connection)
        if not checks:
            return None
        call = self._slot.call
        return encode_checks_reply(call, [row for row, _, _ in checks]), partial(_give_back, checks, call)

    def last(self) -> Found:
        """Return that there is none."""
        return encode_checks_reply(self._slot.call, []), None

    def over(self, exceeded: LimitExceeded) -> bytes:
        """Answer that there is none."""
        return encode_checks_reply(self._slot.call, [])

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Begin to wait."""
        self._unlisten = self._service.on_checks(self._request.group, wake)
        return self._leave

    def _leave(self) -> None:
        for each in self._unlisten:
            each()


def _give_back(checks: Sequence[_Check], call: Call) -> bytes:
    """Give checks back that reached no client; returns the reply without them."""
    for _, give, _ in checks:
        give()
    return encode_checks_reply(call, [])


class TransactionService:
    """The handlers of the producer port that have to do with transactions.

    Args:
        transactions: The broker's.
        checks: What messages are asked.
        publishing: Stores and answers.
        keyed: Knows what was sent before.
        limited: The sends that wait for a second try.
        halves: Those of Kafka's topics.
        kafka: Takes these; None where the configuration has no cluster.
        guard: Looks at rights, where there are rules.
        runtime: Runs what is later, as the end of a linger; counts.
        state: The node's state: "ready", "draining" or "failed".
        settings: The configuration in force: maxLingerTime, maxRecvMsgsLength and maxParkedPulls hold for fetches too.

    Attributes:
        line: Fetches of checks that wait.
    """

    def __init__(
        self,
        transactions: Transactions,
        checks: MessageChecks,
        publishing: Publishing,
        keyed: KeyedSends,
        limited: LimitedSends,
        *,
        halves: KafkaHalves,
        kafka: KafkaSends | None = None,
        guard: Guard,
        runtime: Runtime,
        state: Callable[[], str],
        settings: Callable[[], NodeConfig],
    ) -> None:
        self._transactions = transactions
        self._checks = checks
        self._publishing = publishing
        self._keyed = keyed
        self._limited = limited
        self._halves = halves
        self._kafka = kafka
        self._route = Route(publishing, kafka, keyed.stored)
        self._guard = guard
        self.line = FetchLine(CHECKS, runtime.scheduler, settings)
        self._metrics = runtime.metrics
        self._state = state
        self._budget = publishing.budget
        self._settings = settings
        transactions.on_committed(self._committed)

    def handlers(self) -> dict[str, Handler]:
        """Method name to handler."""
        return {"sendHalfSync": self.half, "endTransaction": self.end, "fetchChecks": self.fetch_checks}

    # Halves

    def half(self, connection: Connection, call: Call) -> None:
        """Store a half; the reply carries its id and its handle."""
        slot = connection.later(call)
        try:
            request = scan_half(call)
        except TextError as error:
            self._publishing.refuse_text(slot, error, encode_half_reply)
            return
        take = partial(self._half, slot, request)
        if connection in self._limited.waiting:
            self._limited.follow(slot, take)
        else:
            take()

    def _half(self, slot: ReplySlot, request: HalfCall) -> None:
        """Take a half, or have it tried again where it is above a rate."""
        take = partial(self._half, slot, request)
        try:
            send = self._checked(slot, request, take)
            if send is not None:
                self._append(send)
        except Refusal as refusal:
            if not self._limited.wait(refusal, slot, request.timeout_ms, take):
                self._publishing.refuse(slot, refusal, 1, encode_half_reply)

    def _checked(self, slot: ReplySlot, request: HalfCall, take: Callable[[], None]) -> CheckedSend | None:
        """Judge and check a half; None: it is answered, or waits. Raises Refusal."""
        puts: list[Put] = []
        ports: list[TopicPort] = []
        connection, message, judged = slot.connection, request.message, None
        key, owner = message.unique_key, owner_of(connection)
        if connection.rights is not None:
            self._guard.half(connection, request)
            self._guard.numbers(connection, "sendHalfSync", key)
        _check_group(request.group)
        if key is not None:
            if self._kafka is not None and self._kafka.wait([key], slot, request.timeout_ms, take):
                return None
            judged = self._keyed.judge([key])
            if judged.places:
                self._keyed.answer(slot, [key], judged, partial(self._stored_again, message, owner), encode_half_reply)
                return None
        self._checks.check([message], puts, ports, transactional=True, keyed=judged is not None)
        stored: Stored
        try:
            if isinstance(ports[0], KafkaPort):
                stored = partial(self._stored_in_kafka, message.key, ports[0], owner)
                puts[0], ports[0] = self._kafka_half(puts[0], ports[0], request, owner)
            else:
                self._make_half(puts, request, owner)
                stored = partial(self._stored, message.key, ports[0].topic.name)
        except Refusal:
            give_tokens_back(ports)
            raise
        return CheckedSend(slot, puts, ports, stored, encode_half_reply, judged, request.timeout_ms, published=False)

    def _append(self, send: CheckedSend) -> None:
        """Hand a half to its sink, where its client may have one more. Raises Refusal; its token is given back."""
        connection = send.slot.connection
        if connection.quota is None:
            self._route.append(send)
            return
        try:
            count = HalfCount(connection, self._transactions, self._halves)
        except Refusal:
            give_tokens_back(send.ports)
            raise
        try:
            self._route.append(send._replace(stored=count.stored(send.stored), refused=count.refused(send.refused)))
        except Refusal:
            count.end()
            raise

    def _kafka_half(self, put: Put, port: KafkaPort, request: HalfCall, owner: str | None) -> tuple[Put, KafkaPort]:
        """Return what has a half wait in Kafka. Raises Refusal."""
        message = request.message
        deliver_at_ms, delay_ms = self._checks.half_delay(
            message.delay_level or 0, message.deliver_at_ms or 0, message.delay_ms or 0
        )
        half = WaitingHalf(request.group, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms)
        return self._halves.half(put, port, half, owner)

    def _make_half(self, puts: list[Put], request: HalfCall, owner: str | None) -> None:
        """Turn the put into a half's, whose delay begins with the commit. Raises Refusal."""
        message = request.message
        try:
            puts[0] = self._transactions.half(
                puts[0],
                group=request.group,
                delay_level=message.delay_level or 0,
                deliver_at_ms=message.deliver_at_ms or 0,
                delay_ms=message.delay_ms or 0,
                owner=owner,
            )
        except StoreError as error:
            raise store_refusal(error) from error

    def _stored(self, key: bytes | None, topic: str, call: Call, positions: Sequence[LogPosition]) -> bytes:
        position = positions[0]
        self._metrics.counter(HALVES, topic).add()
        return encode_half_reply(
            call,
            ResultCode.OK,
            "OK",
            key=key.decode() if key else None,
            transaction_id=position.unique_key.decode(),
            handle=self._transactions.handle_of(position),
            offset=position.offset,
        )

    def _stored_in_kafka(
        self, key: bytes | None, port: KafkaPort, owner: str | None, call: Call, positions: Sequence[LogPosition]
    ) -> bytes:
        """Without an offset: where it waits is of no use to a producer."""
        topic, transaction_id = port.topic.name, positions[0].unique_key.decode()
        self._metrics.counter(HALVES, topic).add()
        return encode_half_reply(
            call,
            ResultCode.OK,
            "OK",
            key=key.decode() if key else None,
            transaction_id=transaction_id,
            handle=self._halves.handle(port.cluster, topic, owner, transaction_id),
        )

    def _stored_again(
        self, message: SendMessage, owner: str | None, call: Call, again: Sequence[Again], repeat: Repeat
    ) -> bytes:
        """Answer a half that was answered before, or should have been."""
        [(unique_key, entry, _)] = again
        handle = offset = None
        key, cluster = message.key, self._checks.cluster_of(message.topic)
        if entry is not None and entry.topic == HALF_NAME:
            offset = entry.queue_offset
            handle = self._transactions.handle_of(LogPosition(entry.queue_id, offset, entry.physical, unique_key))
        elif cluster is not None:
            handle = self._halves.handle(cluster, message.topic.decode(), owner, unique_key.decode())
        return encode_half_reply(
            call,
            ResultCode.OK,
            "OK",
            key=key.decode() if key else None,
            transaction_id=unique_key.decode(),
            handle=handle,
            offset=offset,
            repeat=repeat,
        )

    def _committed(self, topic: str, body_bytes: int) -> None:
        self._metrics.counter(MESSAGES_SENT, topic).add()
        self._metrics.counter(BYTES_SENT, topic).add(body_bytes)

    # Decisions

    def end(self, connection: Connection, call: Call) -> None:
        """Decide a half; answered when the decision is durable."""
        try:
            request = scan_end(call)
        except TextError as error:
            self._metrics.counter(counted.REFUSED, ResultCode.FAIL_ILLEGAL_MSG.name.lower()).add()
            connection.answer(encode_result_reply(call, ResultCode.FAIL_ILLEGAL_MSG, str(error)))
            return
        try:
            if connection.rights is not None:
                self._guard.transact(connection, "endTransaction", request.group)
            state = _checked_ending(request, request.group)
        except Refusal as refusal:
            self._metrics.counter(counted.REFUSED, refusal.code.name.lower()).add()
            connection.answer(encode_result_reply(call, refusal.code, refusal.text))
            return
        slot, header = connection.later(), call.header()

        def done(outcome: EndOutcome) -> None:
            code = _CODES[outcome.end]
            slot.answer(encode_result_reply(header, code, outcome.text or code.text))

        self._end(request, request.group, state, owner_of(connection), done)

    def _end(
        self, request: EndRequest, group: str, state: State, owner: str | None, done: Callable[[EndOutcome], None]
    ) -> None:
        named = self._halves.named(request.handle)
        if named is not None:
            self._halves.end(
                named, state, group=group, owner=owner, from_check=request.from_check, done=partial(self._count, done)
            )
            return
        self._transactions.end(
            request.handle,
            group=group,
            state=state,
            owner=owner,
            from_check=request.from_check,
            remark=request.remark,
            done=done,
        )

    def _count(self, done: Callable[[EndOutcome], None], outcome: EndOutcome) -> None:
        """Count a decision that was refused, as the broker does of its own."""
        if not outcome.resolved:
            self._metrics.counter(counted.REFUSED, outcome.end.value).add()
        done(outcome)

    def _take(self, answer: EndRequest, group: str, owner: str | None) -> None:
        """Take an answer that rides on a fetch; one that cannot count is counted and fails nothing (as D13)."""
        group = answer.group or group
        try:
            state = _checked_ending(answer, group)
        except Refusal as refusal:
            self._metrics.counter(counted.REFUSED, refusal.code.name.lower()).add()
            return
        # The broker counts what it refuses; a half whose decision could not be kept is checked again.
        self._end(answer, group, state, owner, lambda _: None)

    # Checks

    def fetch_checks(self, connection: Connection, call: Call) -> None:
        """Take the answers that ride on the fetch, then what is due, or wait for it."""
        request = scan_fetch_checks(call)
        if connection.rights is not None:
            if not self._guard.checks(connection, call, request):
                return
            request = request._replace(answers=self._guard.answers(connection, request))
        answers, call, request = request.answers, call.header(), request._replace(answers=[])
        if len(answers) <= STEP_ANSWERS:
            for answer in answers:
                self._take(answer, request.group, owner_of(connection))
            self._fetch(connection, call, request)
        else:
            connection.work(self._taking(answers, connection, call, request))

    def _taking(
        self, answers: Sequence[EndRequest], connection: Connection, call: Call, request: CheckCall
    ) -> Generator[None, None, None]:
        """Take many answers in steps, then serve the fetch."""
        for place, answer in enumerate(answers):
            self._take(answer, request.group, owner_of(connection))
            if place % STEP_ANSWERS == STEP_ANSWERS - 1:
                yield
        self._fetch(connection, call, request)

    def _fetch(self, connection: Connection, call: Call, request: CheckCall) -> None:
        quota = connection.quota
        empty = encode_checks_reply(call, [])
        if quota is not None and quota.over is not None:
            # Its answers are taken; most often there is no check.
            connection.answer(empty)
            return
        problem = self._problem(request)
        if problem is not None:
            reason, text = problem
            self._metrics.counter(FETCHES_REFUSED, reason).add()
            self._publishing.limited_log.note("check_fetch_refused", kind=reason, client=connection.address, text=text)
            connection.answer(encode_application_exception(call, APPLICATION_INTERNAL_ERROR, text))
            return
        slot = connection.later(call)
        self.line.serve(slot, _CheckFetch(self, slot, request), request.linger_ms, empty)

    def _problem(self, request: CheckCall) -> tuple[str, str] | None:
        """Why a fetch is refused: (reason for the counter, sentence); None when it is not."""
        try:
            _check_group(request.group)
        except Refusal as refusal:
            return "group", refusal.text
        if self._budget.level >= Pressure.REFUSING:
            return "memory", "the node is short of memory (memoryMax); fetch again later"
        if self.line.free <= 0:
            return "parked", f"{self.line.count} fetches of checks already wait; use fewer connections"
        return None

    def on_checks(self, group: str, wake: Callable[[], None]) -> list[Callable[[], None]]:
        """Have `wake` called when checks of a producer group become due; returns what ends that."""
        return [each.on_checks(group, wake) for each in (self._transactions, self._halves)]

    def due(self, request: CheckCall, connection: Connection) -> list[_Check]:
        """Return checks for a fetch; none while the node drains."""
        if self._state() == "draining":
            return []
        owner = owner_of(connection)
        count_max = min(request.count_max or CHECKS_MAX, CHECKS_MAX)
        found: list[_Check] = []
        room = self._settings().max_recv_msgs_length
        while len(found) < (count_max if count_max > 0 else CHECKS_MAX) and room > 0:
            checks = self._halves.fetch_checks(request.group, 1, owner)
            if not checks:
                checks = [
                    (_row(check), partial(self._transactions.give_back, check), len(check.body) + len(check.properties))
                    for check in self._transactions.fetch_checks(request.group, 1, owner=owner)
                ]
            if not checks:
                break
            found += checks
            room -= sum(size for _, _, size in checks)
        return found


def _row(check: HalfCheck) -> CheckRow:
    own = parse_properties(check.properties)
    message = {
        "topic": check.topic,
        "key": check.key or None,
        "tags": check.tags or None,
        "partitionId": check.queue_id,
        "hashId": 0,
        "body": check.body,
        "properties": {name: value for name, value in own.items() if not is_system_property(name.encode())} or None,
    }
    return CheckRow(check.handle, check.transaction_id, check.times, message, check.born_ms)


def _check_group(group: str) -> None:
    """Check the name of a producer group. Raises Refusal."""
    if not group.strip():
        raise Refusal(
            ResultCode.FAIL_ILLEGAL_PRODUCER_GROUP, "no producerGroup; name the group that decides the transaction"
        )
    if len(group.encode()) > GROUP_BYTES_MAX or not group.isprintable():
        text = f"invalid producerGroup {group[:140]!r}; use at most {GROUP_BYTES_MAX} printable bytes"
        raise Refusal(ResultCode.FAIL_ILLEGAL_PRODUCER_GROUP, text)


def _checked_ending(request: EndRequest, group: str) -> State:
    """Return the state that is sent. Raises Refusal."""
    _check_group(group)
    state = _STATES.get(request.state)
    if state is None:
        text = f"invalid state {request.state}; use 8 to commit, 12 to roll back, 0 if it is not known yet"
        raise Refusal(ResultCode.FAIL_ILLEGAL_TRANSACTION_STATE, text)
    return state
