"""Messages that wait on Kafka: on time, once, whoever dies, whatever a target refuses."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.runtime.disk import RealDisk
from tests.fakes.kafka.client import SimClient
from tests.waiting_world import START_MS, TOPIC, WaitingWorld
from upstream.kafka.link import KafkaFailure, KafkaPartition
from upstream.kafka.waiting import owner
from upstream.kafka.waiting.cluster import WaitingRefused
from upstream.kafka.waiting.records import Identity


def test_messages_are_delivered_on_time_and_once() -> None:
    """Never before their moment, and within a fraction of a second after it."""
    world = WaitingWorld()
    world.settle()
    for number in range(40):
        world.nodes[0].add(f"m{number}", world.now_ms + 1_000 + 70 * number)
    world.run(20)
    late = {name: moments[0] - world.added[name] for name, moments in world.delivered().items()}
    assert len(late) == 40
    assert min(late.values()) >= 0
    assert max(late.values()) <= 200
    assert all(len(moments) == 1 for moments in world.delivered().values())


def test_takeover_reads_to_the_end_before_it_delivers() -> None:
    """What ended behind the first records that a new owner reads is not delivered again."""
    world = WaitingWorld(partitions=1)
    world.settle()
    for number in range(120):
        world.nodes[0].add(f"m{number}", world.now_ms + 2_000)
    world.run(4)
    assert len(world.delivered()) == 120
    world.nodes[0].kill()
    world.start("n1")
    world.run(20)
    assert all(len(moments) == 1 for moments in world.delivered().values())
    assert world.nodes[0].served == [0]


def test_killed_owner_is_followed_by_another() -> None:
    """Its messages are delivered once, by the node that takes its partitions over."""
    world = WaitingWorld(nodes=2)
    world.settle()
    for number in range(20):
        world.nodes[0].add(f"m{number}", world.now_ms + 5_000 + 500 * number)
    world.run(6)
    world.nodes[0].kill()
    world.run(30)
    assert {name: len(moments) for name, moments in world.delivered().items()} == {f"m{n}": 1 for n in range(20)}


def test_owner_that_was_cut_off_is_fenced() -> None:
    """What it had under way when its partitions were given away never counts."""
    for early in (5, 15, 30):
        world = WaitingWorld(nodes=2)
        world.settle()
        for number in range(12):
            world.nodes[0].add(f"m{number}", world.now_ms + 2_000)
        world.run(2 - early / 1000, step=0.005)
        world.nodes[0].client.link.cut()
        world.run(20)
        world.nodes[0].client.link.heal()
        world.run(5)
        assert {name: len(moments) for name, moments in world.delivered().items()} == {f"m{n}": 1 for n in range(12)}


def test_former_owner_that_heard_nothing_is_fenced() -> None:
    """Two nodes take a partition for theirs; what each would deliver is delivered once."""
    world = WaitingWorld(nodes=2)
    world.settle()
    for number in range(30):
        world.nodes[0].add(f"m{number}", world.now_ms + 15_000 + 20 * number)
    world.run(1)
    world.nodes[0].client.members[0].paused = True
    world.run(40)
    assert {name: len(moments) for name, moments in world.delivered().items()} == {f"m{n}": 1 for n in range(30)}


def test_cancel_has_an_outcome() -> None:
    """Cancelled while it waits, again when asked again, too late afterwards, unknown of what never was."""
    world = WaitingWorld(nodes=2)
    world.settle()
    first, second = world.nodes
    first.add("a", world.now_ms + 5_000)
    first.add("b", world.now_ms + 1_000)
    world.run(2)
    asked = [second.ask("a"), second.ask("b"), second.ask("c")]
    world.run(1)
    again = first.ask("a")
    world.run(10)
    assert [*asked, again] == [["cancelled"], ["too late"], ["unknown"], ["cancelled"]]
    assert list(world.delivered()) == ["b"]


def test_moved_message_keeps_its_identity() -> None:
    """It is delivered at the new moment alone, and can be cancelled by the same id."""
    world = WaitingWorld(nodes=2)
    world.settle()
    due = world.now_ms + 2_000
    world.nodes[0].add("a", due)
    world.nodes[0].add("b", due)
    world.run(1)
    moved = [world.nodes[1].ask(name, due + 4_000) for name in ("a", "b")]
    world.run(1.5)
    assert world.delivered() == {}
    cancelled = world.nodes[1].ask("b")
    world.run(10)
    assert (moved, cancelled) == ([["moved"], ["moved"]], ["cancelled"])
    [moment] = world.delivered()["a"]
    assert due + 4_000 <= moment <= due + 4_200


def test_message_that_was_sent_again_is_delivered_once() -> None:
    """By any node; the owner deletes the repeat, and knows the id after its delivery."""
    world = WaitingWorld(nodes=2)
    world.settle()
    due = world.now_ms + 1_000
    for node in world.nodes:
        node.add("a", due)
    world.run(3)
    world.nodes[1].add("a", due)
    world.run(3)
    assert len(world.delivered()["a"]) == 1


def test_loop_goes_on_across_owners() -> None:
    """Each occurrence once, in order, with its own id, until its times are over."""
    world = WaitingWorld(nodes=2)
    world.settle()
    at = START_MS // 1000 + 10
    uuid = "14f22520-ad72-11e7-91be-6ee54da579e3"
    world.nodes[0].add("loop", at * 1000, kind="loop", loop=f"{at}-3-{at + 1000}-6-0-5-0-{uuid}", partition=0)
    world.run(14)
    world.nodes[0].kill()
    world.run(60)
    keys = [each.key for each in world.kafka.partition(KafkaPartition("orders", 0)).read(0, 100)]
    assert keys == [f"{at + 5 * n}-3-{at + 1000}-6-{n}-5-0-{uuid}".encode() for n in range(6)]


def test_loop_without_an_interval_is_delivered_once() -> None:
    """No node adds one; damage holds up nothing else."""
    world = WaitingWorld(partitions=1)
    world.settle()
    at = START_MS // 1000 + 5
    for kind in (3, 4):
        loop = f"{at}-{kind}-{at + 1000}-6-0-0-0-14f22520-ad72-11e7-91be-6ee54da579e3"
        world.nodes[0].add(f"loop {kind}", at * 1000, kind="loop", loop=loop)
    world.nodes[0].add("other", at * 1000 + 1_000)
    world.run(20)
    assert {name: len(moments) for name, moments in world.delivered().items()} == {"loop 3": 1, "loop 4": 1, "other": 1}


def test_refused_message_is_a_dead_letter_and_others_go_on() -> None:
    """A batch with one that its target refuses is aborted; that one is found, and given up alone."""
    world = WaitingWorld(partitions=1)
    world.kafka.partitions("events.WAITING.DLQ", 1)
    world.kafka.limits["events"] = 5
    world.settle()
    due = world.now_ms + 1_000
    for name, topic in (("a", "orders"), ("small", "events"), ("too large", "events"), ("tiny", "events")):
        world.nodes[0].add(name, due, topic=topic)
    with capture_logs() as logs:
        world.run(5)
    assert list(world.delivered()) == ["a"]
    [given_up] = [each for each in logs if each["event"] == "kafka_waiting_dead_lettered"]
    assert (given_up["topic"], given_up["error"]) == ("events", "events takes no such record (MSG_SIZE_TOO_LARGE)")
    assert sorted(world.delivered("events")) == ["small", "tiny"]
    assert list(world.delivered("events.WAITING.DLQ")) == ["too large"]
    assert [len(each) for each in world.delivered("events").values()] == [1, 1]


def test_target_that_is_missing_for_a_moment_gets_its_messages() -> None:
    """As after the restart of a broker that does not know its topics yet; one that stays so is given up."""
    world = WaitingWorld(partitions=1)
    world.kafka.partitions("events.WAITING.DLQ", 1)
    world.settle()
    for name in ("a", "b", "c"):
        world.nodes[0].add(name, world.now_ms + 1_000, topic="events")
    world.kafka.missing.add("events")
    world.run(3)
    world.kafka.missing.discard("events")
    world.run(10)
    assert sorted(world.delivered("events")) == ["a", "b", "c"]
    assert world.delivered("events.WAITING.DLQ") == {}
    world.nodes[0].add("late", world.now_ms + 1_000, topic="events")
    world.kafka.missing.add("events")
    world.run(60)
    assert list(world.delivered("events.WAITING.DLQ")) == ["late"]


def test_target_without_dead_letter_topic_waits_alone() -> None:
    """Its messages wait with a finding, others are delivered; both go on once it is there."""
    world = WaitingWorld(partitions=1)
    world.settle()
    world.nodes[0].add("a", world.now_ms + 1_000, topic="missing")
    world.nodes[0].add("b", world.now_ms + 2_000)
    world.run(10)
    assert list(world.delivered()) == ["b"]
    assert any("topic missing takes no waiting messages" in each for each in world.nodes[0].waiting.troubles())
    world.kafka.partitions("missing.WAITING.DLQ", 1)
    world.run(60)
    assert list(world.delivered("missing.WAITING.DLQ")) == ["a"]
    world.run(3)
    assert world.nodes[0].waiting.troubles() == []


def test_compacted_log_is_enough_for_a_takeover() -> None:
    """A new owner that finds only the last record of each key knows the same."""
    world = WaitingWorld(partitions=1)
    world.settle()
    due = world.now_ms + 30_000
    for name in ("a", "b", "c"):
        world.nodes[0].add(name, due)
    world.run(1)
    world.nodes[0].ask("b")
    world.nodes[0].ask("c", due + 5_000)
    world.run(1)
    world.nodes[0].leave()
    world.kafka.partition(KafkaPartition(TOPIC, 0)).compact()
    world.start("n1")
    world.run(60)
    assert {name: [m - due < 1_000 for m in each] for name, each in world.delivered().items()} == {
        "a": [True], "c": [False],
    }  # fmt: skip


def test_shorter_log_is_read_again_with_a_finding() -> None:
    """What the log still has is delivered, what it lost is not."""
    world = WaitingWorld(partitions=1)
    world.settle()
    due = world.now_ms + 30_000
    world.nodes[0].add("a", due)
    world.run(1)
    cut = world.kafka.partition(KafkaPartition(TOPIC, 0)).high
    world.nodes[0].add("b", due)
    world.run(1)
    world.kafka.cut(KafkaPartition(TOPIC, 0), cut)
    world.run(5)
    assert any("has become shorter" in each for each in world.nodes[0].waiting.troubles())
    world.run(40)
    assert list(world.delivered()) == ["a"]


def test_target_that_is_mended_gets_its_messages() -> None:
    """Those that waited for want of a dead-letter topic, too."""
    world = WaitingWorld(partitions=1)
    world.settle()
    for name in ("a", "b", "c"):
        world.nodes[0].add(name, world.now_ms + 1_000, topic="missing")
    world.run(10)
    world.kafka.partitions("missing", 1)
    world.run(60)
    assert sorted(world.delivered("missing")) == ["a", "b", "c"]
    assert world.nodes[0].waiting.troubles() == []


@pytest.mark.parametrize("seed", range(8))
def test_seeds(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three nodes that are killed, cut off and started again: nothing early, nothing lost, nothing twice.

    With odd seeds they have files, and load what they have not.
    """
    monkeypatch.setattr(owner, "LOAD_RECORDS", 10)
    world = WaitingWorld(seed, nodes=0, partitions=4)
    drawn = world.random

    def start(name: str) -> None:
        how = {"folder": str(tmp_path / name), "disk": RealDisk()} if seed % 2 else {}
        world.start(name, **how)

    for each in range(3):
        start(f"n{each}")
    world.settle()
    cancels: dict[str, list[str]] = {}
    number, cut = 0, None
    for round_ in range(60):
        for _ in range(drawn.randint(0, 4)):
            node = drawn.choice([each for each in world.nodes if each is not cut])
            # A node that has just started takes nothing yet.
            with contextlib.suppress(WaitingRefused):
                node.add(f"m{number}", world.now_ms + drawn.randint(0, 15_000))
            number += 1
        if world.added and drawn.random() < 0.3:
            name = drawn.choice(list(world.added))
            if name not in cancels:
                cancels[name] = drawn.choice(world.nodes).ask(name)
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
            start(f"again{round_}")
        if drawn.random() < 0.1:
            drawn.choice(world.nodes).client.link.reset()
    if cut is not None:
        cut.client.link.heal()
    world.run(60)
    delivered = world.delivered()
    assert [name for name, moments in delivered.items() if len(moments) > 1] == [], "twice"
    for name, due in world.added.items():
        outcome = cancels.get(name, [])
        if outcome == ["cancelled"]:
            assert name not in delivered, f"{name} was cancelled"
        elif outcome != ["unknown"]:
            assert name in delivered, f"{name} is lost; {outcome}"
        if name in delivered:
            assert delivered[name][0] >= due, f"{name} is early"


def test_limits_count_what_waits_in_all_partitions() -> None:
    """Per topic and per principal, as owners reported it; what is delivered or cancelled makes room."""
    world = WaitingWorld(nodes=1)
    node = world.start("limited", topic_pending=5, principal_pending=3)
    world.settle()
    for number in range(3):
        node.add(f"m{number}", world.now_ms + 60_000, principal="ann")
    world.run(3)
    with pytest.raises(WaitingRefused, match="3 messages of ann wait; the limit is"):
        node.add("m3", world.now_ms + 60_000, principal="ann", topic="events")
    for number in range(2):
        node.add(f"n{number}", world.now_ms + 5_000)
    world.run(3)
    with pytest.raises(WaitingRefused, match="5 messages of topic orders wait; the limit is"):
        node.add("n2", world.now_ms + 60_000)
    world.run(5)
    node.add("n2", world.now_ms + 60_000)


def test_message_is_not_taken_beyond_the_horizon() -> None:
    """400 days."""
    world = WaitingWorld()
    world.settle()
    with pytest.raises(WaitingRefused, match="the limit is 400"):
        world.nodes[0].add("a", world.now_ms + 401 * 86_400_000)
    world.nodes[0].add("a", world.now_ms + 399 * 86_400_000)


def test_ended_messages_are_forgotten_after_a_while() -> None:
    """They are deleted from the log; a cancel is unknown then."""
    world = WaitingWorld(partitions=1, nodes=0)
    node = world.start("n", remember_ms=20_000)
    world.settle()
    node.add("a", world.now_ms + 1_000)
    world.run(10)
    early = node.ask("a")
    world.run(30)
    late = node.ask("a")
    world.run(2)
    assert (early, late) == (["too late"], ["unknown"])
    partition = world.kafka.partition(KafkaPartition(TOPIC, 0))
    partition.compact()
    assert all(each.value is None for each in partition.records.values())


def test_partition_without_an_owner_is_a_finding() -> None:
    """Where every node has left it, or none can take it over."""
    world = WaitingWorld(nodes=2)
    world.settle()
    world.run(40)
    assert world.nodes[1].waiting.troubles() == []
    for each in world.nodes:
        each.client.members[0].fail(KafkaFailure("FAIL", "broken"))
        each.waiting._owned.end(lambda: None)
    world.run(30)
    assert any("no node serves partition 0, 1, 2" in each for each in world.nodes[1].waiting.troubles())


def test_member_is_made_again_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where none can be made for a while, as without a free thread; a finding says why."""
    world = WaitingWorld(partitions=1)
    world.settle()
    [node] = world.nodes

    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched, contextlib.suppress(RuntimeError):
        patched.setattr("tests.fakes.kafka.client.SimMember", refused)
        for member in node.client.members:
            member.fail(KafkaFailure("FAIL", "the thread has ended"))
        world.run(8)
    assert any("can't start new thread" in each for each in node.waiting.troubles())
    world.run(20)
    node.add("a", world.now_ms + 1_000)
    cancelled = node.ask("b")
    world.run(5)
    assert (node.served, list(world.delivered()), cancelled) == ([0], ["a"], ["unknown"])


def test_finding_of_a_member_that_ended_is_over_when_another_one_has_joined() -> None:
    """Its client reports nothing of that: for it all was well from the start."""
    world = WaitingWorld(partitions=1)
    world.settle()
    [node] = world.nodes
    node.client.members[0].fail(KafkaFailure("FAIL", "the thread has ended"))
    assert node.waiting.troubles() == ["the thread has ended (FAIL)"]
    world.run(20)
    assert (node.served, node.waiting.troubles()) == ([0], [])


@pytest.mark.parametrize(
    "damaged",
    [
        '"half":null',
        '"half":null,"partition":null,"key":"?","headers":[],"kind":"timer","loop":""',
        '"half":null,"partition":null,"key":null,"headers":[["name"]],"kind":"timer","loop":""',
        '"half":null,"partition":1180591620717411303424,"key":null,"headers":[]',
        '"half":{"group":"shop","state":"undecided","delay_ms":"1"},"partition":null,"key":null,"headers":[]',
    ],
)
def test_record_of_which_a_part_is_damaged_is_set_aside(damaged: str) -> None:
    """It is logged; all others of its partition are delivered, by this owner and by the next."""
    world = WaitingWorld(partitions=1)
    world.settle()
    head = f'{{"what":"waiting","due_ms":1,"owned":false,"at_ms":1,{damaged}}}'.encode()
    key = Identity("orders", "", "a").key("n")
    with capture_logs() as logs:
        offset = world.kafka.append(KafkaPartition(TOPIC, 0), key, b"\x01" + len(head).to_bytes(4, "big") + head)
        for number in range(20):
            world.nodes[0].add(f"m{number}", world.now_ms + 1_000 + 500 * number)
        world.run(5)
        assert (world.nodes[0].served, world.nodes[0].waiting.troubles()) == ([0], [])
        world.nodes[0].kill()
        world.start("n1")
        world.run(25)
    assert world.delivered().keys() == world.added.keys()
    damaged_ones = [each for each in logs if each["event"] == "kafka_waiting_record_damaged"]
    assert [each["offset"] for each in damaged_ones] == [offset, offset]


def test_clock_that_is_ahead_is_a_finding_until_it_is_set() -> None:
    """Of another node; it ends some seconds after the last report that was ahead."""
    world = WaitingWorld(partitions=1)
    world.settle()
    world.run(2)
    statuses = world.nodes[0].waiting.statuses
    [status] = statuses.partitions()
    statuses.note(status._replace(node="n7", wall_ms=world.now_ms + 2_000))
    assert statuses.troubles(complete=True) == ["the clock of node n7 is 2000 ms ahead of this node's"]
    world.run(20, step=0.5)
    assert statuses.troubles(complete=True) == []


def test_record_of_a_newer_version_stops_its_partition() -> None:
    """With a finding; the others are served."""
    world = WaitingWorld(partitions=2)
    world.settle()
    world.kafka.append(KafkaPartition(TOPIC, 0), b'["orders","","a","n"]', b"\x09\x00\x00\x00\x00")
    world.run(3)
    assert world.nodes[0].served == [1]
    assert any("records of a newer version" in each for each in world.nodes[0].waiting.troubles())


def test_damaged_record_is_skipped() -> None:
    """What no version wrote stops nothing."""
    world = WaitingWorld(partitions=1)
    world.settle()
    world.kafka.append(KafkaPartition(TOPIC, 0), b"what", b"ever")
    world.nodes[0].add("a", world.now_ms + 1_000)
    world.run(4)
    assert list(world.delivered()) == ["a"]


def test_node_that_leaves_while_it_joins_takes_nothing() -> None:
    """An assignment that was under way is not its own any more; another node serves all of it."""
    world = WaitingWorld(nodes=0)
    for moment in range(60):
        node = world.start(f"short{moment}")
        world.run(moment * 0.007)
        node.leave()
        world.run(0.3)
        assert node.served == []
    world.start("n")
    world.settle()


@pytest.mark.parametrize("fails", [False, True])
def test_long_log_is_loaded_beside_before_anything_is_delivered(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that fails it is read as ever; the next owner has the file."""
    monkeypatch.setattr(owner, "LOAD_RECORDS", 20)
    world = WaitingWorld(partitions=1)
    world.settle()
    for number in range(60):
        world.nodes[0].add(f"m{number}", world.now_ms + (2_000 if number % 2 else 30_000))
    world.run(5)
    world.nodes[0].kill()
    if fails:
        failure = KafkaFailure("FAIL", "it has ended")
        monkeypatch.setattr(SimClient, "load", lambda *facts: world.scheduler.call_soon(facts[-1], failure, [3]))
    node = world.start("n1", folder=str(tmp_path), disk=RealDisk())
    world.settle()
    [partition] = node.waiting.owned()
    assert partition.pending == 30
    assert [each.name for each in tmp_path.glob("*.db*") if "-load" in each.name] == []
    world.run(35)
    assert all(len(moments) == 1 and moments[0] >= world.added[name] for name, moments in world.delivered().items())
    assert world.delivered().keys() == world.added.keys()
    assert node.waiting.troubles() == []
    node.kill()
    monkeypatch.setattr(SimClient, "load", lambda *_: pytest.fail("the file is used"))
    world.start("n2", folder=str(tmp_path), disk=RealDisk())
    world.settle()


def test_owner_that_loses_its_partition_stops_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would have loaded is not waited for."""
    monkeypatch.setattr(owner, "LOAD_RECORDS", 20)
    world = WaitingWorld(partitions=1)
    world.settle()
    for number in range(30):
        world.nodes[0].add(f"m{number}", world.now_ms + 60_000)
    world.run(1)
    world.nodes[0].kill()
    stopped: list[bool] = []
    monkeypatch.setattr(SimClient, "load", lambda *_: lambda: stopped.append(True))
    node = world.start("n1", folder=str(tmp_path), disk=RealDisk())
    world.run(20)
    assert [each.state for each in node.waiting.owned()] == ["reading"]
    node.leave()
    world.run(1)
    assert stopped == [True]
