"""A simulated producer that numbers its messages and sends again until it is answered, over kills and power losses.

One call at a time. Its messages are in the ledger as everybody's: one that is stored twice breaks a promise, and so
does a gap where none can be. None can be as long as the node has to know the producer: it forgets those that were
silent for so long while it lives; a start without a checkpoint goes by store timestamps, and these follow a wall clock
that is set ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.deduplication.window import WindowLimits
from pyddmq.codes import Repeat, ResultCode
from tests.simulation.clients import REFUSED_CODES, Producer, ProducerHabits
from tests.simulation.facts import PromiseBroken, Publish, Stamp
from tests.simulation.lines import Client, Link
from tests.simulation.waits import Walls
from tests.simulation.wire import Reply

if TYPE_CHECKING:
    from tests.simulation.world import World

_AGAIN_SECONDS = 0.1
_SLACK_MS = 10
"""A timestamp may be ahead of the wall clock (`broker.log.group_commit`), which is read in whole milliseconds."""


def is_numbered(seed: int, number: int) -> bool:
    """Whether a producer of a seed's run numbers its messages: one of the three does."""
    return (seed + number) % 3 == 0


class Silence:
    """Whether a producer was silent for so long, by store timestamps, that the node may have forgotten it.

    Its last message has at least the timestamp that the wall clock showed at the least while it was under way, and no
    message before it had a later one. What was stored since has at most what the clock has shown since. So a clock that
    was set ahead before that message, or by less than the window, excuses no gap, and neither does one set back.

    Args:
        walls: The clock's history; None: it is not stepped, and nobody is silent for so long.
    """

    def __init__(self, walls: Walls | None) -> None:
        self._walls = walls
        self._sent = 0.0
        self._last_ms = 0

    def ended(self, sent: float, answered: float) -> None:
        """Note a message of the producer that is stored."""
        if self._walls is not None:
            self._sent = sent
            self._last_ms = max(self._last_ms, self._walls.lowest(sent, answered))

    def is_too_long(self, time: float) -> bool:
        """Whether the producer may be forgotten at a time."""
        if self._walls is None or not self._last_ms:
            return False
        return self._walls.highest(self._sent, time) - self._last_ms > WindowLimits().silence_ms - _SLACK_MS


class NumberedProducer(Producer):
    """Sends each message until the node says what became of it."""

    sequence = 0
    _name = ""
    on_its_way: tuple[str, list[Publish], dict[str, Any]] | None = None
    """The call that is not answered."""
    _attempts = 0
    _silence: Silence

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._asked: list[tuple[Link, list[Publish], str]] = []
        """Attempts that were not answered: on which connection, about what, and their names."""

    def call(self, method: str, about: Any, arrived: Any = None, **arguments: Any) -> None:
        """Send a call for the first time."""
        assert self.on_its_way is None
        if not self._name:
            self._take_name()
        messages = arguments.get("messages") or [arguments["message"]]
        for number, message in enumerate(messages, self.sequence):
            message.uniqKey = f"{self._name}{number:012X}"
        self.on_its_way, self._attempts = (method, about, arguments), 0
        self.send_again()

    def _take_name(self) -> None:
        start = self.around.wall_ms() & 0xFFFF_FFFF
        self._name = f"FE{self.around.random.getrandbits(40):010X}{start:08X}"
        self.sequence = start << 16
        self._silence = Silence(self.around.walls)

    def send_again(self) -> None:
        if self.on_its_way is None or self.link is None or self.stopped:
            return
        method, about, arguments = self.on_its_way
        self._attempts += 1
        call = f"{self._name} {self.sequence} {self._attempts}"
        self._asked.append((self.link, about, call))
        fields = {"who": self._name, "number": self.sequence, "count": len(about), "call": call}
        self.around.ledger.numbered("try", self.around.loop.time(), **fields)
        if self._attempts > 1:
            self.around.counts["sent_again"] += 1
        super().call(method, about, **arguments)

    def on_connected(self) -> None:
        self.send_again()
        super().on_connected()

    def _work(self, link: Link | None) -> None:
        if self.on_its_way is None:
            super()._work(link)
        elif link is not None and link is self.link and not self.stopped:
            self.later(self.habits.pause_seconds, self._work, link)

    def on_reply(self, link: Link, about: list[Publish], reply: Reply, stamp: Stamp) -> None:
        code = reply.value.code if reply.error is None else None
        asked = next(each for each in self._asked if each[0] is link and each[1] is about)
        self._asked.remove(asked)
        self.around.ledger.numbered("tried", stamp.time, call=asked[2], result=self._result(code, reply, stamp))
        # Not so where another attempt was answered before: each that arrived has an answer of its own.
        is_open = self.on_its_way is not None and self.on_its_way[1] is about
        if code == ResultCode.OK:
            self._silence.ended(about[0].sent.time, stamp.time)
            if is_open:
                self.sequence += len(about)
                self.on_its_way = None
            if reply.value.repeat:
                self.around.counts["repeat_answered"] += 1
            if reply.value.repeat == Repeat.OLDER:
                self._settle(about, "unknown", stamp)
                return
        elif code == ResultCode.FAIL_GAP and self._is_durable() and not self._silence.is_too_long(stamp.time):
            raise PromiseBroken(1, f"message {about[0].uid} came in order and was answered as behind a gap")
        elif code is not None and not is_open:
            return
        elif code in REFUSED_CODES and self._attempts == 1:
            self.on_its_way = None
        elif code in REFUSED_CODES or code == ResultCode.FAIL_GAP:
            self.around.counts["sent_under_new_name"] += 1
            # An attempt that was lost on the way may come still: then nobody knows. What follows has another name.
            self.on_its_way, self._name = None, ""
            self._settle(about, "unknown" if self._attempts > 1 else "refused", stamp)
            return
        elif code is not None:
            self.later(_AGAIN_SECONDS, self.send_again)
            return
        super().on_reply(link, about, reply, stamp)

    def _result(self, code: int | None, reply: Reply, stamp: Stamp) -> str:
        if code == ResultCode.OK:
            return "repeat" if reply.value.repeat else "stored"
        if code == ResultCode.FAIL_GAP:
            return "gap" if self._is_durable() and not self._silence.is_too_long(stamp.time) else "refused"
        return "refused" if code in REFUSED_CODES else "unknown"

    def _is_durable(self) -> bool:
        """Whether what was answered cannot be lost."""
        return not self.around.ledger.cuts

    def _settle(self, about: list[Publish], outcome: str, stamp: Stamp) -> None:
        for publish in about:
            self.around.ledger.settled(publish.uid, outcome, stamp)

    def on_lost(self, link: Link) -> None:
        if self.stopped and self.on_its_way is not None:
            self._settle(self.on_its_way[1], "unknown", link.stamp(self.around.edge.now()))
        Client.on_lost(self, link)


def add_numbered(world: World, habits: ProducerHabits, *, compact: bool, number: int) -> NumberedProducer:
    """Connect one to a world; as `World.add_producer`."""
    name, host = f"producer {number}", f"10.1.0.{number}"
    around = world.surroundings(number)
    producer = NumberedProducer(name, host, around, habits, topics=("orders", "events"), compact=compact, number=number)
    world.clients.append(producer)
    producer.connect()
    return producer
