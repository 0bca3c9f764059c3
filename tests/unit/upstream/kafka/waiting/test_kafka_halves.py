"""Halves on Kafka: invisible until committed, decided once, checked until they are decided, whoever owns them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from broker.transaction.outcomes import End
from broker.transaction.settings import CheckSettings
from tests.fakes.kafka.transactions import SimTransactions
from tests.waiting_world import WaitingNode, WaitingWorld
from upstream.kafka.link import OutgoingRecord, Written
from upstream.kafka.waiting import owner
from upstream.kafka.waiting.batches import BATCH_BYTES
from upstream.kafka.waiting.cluster import WaitingRefused
from upstream.kafka.waiting.records import HalfDecision, Identity, KeyState, WaitingHalf, parse_key
from upstream.kafka.waiting.rows import CachedRecord


def kept_counts(node: WaitingNode) -> list[str]:
    """Ids of halves whose checks are counted in the partitions of a node."""
    rows = [row for owner in node.waiting.owners.values() for row in owner.cache.of(KeyState.CHECKS, 1 << 62, 100)]
    return [parse_key(row.key)[0].id for row in rows]


def test_half_is_delivered_by_its_commit_alone() -> None:
    """At once, by any node; a rolled-back one never is, and each decision has an answer."""
    world = WaitingWorld(nodes=2)
    world.settle()
    for name in ("a", "b", "c"):
        world.nodes[0].half(name)
    world.run(2)
    assert world.delivered() == {}
    first, second = world.nodes
    outcomes = [first.decide("a", "commit"), second.decide("b", "rollback"), second.decide("c", "unknown")]
    world.run(0.5)
    assert (outcomes, list(world.delivered())) == ([["ok"], ["ok"], ["ok"]], ["a"])
    again = [
        second.decide("a", "commit"), first.decide("a", "rollback"), first.decide("b", "rollback"),
        first.decide("b", "commit"), first.decide("never", "commit"), first.decide("c", "commit", group="other"),
    ]  # fmt: skip
    world.run(30)
    assert again == [
        ["already_same"], ["already_other"], ["already_same"], ["already_other"], ["unknown_handle"], ["wrong_group"],
    ]  # fmt: skip
    assert {name: len(moments) for name, moments in world.delivered().items()} == {"a": 1}


def test_many_large_decisions_and_moves_are_written_in_small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once they would take more than the time of a transaction, again and again."""
    sizes: list[int] = []
    write = SimTransactions.write

    def measured(self: SimTransactions, records: Sequence[OutgoingRecord], done: Written, *, alone: str = "") -> None:
        sizes.append(sum(len(each.value or b"") for each in records))
        write(self, records, done, alone=alone)

    monkeypatch.setattr(SimTransactions, "write", measured)
    world = WaitingWorld(partitions=1)
    world.settle()
    node = world.nodes[0]
    large = b"x" * 300_000
    for number in range(12):
        node.add(f"h{number}", world.now_ms + 60_000, body=b"h%d " % number + large, half=WaitingHalf("shop"))
        node.add(f"t{number}", world.now_ms + 60_000, body=b"t%d " % number + large)
    world.run(2)
    decided = [node.decide(f"h{number}", "commit") for number in range(12)]
    moved = [node.ask(f"t{number}", world.now_ms + 90_000) for number in range(12)]
    world.run(10)
    assert (decided, moved) == ([["ok"]] * 12, [["moved"]] * 12)
    assert len(world.delivered()) == 12
    assert max(sizes) < 2 * BATCH_BYTES


def test_delay_begins_with_the_commit() -> None:
    """A delay runs from it, a moment that is over is now; it is committed meanwhile."""
    world = WaitingWorld()
    world.settle()
    node = world.nodes[0]
    node.half("delayed", delay_ms=3_000)
    node.half("over", deliver_at_ms=world.now_ms + 1_000)
    world.run(2)
    committed_ms = world.now_ms
    outcomes = [node.decide("delayed", "commit"), node.decide("over", "commit")]
    world.run(1)
    outcomes += [node.decide("delayed", "rollback"), node.ask("over")]
    world.run(5)
    assert outcomes == [["ok"], ["ok"], ["already_other"], ["too late"]]
    assert 3_000 <= world.delivered()["delayed"][0] - committed_ms <= 3_300
    assert world.delivered()["over"][0] - committed_ms <= 300
    late = [node.decide("delayed", "commit"), node.decide("delayed", "rollback")]
    world.run(1)
    assert late == [["already_same"], ["already_other"]]


def test_half_is_not_cancelled_as_a_timer() -> None:
    """Only its producers decide it."""
    world = WaitingWorld()
    world.settle()
    world.nodes[0].half("a")
    world.run(1)
    outcomes = [world.nodes[0].ask("a"), world.nodes[0].ask("a", world.now_ms + 1_000)]
    world.run(3)
    assert (outcomes, world.delivered()) == ([["unknown"], ["unknown"]], {})


def test_checks_are_handed_out_by_the_owner_until_the_half_is_decided() -> None:
    """First after the timeout, then once in each interval, numbered; a fetch that waits is woken."""
    world = WaitingWorld(partitions=1)
    world.settle()
    node = world.nodes[0]
    node.half("a")
    node.half("mine", group="other")
    woken: list[int] = []
    undo = node.waiting.on_checks("shop", lambda: woken.append(world.now_ms))
    world.run(5)
    assert (node.checks(), woken) == ([], [])
    world.run(1.5)
    assert woken
    undo()
    assert (node.checks(), node.checks()) == ([("a", 1)], [])
    world.run(29)
    assert node.checks() == []
    world.run(2)
    assert node.checks() == [("a", 2)]
    done = node.decide("a", "commit", from_check=True)
    world.run(60)
    assert (done, node.checks(), node.checks("other")) == (["ok"], [], [("mine", 1)])
    world.run(1)
    assert kept_counts(node) == ["mine"], "what is over leaves no count behind"


def test_many_due_checks_of_a_partition_do_not_hold_up_those_of_others() -> None:
    """Each fetch begins with another partition, however small it is."""
    world = WaitingWorld(partitions=3)
    world.settle()
    node = world.nodes[0]
    for number in range(60):
        node.half(f"h{number}")
    world.run(8)
    fetched = [node.waiting.fetch_checks("shop", 1, "")[0].identity for _ in range(6)]
    assert sorted(each.partition(3) for each in fetched) == [0, 0, 1, 1, 2, 2]


def test_fetch_of_checks_reads_the_messages_that_it_hands_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are due, and one by one, as the service fetches them."""
    world = WaitingWorld(partitions=1)
    world.settle()
    node = world.nodes[0]
    for number in range(300):
        node.half(f"h{number}")
    world.run(8)
    read = 0
    made = CachedRecord._make

    def counted(values: Iterable[Any]) -> CachedRecord:
        nonlocal read
        read += 1
        return made(values)

    monkeypatch.setattr(CachedRecord, "_make", counted)
    found = [check.identity.id for _ in range(50) for check in node.waiting.fetch_checks("shop", 1, "")]
    assert (len(set(found)), read) == (50, 50)


def test_due_checks_of_another_principal_are_not_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are more of them than are looked at."""
    monkeypatch.setattr(owner, "BATCH_MESSAGES", 3)
    world = WaitingWorld(partitions=1)
    world.settle()
    node = world.nodes[0]
    for number in range(5):
        node.half(f"theirs{number}", principal="other")
    world.run(1)
    node.half("mine", principal="me")
    node.half("open")
    world.run(9)
    assert sorted(name for name, _ in node.checks(principal="me")) == ["mine", "open"]


def test_fetch_is_woken_whatever_is_due_to_groups_that_fetch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their checks are not even looked at."""
    monkeypatch.setattr(owner, "BATCH_MESSAGES", 3)
    world = WaitingWorld(partitions=1)
    world.settle()
    node = world.nodes[0]
    for number in range(5):
        node.half(f"gone{number}", group="gone")
    world.run(1)
    node.half("a")
    woken: list[int] = []
    node.waiting.on_checks("shop", lambda: woken.append(world.now_ms))
    world.run(9)
    assert woken


def test_check_that_no_producer_got_does_not_count() -> None:
    """It is due again at once, with the same number."""
    world = WaitingWorld(partitions=1)
    world.settle()
    node = world.nodes[0]
    node.half("a")
    world.run(8)
    [check] = node.waiting.fetch_checks("shop", 10, "")
    world.run(1)
    node.waiting.give_back(check)
    world.run(1)
    assert node.checks() == [("a", 1)]


def test_counts_of_checks_survive_a_takeover() -> None:
    """The next owner goes on counting; a check whose count was not written may be repeated."""
    world = WaitingWorld(partitions=1)
    world.settle()
    world.nodes[0].half("a")
    world.run(7)
    assert world.nodes[0].checks() == [("a", 1)]
    world.run(1)
    world.nodes[0].kill()
    world.start("n1")
    world.settle()
    assert kept_counts(world.nodes[0]) == ["a"]
    world.run(30)
    assert world.nodes[0].checks() == [("a", 2)]


@pytest.mark.parametrize(
    "settings", [CheckSettings(checks_max=2, interval_ms=2_000), CheckSettings(age_seconds_max=12)]
)
def test_half_that_nobody_decides_is_discarded_and_decided_by_an_operator(settings: CheckSettings) -> None:
    """After its checks or its age; its producers hear that, an operator resumes, commits or rolls back."""
    world = WaitingWorld(partitions=1)
    world.settle()
    node = world.nodes[0]
    node.waiting.checks = settings
    for name in ("a", "b", "c"):
        node.half(name)
    checks = []
    for _ in range(20):
        world.run(1)
        checks += node.checks()
    assert max(times for _, times in checks) <= settings.checks_max
    outcomes = [node.decide(name, "commit") for name in ("a", "b", "c")]
    world.run(1)
    assert outcomes == [["discarded"]] * 3
    node.waiting.checks = CheckSettings()
    operator = [
        node.decide(name, state, group="") for name, state in (("a", "commit"), ("b", "rollback"), ("c", "resume"))
    ]
    world.run(1)
    assert (operator, list(world.delivered())) == ([["ok"]] * 3, ["a"])
    world.run(31)
    assert node.checks() == [("c", 1)]
    [status] = node.waiting.statuses.partitions()
    assert (status.undecided, status.pending) == (1, 1)


def test_large_half_is_discarded_as_others_are() -> None:
    """Also where it is larger than what is put together otherwise, and other messages are delivered all the time."""
    world = WaitingWorld(partitions=1)
    world.settle()
    node = world.nodes[0]
    node.waiting.checks = CheckSettings(checks_max=1, interval_ms=1_000)
    node.add("large", world.now_ms + 1_000, body=b"x" * (BATCH_BYTES + 1), half=WaitingHalf("shop"))
    for number in range(400):
        node.add(f"m{number}", world.now_ms + 20 * number)
    world.run(2)
    assert node.checks() == [("large", 1)]
    world.run(4)
    assert node.decide("large", "commit") == []
    world.run(1)
    found = node.waiting.find(Identity("orders", "", "large"))
    assert found is not None
    assert found.state == KeyState.DISCARDED


def test_resumed_half_is_checked_from_the_first_check_on() -> None:
    """Also where the count of its last check was not written when it was discarded."""
    world = WaitingWorld(partitions=1)
    world.settle()
    node = world.nodes[0]
    node.half("a")
    world.run(7)
    assert node.checks() == [("a", 1)]
    # Its age is over in the same moment.
    node.waiting.checks = CheckSettings(age_seconds_max=1)
    world.run(2)
    node.waiting.checks = CheckSettings()
    resumed = node.decide("a", "resume", group="")
    world.run(32)
    assert (resumed, node.checks()) == (["ok"], [("a", 1)])


def test_half_that_asks_for_its_own_time_is_decided_by_a_check_after_it() -> None:
    """As with the embedded broker."""
    world = WaitingWorld(partitions=1)
    world.settle()
    node = world.nodes[0]
    node.half("a", immunity_ms=1_000)
    world.run(3)
    late, check = node.decide("a", "commit"), node.decide("a", "commit", from_check=True)
    world.run(1)
    assert (late, check, list(world.delivered())) == (["too_late"], ["ok"], ["a"])


def test_principals_decide_and_fetch_their_own_halves() -> None:
    """Another's half is unknown to them; without sign-in a half is everybody's."""
    world = WaitingWorld(partitions=1)
    world.settle()
    node = world.nodes[0]
    node.half("open")
    node.half("annas", principal="anna")
    world.run(7)
    assert node.checks(principal="bob") == [("open", 1)]
    assert node.checks(principal="anna") == [("annas", 1)]
    outcomes: list[str] = []
    for principal in ("bob", "anna"):
        wanted = HalfDecision("", "commit", "shop", principal)
        node.waiting.requests.decide(Identity("orders", "anna", "annas"), wanted, 5.0, outcomes.append)
        world.run(1)
    assert outcomes == ["unknown_handle", "ok"]
    assert node.decide("open", "commit", principal="bob") == []
    world.run(1)
    assert sorted(world.delivered()) == ["annas", "open"]


def test_commit_to_a_topic_that_refuses_holds_up_nobody() -> None:
    """The decision is answered, the message becomes a dead letter, others are delivered."""
    world = WaitingWorld(partitions=1)
    world.kafka.partitions("orders.WAITING.DLQ", 1)
    world.kafka.limits["orders"] = 5
    world.settle()
    node = world.nodes[0]
    node.half("much too large")
    node.half("a")
    node.add("event", world.now_ms + 1_000, topic="events")
    world.run(1)
    outcomes = [node.decide("much too large", "commit"), node.decide("a", "commit")]
    world.run(20)
    assert outcomes == [["ok"], ["ok"]]
    assert list(world.delivered()) == ["a"]
    assert list(world.delivered("orders.WAITING.DLQ")) == ["much too large"]
    assert list(world.delivered("events")) == ["event"]


@pytest.mark.parametrize("seed", range(8))
def test_seeds_of_transactions(seed: int) -> None:
    """Three nodes that are killed, cut off and started again: no half is lost, seen twice, or against its decision."""
    world = WaitingWorld(seed, nodes=3, partitions=4)
    drawn = world.random
    world.settle()
    decided: dict[str, tuple[str, list[str]]] = {}
    number, cut = 0, None
    for round_ in range(50):
        for _ in range(drawn.randint(0, 4)):
            node = drawn.choice([each for each in world.nodes if each is not cut])
            with contextlib.suppress(WaitingRefused):
                node.half(f"h{number}", delay_ms=drawn.choice((0, 0, 2_000)))
            number += 1
        for name in [each for each in world.added if each not in decided]:
            if drawn.random() < 0.4:
                state = drawn.choice(("commit", "rollback"))
                decided[name] = state, drawn.choice(world.nodes).decide(name, state)
        world.run(drawn.uniform(0.05, 1.0))
        if cut is not None and drawn.random() < 0.2:
            cut.client.link.heal()
            cut = None
        elif cut is None and drawn.random() < 0.1:
            cut = drawn.choice(world.nodes)
            cut.client.link.cut()
        if drawn.random() < 0.05 and len(world.nodes) > 2:
            victim = drawn.choice(world.nodes)
            victim.kill()
            cut = None if victim is cut else cut
            world.start(f"again{round_}")
    if cut is not None:
        cut.client.link.heal()
    world.run(40)
    # What was answered "unknown" is asked again, and the checks ask for the rest.
    for _ in range(3):
        for name in world.added:
            state, outcome = decided.get(name, ("rollback", []))
            if outcome not in (["ok"], ["already_same"]):
                decided[name] = state, world.nodes[0].decide(name, state, from_check=True)
        world.run(10)
    delivered = world.delivered()
    assert [name for name, moments in delivered.items() if len(moments) > 1] == [], "twice"
    for name in world.added:
        state, outcome = decided[name]
        assert outcome in (["ok"], ["already_same"]), (name, state, outcome)
        assert (name in delivered) is (state == "commit"), (name, state)
    assert sum(each.undecided for each in world.nodes[0].waiting.statuses.partitions()) == 0


def test_every_node_counts_the_undecided_halves_of_a_principal() -> None:
    """In the partitions of all nodes; those that are decided count no more."""
    world = WaitingWorld(nodes=2, partitions=3)
    world.settle()
    for number in range(6):
        world.nodes[0].half(f"h{number}", principal="shop")
    world.nodes[0].half("other", principal="audit")
    world.run(3)
    assert [node.waiting.undecided_of("shop") for node in world.nodes] == [6, 6]
    outcome: list[str] = []
    wanted = HalfDecision("", "commit", "shop", "shop")
    world.nodes[0].waiting.requests.decide(Identity("orders", "shop", "h0"), wanted, 5, outcome.append)
    world.run(3)
    assert outcome == [End.OK]
    assert [node.waiting.undecided_of("shop") for node in world.nodes] == [5, 5]
