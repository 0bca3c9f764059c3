"""How a process ends whose node has stopped."""

from __future__ import annotations

import threading

import pytest

from proxy.process.process_end import LIBRARY_THREADS, Leftovers


@pytest.mark.parametrize(
    ("names", "ended"), [((), []), (("action-1",), []), ((f"{LIBRARY_THREADS}ask-main", "action-1"), [3])]
)
def test_process_ends_before_the_interpreter_beside_threads_of_librdkafka(
    names: tuple[str, ...], ended: list[int]
) -> None:
    """The interpreter's own end may crash in them."""
    over = threading.Event()
    threads = [threading.Thread(target=over.wait, daemon=True, name=name) for name in names]
    left: list[int] = []
    for thread in threads:
        thread.start()
    try:
        Leftovers(left.append, at_exit=lambda end, code: end(code)).end_beside_libraries(3)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert left == ended
