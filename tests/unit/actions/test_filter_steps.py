"""How long actions that run in the loop keep it from everything else."""

from __future__ import annotations

from actions.registry import BUILT_IN, Registry
from pyddmq.actions import Action, Job, Status
from tests.unit.upstream_world import Client, World
from upstream.running.admission import STEP_SECONDS

SLOW_SECONDS = 0.06


class _Costly(Action):
    """Takes as long as its message says; notes in which turn of the loop it ran."""

    world: World
    turns: list[int]
    turn: int

    def act(self, job: Job) -> Status:
        self.world.clock.advance(SLOW_SECONDS if job.message.body == b"slow" else 0.0)
        self.turns.append(type(self).turn)
        return Status.CONTINUE


def turns_of(count: int, body: bytes, **settings: object) -> list[int]:
    """Return how many of so many messages ran in each turn of the loop."""
    registry = Registry({**BUILT_IN, "Costly": _Costly})
    world = World({"topic": "t", "actions": ["Costly", "PullServer"], **settings}, queues=1, registry=registry)
    _Costly.world, _Costly.turns, _Costly.turn = world, [], 0
    world.pause()
    world.publish(*[None] * count, body=body)
    world.resume()
    while len(_Costly.turns) < count:
        _Costly.turn += 1
        world.scheduler.run_turn()
        assert _Costly.turn < 1000, "each turn runs at least one"
    assert len(world.pull_all(Client())) == count
    return [_Costly.turns.count(turn) for turn in range(_Costly.turn + 1)]


def test_costly_actions_leave_the_loop_to_others_between_messages() -> None:
    """A few at first; then it is known how long they take. All that is read together were in one step."""
    per_turn = turns_of(64, b"slow", maxPullBatchSize=64)
    assert max(per_turn) <= 8
    assert sorted(per_turn)[-2] == 1
    assert STEP_SECONDS < SLOW_SECONDS


def test_cheap_actions_run_for_many_messages_at_once() -> None:
    """Who costs nothing waits for nothing."""
    assert turns_of(64, b"quick", maxPullBatchSize=64) == [64]
