"""What both Thrift ports answer while the store is being recovered: nothing is taken, and clients know to come again.

Pulls get a PullException (code 3) and publishes code 20, after which DDMQ's client libraries try another node and this
one again later (S9). A call that carries results is held instead (`proxy.services.results.held_calls`): libraries throw
results away when they get an exception for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from broker.runtime.bundle import Runtime
from proxy.port.connection import Connection
from proxy.port.server import Handler
from proxy.services.access.guard import Guard
from proxy.services.consumer_service import PULLS_REFUSED
from proxy.services.encoders import Refused
from proxy.services.fetch_service import FETCHES_REFUSED as LOW_LEVEL_FETCHES_REFUSED
from proxy.services.message_rules import Refusal
from proxy.services.publishing import SENDS_REFUSED
from proxy.services.results.held_calls import HeldCalls, carries_results
from proxy.services.transaction_service import FETCHES_REFUSED
from proxy.wire.call import Call
from proxy.wire.errors import APPLICATION_INTERNAL_ERROR, MessageError, TextError
from proxy.wire.fetch_reply import encode_fetch_refusal
from proxy.wire.generic.calls import encode_application_exception
from proxy.wire.replies import encode_bool_reply, encode_delay_result_reply, encode_pull_exception, encode_result_reply
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
from proxy.wire.values import SendMessage
from pyddmq.codes import PullCode, ResultCode
from upstream.fetch.fetching import ACKS_REFUSED

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
            "sendBatchSync": self._send_batch,
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
            self.held.hold(connection, call)
            return
        self._pulls.add()
        connection.answer(encode_pull_exception(call, PullCode.STARTING, _PULL_TEXT))

    def _submit(self, connection: Connection, call: Call) -> None:
        results = scan_submit(call)
        if connection.rights is not None and self._guard.submit(connection, results) is None:
            connection.answer(encode_bool_reply(call, False))
        elif carries_results(results):
            self.held.hold(connection, call)
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
        self._refuse(connection, call, _denial(lambda: self._look(connection, call, (scan_send(call).message,))))

    def _send_batch(self, connection: Connection, call: Call) -> None:
        refusal = None
        try:
            messages = scan_send_batch(call).messages
            count = len(messages)
            refusal = _denial(lambda: self._look(connection, call, messages))
        except MessageError as error:
            count = error.count
        self._refuse(connection, call, refusal, count=count)

    def _look(self, connection: Connection, call: Call, messages: Sequence[SendMessage]) -> None:
        """Look whether messages may be sent, whether the node is ready or not. Raises Refusal."""
        if connection.rights is not None:
            self._guard.produce(connection, call.method, messages)

    def _refuse(
        self,
        connection: Connection,
        call: Call,
        refusal: Refusal | None,
        encode: Refused = encode_result_reply,
        *,
        count: int = 1,
    ) -> None:
        """Answer a call of so many messages, and count them."""
        code, text = _reported(refusal, _SEND_TEXT)
        self._metrics.counter(SENDS_REFUSED, str(int(code))).add(count)
        connection.answer(encode(call, code, text))

    def _send_delay(self, connection: Connection, call: Call) -> None:
        def look() -> None:
            message = scan_delay(call).message
            if connection.rights is not None:
                self._guard.topic(connection, call.method, message.get("topic", ""))

        self._refuse(connection, call, _denial(look), partial(encode_delay_result_reply, uniq_delay_msg_id=""))

    def _half(self, connection: Connection, call: Call) -> None:
        def look() -> None:
            request = scan_half(call)
            if connection.rights is not None:
                self._guard.half(connection, request)

        self._refuse(connection, call, _denial(look), encode_half_reply)

    def _end(self, connection: Connection, call: Call) -> None:
        def look() -> None:
            request = scan_end(call)
            if connection.rights is not None:
                self._guard.transact(connection, call.method, request.group)

        connection.answer(encode_result_reply(call, *_reported(_denial(look), _END_TEXT)))

    def _fetch_checks(self, connection: Connection, call: Call) -> None:
        request = scan_fetch_checks(call)
        if connection.rights is not None and not self._guard.checks(connection, call, request):
            return
        self._fetches.add()
        connection.answer(encode_application_exception(call, APPLICATION_INTERNAL_ERROR, _FETCH_TEXT))


def _reported(refusal: Refusal | None, text: str) -> tuple[ResultCode, str]:
    """Return code and text of an answer: that of a denial, or that the node is starting."""
    return (ResultCode.FAIL_SERVER_SHUTDOWN, text) if refusal is None else (refusal.code, refusal.text)


def _denial(look: Callable[[], None]) -> Refusal | None:
    """Return what a look raises: why a call is denied, whether the node is ready or not; None where it is not."""
    try:
        look()
    except TextError:
        pass
    except Refusal as refusal:
        return refusal
    return None
