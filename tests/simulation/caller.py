"""A client for tests that say step by step what is called; every call runs the world until it is answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.simulation.clients import message_of
from tests.simulation.ledger import Place, Publish, Stamp
from tests.simulation.lines import Client, Link
from tests.simulation.wire import Codec, Reply, consumer_codec, consumer_idl, producer_codec
from tests.simulation.world import World

CALL_SECONDS_MAX = 40.0


@dataclass(slots=True)
class Waiting:
    """A call that is under way; `reply` is there once it is answered, `lost` when its connection is gone."""

    reply: Reply | None = None
    stamp: Stamp | None = None
    lost: bool = False

    @property
    def answered(self) -> bool:
        """Whether the reply is there."""
        return self.reply is not None

    @property
    def messages(self) -> list[Any]:
        """The messages of an answered pull."""
        assert self.reply is not None
        return list(self.reply.value.messages or ())


class Line(Client):
    """One connection of a caller to one of the services."""

    def __init__(self, world: World, host: str, codec: Codec, port: int) -> None:
        super().__init__(f"caller {host}", host, codec, world.surroundings(), lambda: ("127.0.0.1", port))

    def on_reply(self, link: Link, about: Waiting, reply: Reply, stamp: Stamp) -> None:
        about.reply, about.stamp = reply, stamp

    def on_lost(self, link: Link) -> None:
        for about, _ in link.pending.values():
            about.lost = True
        super().on_lost(link)


class Caller:
    """Sends, pulls and answers on behalf of one host, and keeps the ledger.

    Args:
        world: Where the node runs.
        host: Address of the client.
        compact: Pull in TCompactProtocol.

    Attributes:
        deliveries: Numbers of the deliveries of the last pull, where they had one.
    """

    def __init__(self, world: World, host: str, *, compact: bool = False) -> None:
        self.world = world
        self.host = host
        self.deliveries: dict[Place, int] = {}
        self._consumer = Line(world, host, consumer_codec(compact=compact), 9713)
        self.producer = Line(world, host, producer_codec(), 9613)

    def other(self) -> Caller:
        """Return a caller of another host."""
        head, _, last = self.host.rpartition(".")
        return Caller(self.world, f"{head}.{int(last) + 1}")

    def send(self, topic: str, key: str, *, uid: int, case: object = None) -> Place:
        """Publish one message, which must be stored; its order key by path is `case`."""
        line = self.ready(self.producer)
        body = json.dumps({"uid": uid, "case id": case}).encode()
        path_key = str(case) if isinstance(case, str | int) else None
        assert line.link is not None
        sent = line.link.stamp(line.around.edge.now())
        publish = Publish(uid, topic, key, "", body, path_key, True, 0, sent)
        self.world.ledger.sent(publish)
        waiting = Waiting()
        line.call("sendSync", waiting, message=message_of(publish), timeout=1_000)
        reply = self.answered(waiting)
        assert reply.value.code == 0, reply
        assert waiting.stamp is not None
        receipt = (reply.value.qid, reply.value.offset)
        self.world.ledger.settled(uid, "stored", waiting.stamp, receipt)
        return Place(topic, *receipt)

    def pull_later(self, group: str, *, linger_ms: int = 0, count: int = 8, topic: str | None = None) -> Waiting:
        """Send a pull and return without waiting for its answer."""
        line = self.ready(self._consumer)
        request = consumer_idl.PullRequest(
            groupId=group, topic=topic, maxBatchSize=count, maxLingerTime=linger_ms, version="caller"
        )
        waiting = Waiting()
        line.call("pull", waiting, request=request)
        return waiting

    def pull(
        self, group: str, *, linger_ms: int = 0, count: int = 8, topic: str | None = None
    ) -> list[tuple[Place, int]]:
        """Pull and return the place and uid of each message."""
        waiting = self.pull_later(group, linger_ms=linger_ms, count=count, topic=topic)
        response = self.answered(waiting).value
        found = []
        self.deliveries = {}
        for message in response.messages or ():
            place = Place(response.context.topic, response.context.qid, message.offset)
            if message.delivery is not None:
                self.deliveries[place] = message.delivery
            uid = int(message.properties["uid"])
            body = message.value.encode() if isinstance(message.value, str) else message.value
            assert waiting.stamp is not None
            self.world.ledger.delivered(
                group, place, self.host, waiting.stamp, uid=uid, key=message.key, tag=message.tag, body=body
            )
            found.append((place, uid))
        return found

    def answer(self, group: str, place: Place, *, success: bool, deliveries: Mapping[Place, int] | None = None) -> bool:
        """Submit one result, with the numbers of deliveries if there are any; returns what submit answered."""
        line = self.ready(self._consumer)
        offsets: tuple[list[int], list[int]] = ([place.offset], []) if success else ([], [place.offset])
        context = consumer_idl.Context(groupId=group, topic=place.topic, qid=place.qid)
        numbers = None if deliveries is None else {place.offset: number for place, number in deliveries.items()}
        result = consumer_idl.ConsumeResult(
            context=context, successOffsets=offsets[0], failOffsets=offsets[1], deliveries=numbers
        )
        waiting = Waiting()

        def arrived(stamp: Stamp) -> None:
            self.world.ledger.answered(group, place, self.host, stamp, success)

        line.call("submit", waiting, arrived, result=result)
        reply = self.answered(waiting)
        assert waiting.stamp is not None
        if success:
            self.world.ledger.confirmed(group, place, waiting.stamp)
        return bool(reply.value)

    def ready(self, line: Line) -> Line:
        line.connect()
        assert self.world.run(until=lambda: self._is_up(line), seconds=CALL_SECONDS_MAX)
        return line

    def _is_up(self, line: Line) -> bool:
        """Whether the line is connected to the present process; a reset by the one before may still be on its way."""
        return line.link is not None and line.link.life == self.world.ledger.life

    def answered(self, waiting: Waiting) -> Reply:
        self.world.run(until=lambda: waiting.reply is not None or waiting.lost, seconds=CALL_SECONDS_MAX)
        assert waiting.reply is not None, "the call was not answered"
        assert waiting.reply.error is None, waiting.reply.error
        return waiting.reply


def uids(found: list[tuple[Place, Any]]) -> list[int]:
    """Return the uids of pulled messages."""
    return [uid for _, uid in found]
