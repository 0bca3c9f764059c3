"""What a call keeps beyond its own turn: nothing of its frame that is not in the node's account."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from broker.runtime.steps import StepRunner
from proxy.services.delay_service import DelayService
from proxy.wire.call import Call
from tests.hostile.sim import HostileWorld, Raw
from tests.simulation.wire import producer_idl

BODY = 1_900_000


def add(client: Raw, world: HostileWorld, *, uuid: str, body: bytes = b"x") -> bytes:
    """Return an add of a delayed message; the same uuid gives the same id."""
    at_s = world.node.parts.seams.clock.wall_ms() // 1000 + 3600
    message = producer_idl.DelayMessage(topic="orders", body=body, action=1, dmsgtype=2, timestamp=at_s, uuid=uuid)
    return client.codec.call("sendDelaySync", 1, delayMessage=message, timeout=1000)


def cancel(client: Raw, delay_id: str, body: bytes) -> bytes:
    """Return a cancel that carries a body nobody needs."""
    message = producer_idl.DelayMessage(topic="orders", body=body, action=2, uniqDelayMsgId=delay_id)
    return client.codec.call("sendDelaySync", 2, delayMessage=message, timeout=1000)


def frames_below(value: object, depth: int = 4) -> int:
    """Bytes of the frames that a value keeps: its own, or those in what it refers to."""
    if isinstance(value, Call):
        return len(value.frame)
    if depth == 0 or isinstance(value, str | int | type):
        return sys.getsizeof(value) if isinstance(value, bytes) else 0
    parts: list[Any] = [*getattr(value, "args", ()), *(getattr(value, "keywords", None) or {}).values()]
    parts += [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    if isinstance(value, list | tuple):
        parts += value
    return sum(frames_below(each, depth - 1) for each in parts)


def test_repeated_adds_and_cancels_keep_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits in sendDelaySync is a place and a header, however large the calls were."""
    kept: list[int] = []
    world = HostileWorld()
    call_later, repeat = world.loop.call_later, DelayService._repeat

    def noted(delay: float, callback: Any, *args: Any, **more: Any) -> Any:
        if getattr(callback, "__func__", None) is StepRunner.run:
            kept.append(frames_below(list(args[0].gi_frame.f_locals.values())))
        return call_later(delay, callback, *args, **more)

    def repeated(service: DelayService, *args: Any) -> None:
        repeat(service, *args)
        kept.append(frames_below(list(service._recent.values()), depth=6))

    monkeypatch.setattr(world.loop, "call_later", noted)
    monkeypatch.setattr(DelayService, "_repeat", repeated)
    client = world.connect("producer")
    client.transport.write(add(client, world, uuid="01234567-89ab-cdef-0123-456789abcdef", body=bytes(1000)) * 3)
    world.run(1.0)
    codes = [reply.value.code for reply in client.replies]
    assert codes == [0, 0, 0], [reply.value.msg for reply in client.replies]
    client.transport.write(cancel(client, client.replies[0].value.uniqDelayMsgId, bytes(BODY)) * 3)
    world.run(1.0)
    assert [reply.value.code for reply in client.replies[3:]] == [0, 0, 0]
    assert len(kept) >= 5
    assert max(kept) < 1000
