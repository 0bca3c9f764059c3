"""From checked messages to a reply: the append, its refusals, and the answer after the flush that covers it (D1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

from broker.errors import StoreError
from broker.log.put import LogPosition, Put
from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare, declare_histogram
from broker.store import Store
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.services.message_checks import give_tokens_back, store_refusal
from proxy.services.message_rules import Refusal
from proxy.services.send_call import TakenSend
from proxy.services.topic_port import TopicPort
from proxy.wire.call import Call
from proxy.wire.errors import MessageError
from proxy.wire.replies import encode_result_reply
from proxy.wire.values import SendMessage
from pyddmq.codes import ResultCode
from upstream.budget import Budget, Pressure

SENDS_REFUSED = declare(
    "pyddmq_sends_refused_total", "Messages refused, by result code (docs/protocol.md lists the codes)", ("code",)
)
PUBLISH_SECONDS = declare_histogram(
    "pyddmq_publish_seconds",
    "Time from the receipt of a frame until its reply may be sent, for stored messages; half messages and "
    "timed messages included. The flush is shared, so topics do not differ",
    bounds=range(6, 25),
)

_HOSTS_MAX = 65_536
_REFUSING = Pressure.REFUSING
_body_of = itemgetter(2)
"""The body of a `Put`, without a step of the interpreter for each."""


class ScannedSend(NamedTuple):
    """A send that was scanned.

    Attributes:
        slot: Its place.
        messages: Its messages; none of a batch that is a declaration, or empty.
        timeout_ms: How long its client waits, as sent; None without such a bound.
        receipts: A batch: whether each message is to have its receipt. None: a single message.
    """

    slot: ReplySlot
    messages: Sequence[SendMessage]
    timeout_ms: int | None
    receipts: bool | None


class SendRun:
    """Single sends for the store that follow each other: they are staged together.

    Attributes:
        sends: The calls.
        puts: The message of each.
        ports: Its port.
        special: By place, those with a number, or a reply that is not as all.
        producers: Names of producers whose numbers are among them.
    """

    __slots__ = ("ports", "producers", "puts", "sends", "special")

    def __init__(self) -> None:
        self.sends: list[ScannedSend] = []
        self.puts: list[Put] = []
        self.ports: list[TopicPort] = []
        self.special: dict[int, TakenSend] = {}
        self.producers: set[bytes] = set()


class StagedRun:
    """What has joined a run, which is empty then; called once the flush that covers it has ended (`Done`).

    Attributes:
        sends, puts, ports, special: As in the run.
        positions: Where the messages are.
    """

    __slots__ = ("_encode", "_publishing", "ports", "positions", "puts", "sends", "special")

    def __init__(self, publishing: Publishing, run: SendRun, encode: EncodeRun) -> None:
        self._publishing = publishing
        self._encode = encode
        self.sends, self.puts, self.ports, self.special = run.sends, run.puts, run.ports, run.special
        self.positions: list[LogPosition] = []
        run.sends, run.puts, run.ports, run.special = [], [], [], {}
        run.producers.clear()

    def __call__(self, error: StoreError | None) -> None:
        """Answer the calls."""
        publishing = self._publishing
        if error is None:
            publishing.count(self.sends[0].slot, self.puts, self.ports)
            for send, reply in zip(self.sends, self._encode(self), strict=True):
                send.slot.answer(reply)
            return
        refusal = Refusal(ResultCode.FAIL_UNKNOWN, str(error))
        for send in self.sends:
            publishing.refuse(send.slot, refusal, encode_refusal(send.slot.call, refusal))


EncodeRun = Callable[[StagedRun], list[bytes]]
"""Encodes the replies of a run that is stored."""


class Publishing:
    """What the calls of a producer port share once their messages are checked.

    Args:
        store: Where messages go.
        runtime: The node's; its wall clock has the born time of messages, its log the refusals.
        state: The node's state: "ready", "draining" or "failed".
        budget: The node's account of memory.
    """

    def __init__(self, *, store: Store, runtime: Runtime, state: Callable[[], str], budget: Budget) -> None:
        self._store = store
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._took = runtime.metrics.histogram(PUBLISH_SECONDS)
        self._state = state
        self.budget = budget
        self.limited_log = runtime.limited_log
        self._born_hosts: dict[str, bytes] = {}

    def append(self, send: TakenSend) -> list[LogPosition]:
        """Stage a send; the reply follows the flush that makes it durable.

        Returns:
            Where each message is staged.

        Raises:
            Refusal: Nothing was staged; rate tokens were given back.
        """
        try:
            self.check_open()
            positions = self.stage(send.puts, send.slot.connection, send.flushed, atomic=send.atomic)
        except StoreError as error:
            give_tokens_back(send.ports)
            raise store_refusal(error) from error
        except Refusal:
            give_tokens_back(send.ports)
            raise
        # Puts are slices of the frame and keep all of it until they are written.
        self.budget.stage(len(send.slot.call.frame))
        return positions

    def flushed(self, send: TakenSend, error: StoreError | None) -> None:
        """Answer a send whose flush has ended."""
        if error is not None:
            send.refuse(Refusal(ResultCode.FAIL_UNKNOWN, str(error)), len(send.puts))
            return
        if send.published:
            self.count(send.slot, send.puts, send.ports)
        else:
            self.took(send.slot.received_at, len(send.puts))
        send.slot.answer(send.stored(send.positions))

    def append_run(self, staged: StagedRun) -> bool:
        """Stage single sends together; their replies follow the flush that makes them durable.

        Returns:
            False: nothing was staged, and they are to be staged one by one, since not all are taken, one of them meets
            a fault, or memory is looked at before each.
        """
        if self._state() == "draining" or self.budget.level:
            return False
        born_ms = self._clock.wall_ms()
        slots = [send[0] for send in staged.sends]
        origins = [(born_ms, self.born_host(slot.connection.address)) for slot in slots]
        end = self._store.end
        try:
            staged.positions = self._store.append(
                staged.puts, born_ms=born_ms, born_host=origins[0][1], origins=origins, done=staged, is_tentative=True
            )
        except Exception:
            if self._store.end != end:
                raise
            return False
        self.budget.stage(sum([len(slot.call.frame) for slot in slots]))
        return True

    def count(self, first: ReplySlot, puts: Sequence[Put], ports: Sequence[TopicPort]) -> None:
        """Count what was stored; the first of its calls is the one that has waited longest."""
        self.took(first.received_at, len(puts))
        port = ports[0]
        if ports.count(port) == len(ports):
            port.messages.value += len(puts)
            port.body_bytes.value += sum(map(len, map(_body_of, puts)))
            return
        for put, port in zip(puts, ports, strict=True):
            port.messages.value += 1
            port.body_bytes.value += len(put[2])

    def stage(
        self, puts: Sequence[Put], connection: Connection, done: Callable[[StoreError | None], None], *, atomic: bool
    ) -> list[LogPosition]:
        """Stage puts of a client's; `done` is called after the flush. Raises StoreError: nothing was staged."""
        return self._store.append(
            puts,
            born_ms=self._clock.wall_ms(),
            born_host=self.born_host(connection.address),
            done=done,
            atomic=atomic,
        )

    def took(self, received_at: float, count: int) -> None:
        """Count how long so many messages took, from when they were received (monotonic seconds) until now."""
        self._took.observe(round((self._clock.monotonic() - received_at) * 1e6), count)

    def check_open(self) -> None:
        """Pass while messages are taken. Raises Refusal: the node is draining, or short of memory."""
        if self._state() == "draining":
            text = "the node is draining; send to another node, or again later"
            raise Refusal(ResultCode.FAIL_SERVER_SHUTDOWN, text)
        if self.budget.level >= _REFUSING:
            text = "the node is short of memory (memoryMax); send again later"
            raise Refusal(ResultCode.FAIL_REFUSED_BY_RATE_LIMITER, text)

    def refuse(self, slot: ReplySlot, refusal: Refusal, reply: bytes, count: int = 1) -> None:
        """Answer a call of so many messages with why they are not taken, and count them."""
        self.log_refused(refusal.code, refusal.text, slot.connection.address, count)
        slot.answer(reply)

    def log_refused(self, code: ResultCode, text: str, client: str | None, count: int = 1) -> None:
        """Count messages that were not taken and log them, once a minute for each code (D25)."""
        number = int(code)
        self._metrics.counter(SENDS_REFUSED, str(number)).add(count)
        self.limited_log.note("send_refused", "", count, kind=str(number), code=number, client=client, text=text)

    def born_host(self, address: str) -> bytes:
        """Client address as RocketMQ's record has it: IPv4 and port in 8 bytes; others become 0.0.0.0."""
        known = self._born_hosts.get(address)
        if known is None:
            if len(self._born_hosts) >= _HOSTS_MAX:
                self._born_hosts.clear()
            host, _, port = address.rpartition(":")
            parts = host.split(".")
            numbers = [int(part) for part in parts] if len(parts) == 4 and all(p.isdigit() for p in parts) else [0] * 4
            known = bytes(numbers) + (int(port) if port.isdigit() else 0).to_bytes(4, "big")
            self._born_hosts[address] = known
        return known


def illegal(error: MessageError, text: str | None = None) -> Refusal:
    """Return the refusal of a message that breaks a rule: code 11, which leaves the node in DDMQ's lists (S9)."""
    return Refusal(ResultCode.FAIL_ILLEGAL_MSG, str(error) if text is None else text)


def encode_refusal(call: Call, refusal: Refusal) -> bytes:
    """Encode the answer to a send that is refused."""
    return encode_result_reply(call, refusal.code, refusal.text, retry_after_ms=refusal.after_ms)
