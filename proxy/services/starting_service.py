"""What both Thrift ports answer while the store is being recovered: nothing is taken, and clients know to come again.

Pulls get a PullException (code 3) and publishes code 20, after which DDMQ's client libraries try another node and this
one again later (S9). A call that carries results is held instead (`proxy.services.results.held_calls`): libraries throw
results away when they get an exception for them.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.bundle import Runtime
from proxy.port.connection import Connection
from proxy.port.server import Handler
from proxy.services.access.guard import Guard
from proxy.services.consumer_service import PULLS_REFUSED
from proxy.services.fetch_service import FETCHES_REFUSED as LOW_LEVEL_FETCHES_REFUSED
from proxy.services.message_rules import Refusal
from proxy.services.publishing import SENDS_REFUSED, encode_refusal
from proxy.services.results.held_calls import HeldCalls, carries_results
from proxy.services.transaction_service import FETCHES_REFUSED
from proxy.wire.call import Call
from proxy.wire.errors import APPLICATION_INTERNAL_ERROR, MessageError
from proxy.wire.fetch_reply import encode_fetch_refusal
from proxy.wire.generic.calls import encode_application_exception
from proxy.wire.replies import encode_bool_reply, encode_delay_result_reply, encode_pull_exception
from proxy.wire.scanning.scan import (
    scan_ack,
    scan_delay,
    scan_fetch,
    scan_pull,
    scan_send,
    scan_send_batch,
    scan_stats,
    scan_submit,
)
from proxy.wire.transactions import encode_half_reply, scan_end, scan_fetch_checks, scan_half
from pyddmq.codes import PullCode, ResultCode
from upstream.fetch.fetching import ACKS_REFUSED

_Looked = tuple[int, Refusal | None]
_Look = Callable[[Connection, Call], _Looked]

_PULL_TEXT = "the node is starting; pull again later"
_SEND_TEXT = "the node is starting; send to another node, or again later"
_END_TEXT = "the node is starting; send the decision again later"
_FETCH_TEXT = "the node is starting; fetch again later"


class StartingService:
    """The handlers of both ports until the node is ready. Arguments are decoded, so that a bad call is refused as such.

    A text that is not UTF-8 is refused when the node is ready: until then sends have one answer.

    Attributes:
        held: Calls with results, to be taken when the node is ready.
    """

    def __init__(self, runtime: Runtime, guard: Guard) -> None:
        self._guard = guard
        metrics = self._metrics = runtime.metrics
        self.held = HeldCalls(runtime)
        self._pulls = metrics.counter(PULLS_REFUSED, PullCode.STARTING.name.lower())
        self._fetches = metrics.counter(FETCHES_REFUSED, "starting")
        # Shown from the start on.
        metrics.counter(SENDS_REFUSED, str(int(ResultCode.FAIL_SERVER_SHUTDOWN)))

    def consumer_handlers(self) -> dict[str, Handler]:
        """Method name to handler, for the consumer port."""
        return {
            "pull": self._pull,
            "submit": self._submit,
            "getConsumeStats": self._stats,
            "fetch": self._fetch,
            "ack": self._ack,
        }

    def producer_handlers(self) -> dict[str, Handler]:
        """Method name to handler, for the producer port."""
        return {
            "sendSync": self._send,
            "sendAsync": self._send,
            "sendBatchSync": self._send,
            "sendDelaySync": self._send_delay,
            "sendHalfSync": self._half,
            "endTransaction": self._end,
            "fetchChecks": self._fetch_checks,
        }

    def _pull(self, connection: Connection, call: Call) -> None:
        request = scan_pull(call)
        if connection.rights is not None and not self._guard.pull(connection, call, request):
            return
        if carries_results(request.results):
            self.held.hold(connection.later(call))
            return
        self._pulls.add()
        connection.answer(encode_pull_exception(call, PullCode.STARTING, _PULL_TEXT))

    def _submit(self, connection: Connection, call: Call) -> None:
        results = scan_submit(call)
        if connection.rights is not None and self._guard.submit(connection, results) is None:
            connection.answer(encode_bool_reply(call, False))
        elif carries_results(results):
            self.held.hold(connection.later(call))
        else:
            connection.answer(encode_bool_reply(call, True))

    def _stats(self, connection: Connection, call: Call) -> None:
        request = scan_stats(call)
        if connection.rights is not None and not self._guard.stats(connection, call, request.group):
            return
        connection.answer(encode_pull_exception(call, PullCode.STARTING, _PULL_TEXT))

    def _fetch(self, connection: Connection, call: Call) -> None:
        request = scan_fetch(call)
        if connection.rights is not None and not self._guard.fetch(connection, call, request):
            return
        self._metrics.counter(LOW_LEVEL_FETCHES_REFUSED, PullCode.STARTING.name.lower()).add()
        connection.answer(encode_fetch_refusal(call, PullCode.STARTING))

    def _ack(self, connection: Connection, call: Call) -> None:
        request = scan_ack(call)
        if connection.rights is not None and not self._guard.ack(connection, call, request["groupId"]):
            return
        offsets = request["offsets"]
        self._metrics.counter(ACKS_REFUSED, "starting").add(sum(map(len, offsets.values())))
        connection.answer(encode_bool_reply(call, False))

    def _send(self, connection: Connection, call: Call) -> None:
        self._refuse(connection, call, self._look_send, encode_refusal)

    def _send_delay(self, connection: Connection, call: Call) -> None:
        self._refuse(connection, call, self._look_delay, _delay_refusal)

    def _half(self, connection: Connection, call: Call) -> None:
        self._refuse(connection, call, self._look_half, _half_refusal)

    def _end(self, connection: Connection, call: Call) -> None:
        connection.answer(encode_refusal(call, _reported(self._look_end, connection, call, _END_TEXT)[1]))

    def _refuse(
        self, connection: Connection, call: Call, look: _Look, encode: Callable[[Call, Refusal], bytes]
    ) -> None:
        """Answer a call with messages, and count these."""
        count, refusal = _reported(look, connection, call, _SEND_TEXT)
        self._metrics.counter(SENDS_REFUSED, str(int(refusal.code))).add(count)
        connection.answer(encode(call, refusal))

    # Messages of a call, and why it is denied, whether the node is ready or not.

    def _look_send(self, connection: Connection, call: Call) -> _Looked:
        messages = scan_send_batch(call).messages if call.method == "sendBatchSync" else (scan_send(call).message,)
        return len(messages), _denial(self._guard.produce, connection, call.method, messages)

    def _look_delay(self, connection: Connection, call: Call) -> _Looked:
        topic = scan_delay(call).message.get("topic", "")
        return 1, _denial(self._guard.topic, connection, call.method, topic)

    def _look_half(self, connection: Connection, call: Call) -> _Looked:
        return 1, _denial(self._guard.half, connection, scan_half(call))

    def _look_end(self, connection: Connection, call: Call) -> _Looked:
        return 1, _denial(self._guard.transact, connection, call.method, scan_end(call).group)

    def _fetch_checks(self, connection: Connection, call: Call) -> None:
        request = scan_fetch_checks(call)
        if connection.rights is not None and not self._guard.checks(connection, call, request):
            return
        self._fetches.add()
        connection.answer(encode_application_exception(call, APPLICATION_INTERNAL_ERROR, _FETCH_TEXT))


def _reported(look: _Look, connection: Connection, call: Call, text: str) -> tuple[int, Refusal]:
    """Return the messages of a call, and its answer: that it is denied, or that the node is starting."""
    try:
        count, denial = look(connection, call)
    except MessageError as error:
        count, denial = error.count, None
    return count, denial or Refusal(ResultCode.FAIL_SERVER_SHUTDOWN, text)


def _denial(look: Callable[..., None], connection: Connection, *arguments: object) -> Refusal | None:
    """Return why a guard denies a call; None where it does not."""
    if connection.rights is not None:
        try:
            look(connection, *arguments)
        except Refusal as refusal:
            return refusal
    return None


def _delay_refusal(call: Call, refusal: Refusal) -> bytes:
    return encode_delay_result_reply(call, refusal.code, refusal.text, "")


def _half_refusal(call: Call, refusal: Refusal) -> bytes:
    return encode_half_reply(call, refusal.code, refusal.text)
