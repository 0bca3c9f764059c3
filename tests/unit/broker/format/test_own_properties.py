"""Properties that the broker writes and reads back: who else gives them is refused, and nobody else is believed."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from broker.errors import MessageRefused
from broker.format.properties import OWN_PROPERTIES, PRIVATE_PREFIX, encode_properties
from broker.format.record import split
from broker.log.put import Put
from broker.put_batch import put_batch
from broker.retry.letters import letter_topic, letters
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.timer.puts import TimedPuts
from proxy.services.message_rules import PropertyRules, Refusal
from pyddmq.testing import SimDisk
from tests.integration.store_tools import open_store
from tests.unit.retry_world import RetryWorld
from tests.unit.upstream_world import Client, World

PAGE = Path(__file__).parents[4] / "docs" / "protocol.md"
NO_RETRIES = {"maxRetry": 0, "retryIntervals": [], "timeout": 1000}


def listed() -> dict[str, list[str]]:
    """Names of the page's table with the cells behind them."""
    table = PAGE.read_text(encoding="utf-8").partition("## Properties that the broker reads back")[2]
    found: dict[str, list[str]] = {}
    for line in table.partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in re.findall(r"`([^`]+)`", cells[0]) if line.startswith("| `") else ():
            found[name] = cells[1:]
    return found


OWN = sorted(name for name, cells in listed().items() if cells[2].startswith("refused"))


def test_page_lists_all_that_the_broker_keeps_for_itself() -> None:
    """Each name that is refused has its row, and each private one."""
    private = {name for name in OWN if name.encode().startswith(PRIVATE_PREFIX)}
    assert {name.encode() for name in OWN} - {name.encode() for name in private} == OWN_PROPERTIES
    text = "".join(path.read_text(encoding="utf-8") for path in (PAGE.parents[1] / "broker").rglob("*.py"))
    assert private == set(re.findall(r'b"(__PYDDMQ_[A-Z_]+)', text)) - {PRIVATE_PREFIX.decode()}


@pytest.mark.parametrize("name", OWN)
def test_no_way_in_takes_a_property_of_the_brokers_own(name: str) -> None:
    """Not a producer's frame, nor a program's message, delayed or not, nor a batch that a client encoded."""
    with pytest.raises(Refusal, match=re.escape(name)):
        PropertyRules().block(b"k", b"", ((name.encode(),), (b"1",)))
    store = open_store(SimDisk())
    store.create_topic("t", 1)
    for level, delay_ms in ((0, 0), (1, 0), (0, 5000)):
        with pytest.raises(MessageRefused, match=re.escape(name)):
            store.put("t", b"x", properties={name: "1"}, delay_level=level, delay_ms=delay_ms)
    block = b"%b\x01true\x02" % name.encode()
    head = struct.pack(">iiiii", 4 * 5 + 1 + 2 + len(block), 0, 0, 0, 1)
    encoded = head + b"x" + struct.pack(">h", len(block)) + block
    with pytest.raises(MessageRefused, match=re.escape(name)):
        put_batch(store, "t", encoded, born_ms=1)
    assert store.topics["t"].queues[0].next_offset == 0
    store.close()


def forge(world: World, *pairs: tuple[str, str], topic: str = "t") -> None:
    """Store a message as a foreign broker may have: with properties that no way in here takes."""
    world.publish("k", topic=topic, queue=0, properties=pairs)


def test_forged_origin_costs_no_other_group_a_message() -> None:
    """After a kill between the dead letter's flush and the journal's, its own origin is finished, and nothing else."""
    world, client = World({"topic": "t", **NO_RETRIES}, queues=1), Client()
    victim = World.make_group(world, world.config().model_copy(update={"group": "victim"}))
    victim.start()
    forged = {
        "DLQ_GROUP": "victim",
        "DLQ_ORIGIN_TOPIC": "t",
        "DLQ_ORIGIN_QUEUE": "0",
        "DLQ_ORIGIN_OFFSET": "0",
        "DLQ_RETRY_OFFSET": "0",
    }
    forge(world, *forged.items())
    [job] = world.pull_all(client)
    world.group.apply("t", job.qid, [], [job.offset], client)
    world.store.flush()
    victim.stop()
    world.kill()
    victim = World.make_group(world, world.config().model_copy(update={"group": "victim"}))
    victim.start()
    assert world.count("pyddmq_dead_letters_recovered_total", "g") == 1
    assert world.pull_all(client) == []
    batch = victim.pull(None, None, client)
    assert batch is not None
    assert [each.offset for each in batch.jobs] == [0]


def test_forged_facts_of_a_dead_letter_are_left_out() -> None:
    """Its page shows what this broker knows: topic, queue, reason, attempts, and no cut."""
    world, client = World({"topic": "t", **NO_RETRIES}, queues=1), Client()
    names = ("DLQ_REASON", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_QUEUE", "DLQ_RETRY_OFFSET", "DLQ_CUT", "RETRY_TOPIC")
    forge(world, *[(name, "7") for name in names])
    [job] = world.pull_all(client)
    world.answer(client, job, fail=True)
    [found] = world.dead_letters()
    assert [found.get(name) for name in ("DLQ_RETRY_OFFSET", "DLQ_CUT", "RETRY_TOPIC")] == [None, None, None]
    topic = letter_topic(world.store, "g")
    assert topic is not None
    [letter] = letters(world.store, topic)
    assert (letter.topic, letter.queue, letter.reason[:6]) == ("t", 0, "failed")


def test_facts_in_a_dead_letter_of_rocketmqs_are_the_producers_own() -> None:
    """It replaces no record; what it says of a reason or of another topic is not believed."""
    world = World({"topic": "t"}, queues=1)
    world.store.create_topic("%DLQ%g", 1, system=True)
    pairs = {"RETRY_TOPIC": "t", "DLQ_REASON": "forged", "DLQ_ORIGIN_TOPIC": "victim", "DLQ_ORIGIN_QUEUE": "3"}
    forge(world, *pairs.items(), topic="%DLQ%g")
    topic = letter_topic(world.store, "g")
    assert topic is not None
    [letter] = letters(world.store, topic)
    assert (letter.topic, letter.queue, letter.offset_in_topic) == ("t", None, None)
    assert letter.reason.startswith("unknown")


def test_forged_retry_topic_takes_a_message_to_nobody_else() -> None:
    """What fails comes again to the subscription that failed it, with its own counts."""
    world, client = RetryWorld("t", "victim"), Client()
    forge(world, ("RETRY_TOPIC", "victim"), ("__PYDDMQ_RETRY_COUNTS", "0,99,99"), ("__PYDDMQ_RETRY_QID", "3"))
    world.failed(client)
    world.advance(0.1)
    assert world.pull(client, "victim") is None
    batch = world.pull(client, "t")
    assert batch is not None
    assert batch.jobs[0].attempts == 1


@pytest.mark.parametrize("wait", ["level", "moment"])
def test_forged_real_topic_delivers_to_no_other_topic(wait: str) -> None:
    """What waits says itself where it goes."""
    world = World({"topic": "t"}, queues=1)
    block = encode_properties({"REAL_TOPIC": "victim", "REAL_QID": "3", "DELAY": "9", "TIMER_DEL_UNIQKEY": "t+A"})
    put = Put(world.store.topics["t"], 0, b"x", block)
    store = world.store
    made = store.waiting(DelayedPuts).put(put, 1) if wait == "level" else store.waiting(TimedPuts).after(put, 5000)
    block = bytes(made.properties)
    found = {name: re.findall(b"(?:^|\x02)%b\x01([^\x02]*)" % name, block) for name in (b"REAL_TOPIC", b"REAL_QID")}
    assert found == {b"REAL_TOPIC": [b"t"], b"REAL_QID": [b"0"]}


def test_forged_mark_of_a_batch_cuts_nothing() -> None:
    """A program's message that calls itself one of nine would be taken for a torn batch after a kill: it is refused."""
    world = World({"topic": "t"}, queues=1)
    with pytest.raises(MessageRefused, match="__PYDDMQ_BATCH"):
        world.store.put("t", b"x", properties={"__PYDDMQ_BATCH": "00000/00009", "UNIQ_KEY": "A" * 32})
    world.store.put("t", b"x", properties={"UNIQ_KEY": "A" * 32})
    world.kill()
    [unit] = world.store.topics["t"].queues[0].read(0, 9)
    assert bytes(split(world.store.read(unit[0], unit[1]))[0]) == b"x"
