"""TransactionProducerService: halves, decisions, and the checks of those that stay undecided (D33).

A half is checked as any message is (`proxy.services.message_checks`) and stored where no consumer reads it. A decision
is answered when it is durable. A fetch of checks takes the answers that ride on it first, then what is due, or waits in
its connection's turn like a pull (D18); a check whose reply never left our buffer is given back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from broker.errors import StoreError
from broker.format.properties import is_system_property, parse_properties
from broker.log.put import LogPosition
from broker.runtime.bundle import Runtime
from broker.runtime.metrics import Metrics, declare
from broker.transaction import metrics as counted
from broker.transaction.checker import HalfCheck
from broker.transaction.names import HALF_NAME, State
from broker.transaction.outcomes import End, EndOutcome
from broker.transaction.transactions import Transactions
from conf import NodeConfig
from proxy.limits.quota import CHECKS
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.port.server import Handler
from proxy.services.access.guard import owner_of
from proxy.services.client_counts import HalfCount
from proxy.services.kafka.halves import DueCheck, KafkaHalves
from proxy.services.kafka.ports import KafkaPort
from proxy.services.message_checks import give_tokens_back, store_refusal
from proxy.services.message_rules import Refusal
from proxy.services.publishing import illegal
from proxy.services.send_call import Again
from proxy.services.stations import StationedSend, Stations
from proxy.services.topic_port import BYTES_SENT, MESSAGES_SENT
from proxy.services.waiting_fetches import FetchLine, Found, WaitingFetch
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
from pyddmq.codes import Repeat, ResultCode
from upstream.budget import Pressure
from upstream.kafka.waiting.records import WaitingHalf, half_outcome

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


class _CheckFetch(WaitingFetch):
    """A fetch of checks."""

    __slots__ = ("_given", "_request", "_service", "_unlisten")

    def __init__(self, service: TransactionService, slot: ReplySlot, request: CheckCall) -> None:
        super().__init__(service.line, slot, request.linger_ms)
        self._service = service
        self._request = request
        self._given: list[DueCheck] = []

    def read(self) -> Found | None:
        """Return what is due; it is given back where the reply is lost."""
        self._given = self._service.due(self._request, self.slot.connection)
        if not self._given:
            return None
        return encode_checks_reply(self.slot.call, [each.row for each in self._given]), self._give_back

    def _give_back(self) -> bytes:
        for each in self._given:
            each.give_back(each.check)
        return self.empty()

    def empty(self) -> bytes:
        """Return a reply without checks."""
        return encode_checks_reply(self.slot.call, [])

    def listen(self) -> None:
        """Begin to wait."""
        self._unlisten = self._service.on_checks(self._request.group, self.wake)

    def leave(self) -> None:
        """Wait no longer."""
        for each in self._unlisten:
            each()


class _HalfSend(StationedSend):
    """A half on its way.

    Attributes:
        request: What was sent.
    """

    __slots__ = ("_count", "_service", "request")
    published = False

    def __init__(self, service: TransactionService, slot: ReplySlot, request: HalfCall) -> None:
        super().__init__(service.stations, slot, request.timeout_ms)
        self._service = service
        self._count: HalfCount | None = None
        self.request = request
        key = request.message.unique_key
        self.keys = () if key is None else (key,)

    def take(self) -> None:
        """Authorize, judge and check; then it goes to its sink. Raises Refusal."""
        connection, request, service = self.slot.connection, self.request, self._service
        if connection.rights is not None:
            guard = self.stations.guard
            guard.half(connection, request)
            guard.numbers(connection, "sendHalfSync", request.message.unique_key)
        _check_group(request.group)
        if self.keys and self.is_decided():
            return
        self.puts, self.ports = [], []
        self.stations.checks.check(
            [request.message], self.puts, self.ports, transactional=True, keyed=self.judged is not None
        )
        try:
            service.make_half(self)
            if connection.quota is not None:
                # Where its client may have one more.
                self._count = HalfCount(connection, service.transactions, service.halves)
        except Refusal:
            give_tokens_back(self.ports)
            raise
        self.append()

    @property
    def _key(self) -> str | None:
        key = self.request.message.key
        return key.decode() if key else None

    def stored(self, positions: Sequence[LogPosition]) -> bytes:
        """Encode the reply; without an offset where it waits in Kafka: that is of no use to a producer."""
        self._end_count()
        position, port, service = positions[0], self.ports[0], self._service
        transaction_id, offset = position.unique_key.decode(), None
        service.count_half(port.topic.name)
        if isinstance(port, KafkaPort):
            owner = owner_of(self.slot.connection)
            handle = service.halves.handle(port.cluster, port.topic.name, owner, transaction_id)
        else:
            handle, offset = service.transactions.handle_of(position), position.offset
        return encode_half_reply(
            self.slot.call,
            ResultCode.OK,
            "OK",
            key=self._key,
            transaction_id=transaction_id,
            handle=handle,
            offset=offset,
        )

    def stored_again(self, again: Sequence[Again], repeat: Repeat) -> bytes:
        """Encode the reply of a half that was answered before, or should have been."""
        [(unique_key, entry, _)] = again
        handle = offset = None
        topic, service = self.request.message.topic, self._service
        cluster = self.stations.checks.cluster_of(topic)
        if entry is not None and entry.topic == HALF_NAME:
            offset = entry.queue_offset
            handle = service.transactions.handle_of(LogPosition(entry.queue_id, offset, entry.physical, unique_key))
        elif cluster is not None:
            owner = owner_of(self.slot.connection)
            handle = service.halves.handle(cluster, topic.decode(), owner, unique_key.decode())
        return encode_half_reply(
            self.slot.call,
            ResultCode.OK,
            "OK",
            key=self._key,
            transaction_id=unique_key.decode(),
            handle=handle,
            offset=offset,
            repeat=repeat,
        )

    def refused(self, refusal: Refusal) -> bytes:
        """Encode the reply of one that is not stored."""
        self._end_count()
        return _half_refusal(self.slot.call, refusal)

    def _end_count(self) -> None:
        if self._count is not None:
            self._count.end()


class _Ending:
    """A decision until its outcome is known; with a slot, it is answered then."""

    __slots__ = ("_metrics", "_slot")

    def __init__(self, slot: ReplySlot | None, metrics: Metrics) -> None:
        self._slot = slot
        self._metrics = metrics

    def decided(self, outcome: EndOutcome) -> None:
        """Answer."""
        if self._slot is not None:
            code = _CODES[outcome.end]
            self._slot.answer(encode_result_reply(self._slot.call, code, outcome.text or code.text))

    def decided_in_kafka(self, text: str) -> None:
        """Answer; one that was refused is counted, as the broker does of its own."""
        outcome = half_outcome(text)
        if not outcome.resolved:
            self._metrics.counter(counted.REFUSED, outcome.end.value).add()
        self.decided(outcome)


class TransactionService:
    """The handlers of the producer port that have to do with transactions.

    Args:
        stations: What all services of its port share.
        transactions: The broker's.
        halves: Those of Kafka's topics.
        runtime: Runs what is later, as the end of a linger; counts.
        state: The node's state: "ready", "draining" or "failed".
        settings: The configuration in force: maxLingerTime, maxRecvMsgsLength and maxParkedPulls hold for fetches too.

    Attributes:
        line: Fetches of checks that wait.
    """

    def __init__(
        self,
        stations: Stations,
        transactions: Transactions,
        halves: KafkaHalves,
        *,
        runtime: Runtime,
        state: Callable[[], str],
        settings: Callable[[], NodeConfig],
    ) -> None:
        self.stations = stations
        self.transactions = transactions
        self.halves = halves
        self._fetches = 0
        self._publishing = stations.publishing
        self._guard = stations.guard
        self.line = FetchLine(CHECKS, runtime.scheduler, settings)
        self._metrics = runtime.metrics
        self._state = state
        self._budget = stations.publishing.budget
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
            refusal = illegal(error)
            self._publishing.refuse(slot, refusal, _half_refusal(call, refusal), error.count)
            return
        _HalfSend(self, slot, request).begin()

    def make_half(self, send: _HalfSend) -> None:
        """Turn the put into a half's, whose delay begins with the commit. Raises Refusal."""
        request, put, port, owner = send.request, send.puts[0], send.ports[0], owner_of(send.slot.connection)
        message = request.message
        level, at_ms, delay_ms = message.delay_level or 0, message.deliver_at_ms or 0, message.delay_ms or 0
        if isinstance(port, KafkaPort):
            deliver_at_ms, delay_ms = self.stations.checks.half_delay(level, at_ms, delay_ms)
            half = WaitingHalf(request.group, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms)
            send.puts[0], send.ports[0] = self.halves.half(put, port, half, owner)
            return
        try:
            send.puts[0] = self.transactions.half(
                put, group=request.group, delay_level=level, deliver_at_ms=at_ms, delay_ms=delay_ms, owner=owner
            )
        except StoreError as error:
            raise store_refusal(error) from error

    def count_half(self, topic: str) -> None:
        """Count a half that was stored."""
        self._metrics.counter(HALVES, topic).add()

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
        ending = _Ending(connection.later(call.header()), self._metrics)
        self._end(request, request.group, state, owner_of(connection), ending)

    def _end(self, request: EndRequest, group: str, state: State, owner: str | None, ending: _Ending) -> None:
        from_check, named = request.from_check, self.halves.named(request.handle)
        if named is not None:
            done = ending.decided_in_kafka
            self.halves.end(named, state, group=group, owner=owner, from_check=from_check, done=done)
            return
        self.transactions.end(
            request.handle,
            group=group,
            state=state,
            owner=owner,
            from_check=from_check,
            remark=request.remark,
            done=ending.decided,
        )

    def _take(self, answer: EndRequest, group: str, owner: str | None) -> None:
        """Take an answer that rides on a fetch; one that cannot count is counted and fails nothing (as D13)."""
        group = answer.group or group
        try:
            state = _checked_ending(answer, group)
        except Refusal as refusal:
            self._metrics.counter(counted.REFUSED, refusal.code.name.lower()).add()
            return
        # The broker counts what it refuses; a half whose decision could not be kept is checked again.
        self._end(answer, group, state, owner, _Ending(None, self._metrics))

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
        if quota is not None and quota.over is not None:
            # Its answers are taken; most often there is no check.
            connection.answer(encode_checks_reply(call, []))
            return
        problem = self._problem(request)
        if problem is not None:
            reason, text = problem
            self._metrics.counter(FETCHES_REFUSED, reason).add()
            self._publishing.limited_log.note("check_fetch_refused", kind=reason, client=connection.address, text=text)
            connection.answer(encode_application_exception(call, APPLICATION_INTERNAL_ERROR, text))
            return
        _CheckFetch(self, connection.later(call), request).serve()

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
        return [each.on_checks(group, wake) for each in (self.transactions, self.halves)]

    def due(self, request: CheckCall, connection: Connection) -> list[DueCheck]:
        """Return checks for a fetch; none while the node drains."""
        if self._state() == "draining":
            return []
        owner = owner_of(connection)
        count_max = min(request.count_max or CHECKS_MAX, CHECKS_MAX)
        found: list[DueCheck] = []
        room = self._settings().max_recv_msgs_length
        while len(found) < (count_max if count_max > 0 else CHECKS_MAX) and room > 0:
            # Alternately, so that many due checks of one broker do not hold up those of the other.
            self._fetches += 1
            ways = (self.halves.fetch_checks, self._stored_checks)[:: 1 if self._fetches % 2 else -1]
            checks = ways[0](request.group, 1, owner) or ways[1](request.group, 1, owner)
            if not checks:
                break
            found += checks
            room -= sum(each.size for each in checks)
        return found

    def _stored_checks(self, group: str, count_max: int, owner: str | None) -> list[DueCheck]:
        return [
            DueCheck(_row(check), check, self.transactions.give_back, len(check.body) + len(check.properties))
            for check in self.transactions.fetch_checks(group, count_max, owner=owner)
        ]


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


def _half_refusal(call: Call, refusal: Refusal) -> bytes:
    return encode_half_reply(call, refusal.code, refusal.text, retry_after_ms=refusal.after_ms)
