"""Sends under way at the same time over one connection, in the order in which they were asked for.

Up to `in_flight_max` calls are written one behind the other. The node answers in that order, and stores no message
before one that its producer numbered lower: when one is refused, those behind it are refused as a gap (D39). So after
a failure nothing more is written until all that was written is answered, and then all that is not stored is sent again
in order. What keeps that right:

- A message keeps its number as long as any attempt of it may have been stored (it is *undecided*).
- Numbers of a message that certainly is not stored are free: those behind it, none of which can be stored either, are
  numbered again. Under another name if one of them is undecided, or was abandoned so: a late attempt of it may arrive.
- Messages under two names are never under way together: nothing keeps their order.
- Until the node has shown that it knows numbers, and where messages have none, one call is under way at a time.

It has no I/O of its own: `run` goes over the conversation and the pause that are handed in. A synchronous producer runs
it to its end for each call, and a task runs it for those under way together (`pyddmq.client.aio.async_producer`).
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from pyddmq.client.calls import Conversation
from pyddmq.client.errors import (
    AccessRefused,
    CannotConnect,
    ClientError,
    ClientMisuse,
    ConnectionLost,
    NotThrift,
    Refused,
    SequenceGap,
    Unreachable,
    send_refusal,
)
from pyddmq.client.requests import NodeRequest
from pyddmq.client.sends import ANSWER_MARGIN_MS, Resending, knows_numbers

# The numbers of a producer's messages: each message's id, its UNIQ_KEY, says who sent it and as which one.
#
# A node that knows it stores what is sent again once; docs/deduplication.md has the form.


_MARK = "FE"
_CHANCE_BYTES = 5
NUMBER_MAX = (1 << 48) - 1


class Numbers:
    """A name that no other producer has, and the numbers of the messages that are sent under it.

    Attributes:
        name: 20 hex digits.
        next: Number of the next message.
    """

    __slots__ = ("name", "next")

    def __init__(self) -> None:
        """Take a name: by chance, and by the time."""
        now = datetime.fromtimestamp(time.time(), UTC)
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        start = int((now - month).total_seconds() * 1000)
        self.name = f"{_MARK}{secrets.token_hex(_CHANCE_BYTES).upper()}{start:08X}"
        self.next = start << 16

    def keys(self, count: int) -> list[str]:
        """Ids of the next messages; they are the next ones until `take`."""
        return [f"{self.name}{number:012X}" for number in range(self.next, self.next + count)]

    def take(self, count: int) -> None:
        """Go on behind messages that are stored."""
        self.next += count


Done = Callable[[Any, int, BaseException | None], None]
"""Told of the end of a send, once: the result, whose code is 0, how often it was sent, and the failure or None."""


class Send:
    """One call on its way.

    Attributes:
        request: The call.
        done: Told of its end.
        attempts: How often it was sent, or was to be sent.
        undecided: An attempt may have taken effect.
        numbers: Where its numbers are from; None while it has none.
        first: The first of them.
        is_anew: It is to get other ones.
        was_renamed: It got another name after a gap once.
        sequence, deadline: Of the call that is under way.
        patience_ends: Until when it is patient, by the clock of its conversation.
        failure: What became of its last attempt.
    """

    __slots__ = (
        "attempts",
        "deadline",
        "done",
        "failure",
        "first",
        "is_anew",
        "numbers",
        "patience_ends",
        "request",
        "sequence",
        "undecided",
        "was_renamed",
    )

    def __init__(self, request: NodeRequest[Any], done: Done) -> None:
        self.request = request
        self.done = done
        self.attempts = 0
        self.undecided = False
        self.numbers: Numbers | None = None
        self.first = 0
        self.is_anew = False
        self.was_renamed = False
        self.sequence = 0
        self.deadline = 0.0
        self.patience_ends = 0.0
        self.failure: ClientError | None = None


class OrderedSends:
    """See the top of the file.

    Args:
        connection: Its own.
        resending: When failed sends are sent again.
        pause: Waits; False where nothing is to be sent again, since the producer is being closed.
        in_flight_max: Calls under way at the same time; a caller keeps no more than these waiting.
        deduplicate: Whether messages get numbers.

    Attributes:
        is_running: `run` is under way.
    """

    def __init__(
        self,
        connection: Conversation,
        resending: Resending,
        pause: Callable[[float], Awaitable[bool]],
        *,
        in_flight_max: int,
        deduplicate: bool,
    ) -> None:
        self._connection = connection
        self._resending = resending
        self._pause = pause
        self._in_flight_max = in_flight_max
        self._deduplicate = deduplicate
        self._queue: deque[Send] = deque()
        """All that has not ended, in order."""
        self._out: deque[Send] = deque()
        """Those that are written and not answered: a part of the queue, in order; its beginning while not held."""
        self._numbers: Numbers | None = None
        self._name_out: Numbers | None = None
        """The name of what is under way."""
        self._is_known = False
        """The node has answered that it knows messages by their numbers."""
        self._is_held = False
        """Nothing is written before all of `_out` is answered."""
        self._pause_ms = 0
        """What to wait then."""
        self._free: int | None = None
        """The lowest of the name's numbers that are free, to continue with then."""
        self._torn: Numbers | None = None
        """The name of a message that was abandoned undecided: its number may be taken, now or later."""
        self.is_running = False
        self._is_closed = False

    def submit(self, send: Send) -> None:
        """Take a send; it goes out behind those before it, by `run`. Raises ClientMisuse: it is closed."""
        self.check_open()
        send.patience_ends = self._connection.time() + self._resending.patience_ms / 1000
        self._queue.append(send)
        if self.is_running:
            self._fill()

    def withdraw(self, send: Send) -> bool:
        """Take back an abandoned send; False when it may have gone out, and continues."""
        if send.numbers is not None or send.undecided or send in self._out or send not in self._queue:
            return False
        self._queue.remove(send)
        return True

    def close(self) -> None:
        """Take nothing more, and send nothing again."""
        self._is_closed = True

    def check_open(self) -> None:
        """Raise ClientMisuse where it is closed."""
        if self._is_closed:
            raise ClientMisuse("this producer is closed; create a new one")

    def give_up(self) -> None:
        """End all that is under way, which `run` is not any more."""
        self._connection.close()
        while self._queue:
            send = self._queue.popleft()
            error: Exception = ClientMisuse("this producer was closed before the message was sent")
            if send.undecided or send in self._out:
                error = ConnectionLost(self._connection.address, send.request.method, "the producer was closed")
                error.count(send.attempts, undecided=send.undecided)
            send.done(None, send.attempts, error)
        self._out.clear()

    def abandon(self) -> None:
        """Forget what an interrupt has ended: it may be stored, so what follows goes under another name."""
        self._connection.close()
        self._queue.clear()
        self._out.clear()
        self._numbers = self._free = None
        self._is_held = False

    async def run(self) -> None:
        """Send all that was submitted, and return when all has ended."""
        self.is_running, stream = True, self._connection.stream
        try:
            while self._queue:
                if self._out:
                    await self._take_answer()
                elif self._is_held:
                    await self._begin_again()
                elif stream.is_open and not stream.has_ended():
                    self._fill()
                else:
                    await self._begin()
        finally:
            self.is_running = False

    async def _begin(self) -> None:
        try:
            await self._connection.open(timeout_ms=self._queue[0].request.timeout_ms + ANSWER_MARGIN_MS)
        except CannotConnect as error:
            for send in tuple(self._queue):
                send.attempts += 1
                self._judge(send, type(error)(error.address, error.reason))
            return
        except (AccessRefused, NotThrift, ClientMisuse) as error:
            # What the client brings is not taken, or cannot be had: to send again would be no other.
            for send in tuple(self._queue):
                send.attempts += 1
                if isinstance(error, ClientError) and send is self._queue[0]:
                    error.count(send.attempts, undecided=send.undecided)
                self._end(send, error)
            return
        self._fill()

    async def _begin_again(self) -> None:
        """All is answered: wait, and number again what is to be."""
        pause_ms, self._pause_ms = self._pause_ms, 0
        if pause_ms and not await self._pause(pause_ms / 1000):
            for send in tuple(self._queue):
                if send.failure is not None:
                    self._end(send, send.failure)
        anew = [send for send in self._queue if send.is_anew]
        if any(send.undecided or send.was_renamed for send in anew):
            self._numbers = None
        elif self._free is not None and self._numbers is not None:
            if self._torn is self._numbers:
                self._numbers = None
            else:
                self._numbers.next = self._free
        self._free = None
        for send in anew:
            send.numbers, send.is_anew, send.undecided = None, False, False
        self._is_held = False

    def _fill(self) -> None:
        """Write what may be under way."""
        known = self._is_known and self._deduplicate
        window = self._in_flight_max if known else 1
        while not self._is_held and len(self._out) < min(window, len(self._queue)) and self._connection.stream.is_open:
            send = self._queue[len(self._out)]
            self._number(send)
            if not self._out:
                self._name_out = None
            if send.numbers is not None and self._name_out not in (None, send.numbers):
                return
            request, timeout_ms = send.request, send.request.timeout_ms + ANSWER_MARGIN_MS
            send.deadline = self._connection.time() + timeout_ms / 1000
            try:
                send.sequence = self._connection.write(request.method, request.arguments, timeout_ms)
            except ClientMisuse as error:
                self._end(send, error)
                continue
            except ClientError as error:
                send.attempts += 1
                self._out.append(send)
                self._lose(error)
                return
            send.attempts += 1
            self._out.append(send)
            self._name_out = send.numbers or self._name_out

    def _number(self, send: Send) -> None:
        """Give a send's messages the next numbers, where they have none."""
        count = len(send.request.messages)
        if not count or not self._deduplicate or send.numbers is not None:
            return
        if self._numbers is None or self._numbers.next + count > NUMBER_MAX:
            self._numbers = Numbers()
        send.numbers, send.first = self._numbers, self._numbers.next
        for message, key in zip(send.request.messages, self._numbers.keys(count), strict=True):
            message.uniqKey = key
        self._numbers.take(count)

    async def _take_answer(self) -> None:
        send = self._out[0]
        refusal: ClientError | None = None
        result = None
        try:
            result = await self._connection.answer(
                send.request.method,
                send.sequence,
                deadline=send.deadline,
                timeout_ms=send.request.timeout_ms + ANSWER_MARGIN_MS,
            )
            if result.code != 0:
                refusal = send_refusal(result.code, result.msg or "", getattr(result, "retryAfterMs", None))
        except (Unreachable, NotThrift) as error:
            self._lose(error)
            return
        except Refused as error:
            refusal = error
        self._out.popleft()
        if refusal is not None:
            self._refuse(send, refusal)
        else:
            self._is_known = self._is_known or knows_numbers(result, send.request.messages)
            self._queue.remove(send)
            send.done(result, send.attempts, None)
        if self._queue:
            self._fill()

    def _lose(self, error: ClientError) -> None:
        """The connection is lost; it is unknown what became of the calls under way."""
        lost = tuple(self._out)
        self._out.clear()
        for send in lost:
            own = error
            if send is not lost[0]:
                own = ConnectionLost(self._connection.address, send.request.method, "one before it was not answered")
            self._judge(send, own)

    def _refuse(self, send: Send, error: ClientError) -> None:
        if isinstance(error, SequenceGap):
            if self._is_held or self._has_any_before(send):
                # Because of those before it: no attempt of its own.
                send.attempts -= 1
                self._is_held = True
                return
            if not send.undecided and not send.was_renamed:
                # All before it was answered: the node has forgotten the name, or its disk has.
                send.attempts -= 1
                send.was_renamed = send.is_anew = True
                self._anew_behind(send)
                return
        self._judge(send, error)

    def _has_any_before(self, send: Send) -> bool:
        """Whether a message of the same name that is before it has not ended."""
        return next(each for each in self._queue if each.numbers is send.numbers) is not send

    def _anew_behind(self, send: Send) -> None:
        """Have those of its name behind a send that is not stored, which cannot be stored either, numbered again."""
        behind = False
        for each in self._queue:
            if behind and each.numbers is send.numbers:
                each.is_anew = True
            behind = behind or each is send
        self._is_held = True

    def _judge(self, send: Send, error: ClientError) -> None:
        """See whether a failed send is sent again."""
        error.count(send.attempts, undecided=send.undecided)
        send.undecided, send.failure = error.undecided, error
        known = self._is_known and self._deduplicate
        left = self._connection.time() < send.patience_ends
        if self._is_closed or self._resending.is_over(
            send.request.method, error, send.attempts, is_known=known, patience_left=left
        ):
            self._end(send, error)
            return
        if self._resending.on_resend is not None:
            try:
                self._resending.on_resend(error)
            except BaseException as raised:
                # SystemExit too: raised here, it would end the thread of `send_soon`, and no future would ever be done.
                raised.add_note(f"also, {error}")
                self._end(send, raised)
                return
        self._is_held = True
        self._pause_ms = max(self._pause_ms, self._resending.wait_ms(send.attempts, error))

    def _end(self, send: Send, error: BaseException) -> None:
        """Give a send up."""
        if send.undecided:
            self._torn = send.numbers
            if len(self._queue) == 1:
                # Nothing follows it under this name.
                self._numbers = None
        elif send.numbers is not None:
            if send.numbers is self._numbers:
                self._free = send.first if self._free is None else min(self._free, send.first)
            self._anew_behind(send)
        self._queue.remove(send)
        send.done(None, send.attempts, error)
