"""Dead letters of a group over Kafka: listed, counted, and redriven with their marks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from functools import partial
from typing import Any, cast

import pytest
from aiohttp.web import HTTPForbidden

from broker.query import NotFound
from conf.sections.access import AccessConfig, AccessRule
from proxy.access.rights import Rights
from proxy.access.rules import Rules
from proxy.admin.console.templating import environment
from proxy.admin.letter_download import LetterDownload
from proxy.node.kafka_letters import KafkaLetters
from proxy.operate.changes.dead_letters import RedriveBody, dead_letter_changes
from proxy.operate.changes.desk import ChangeRefused
from proxy.operate.lookups.letters_in_kafka import search
from proxy.operate.views.dead_letters import DeadLetterFigures, DeadLettersAnswer, RedrivenView, RedriveResult
from tests.console_page import call_of, page_at
from tests.integration.proxy.node.test_kafka_node import YAML, World
from upstream.kafka.link import KafkaFailure, KafkaPartition, KafkaRecord

LETTERS = YAML.replace(
    "invoices: {brokerCluster: main}", "invoices: {brokerCluster: main}\n  fixed: {brokerCluster: main}"
)
OURS = KafkaPartition("billing.DLQ", 0)


def headers(offset: int, reason: str = "refused", topic: str = "invoices", **more: str) -> list[tuple[str, bytes]]:
    """What the group's dead-letter writer adds to a record, behind a header of its producer."""
    facts = {"reason": reason, "group": "billing", "topic": topic, "partition": str(offset % 2), "offset": str(offset)}
    facts |= {"timestamp": "5", "attempts": "3", "action": "PullServer", **more}
    return [("colour", b"blue"), *((f"pyddmq.{name}", value.encode()) for name, value in facts.items() if value)]


def world_with(count: int = 4, **more: str) -> World:
    """A world with so many dead letters, in turn in both partitions; the last has another reason."""
    world = World(LETTERS)
    world.kafka.partitions("fixed", 1)
    world.kafka.partitions("billing.DLQ", 2)
    world.run(1)
    for number in range(count):
        reason = "card declined" if number == count - 1 else "refused"
        place = KafkaPartition("billing.DLQ", number % 2)
        world.kafka.append(place, b"k%d" % (number % 2), b"%d" % number, headers(number, reason, **more), gap=0)
        world.run(1)
    return world


def run(world: World, work: Any) -> Any:
    """Let the world go on until something is done."""
    task = world.loop.create_task(cast("Coroutine[Any, Any, Any]", work))
    world.loop.run(task.done, seconds=120)
    return task.result()


def redrive(world: World, **body: Any) -> RedriveResult:
    """Redrive a page."""
    [change] = dead_letter_changes(world.node)
    result = run(world, change.run(RedriveBody(group="billing", **{"dry_run": False, **body})))
    assert isinstance(result, RedriveResult)
    return result


def letters(world: World, **given: str) -> DeadLettersAnswer:
    """List dead letters."""
    answer = run(world, world.view.letters_in_kafka({"group": "billing", **given}))
    assert isinstance(answer, DeadLettersAnswer)
    return answer


def figures(world: World) -> DeadLetterFigures:
    """Count them."""
    answer = run(world, world.view.letters_in_kafka({"group": "billing", "figures": "true"}))
    assert isinstance(answer, DeadLetterFigures)
    return answer


def stored(world: World, topic: str) -> list[KafkaRecord]:
    """Records that consumers can read."""
    return [record for each in world.kafka.topics[topic] for record in each.read(0, 1 << 20)]


def ids(answer: DeadLettersAnswer) -> list[object]:
    """Partitions and offsets."""
    return [each.id for each in answer.dead_letters]


def page(world: World, **query: str) -> str:
    """What the page shows."""
    view = run(world, page_at("/dead-letters").view(call_of(world.view, query)))
    return environment().get_template("dead_letters.html").render(view=view)


def test_dead_letters_are_listed_and_counted() -> None:
    """By the same filters as those of the store, page by page."""
    world = world_with()
    first = letters(world).dead_letters[0]
    assert (first.id, first.key, first.topic, first.origin_queue, first.attempts) == ("0:0", "k0", "invoices", 0, 3)
    assert (first.reason, first.action, first.born_ms, first.redriven) == ("refused", "PullServer", 5, None)
    assert ids(letters(world)) == ["0:0", "0:1", "1:0", "1:1"]
    filters = ({"reason": "declined"}, {"id": "1:1"}, {"key": "k1", "reason": "CARD"})
    assert [ids(letters(world, **each)) for each in filters] == [["1:1"]] * 3
    part = letters(world, limit="3")
    assert (ids(part), part.cursor) == (["0:0", "0:1", "1:0"], "1:1")
    assert ids(letters(world, cursor="1:1")) == ["1:1"]
    counted = figures(world)
    assert [(each.reason, each.count, each.redriven) for each in counted.kinds] == [
        ("refused", 3, 0),
        ("card declined", 1, 0),
    ]
    assert (counted.dead_letters, counted.actions) == (4, {"PullServer": 4})


def test_redrive_writes_the_message_once_and_says_so_on_every_node() -> None:
    """To its partition, in order, without what its death added; a second redrive, and another node, pass it over."""
    world = world_with()
    result = redrive(world)
    assert (result.redriven, result.already, result.refused, result.cursor) == (4, 0, 0, None)
    assert [each.target.queue for each in result.results if each.target] == [0, 0, 1, 1]
    found = [(each.partition, each.key, each.value, each.headers) for each in stored(world, "invoices")]
    assert found == [(n % 2, b"k%d" % (n % 2), b"%d" % n, (("colour", b"blue"),)) for n in (0, 2, 1, 3)]
    again = redrive(world)
    assert (again.redriven, again.already, len(stored(world, "invoices"))) == (0, 4, 4)
    assert figures(world).redriven == 4
    clients = world.node.parts.kafka
    other = KafkaLetters("billing", partial(clients.scan, "main"), clients.client("main").transactions)
    found = run(world, search(other, "main", {"group": "billing"}, now_ms=0))
    assert all(each.redriven for each in found.dead_letters), "another node reads the marks"
    [one, *_] = letters(world).dead_letters
    assert isinstance(one.redriven, RedrivenView)
    assert (one.redriven.topic, one.redriven.at_ms) != (None, None)
    assert redrive(world, again=True).redriven == 4


def downloaded(world: World, **given: str) -> list[dict[str, Any]]:
    """Download dead letters."""

    async def work() -> bytes:
        download = LetterDownload(world.view, {"group": "billing", **given}, asyncio.Lock())
        return b"".join([part async for part in download.parts(await download.begin())])

    return [json.loads(line) for line in run(world, work()).splitlines()]


def test_download_has_all_with_their_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page over all partitions; marks of redrives between them are none of it."""
    monkeypatch.setattr("proxy.admin.letter_download.PAGE_LETTERS", 3)
    world = world_with(15)
    assert redrive(world, id="0:1").redriven == 1
    world.kafka.append(OURS, b"k0", b"15", headers(15, "refused"), gap=0)
    world.run(1)
    order = [*range(0, 15, 2), 15, *range(1, 15, 2)]
    found = downloaded(world, bodies="true")
    assert [each["message"]["body"] for each in found] == [str(each) for each in order]
    assert [each["id"] for each in found] == ids(letters(world))
    assert [each["offset"] for each in found if each["redriven"]] == [1]
    [one] = downloaded(world, bodies="true", reason="declined")
    assert one["message"]["body"] == "14"
    assert "message" not in downloaded(world)[0]


def test_dry_run_writes_nothing() -> None:
    """It says where each would go."""
    world = world_with()
    result = redrive(world, dry_run=True, to="fixed")
    assert (result.would_redrive, {each.target.topic for each in result.results if each.target}) == (4, {"fixed"})
    assert stored(world, "invoices") == stored(world, "fixed") == []
    assert figures(world).redriven == 0


def test_selection_goes_to_another_topic() -> None:
    """One by its id and place, as the page sends it."""
    world = world_with()
    result = redrive(world, id="1:0", cursor="1:0", limit=1, to="fixed")
    assert (result.redriven, [each.value for each in stored(world, "fixed")]) == (1, [b"1"])
    assert redrive(world, reason="declined").redriven == 1
    assert [each.value for each in stored(world, "invoices")] == [b"3"]


@pytest.mark.parametrize(
    ("more", "body", "kind"),
    [
        ({"topic": ""}, {}, "origin_unknown"),
        ({"topic": "elsewhere"}, {}, "no_topic"),
        ({}, {"to": "orders"}, "no_topic"),
        ({}, {"to": "billing.DLQ"}, "system_topic"),
        ({"topic": "fixed"}, {}, "no_topic"),
        ({"action": "gone"}, {}, "no_topic"),
    ],
)
def test_letter_that_cannot_go_is_refused_and_stays(more: dict[str, str], body: dict[str, str], kind: str) -> None:
    """Any program can write its header: without `to` it goes to topics of the group alone."""
    world = world_with(1, **more)
    if more.get("action") == "gone":
        world.kafka.delete("invoices")
    result = redrive(world, **body)
    assert [(each.outcome, each.kind) for each in result.results] == [("refused", kind)]
    assert figures(world).redriven == 0


def test_topic_that_refuses_a_record_takes_the_others() -> None:
    """One that is too large; nothing is marked that was not written."""
    world = world_with(3)
    world.kafka.append(OURS, b"k0", b"x" * 100, headers(4), gap=0)
    world.kafka.limits["invoices"] = 50
    result = redrive(world)
    assert [(each.id, each.outcome) for each in result.results if each.outcome == "refused"] == [("0:2", "refused")]
    assert (result.redriven, len(stored(world, "invoices")), figures(world).redriven) == (3, 3, 3)


def test_redrive_that_another_node_fences_stops_and_can_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is left; nothing was written."""
    world = world_with()
    from tests.fakes.kafka.transactions import SimCoordinator

    write = SimCoordinator.write
    monkeypatch.setattr(
        SimCoordinator, "write", lambda *_: (KafkaFailure("FENCED", "it is another's", fenced=True), {}, [])
    )
    result = redrive(world)
    assert (result.redriven, result.cursor) == (0, "0:0")
    assert "Kafka cluster main" in (result.stopped or "")
    assert stored(world, "invoices") == []
    monkeypatch.setattr(SimCoordinator, "write", write)
    assert redrive(world, cursor=result.cursor).redriven == 4


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_redrive_whose_outcome_is_unclear_writes_nothing_twice(
    again: bool, is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marks say what became of it, also of letters that were redriven before; what was not written can continue."""
    world = world_with()
    from tests.fakes.kafka.transactions import SimCoordinator

    if again:
        redrive(world)
    before = len(stored(world, "invoices"))
    end = SimCoordinator.end

    def unclear(self: SimCoordinator, name: str, epoch: int) -> KafkaFailure:
        if is_committed:
            end(self, name, epoch)
        return KafkaFailure("TIMED_OUT", "no answer", unknown=True)

    with monkeypatch.context() as patched:
        patched.setattr(SimCoordinator, "end", unclear)
        first = redrive(world, again=again)
    written = 4 if is_committed else 0
    assert (first.redriven, first.stopped is None, len(stored(world, "invoices"))) == (
        written, is_committed, before + written,
    )  # fmt: skip
    if first.stopped is not None:
        assert "the transaction was not committed (TIMED_OUT)" in first.stopped
        assert redrive(world, again=again, cursor=first.cursor).redriven == 4
    assert len(stored(world, "invoices")) == before + 4


def test_topic_that_is_created_again_has_none_of_the_old_marks() -> None:
    """Its offsets begin again."""
    world = world_with()
    redrive(world)
    world.kafka.delete("billing.DLQ")
    world.kafka.make_again("billing.DLQ")
    world.kafka.append(OURS, b"k", b"new", headers(0), gap=0)
    assert redrive(world).redriven == 1


def test_group_without_the_topic_and_a_cluster_in_trouble_are_named() -> None:
    """Not found, and not available."""
    world = World(LETTERS)
    world.run(1)
    with pytest.raises(NotFound, match=r"'billing' has no dead letters: Kafka cluster main: topic billing.DLQ"):
        letters(world)
    assert "has no dead letters" in page(world, group="billing")
    with pytest.raises(ChangeRefused, match="does not exist"):
        redrive(world)
    world.kafka.down = True
    with pytest.raises(ChangeRefused, match="Kafka cluster main"):
        redrive(world, dry_run=True)
    assert "the cluster cannot be reached" in page(world, group="billing")


def test_page_shows_letters_with_their_redrive() -> None:
    """Links lead to the record in Kafka."""
    world = world_with()
    redrive(world, id="0:0")
    shown = page(world, group="billing")
    assert "/message?topic=billing.DLQ&amp;queue=1&amp;offset=1" in shown
    assert 'data-id="1:1" data-cursor="1:1"' in shown
    assert "card declined" in shown
    assert 'id="redrive"' in shown
    assert 'data-label="Redriven">invoices' in shown
    assert 'href="/dead-letters?group=billing"' in page(world)


HOSTILE = "<script>alert(1)</script>\"><img src=x onerror=alert(2)>'"


def test_what_other_programs_wrote_stays_text() -> None:
    """Keys, reasons, topics and actions of letters; bodies and properties on the page of the topic."""
    world = world_with(1, topic=HOSTILE, action=HOSTILE)
    world.kafka.append(OURS, HOSTILE.encode(), HOSTILE.encode(), [*headers(2, HOSTILE), (HOSTILE, HOSTILE.encode())])
    topic = run(world, page_at("/topic").view(call_of(world.view, {"topic": "billing.DLQ"})))
    shown = [page(world, group="billing"), environment().get_template("topic.html").render(view=topic)]
    assert ["alert" in each for each in shown] == [True, True]
    assert [each for each in shown if "<script" in each or "<img" in each] == []


def test_letters_are_shown_and_redriven_by_right() -> None:
    """View of the group shows them without the form; its bodies need the right on the topic of dead letters."""
    world = world_with(2)

    def by(**rule: Any) -> str:
        rights = Rights(
            "p", Rules(AccessConfig(rules=[AccessRule.model_validate({"principals": ["p"], **rule})])), way="token"
        )
        view = run(world, page_at("/dead-letters").view(call_of(world.view, {"group": "billing"}, rights=rights)))
        return environment().get_template("dead_letters.html").render(view=view)

    seen = by(view=["billing"])
    assert ("card declined" in seen, 'id="redrive"' in seen, "Download with bodies" in seen) == (True, False, False)
    operated = by(view=["billing"], operate=["billing"], readBodies=["billing.DLQ"])
    assert ('id="redrive"' in operated, "Download with bodies" in operated) == (True, True)
    with pytest.raises(HTTPForbidden):
        by(view=["other"])
    [change] = dead_letter_changes(world.node)
    assert change.on(RedriveBody(group="billing", to="fixed")) == ("billing", "fixed")
