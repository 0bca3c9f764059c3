"""What both Thrift ports answer while the store is being recovered: nothing is taken, and clients know to come again.

Pulls get a PullException (code 3) and publishes code 20, after which DDMQ's client libraries try another node and this
one again later (S9). A call that carries results is held instead (`proxy.services.held_calls`): libraries throw results
away when they get an exception for them.
"""

from __future__ import annotations

from contextlib import suppress

from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from proxy.port.connection import Connection
from proxy.port.server import Handler
from proxy.services.consumer_service import PULLS_REFUSED
from proxy.services.fetch_service import FETCHES_REFUSED as LOW_LEVEL_FETCHES_REFUSED
from proxy.services.held_calls import HeldCalls, carries_results
from proxy.services.publishing import SENDS_REFUSED
from proxy.services.transaction_service import FETCHES_REFUSED
from proxy.wire import (
    APPLICATION_INTERNAL_ERROR,
    Call,
    TextError,
    encode_application_exception,
    encode_bool_reply,
    encode_delay_result_reply,
    encode_fetch_refusal,
    encode_half_reply,
    encode_pull_exception,
    encode_result_reply,
    scan_ack,
    scan_delay,
    scan_end,
    scan_fetch,
    scan_fetch_checks,
    scan_half,
    scan_pull,
    scan_send,
    scan_send_batch,
    scan_stats,
    scan_submit,
)
from pyddmq.codes import PullCode, ResultCode
from upstream.fetch.fetching import ACKS_REFUSED

_PULL_TEXT = "the node is starting: pull again in a moment"
_SEND_TEXT = "the node is starting: send to another node, or again in a moment"
_END_TEXT = "the node is starting: tell the decision again in a moment"
_FETCH_TEXT = "the node is starting: fetch again in a moment"


class StartingService:
    """The handlers of both ports until the node is ready. Arguments are decoded, so that a bad call is told so.

    A text that is no UTF-8 is told of when the node is ready: until then sends have one answer.

    Attributes:
        held: Calls with results, to be taken when the node is ready.
    """

    def __init__(self, metrics: Metrics, limited_log: RateLimitedLog) -> None:
        self._metrics, self._limited_log = metrics, limited_log
        self.held = HeldCalls(metrics, limited_log)
        self._pulls = metrics.counter(PULLS_REFUSED, PullCode.STARTING.name.lower())
        self._fetches = metrics.counter(FETCHES_REFUSED, "starting")
        self._sends = metrics.counter(SENDS_REFUSED, str(int(ResultCode.FAIL_SERVER_SHUTDOWN)))

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
        if carries_results(scan_pull(call).results):
            self.held.hold(connection, call)
            return
        self._pulls.add()
        connection.answer(encode_pull_exception(call, PullCode.STARTING, _PULL_TEXT))

    def _submit(self, connection: Connection, call: Call) -> None:
        if carries_results(scan_submit(call)):
            self.held.hold(connection, call)
        else:
            connection.answer(encode_bool_reply(call, True))

    def _stats(self, connection: Connection, call: Call) -> None:
        scan_stats(call)
        connection.answer(encode_pull_exception(call, PullCode.STARTING, _PULL_TEXT))

    def _fetch(self, connection: Connection, call: Call) -> None:
        scan_fetch(call)
        self._metrics.counter(LOW_LEVEL_FETCHES_REFUSED, PullCode.STARTING.name.lower()).add()
        connection.answer(encode_fetch_refusal(call, PullCode.STARTING))

    def _ack(self, connection: Connection, call: Call) -> None:
        offsets = scan_ack(call)["offsets"]
        self._metrics.counter(ACKS_REFUSED, "starting").add(sum(map(len, offsets.values())))
        connection.answer(encode_bool_reply(call, False))

    def _send(self, connection: Connection, call: Call) -> None:
        with suppress(TextError):
            scan_send(call)
        self._refuse(connection, call, 1)

    def _send_batch(self, connection: Connection, call: Call) -> None:
        try:
            count = len(scan_send_batch(call).messages)
        except TextError as error:
            count = error.count
        self._refuse(connection, call, count)

    def _refuse(self, connection: Connection, call: Call, count: int) -> None:
        self._sends.add(count)
        connection.answer(encode_result_reply(call, ResultCode.FAIL_SERVER_SHUTDOWN, _SEND_TEXT))

    def _send_delay(self, connection: Connection, call: Call) -> None:
        with suppress(TextError):
            scan_delay(call)
        self._sends.add()
        connection.answer(encode_delay_result_reply(call, ResultCode.FAIL_SERVER_SHUTDOWN, _SEND_TEXT, ""))

    def _half(self, connection: Connection, call: Call) -> None:
        with suppress(TextError):
            scan_half(call)
        self._sends.add()
        connection.answer(encode_half_reply(call, ResultCode.FAIL_SERVER_SHUTDOWN, _SEND_TEXT))

    def _end(self, connection: Connection, call: Call) -> None:
        with suppress(TextError):
            scan_end(call)
        connection.answer(encode_result_reply(call, ResultCode.FAIL_SERVER_SHUTDOWN, _END_TEXT))

    def _fetch_checks(self, connection: Connection, call: Call) -> None:
        scan_fetch_checks(call)
        self._fetches.add()
        connection.answer(encode_application_exception(call, APPLICATION_INTERNAL_ERROR, _FETCH_TEXT))
