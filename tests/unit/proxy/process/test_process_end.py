"""How a process ends whose node has stopped."""

from __future__ import annotations

import threading

import pytest

from proxy.process.process_end import LIBRARY_THREADS, Leftovers


@pytest.mark.parametrize(
    ("names", "daemon", "ended"),
    [
        ((), True, []),
        (("action-1",), True, []),
        ((f"{LIBRARY_THREADS}ask-main", "action-1"), True, [3]),
        ((f"{LIBRARY_THREADS}ask-main",), False, []),
    ],
)
def test_process_ends_at_once_beside_threads_of_librdkafka(
    names: tuple[str, ...], daemon: bool, ended: list[int]
) -> None:
    """The interpreter's own end may crash in them; where it waits for a thread it is left to the grace."""
    over = threading.Event()
    threads = [threading.Thread(target=over.wait, daemon=daemon, name=name) for name in names]
    left: list[int] = []
    for thread in threads:
        thread.start()
    try:
        Leftovers(left.append).end_beside_libraries(3)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert left == ended
