"""From checked messages to a reply: the append, its refusals, and the answer after the flush that covers it (D1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.deduplication.deduplication import NumberedRun
from broker.errors import StoreError
from broker.log.put import LogPosition, Put
from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare, declare_histogram
from broker.store import Store
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.services.encoders import Refused, Stored
from proxy.services.message_checks import give_tokens_back, store_refusal
from proxy.services.message_rules import Refusal
from proxy.services.sinks import CheckedSend
from proxy.services.topic_port import TopicPort
from proxy.wire.errors import MessageError
from proxy.wire.replies import encode_result_reply
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


EncodeRun = Callable[[Sequence[ReplySlot], Sequence[LogPosition]], list[bytes]]
Special = tuple[Stored | None, NumberedRun | None]
"""How a reply is encoded that is not as all, and what is known of a number."""


class SendRun:
    """Single sends for the store that follow each other: they are staged together.

    Attributes:
        slots: The calls.
        puts: The message of each.
        ports: Its port.
        special: By place, what is not as with all.
        producers: Names of producers whose numbers are among them.
    """

    __slots__ = ("ports", "producers", "puts", "slots", "special")

    def __init__(self) -> None:
        self.slots: list[ReplySlot] = []
        self.puts: list[Put] = []
        self.ports: list[TopicPort] = []
        self.special: dict[int, Special] = {}
        self.producers: set[bytes] = set()

    def add(
        self,
        slot: ReplySlot,
        put: Put,
        port: TopicPort,
        stored: Stored | None = None,
        judged: NumberedRun | None = None,
    ) -> None:
        """Have a send join."""
        if stored is not None or judged is not None:
            self.special[len(self.puts)] = stored, judged
        self.slots.append(slot)
        self.puts.append(put)
        self.ports.append(port)

    def take(self) -> tuple[list[ReplySlot], list[Put], list[TopicPort], dict[int, Special]]:
        """Return what has joined; nothing has from now on."""
        taken = self.slots, self.puts, self.ports, self.special
        self.slots, self.puts, self.ports, self.special = [], [], [], {}
        self.producers.clear()
        return taken


class _Reported:
    """What is done once a run is stored, or could not be: its `Done`."""

    __slots__ = ("_encode", "_ports", "_publishing", "_puts", "_slots", "positions")

    def __init__(
        self,
        publishing: Publishing,
        slots: Sequence[ReplySlot],
        puts: Sequence[Put],
        ports: Sequence[TopicPort],
        encode: EncodeRun,
    ) -> None:
        self._publishing = publishing
        self._slots = slots
        self._puts = puts
        self._ports = ports
        self._encode = encode
        self.positions: list[LogPosition] = []

    def __call__(self, error: StoreError | None) -> None:
        """Answer the calls."""
        slots = self._slots
        if error is None:
            self._publishing.stored_run(slots, self._puts, self._ports)
            for slot, reply in zip(slots, self._encode(slots, self.positions), strict=True):
                slot.answer(reply)
            return
        refusal = Refusal(ResultCode.FAIL_UNKNOWN, str(error))
        for slot in slots:
            self._publishing.refuse(slot, refusal, 1)


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

    def append(self, send: CheckedSend) -> list[LogPosition]:
        """Stage a send; the reply follows the flush that makes it durable.

        Returns:
            Where each message is staged.

        Raises:
            Refusal: Nothing was staged; rate tokens were given back.
        """
        slot, puts, ports = send.slot, send.puts, send.ports

        def done(error: StoreError | None) -> None:
            if error is not None:
                self.refuse(slot, Refusal(ResultCode.FAIL_UNKNOWN, str(error)), len(puts), send.refused)
                return
            if send.published:
                self.stored_run([slot], puts, ports)
            else:
                self.took(slot.received_at, len(puts))
            slot.answer(send.stored(slot.call, positions))

        try:
            self.check_open()
            positions = self.stage(puts, slot.connection, done, atomic=send.atomic)
        except StoreError as error:
            give_tokens_back(ports)
            raise store_refusal(error) from error
        except Refusal:
            give_tokens_back(ports)
            raise
        # Puts are slices of the frame and keep all of it until they are written.
        self.budget.stage(len(slot.call.frame))
        return positions

    def append_run(
        self, slots: Sequence[ReplySlot], puts: Sequence[Put], ports: Sequence[TopicPort], encode: EncodeRun
    ) -> list[LogPosition] | None:
        """Stage single sends together; their replies follow the flush that makes them durable.

        Args:
            slots: The calls.
            puts: The message of each.
            ports: Its port.
            encode: Encodes the replies, given the calls and where their messages are.

        Returns:
            Where each is staged; None: nothing was staged, and they are to be staged one by one, since not all are
            taken, one of them meets a fault, or memory is looked at before each.
        """
        if self._state() == "draining" or self.budget.level:
            return None
        born_ms = self._clock.wall_ms()
        origins = [(born_ms, self.born_host(slot.connection.address)) for slot in slots]
        end = self._store.end
        reported = _Reported(self, slots, puts, ports, encode)
        try:
            reported.positions = self._store.append(
                puts, born_ms=born_ms, born_host=origins[0][1], origins=origins, done=reported, is_tentative=True
            )
        except Exception:
            if self._store.end != end:
                raise
            return None
        self.budget.stage(sum([len(slot.call.frame) for slot in slots]))
        return reported.positions

    def stored_run(self, slots: Sequence[ReplySlot], puts: Sequence[Put], ports: Sequence[TopicPort]) -> None:
        """Count what was stored."""
        self.took(slots[0].received_at, len(puts))
        port = ports[0]
        if ports.count(port) == len(ports):
            port.messages.value += len(puts)
            port.body_bytes.value += sum([len(put[2]) for put in puts])
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

    def refuse(self, slot: ReplySlot, refusal: Refusal, count: int, refused: Refused = encode_result_reply) -> None:
        """Answer a call of so many messages with why they are not taken, and count them."""
        self.log_refused(refusal.code, refusal.text, slot.connection.address, count)
        slot.answer(refused(slot.call, refusal.code, refusal.text, retry_after_ms=refusal.after_ms))

    def refuse_text(
        self, slot: ReplySlot, error: MessageError, refused: Refused = encode_result_reply, *, text: str | None = None
    ) -> None:
        """Answer a call with a message that breaks a rule: code 11, which leaves the node in DDMQ's lists (S9)."""
        refusal = Refusal(ResultCode.FAIL_ILLEGAL_MSG, str(error) if text is None else text)
        self.refuse(slot, refusal, error.count, refused)

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
