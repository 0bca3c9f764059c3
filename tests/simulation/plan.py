"""What a seeded run does, written down: clients, faults and pauses, drawn from a seed and open to deletion.

Every client and every fault has a source of randomness of its own, so that leaving one out leaves the others as they
were drawn. `shrink` lives on that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

from structlog.testing import capture_logs

from proxy.node.node import Node
from tests.simulation.changing.changes import CHANGES, DRAIN_SECONDS, Changing
from tests.simulation.clients import BY_LIST, PERFECT, ConsumerHabits, ProducerHabits
from tests.simulation.deeds import Deed, Deeds, Send
from tests.simulation.faults import FAULTS, SELDOM
from tests.simulation.journaled import JournaledLedger
from tests.simulation.ledger import PromiseBroken
from tests.simulation.numbered import add_numbered, is_numbered
from tests.simulation.occurrences import GROUP as LOOPS
from tests.simulation.operator import end_stops
from tests.simulation.punctual import Punctual
from tests.simulation.timer_faults import TIMER_FAULTS
from tests.simulation.topic_goes import topic_comes
from tests.simulation.world import OPERATIONS, NodeFactory, Report, World
from tests.tried import tried
from upstream.retry.retry import WISH_MS_MAX

SEED_SECONDS = 7.0
AIMED_SHARE = 0.5
"""Of faults that come in the middle of something."""
DURING_SECONDS = 2.0
"""For how long a fault waits for what it is to come in the middle of."""
TIMER_FAULTS_PER_SEED = 10
TIMER_GROUP = "free"
TIMER_WAITS_MS = (1_000, 4_000, 4_000, 12_000, 130_000)
BIG_EVERY, BIG_PAD_BYTES = 5, 24_000
"""In one of so many runs about timers bodies reach most of `maxMessageBytes`: a file of the log has few of them."""
FAULTS_PER_SEED = 7
CHANGES_PER_SEED = 12
FAULTS_OF_CHANGES = (
    "kill", "lose_power", "cut_within", "kill_twice", "stop", "reset_connections", "roughen_network", "stall_readers",
    "pause_group", "operate", "step_clock", "reload_limits", "reload_refused",
)  # fmt: skip
ENDS_EVERY = 4
"""Of so many seeds one has a node that is ended while it recovers."""
ENDS_OF_TIMERS = 3
SEGMENT_BYTES = 98_304
"""Of a run that deletes files of the log."""
RETAINING_EVERY = 8
"""Of so many seeds one deletes files of the log."""
EXPIRIES = ("expire", "glitch_clock", "expire", "expire")
"""What comes to its faults."""
FLEETING_EVERY = 4
"""Of so many seeds one has a topic that comes and goes."""
LOSSES = 4
"""How often it does."""
WAIT_SHARE = 0.12
"""Of the messages of a run that wait for a level, a moment or a time."""
ON_EXHAUSTED = ("deadLetter", "stopKey", "deadLetter", "deadLetter", "stopQueue")
"""By seed."""
GROUPS = ("by-key", "by-path", "free")
UNWANTED_LOGS = frozenset({"call_failed", "action_failed"})
"""Events that speak of a fault of the node's own."""
POWER_LOSS_LEAVES = frozenset(
    {
        "the files of the timer log do not fit together",
        "a cut of the timer log was broken off",
        "the timer wheel refers to units that the timer log does not have",
    }
)
"""Of a cut of the timer log, or of a slot of the wheel, that was half written; any other damage was made in the run."""

ALL_FAULTS = {**FAULTS, **SELDOM, **TIMER_FAULTS, **CHANGES}


class ClientPlan(NamedTuple):
    """One client; `group` is empty for a producer, `linger_ms` for pull clients only.

    `loops`: it adds loops. `halves`: it sends transactions. `checked`: it answers checks of transactions. `fleeting`:
    it sends to a topic that comes and goes.
    """

    number: int
    group: str = ""
    topic: str | None = None
    linger_ms: int = 0
    compact: bool = False
    loops: bool = False
    halves: bool = False
    checked: bool = False
    fleeting: bool = False


class TimerPlan(NamedTuple):
    """A run that is about timers: its clients send many, and nothing that waits may be late.

    Attributes:
        log_file_bytes: Size of a file of the timer log.
        segment_bytes: Size of a file of the log.
        retention: Files of the log are deleted once all groups have finished them.
        pad_bytes_max: What bodies have besides.
    """

    log_file_bytes: int
    segment_bytes: int
    retention: bool
    pad_bytes_max: int = 200


class Step(NamedTuple):
    """One fault, its randomness, and how long things go on after it, in seconds.

    `during`: it waits for this to be under way.
    """

    fault: str
    seed: str
    pause: float
    during: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run.

    Attributes:
        seed: Of what is not written here.
        ack_flush: `sync` or `async` (D9).
        flush: `sync` or `async` (D1).
        retention: Files of the log are deleted once all groups have finished them.
        retry_topic: The group without order has one.
        waits: Groups have actions that await, and that block.
        on_exhausted: What the group by key does with a message that is out of attempts.
        clients: Who takes part from the beginning.
        begin: Seconds before the first fault.
        steps: The faults.
        sends: The only messages that are sent; None: all.
        deeds: All that pull clients do but to answer with success; None: as drawn.
        good: Pull clients have no bad habits, producers send single valid messages that do not wait.
        wait_share: Of the messages that wait.
        timers: The run is about timers.
        changes: The run is about changes of the configuration.
    """

    seed: int
    ack_flush: str = "async"
    flush: str = "sync"
    retention: bool = False
    retry_topic: bool = False
    on_exhausted: str = "deadLetter"
    waits: bool = False
    clients: tuple[ClientPlan, ...] = ()
    begin: float = 0.0
    steps: tuple[Step, ...] = ()
    sends: frozenset[Send] | None = None
    deeds: frozenset[Deed] | None = None
    good: bool = False
    wait_share: float = WAIT_SHARE
    timers: TimerPlan | None = None
    changes: bool = False


def draw_changes(seed: int, *, faults: int = CHANGES_PER_SEED) -> Plan:
    """Draw a run about changes of the configuration: three producers, pull clients, and consumers inside the program.

    Half of its faults are such changes.
    """
    random = Random(f"changes {seed}")
    clients = [ClientPlan(number, compact=number == 0) for number in range(3)]
    for group in GROUPS:
        for number in range(2):
            clients.append(ClientPlan(len(clients), group, linger_ms=random.choice([0, 100, 400]), compact=number == 0))
    steps = [
        Step(
            random.choice(list(CHANGES if random.random() < 0.6 else FAULTS_OF_CHANGES)),
            f"{seed} change {number}",
            random.choice((0.0, 0.25, 1.0, 2.5)),
        )
        for number in range(faults)
    ]
    return Plan(
        seed=seed,
        ack_flush=random.choice(["async", "sync"]),
        waits=seed % 3 == 1,
        clients=tuple(clients),
        begin=random.random(),
        steps=tuple(steps),
        changes=True,
    )


def draw_timers(seed: int, *, faults: int = TIMER_FAULTS_PER_SEED) -> Plan:
    """Draw a run that is about timers: two producers, three pull clients of one group, and the given number of faults.

    Every other seed damages no timer: there the node may not find any damage.
    """
    random = Random(f"timers {seed}")
    clients = [ClientPlan(number, compact=number == 0) for number in range(2)]
    clients += [ClientPlan(2 + number, TIMER_GROUP, linger_ms=random.choice([0, 100])) for number in range(3)]
    timers = TimerPlan(random.choice((4_096, 4_096, 8_192)), random.choice((98_304, 131_072)), random.random() < 0.75)
    if seed % BIG_EVERY == BIG_EVERY - 2:
        timers = timers._replace(pad_bytes_max=BIG_PAD_BYTES)
    names = [*TIMER_FAULTS, "glitch_clock", "expire", "change_timers", "kill", "stop", "lose_power"]
    if seed % 2:
        names = [each for each in names if each not in ("damage_timer", "change_rebuilt_timers", "spoil_page")]
    steps = [
        Step(random.choice(names), f"{seed} timer fault {number}", random.choice((0.25, 1.0, 2.5)))
        for number in range(faults)
    ]
    if seed % ENDS_EVERY == ENDS_EVERY - 1:
        ends = Random(f"ends {seed}")
        for number in range(ENDS_OF_TIMERS):
            steps.insert(ends.randrange(len(steps) + 1), Step("end_again", f"{seed} ends {number}", 1.0))
    _add_fleeting(seed, clients, steps)
    return Plan(
        seed=seed,
        ack_flush="sync",
        clients=tuple(clients),
        begin=1.0,
        steps=tuple(steps),
        wait_share=0.8,
        timers=timers,
    )


def draw(seed: int, *, faults: int = FAULTS_PER_SEED) -> Plan:
    """Draw a run: three producers, nine pull clients, a producer and two pull clients of loops, and so many faults.

    A producer of transactions and one that answers the checks of its group take part, too.
    """
    random = Random(f"schedule {seed}")
    clients = [ClientPlan(number, compact=number == 0) for number in range(3)]
    for group in GROUPS:
        for number in range(3):
            topic = "orders" if number == 2 else None
            linger_ms = random.choice([0, 100, 400])
            clients.append(ClientPlan(len(clients), group, topic, linger_ms, number == 0))
    clients.append(ClientPlan(len(clients), compact=seed % 2 == 0, loops=True))
    clients += [ClientPlan(len(clients) + number, LOOPS, compact=number == 0) for number in range(2)]
    clients.append(ClientPlan(len(clients), halves=True))
    clients.append(ClientPlan(len(clients), checked=True))
    ack_flush, begin = random.choice(["async", "async", "sync"]), random.random()
    aims = Random(f"aims {seed}")
    steps = [
        Step(
            random.choice(list(FAULTS)),
            f"{seed} fault {number}",
            random.random() * SEED_SECONDS / faults,
            # A publish is under way for a fortieth of the time: faults at any moment hardly ever meet one.
            aims.choice(OPERATIONS) if aims.random() < AIMED_SHARE else "",
        )
        for number in range(faults)
    ]
    if seed % 4 == 2 or seed % 8 == 5:
        steps.insert(Random(f"reset {seed}").randrange(len(steps) + 1), Step("reset_offsets", f"{seed} reset", 0.5))
    if seed % ENDS_EVERY == ENDS_EVERY - 1:
        steps.insert(Random(f"ends {seed}").randrange(len(steps) + 1), Step("end_again", f"{seed} ends", 0.5))
    _add_fleeting(seed, clients, steps)
    is_retaining = seed % RETAINING_EVERY == 4
    if is_retaining:
        _add_expiries(seed, steps)
    return Plan(
        seed=seed,
        ack_flush=ack_flush,
        retention=is_retaining,
        retry_topic=seed % 2 == 1,
        # What waits for an operator may be deleted before one comes.
        on_exhausted="deadLetter" if is_retaining else ON_EXHAUSTED[seed % len(ON_EXHAUSTED)],
        waits=seed % 5 in (1, 2),
        clients=tuple(clients),
        begin=begin,
        steps=tuple(steps),
    )


def draw_unsynced(seed: int, *, faults: int = FAULTS_PER_SEED) -> Plan:
    """Draw a run under `flush: async` with many power losses: three producers and nine pull clients.

    A producer of loops, one of transactions and one that answers their checks take part, too.
    """
    random = Random(f"unsynced {seed}")
    clients = [ClientPlan(number, compact=number == 0) for number in range(3)]
    for group in GROUPS:
        for number in range(3):
            linger_ms = random.choice([0, 100, 400])
            clients.append(ClientPlan(len(clients), group, "orders" if number == 2 else None, linger_ms, number == 0))
    clients.append(ClientPlan(len(clients), compact=seed % 2 == 0, loops=True))
    clients += [ClientPlan(len(clients) + number, LOOPS, compact=number == 0) for number in range(2)]
    clients.append(ClientPlan(len(clients), halves=True))
    clients.append(ClientPlan(len(clients), checked=True))
    names = [*FAULTS, *["lose_power", "cut_within"] * 4]
    steps = [
        Step(
            random.choice([*names, "end_again"]),
            f"{seed} unsynced fault {number}",
            random.random() * SEED_SECONDS / faults,
            random.choice(("", "publishes", "deliveries", "acks")),
        )
        for number in range(faults)
    ]
    is_retaining = seed % RETAINING_EVERY == 4
    if is_retaining:
        _add_expiries(seed, steps)
    return Plan(
        seed=seed,
        ack_flush=random.choice(("async", "sync")),
        flush="async",
        retention=is_retaining,
        retry_topic=seed % 2 == 1,
        waits=seed % 5 in (1, 2),
        clients=tuple(clients),
        begin=random.random(),
        steps=tuple(steps),
    )


def _add_expiries(seed: int, steps: list[Step]) -> None:
    expiries = Random(f"expiries {seed}")
    for number, fault in enumerate(EXPIRIES):
        steps.insert(expiries.randrange(len(steps) + 1), Step(fault, f"{seed} expiry {number}", 0.5))


def _add_fleeting(seed: int, clients: list[ClientPlan], steps: list[Step]) -> None:
    """Give some seeds a topic that comes and goes; some of these have a node, too, that is ended while it recovers."""
    if seed % FLEETING_EVERY != 1 and seed % (2 * FLEETING_EVERY) != ENDS_EVERY - 1:
        return
    clients.append(ClientPlan(len(clients), fleeting=True))
    places = Random(f"fleeting {seed}")
    for number in range(LOSSES):
        steps.insert(places.randrange(len(steps) + 1), Step("lose_topic", f"{seed} fleeting {number}", 0.5))


def run_plan(plan: Plan, *, make_node: NodeFactory = Node, ledger: type[JournaledLedger] = JournaledLedger) -> Report:
    """Make the run.

    Raises:
        PromiseBroken: The node broke a promise, or logged an error of its own.
    """
    with capture_logs() as logs:
        report = make_world(plan, make_node=make_node, ledger=ledger)[1]()
    for event in logs:
        report.events[f"log_{event['event']}"] += 1
        is_torn = report.events["torn"] and event.get("why") in POWER_LOSS_LEAVES
        damaged = event["event"] == "timers_damaged" and not is_torn
        if event["event"] in UNWANTED_LOGS or (damaged and not _harms_timers(report)):
            raise PromiseBroken(0, f"the node logged {event}")
    return report


def _harms_timers(report: Report) -> bool:
    return any(report.events[name] for name in ("timer_damaged", "page_timerlog", "page_timerwheel", "files_gone"))


def make_world(
    plan: Plan, *, make_node: NodeFactory = Node, ledger: type[JournaledLedger] = JournaledLedger
) -> tuple[World, Callable[[], Report]]:
    """Return the world of a plan and what runs it to its end; it stays as it was where the run breaks off."""
    world = World(
        plan.seed,
        make_node=make_node,
        ack_flush=plan.ack_flush,
        flush=plan.flush,
        retry_topic=plan.retry_topic,
        on_exhausted=plan.on_exhausted,
        waits=plan.waits,
        node=_node_settings(plan),
        groups=None if plan.timers is None else (TIMER_GROUP,),
        make_ledger=ledger,
        deeds=Deeds(plan.sends, plan.deeds),
        changes=plan.changes,
    )

    def run() -> Report:
        changing = Changing(world) if plan.changes else None
        world.start()
        is_fleeting = any(client.fleeting for client in plan.clients)
        if is_fleeting:
            topic_comes(world)
        if plan.timers is not None:
            Punctual(world)
        for client in plan.clients:
            _add(world, plan, client)
        world.run(seconds=plan.begin)
        for step in plan.steps:
            world.report.faults[step.fault] += 1
            world.ledger.note(world.loop.time(), f"-- {step.fault}")
            if step.during:
                world.run(seconds=DURING_SECONDS, until=partial(world.is_under_way, step.during))
            tried("simulation", step.fault, operations=world.under_way(), states=world.states())
            ALL_FAULTS[step.fault](world, Random(step.seed))
            world.run(seconds=step.pause)
        if is_fleeting:
            if world.node is None:
                world.start()
            topic_comes(world)
        # Of one source for all calls: else a message that is tried again each time would never end.
        decisions = Random(f"{plan.seed} stops")
        if changing is not None:
            changing.end()
        # Where the clock went back, what a push failed may wait for as long as a receiver may ask for.
        seconds = 120 if changing is None else 120 + WISH_MS_MAX / 1000
        world.settle(seconds=seconds, by_hand=lambda: end_stops(world, decisions))
        if changing is not None:
            changing.check()
        return world.check()

    return world, run


def run_changing_seed(seed: int, *, make_node: NodeFactory = Node) -> Report:
    """Make the run about changes of a seed. Raises PromiseBroken, as `run_plan`."""
    return run_plan(draw_changes(seed), make_node=make_node)


def run_timer_seed(seed: int, *, make_node: NodeFactory = Node) -> Report:
    """Make the run about timers of a seed. Raises PromiseBroken, as `run_plan`."""
    return run_plan(draw_timers(seed), make_node=make_node)


def run_unsynced_seed(seed: int, *, make_node: NodeFactory = Node) -> Report:
    """Make the run under `flush: async` of a seed. Raises PromiseBroken, as `run_plan`."""
    return run_plan(draw_unsynced(seed), make_node=make_node)


def run_seed(seed: int, *, make_node: NodeFactory = Node, faults: int = FAULTS_PER_SEED) -> Report:
    """Make the run of a seed. Raises PromiseBroken, as `run_plan`."""
    return run_plan(draw(seed, faults=faults), make_node=make_node)


def _node_settings(plan: Plan) -> dict[str, Any]:
    if plan.timers is not None:
        return _timer_settings(plan.timers)
    if plan.changes:
        return {"drainSeconds": DRAIN_SECONDS}
    return {"segmentBytes": SEGMENT_BYTES, "retentionBytes": 2 * SEGMENT_BYTES} if plan.retention else {}


def _timer_settings(timers: TimerPlan) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "timerLogFileBytes": timers.log_file_bytes,
        "segmentBytes": timers.segment_bytes,
        # Groups read few messages ahead, so that units of queues are read from files, too.
        "maxWaitingPerTopic": 5,
    }
    return {**settings, "retentionBytes": 2 * timers.segment_bytes} if timers.retention else settings


def _add(world: World, plan: Plan, client: ClientPlan) -> None:
    if client.loops:
        world.add_loops(compact=client.compact, number=client.number)
        return
    if client.fleeting:
        world.add_fleeting(number=client.number)
        return
    if client.halves or client.checked:
        (world.add_halves if client.halves else world.add_checked)(number=client.number)
        return
    if not client.group:
        habits = ProducerHabits(pause_seconds=0.08, wait_share=plan.wait_share)
        if plan.timers is not None:
            habits = ProducerHabits(
                pause_seconds=0.2,
                batch_share=0.5,
                wait_share=plan.wait_share,
                wait_ms=TIMER_WAITS_MS,
                pad_bytes_max=plan.timers.pad_bytes_max,
            )
        if plan.good:
            habits = ProducerHabits(pause_seconds=0.08, batch_share=0, refused_share=0, broken_json_share=0)
        numbers = plan.timers is None and is_numbered(plan.seed, client.number)
        add = add_numbered if numbers else World.add_producer
        add(world, habits, compact=client.compact, number=client.number)
        return
    drawn = ConsumerHabits() if plan.deeds is None else BY_LIST
    habits_of_consumer = PERFECT if plan.good else replace(drawn, linger_ms=client.linger_ms)
    world.add_consumer(
        client.group, habits_of_consumer, topic=client.topic, compact=client.compact, number=client.number
    )
