"""Whose a producer's name is, kept in a file that a kill, a torn write or a flipped bit may hit."""

from __future__ import annotations

from broker.runtime.metrics import Metrics
from broker.runtime.store_metrics import FILES_DAMAGED
from proxy.access.owners import _SPARE, FILE, Owners
from pyddmq.testing import SimDisk

NAMES = [b"FE%018X" % number for number in range(4000)]


def opened(disk: SimDisk, metrics: Metrics | None = None, *, known: set[bytes] | None = None) -> Owners:
    """Open the file of a store for ten names, and the spare ones."""
    disk.make_folder("r/pyddmq")
    return Owners(disk, "r", metrics or Metrics(), names_max=10, is_known=lambda name: known is None or name in known)


def test_name_is_of_who_was_first_also_after_a_kill() -> None:
    """Written before the send is answered: nothing needs to be closed or synced for a killed process."""
    disk = SimDisk()
    owners = opened(disk)
    assert owners.claim(NAMES[0], "a")
    assert owners.claim(NAMES[0], "a")
    assert not owners.claim(NAMES[0], "b")
    assert owners.claim(NAMES[1], "anonymous")
    again = opened(disk)
    assert not again.claim(NAMES[0], "b")
    assert again.of(NAMES[1]) == "anonymous"
    assert again.claim(NAMES[2], "b")
    assert opened(disk).of(NAMES[2]) == "b"


def test_damaged_line_costs_itself_alone() -> None:
    """A flipped bit is counted; a line that a stop has torn is not, and what follows is whole."""
    disk = SimDisk()
    owners = opened(disk)
    for name in NAMES[:3]:
        owners.claim(name, "a")
    owners.close()
    file = disk.open(f"r/{FILE}")
    content = bytearray(file.read(0, file.size()))
    content[len(content) // 2] ^= 1
    file.write(0, [bytes(content) + b"0000"])
    metrics = Metrics()
    again = opened(disk, metrics)
    assert [again.of(name) for name in NAMES[:3]] == ["a", None, "a"]
    assert metrics.value(FILES_DAMAGED, FILE) == 1
    assert again.claim(NAMES[1], "b")
    last = opened(disk, metrics)
    assert [last.of(name) for name in NAMES[:3]] == ["a", "b", "a"]
    assert metrics.value(FILES_DAMAGED, FILE) == 1


def test_names_are_bounded_and_those_nobody_knows_go_first() -> None:
    """What deduplication has forgotten may be anybody's; the file is rewritten now and then."""
    disk, known = SimDisk(), set(NAMES[:5])
    owners = opened(disk, known=known)
    for name in NAMES:
        assert owners.claim(name, "a")
    assert [owners.of(name) for name in NAMES[:5]] == ["a"] * 5
    assert owners.of(NAMES[6]) is None
    assert disk.open(f"r/{FILE}").size() < 3 * (_SPARE + 20) * 40
    assert opened(disk, known=known).of(NAMES[0]) == "a"


def test_name_that_was_forgotten_is_of_who_took_it_then_also_after_a_restart() -> None:
    """The file still has the line of its owner before."""
    disk = SimDisk()
    owners = opened(disk, known=set(NAMES[1:]))
    for name in NAMES[: 10 + _SPARE + 1]:
        assert owners.claim(name, "a")
    assert owners.of(NAMES[0]) is None
    assert owners.claim(NAMES[0], "b")
    again = opened(disk)
    assert again.claim(NAMES[0], "b")
    assert not again.claim(NAMES[0], "a")
