"""Threads beside a real event loop."""

from __future__ import annotations

import asyncio
import threading

from upstream.calls.loop_threads import LoopThreads


def test_work_is_done_in_threads_that_are_kept_and_told_in_the_loop() -> None:
    """As many threads as are asked for at a time, and no more; none of them keeps a program from ending."""

    async def all_of_it() -> set[str]:
        loop = asyncio.get_running_loop()
        threads = LoopThreads(loop)
        names: set[str] = set()
        for _ in range(3):
            both = threading.Barrier(2)
            reported: asyncio.Queue[object] = asyncio.Queue()

            def work(both: threading.Barrier = both) -> str:
                both.wait()
                assert threading.current_thread().daemon
                return threading.current_thread().name

            def done(result: object, reported: asyncio.Queue[object] = reported) -> None:
                assert threading.current_thread() is threading.main_thread()
                reported.put_nowait(result)

            threads.run(work, done)
            threads.run(work, done)
            names |= {str(await reported.get()), str(await reported.get())}
        return names

    assert len(asyncio.run(all_of_it())) == 2
