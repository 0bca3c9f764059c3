"""What goes wrong with timers while a node works: damaged units, a clock that is wrong, retention, bad pages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

from broker.errors import DamagedRecord, RecordGone
from broker.format.properties import parse_properties
from broker.format.record import split
from broker.scheduled.timer.parts import TimerParts
from tests.insides import opened_of
from tests.simulation.clients import Producer, ProducerHabits
from tests.simulation.facts import Publish
from tests.simulation.timer_changes import cancel_among_delivered, change_timers
from tests.simulation.world import DATA, World

UNIT_FIELDS = (*range(16, 24), *range(28, 36), *range(44, 52))
"""Bytes of a unit that say when it is due, and of which record it is."""
GLITCHES_MS = (-3_600_000, -120_000, -5_000, 5_000, 120_000, 3_600_000)
PAGE_KINDS = ("consumequeue", "timerlog", "timerwheel", "index")
"""Folders, or beginnings of files, whose pages can all be rebuilt from the log."""
FILLED_SEGMENTS = 3


def damage_timer(world: World, random: Random) -> None:
    """Flip one bit of a unit of the timer log that the running node has written: it makes timer log and wheel anew."""
    _damage_unit(world, random)


def change_rebuilt_timers(world: World, random: Random) -> None:
    """Damage the unit of a timer and cancel it: the node makes timer log and wheel anew among cancels of others."""
    publish = _damage_unit(world, random)
    if publish is None or publish.timer is None or not publish.timer.handle or publish.timer.may_be_cancelled:
        return
    cancel_among_delivered(world, random, publish, count=12)
    change_timers(world, random, kill_share=0.0, pause_seconds=0.0, rounds=2)


def _damage_unit(world: World, random: Random) -> Publish | None:
    """Return whose unit was damaged, None where that is not known."""
    node, parts = world.node, _parts(world)
    assert node is not None
    log = parts.table.log
    if log.count == log.first or parts.is_mending:
        return None
    number = max(log.first, log.count - 1 - random.randrange(40))
    position = log.position(number)
    unit = log.unit(position)
    publish = None
    if unit.size:
        # (It may be damaged already.)
        with suppress(DamagedRecord, RecordGone):
            properties = parse_properties(bytes(split(opened_of(node).store.read(unit.physical, unit.size))[1]))
            publish = world.ledger.publishes.get(int(properties.get("uid", "0")))
    file, at = divmod(position, log.file_bytes)
    name = f"{DATA}/timerlog/{file * log.file_bytes:020d}"
    world.disk.flip_bit(name, at + random.choice(UNIT_FIELDS), random.randrange(8))
    world.ledger.damaged_timers = True
    world.report.events["timer_damaged"] += 1
    return publish


def expire(world: World, random: Random) -> None:
    """Fill log files, and have the checkpoint made that lets the oldest ones be deleted."""
    node, process = world.node, world.process
    assert node is not None
    assert process is not None
    store = opened_of(node).store
    end = store.end + random.randrange(1, FILLED_SEGMENTS + 1) * store.options.segment_bytes
    before = store.min_offset
    filler = world.add_producer(ProducerHabits(pause_seconds=0.02, batch_share=0.9, pad_bytes_max=16_000))
    world.run(until=lambda: opened_of(node).store.end >= end, seconds=3)
    filler.stopped = True
    world.run(seconds=random.choice((0.1, 1.0)))
    if opened_of(node).store.failed is None:
        process.run(opened_of(node).store.checkpoint)
    world.run(until=lambda: opened_of(node).store.min_offset > before, seconds=4)
    world.run(seconds=random.choice((0.0, 0.5, 2.0)))
    world.report.events["segments_expired"] += opened_of(node).store.min_offset > before


def glitch_clock(world: World, random: Random) -> None:
    """Set the wall clock wrong for a while and right again; perhaps start anew meanwhile, or just after it."""
    by_ms, restart = random.choice(GLITCHES_MS), random.choice(("", "in", "after", "after"))
    world.step_clock(by_ms)
    world.run(seconds=random.choice((0.25, 1.5, 3.0)))
    if restart == "in":
        _restart(world, random)
        world.run(seconds=0.25)
    world.step_clock(-by_ms)
    if restart == "after":
        world.run(seconds=random.choice((0.1, 1.5)))
        # What was sent before the start has to come without anything that follows it.
        producers = [client for client in world.clients if isinstance(client, Producer)]
        is_quiet = random.random() < 0.6
        for producer in producers:
            producer.habits.quiet = is_quiet
        _restart(world, random)
        world.run(seconds=6.0 if is_quiet else 0.5)
        for producer in producers:
            producer.habits.quiet = False
    world.run(seconds=0.5)


def spoil_page(world: World, random: Random) -> None:
    """Have pages of one kind of file go bad: reading one raises EIO from now on. All on them can be made anew.

    A page of timer log or wheel is met by the next start: a write to a part of it stops the write side.
    """
    kind = random.choice(PAGE_KINDS)
    paths = [path for path in _files(world, DATA) if path.startswith(f"{DATA}/{kind}")]
    if kind == "consumequeue":
        # The last file of each queue is the one that is still written to.
        paths = list({path.rpartition("/")[0]: path for path in paths}.values())
    elif paths:
        paths = [random.choice(paths)]
    for path in paths:
        pages = max(1, -(-world.disk.open(path).size() // 4096))
        world.disk.bad_pages.setdefault(path, set()).add(random.randrange(pages))
    world.report.events[f"page_{kind}"] += 1
    if kind.startswith("timer"):
        world.ledger.damaged_timers = True
        world.kill(power=random.random() < 0.3)
        world.start()


def _files(world: World, folder: str) -> list[str]:
    found = []
    for name in world.disk.list(folder):
        path = f"{folder}/{name}"
        found += _files(world, path) if world.disk.is_folder(path) else [path]
    return found


def _parts(world: World) -> TimerParts:
    assert world.node is not None
    return opened_of(world.node).timers.parts


def _restart(world: World, random: Random) -> None:
    if random.random() < 0.5:
        world.stop()
    else:
        world.kill(power=random.random() < 0.3)
    world.start()


TIMER_FAULTS: dict[str, Callable[[World, Random], None]] = {
    "damage_timer": damage_timer,
    "change_rebuilt_timers": change_rebuilt_timers,
    "expire": expire,
    "glitch_clock": glitch_clock,
    "spoil_page": spoil_page,
}
