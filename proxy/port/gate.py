"""The look at a client's limits, of each call before it is handled; what they are is `proxy.limits`.

A call above a rate that may continue within its patience continues now, and its connection is read no further until
what it owes is paid: no client notices but by its pace, nothing is kept here but what the kernel does, and a frame that
was read is handled. One that would take longer is refused, says when to come again, and its connection rests likewise.

The patience is what clients of DDMQ's have, by port. A send waits for its answer for 100 ms and says 50 to the node
(S9); it is then sent again over another connection, and what this one has not read by then would be stored twice. Pulls
and the rest wait for seconds (S6). Of two calls that wait for the same rate the one with the longer patience would keep
the other one out forever: so each port has rates of its own. Calls that bring results are never refused before these
were taken: some libraries throw them away with an exception. Of those, `pull` and `fetchChecks` are refused by their
handlers, the others not at all.

==========================  =====================================================================================
call                        above a rate for longer than its patience
==========================  =====================================================================================
sends, halves, delays       code 15: the libraries keep the node and send again when their own timeout has passed
pull                        its results are taken; with results an empty answer, else PullException 9
submit, ack, endTransaction taken and answered as ever
fetch                       code 9 and no queue
fetchChecks                 its answers are taken; no check
getConsumeStats             PullException 9
authenticate                answered as ever: it is the first call of a connection, and these are limited
==========================  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.limits.limiter import Limiter
from proxy.limits.quota import LimitExceeded, Quota
from proxy.port.connection import Connection
from proxy.wire.call import Call
from proxy.wire.errors import APPLICATION_INTERNAL_ERROR
from proxy.wire.fetch_reply import encode_fetch_refusal
from proxy.wire.frames import CutFrame
from proxy.wire.generic.calls import encode_application_exception
from proxy.wire.replies import encode_delay_result_reply, encode_pull_exception, encode_result_reply
from proxy.wire.transactions import encode_half_reply
from pyddmq.codes import PullCode, ResultCode

SEND_PATIENCE = 0.040
"""Seconds, on the producers' port: the libraries' default timeout of a send, 50 ms, less DDMQ's own margin (R95)."""
PATIENCE = 1.0
"""Seconds, on the consumers' port: half of the shortest timeout of a library (S6)."""
SURPLUS_SECONDS = 1.0
"""How long a connection may ask without a place among its principal's before it is closed."""

_RESULTS = frozenset(("sendSync", "sendAsync", "sendBatchSync"))
_SENDS = _RESULTS | {"sendDelaySync", "sendHalfSync"}
_TAKEN = frozenset(("submit", "ack", "endTransaction", "authenticate"))
"""Never refused."""
_HANDLERS = frozenset(("pull", "fetchChecks"))
"""Refused by their handlers, which take first what they carry."""


class Gate:
    """The gate of one port.

    Args:
        limiter: Knows who is counted.
        service: Which port.
        make_room: Closes an idle connection of the principal of a limit (`over`), where there is one.
        now: Monotonic seconds.
    """

    def __init__(
        self,
        limiter: Limiter,
        service: str,
        *,
        make_room: Callable[..., bool],
        now: Callable[[], float],
    ) -> None:
        self._limiter = limiter
        self._service = service
        self._make_room = make_room
        self._now = now
        self._patience = SEND_PATIENCE if service == "producer" else PATIENCE

    def admits(self, connection: Connection, quota: Quota, call: Call) -> bool:
        """Whether a call is to be handled; where not, it was answered. Its handler looks at `quota.over`."""
        quota.over = None
        method = call.method
        if (quota.rights is not connection.rights or not quota.is_known) and method != "authenticate":
            over = self._limiter.identify(quota, connection.rights, self._service)
            if over is not None and self._make_room(over=over):
                over = self._limiter.identify(quota, connection.rights, self._service)
            if over is not None:
                if quota.surplus_since is None:
                    quota.surplus_since = self._now()
                return self._over(connection, quota, call, over)
        now = self._now()
        wait, meter, limit = quota.wait(now)
        frame = call.frame
        size = frame.size if isinstance(frame, CutFrame) else len(frame)
        if meter is None:
            quota.charge(size)
            return True
        if wait > self._patience:
            return self._over(connection, quota, call, LimitExceeded(meter, limit, int(wait * 1000) + 1))
        quota.charge(size)
        self._limiter.held(meter, limit)
        connection.rest(min(quota.wait(now)[0], self._patience))
        return True

    def _over(self, connection: Connection, quota: Quota, call: Call, over: LimitExceeded) -> bool:
        method = call.method
        connection.rest(SEND_PATIENCE if method in _SENDS else PATIENCE)
        if method in _TAKEN:
            self._limiter.held(over.meter, over.limit)
            return True
        self._limiter.refused(over)
        if method in _HANDLERS:
            quota.over = over
            return True
        connection.answer(answer_over(call, over))
        return False


def answer_over(call: Call, over: LimitExceeded) -> bytes:
    """Return the reply to a call that is refused, in its own form."""
    method, text, after_ms = call.method, over.text, over.after_ms
    code = ResultCode.FAIL_REFUSED_BY_RATE_LIMITER
    if method in _RESULTS:
        return encode_result_reply(call, code, text, retry_after_ms=after_ms)
    if method == "sendDelaySync":
        return encode_delay_result_reply(call, code, text, "", retry_after_ms=after_ms)
    if method == "sendHalfSync":
        return encode_half_reply(call, code, text, retry_after_ms=after_ms)
    if method == "fetch":
        return encode_fetch_refusal(call, PullCode.LIMITED)
    if method in ("pull", "getConsumeStats"):
        return encode_pull_exception(call, PullCode.LIMITED, text, retry_after_ms=after_ms)
    return encode_application_exception(call, APPLICATION_INTERNAL_ERROR, text)
