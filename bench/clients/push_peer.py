"""The other two of the measurement of pushes, each a process: `receiver`, and a `bare` client of aiohttp.

`python -m bench.clients.push_peer receiver` prints its port, and a line for every so many requests.
`python -m bench.clients.push_peer bare URL COUNT CONCURRENCY BYTES` prints the CPU seconds of its requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable

import aiohttp
from aiohttp import web

TOLD_EACH = 100


async def receive() -> None:
    """Answer every request with an empty 200."""
    seen = 0

    async def handle(request: web.BaseRequest) -> web.Response:
        nonlocal seen
        await request.read()
        seen += 1
        if seen % TOLD_EACH == 0:
            print(seen, flush=True)
        return web.Response()

    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


async def push(url: str, count: int, concurrency: int, size: int) -> None:
    """Post `count` bodies, so many at a time."""
    body, left = bytes(size), count

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            async with session.post(url, data=body) as reply:
                await reply.read()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as session:
        before = time.process_time()
        await asyncio.gather(*(work(session) for _ in range(concurrency)))
        print(time.process_time() - before, flush=True)


def main(arguments: list[str]) -> None:
    """Be one of the two, on the loop that the node runs on."""
    if arguments[0] == "receiver":
        asyncio.run(receive())
        return
    _, url, count, concurrency, size = arguments
    make: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        make = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(push(url, int(count), int(concurrency), int(size)))


if __name__ == "__main__":
    main(sys.argv[1:])
