"""Timers cancelled and moved in a run, and messages of levels cancelled, also where the node dies meanwhile."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from random import Random
from typing import Any

from broker.scheduled.timer.handle import RecallHandle
from broker.views import View
from proxy.operate.changes.delays import DelayCancelBody
from proxy.operate.changes.desk import ChangeRefused
from proxy.operate.changes.node import node_changes
from proxy.operate.changes.steps import MessageName
from proxy.operate.changes.timers import RescheduleBody, TimerCancelBody
from pyddmq.testing.sim_disk import PowerCut
from tests.insides import opened_of
from tests.simulation.facts import PromiseBroken, Publish
from tests.simulation.loops import CANCELLED, TOO_LATE, UNKNOWN, LoopAccount, LoopProducer, walk
from tests.simulation.loops import TOPIC as LATER
from tests.simulation.waits import Wait
from tests.simulation.world import World

ROUNDS = 10
LOOP_SHARE = 0.3
"""Of changes of loops, where there are any."""
KILL_SHARE = 0.15
OLDER_SHARE = 0.2
"""Of changes of messages, those of delivered ones."""
CUT_MAX = 4
"""Writes, syncs and renames between the beginning of a change and the cut."""
OUTCOMES = {"cancelled": CANCELLED, "tooLate": TOO_LATE, "unknown": UNKNOWN}
STRANGE = str(RecallHandle("orders", "broker-0", 1_800_000_000_000, "7F00000100002A139A5500000000FFFF"))
"""Names a timer that nobody made."""


def change_timers(
    world: World,
    random: Random,
    *,
    kill_share: float = KILL_SHARE,
    rounds: int = ROUNDS,
    pause_seconds: float = 0.2,
) -> None:
    """Cancel and reschedule timers for a while, the same ones again, too; now and then the node is killed meanwhile."""
    for _ in range(rounds):
        if pause_seconds:
            world.run(seconds=random.random() * pause_seconds)
        known = [each for each in world.ledger.publishes.values() if each.timer is not None and each.timer.handle]
        cut = random.randrange(CUT_MAX) if random.random() < kill_share else None
        loops = [each for client in world.clients if isinstance(client, LoopProducer) for each in client.known()]
        if loops and random.random() < LOOP_SHARE:
            _change_loop(world, random, loops[-1 - min(int(random.expovariate(0.2)), len(loops) - 1)], cut)
        elif random.random() < 0.05 or not known:
            _name_strange(world)
        else:
            # The youngest are those that most often still wait; for those that were delivered it is too late.
            youngest = known[-1 - min(int(random.expovariate(0.3)), len(known) - 1)]
            came = set(world.ledger.places.values())
            older = [each for each in known if each.uid in came]
            publish = random.choice(older) if older and random.random() < OLDER_SHARE else youngest
            _change_one(world, random, publish, cut)
        if cut is not None:
            world.kill(power=random.random() < 0.5)
            world.loop.errors.clear()
            world.cutting = False
            world.run(seconds=random.random() * 0.4)
            world.start()


def cancel_among_delivered(world: World, random: Random, damaged: Publish, *, count: int) -> None:
    """Cancel a timer, and then some that were delivered, one in each turn of the loop: it is too late for these."""
    timer = damaged.timer
    assert timer is not None
    came = set(world.ledger.places.values())
    known = [
        each
        for each in world.ledger.publishes.values()
        if each.uid in came and each.wait is not None and each.wait.kind != "level" and each.timer and each.timer.handle
    ][-100:]
    handle = timer.handle
    world.ledger.timer_asked(damaged.uid, None, world.loop.time())
    first = _begin(world, "cancel_timers", TimerCancelBody(timers=[MessageName(id=handle)]))
    tasks = []
    for publish in random.sample(known, min(count, len(known))):
        assert publish.timer is not None
        tasks.append(
            (publish, _begin(world, "cancel_timers", TimerCancelBody(timers=[MessageName(id=publish.timer.handle)])))
        )
        turn = world.loop.turns + 1
        world.run(until=partial(_has_turned, world, turn), seconds=0.1)
        world.report.events["timer_rebuild_met"] += (
            world.node is not None and opened_of(world.node).timers.parts.is_rebuilding
        )
    if not world.run(until=lambda: first.done() and all(task.done() for _, task in tasks), seconds=30):
        raise PromiseBroken(8, "cancels were not answered for 30 s")
    outcome = first.result().results[0].outcome
    world.ledger.timer_answered(damaged.uid, outcome, handle=handle, time=world.loop.time())
    for publish, task in tasks:
        outcome = task.result().results[0].outcome
        world.report.events[f"delivered_{outcome}"] += 1
        # (Of one whose log file was deleted nothing is known.)
        if outcome not in ("tooLate", "unknown"):
            raise PromiseBroken(8, f"message {publish.uid} was delivered, and its cancel was answered with {outcome}")


def _has_turned(world: World, turn: int) -> bool:
    return world.loop.turns >= turn


def _change_one(world: World, random: Random, publish: Publish, cut: int | None) -> None:
    timer = publish.timer
    assert timer is not None
    assert publish.wait is not None
    handle, wait, in_level = timer.handle, None, publish.wait.kind == "level"
    # One whose cancel was not answered is cancelled again until that is known.
    if not in_level and random.random() < 0.5 and (timer.cancelled or not timer.may_be_cancelled):
        due_ms = world.clock.wall_ms() + random.randrange(-200, 4_000)
        wait = Wait("at", due_ms, due_ms)
    world.ledger.timer_asked(publish.uid, wait, world.loop.time())
    world.ledger.note(world.loop.time(), f"message {publish.uid} is {f'moved to {wait.ms}' if wait else 'cancelled'}")
    if in_level:
        answer = ask(world, "cancel_delays", DelayCancelBody(messages=[MessageName(id=handle)]), cut)
        reported = None if answer is None else answer.results[0]
    elif wait is None:
        answer = ask(world, "cancel_timers", TimerCancelBody(timers=[MessageName(id=handle)]), cut)
        reported = None if answer is None else answer.results[0]
    else:
        reported = ask(world, "reschedule_timer", RescheduleBody(id=handle, deliver_at_ms=wait.ms), cut)
    outcome = "unanswered" if reported is None else reported.outcome
    world.report.events[f"{'delay' if in_level else 'timer'}_{outcome}"] += 1
    world.ledger.note(world.loop.time(), f"message {publish.uid}: {outcome}")
    # (Of one that was delivered and whose log file was deleted nothing is known.)
    if reported is not None and not (outcome == "unknown" and publish.uid in set(world.ledger.places.values())):
        world.ledger.timer_answered(
            publish.uid, outcome, handle=getattr(reported, "handle", None) or handle, time=world.loop.time()
        )


def _change_loop(world: World, random: Random, account: LoopAccount, cut: int | None) -> None:
    """Cancel a loop, or move what waits of it, by the id of any of its deliveries."""
    name = random.choice(walk(account.first)).id
    move = random.random() < 0.6
    due_ms = world.clock.wall_ms() + random.randrange(-2_000, 6_000)
    world.ledger.note(world.loop.time(), f"{name} is {f'moved to {due_ms}' if move else 'cancelled'}")
    if move:
        account.moved_ms.append(due_ms)
        reported = ask(world, "reschedule_timer", RescheduleBody(id=name, topic=LATER, deliver_at_ms=due_ms), cut)
    else:
        account.cancel_asked = True
        answer = ask(world, "cancel_timers", TimerCancelBody(timers=[MessageName(id=name, topic=LATER)]), cut)
        reported = None if answer is None else answer.results[0]
    outcome = "unanswered" if reported is None else reported.outcome
    world.report.events[f"loop_{outcome}"] += 1
    # (A move is too late for the delivery that is being made; the loop goes on.)
    if outcome in OUTCOMES and not (move and outcome == "tooLate"):
        account.answered(OUTCOMES[outcome], world.log_end(), time=world.loop.time())
    elif outcome == "rescheduled" and (account.ended_at is not None or account.complete):
        raise PromiseBroken(8, f"{name} was moved after its end: {account}")


def _name_strange(world: World) -> None:
    answer = ask(world, "cancel_timers", TimerCancelBody(timers=[MessageName(id=STRANGE)]), None)
    if answer is None or answer.results[0].outcome != "unknown":
        raise PromiseBroken(8, f"a timer that nobody made was cancelled with {answer}")
    world.report.events["timer_unknown"] += 1


def ask(world: World, name: str, body: Any, cut: int | None) -> Any:
    """Have the node make a change, and the disk stop at the `cut`-th thing done to it; None when that came first."""
    task = _begin(world, name, body)
    if cut is not None:
        world.cutting = True
        world.disk.stop_after(cut)
    world.run(until=lambda: task.done() or bool(world.loop.errors), seconds=60)
    if any(not isinstance(error.get("exception"), PowerCut) for error in world.loop.errors):
        raise PromiseBroken(0, str(world.loop.errors))
    if task.done() and isinstance(task.exception(), PowerCut):
        return None
    return task.result() if task.done() else None


def _begin(world: World, name: str, body: Any) -> asyncio.Task[Any]:
    """Have the node begin a change."""
    node, process = world.node, world.process
    assert node is not None
    assert process is not None
    [found] = [each for each in node_changes(node) if each.name == name]

    async def run() -> View:
        try:
            answer = found.run(body)
            return await answer if inspect.isawaitable(answer) else answer
        except ChangeRefused as refused:
            raise PromiseBroken(8, f"{name} was refused: {refused}") from refused

    return process.run(world.loop.create_task, run())
