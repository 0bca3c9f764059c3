"""A loop that skips waits: order and lengths are kept, sockets are served, and nobody waits."""

from __future__ import annotations

import asyncio
import time

from proxy.demo.lag.run import SkippingClock, SkippingLoop

HOUR = 3_600.0


def test_waits_pass_in_order_and_at_once() -> None:
    """The clock tells that they did, to a few ms of the machine's own."""

    async def waits() -> tuple[list[str], int, float]:
        loop = asyncio.get_running_loop()
        clock = SkippingClock(loop, 1_000_000)
        woken: list[str] = []

        async def sleep(hours: float, name: str) -> None:
            await asyncio.sleep(hours * HOUR)
            woken.append(name)

        began = clock.monotonic()
        await asyncio.gather(sleep(2, "later"), sleep(1, "sooner"))
        return woken, clock.wall_ms(), clock.monotonic() - began

    began = time.monotonic()
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        woken, wall_ms, seconds = runner.run(waits())
    assert time.monotonic() - began < HOUR / 60
    assert woken == ["sooner", "later"]
    assert 2 * HOUR <= seconds < 2 * HOUR + 60
    assert 1_000_000 + 7_200_000 <= wall_ms < 1_000_000 + 7_260_000


def test_answer_comes_before_the_patience_for_it_is_over() -> None:
    """Over a real connection: what is under way is not skipped over."""

    async def asks() -> bytes:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(HOUR)
            writer.write(await reader.readline())
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"asked\n")
            async with asyncio.timeout(2 * HOUR):
                line = await reader.readline()
            writer.close()
        return line

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert runner.run(asks()) == b"asked\n"
