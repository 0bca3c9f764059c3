"""Which subscription gets a thread next."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

from upstream.calls.pool import CallPool, CallQueue, Work


class Threads:
    """Holds calls until a test ends them."""

    def __init__(self) -> None:
        self.out: list[Callable[[object], None]] = []

    def run(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        """Keep it."""
        self.out.append(done)


class Asker:
    """Has so many calls to make."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.begun = 0

    def next_work(self) -> Work | None:
        """One of them."""
        if not self.left:
            return None
        self.left -= 1
        self.begun += 1
        return Work(lambda: None, lambda _: None)


def asked(pool: CallPool, line: CallQueue, count: int) -> Asker:
    """Ask for that many threads."""
    asker = Asker(count)
    pool.request(line, asker)
    return asker


def test_one_line_takes_all_threads_while_it_is_alone() -> None:
    """There is nobody else to keep any for."""
    pool = CallPool(Threads(), 8)
    assert asked(pool, pool.line("g", "a"), 20).begun == 8


def test_hanging_lines_leave_each_other_their_shares() -> None:
    """Half of the threads is for whoever needs it; of the other half each line has its part whenever it comes."""
    threads = Threads()
    pool = CallPool(threads, 16)
    lines = [pool.line("g", name) for name in "abcd"]
    assert asked(pool, lines[0], 100).begun == 8 + 2
    assert [asked(pool, line, 100).begun for line in lines[1:]] == [2, 2, 2]
    assert pool.running == 16


def test_more_lines_than_threads_have_one_each() -> None:
    """Nobody is starved by the others, at the price of threads beyond the bound."""
    pool = CallPool(Threads(), 2)
    lines = [pool.line("g", str(number)) for number in range(5)]
    assert [asked(pool, line, 9).begun for line in lines] == [1] * 5


def test_a_freed_thread_goes_round_the_lines() -> None:
    """What ends gives its thread to the next line that waits, in turn."""
    threads = Threads()
    pool = CallPool(threads, 4)
    first, second = pool.line("g", "a"), pool.line("g", "b")
    one, two = asked(pool, first, 50), asked(pool, second, 50)
    assert (one.begun, two.begun) == (3, 1)
    for _ in range(20):
        threads.out.pop(0)(None)
    assert pool.running == 4
    assert min(one.begun, two.begun) >= 9


def test_share_of_a_line_that_left_is_free_again() -> None:
    """A subscription that ended keeps no part, once nothing of it runs."""
    threads = Threads()
    pool = CallPool(threads, 8)
    gone, stays = pool.line("g", "a"), pool.line("g", "b")
    asked(pool, gone, 1)
    asker = asked(pool, stays, 100)
    assert asker.begun == 6
    pool.leave(gone)
    assert asker.begun == 6
    threads.out.pop(0)(None)
    assert asker.begun == 8


def test_thousands_of_lines_wait_without_being_looked_at_for_each_call() -> None:
    """What a call's end costs is the same however many subscriptions have calls to make, and all have their turns."""
    threads = Threads()
    pool = CallPool(threads, 64)
    began = process_time()
    askers = [asked(pool, pool.line("g", str(number)), 3) for number in range(3000)]
    while threads.out:
        threads.out.pop()(None)
    assert process_time() - began < 3
    assert {asker.begun for asker in askers} == {3}
    assert pool.running == 0
