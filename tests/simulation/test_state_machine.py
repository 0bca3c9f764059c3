"""Hypothesis drives the whole node against a plain model: send, pull, ack, fail, time out, crash, restart, reload.

Invariants: a pull gets only what the model allows, and gets something whenever the model has something (promises 2,
3 and 6); what the ledger notices at once (promises 1, 2 and 7); and at the end of every run the complete history
(promises 1, 2, 3, 6 and 7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from pyddmq.testing import NetworkFaults
from tests.simulation.caller import Caller
from tests.simulation.ledger import Place
from tests.simulation.model import GroupModel
from tests.simulation.world import TIMEOUT_MS, World
from upstream.job import UpstreamJob
from upstream.waiting.order import OrderQueue

EXAMPLES, EXAMPLES_LONG = 20, 200
CLIENTS = 3
GROUP = "by-key"
KEYS = ("", "a", "b", "c")


class NodeMachine(RuleBasedStateMachine):
    """The node, its model, and three clients of one group (other groups stand by and are served at the end)."""

    deliveries: Bundle[Any] = Bundle("deliveries")
    old: Bundle[Any] = Bundle("old")

    @initialize(seed=st.integers(0, 1_000_000))
    def begin(self, seed: int) -> None:
        """Start a node on an empty disk, behind a network without faults."""
        self.world = World(seed, faults=NetworkFaults(delay_ms_max=0.1, fragment_share=0))
        self.world.start()
        self.model = GroupModel(intervals=(0.06, 0.25), errors_max=3, timeout=TIMEOUT_MS / 1000)
        self.clients = [Caller(self.world, f"10.9.0.{number + 1}") for number in range(CLIENTS)]
        self.uid = 0

    @property
    def now(self) -> float:
        """Virtual time."""
        return self.world.loop.time()

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6))
    def send(self, keys: list[str]) -> None:
        """Publish some messages, one after the other."""
        for key in keys:
            self.uid += 1
            self.clients[0].send("orders", key, uid=self.uid)
            self.model.sent(self.uid, key)

    @rule(
        target=deliveries, client=st.integers(0, CLIENTS - 1), count=st.integers(1, 8), linger=st.sampled_from([0, 90])
    )
    def pull(self, client: int, count: int, linger: int) -> Any:
        """Pull: nothing that the model forbids, and something if the model has something."""
        wanted = self.model.must_come(self.now)
        found = self.clients[client].pull(GROUP, count=count, linger_ms=linger)
        allowed = self.model.may_come(self.now)
        uids = [uid for _, uid in found]
        assert set(uids) <= allowed, f"got {uids}, allowed {allowed}"
        assert len(set(uids)) == len(uids) <= count
        assert found or not wanted, f"got nothing, and {wanted} are due"
        for uid in uids:
            self.model.delivered(uid, self.clients[client].host, self.now)
        return multiple(*((client, place, uid) for place, uid in found))

    @rule(target=old, delivery=consumes(deliveries), success=st.booleans())
    def answer(self, delivery: tuple[int, Place, int], success: bool) -> Any:
        """Answer a delivery, in time or late, as its client."""
        client, place, uid = delivery
        self.clients[client].answer(GROUP, place, success=success)
        self.model.answered(uid, self.clients[client].host, success, self.now)
        return delivery

    @rule(delivery=old, success=st.booleans())
    def answer_again(self, delivery: tuple[int, Place, int], success: bool) -> None:
        """Repeat an answer, or contradict it, after whatever has happened since."""
        client, place, uid = delivery
        self.clients[client].answer(GROUP, place, success=success)
        self.model.answered(uid, self.clients[client].host, success, self.now)

    @rule(ms=st.sampled_from([10, 70, 300, TIMEOUT_MS // 2, TIMEOUT_MS + 10]))
    def wait(self, ms: int) -> None:
        """Let retries come due and deliveries time out."""
        self.world.run(seconds=ms / 1000)

    @rule(ms=st.sampled_from([0, 40, 1_000]))
    def crash(self, ms: int) -> None:
        """SIGKILL and start again after a while."""
        self.world.kill()
        self.world.run(seconds=ms / 1000)
        self.world.start()
        self.model.restarted(self.now)

    @rule()
    def lose_power(self) -> None:
        """Lose the power when every ack is durable (after 100 ms, D9), so that nothing may come again."""
        self.world.run(seconds=0.2)
        self.world.kill(power=True)
        self.world.start()
        self.model.restarted(self.now)

    @rule()
    def restart(self) -> None:
        """Stop in good order and start again; the drain waits until nothing is out."""
        self.world.stop()
        self.world.start()
        self.model.restarted(self.now)

    @rule(size=st.integers(1, 8))
    def reload_limits(self, size: int) -> None:
        """Reload with other limits of this very group."""
        result = self.world.reload(lambda settings: settings["groups"][0]["topics"][0].update(concurrency=100 * size))
        assert result.accepted, result.problems

    @rule(actions=st.sampled_from([["PullServer"], ["Async", "PullServer"]]))
    def reload_other_group(self, actions: list[str]) -> None:
        """Reload with a new generation of another group, which must not be noticed here."""
        result = self.world.reload(lambda settings: settings["groups"][2]["topics"][0].update(actions=actions))
        assert result.accepted, result.problems

    @rule()
    def reload_refused(self) -> None:
        """Reload with an error, which must not be noticed anywhere."""
        assert not self.world.reload(
            lambda settings: settings["groups"][0]["topics"][0].update(orderKey="KAY")
        ).accepted

    def teardown(self) -> None:
        """Finish everything and hold the whole history against the promises."""
        if hasattr(self, "world"):
            self.world.settle()
            self.world.check()


def test_broken_node_disagrees_with_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine can fail: a node that forgets the order per key is told from the model."""
    submit = OrderQueue.submit_many

    def submit_many(queue: OrderQueue, jobs: Sequence[UpstreamJob], ready: Callable[[UpstreamJob], None]) -> int:
        for job in jobs:
            job.key = None
        return submit(queue, jobs, ready)

    monkeypatch.setattr(OrderQueue, "submit_many", submit_many)
    few = settings(
        max_examples=40, stateful_step_count=10, deadline=None, derandomize=True, phases=[Phase.generate], database=None
    )
    with pytest.raises(AssertionError, match=r"allowed|promise 3"):
        run_state_machine_as_test(NodeMachine, settings=few)


TestNode = NodeMachine.TestCase
TestNode.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.long
def test_many_lives_agree_with_the_model() -> None:
    """The same with more of them, and longer ones."""
    many = settings(
        max_examples=EXAMPLES_LONG,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    run_state_machine_as_test(NodeMachine, settings=many)
