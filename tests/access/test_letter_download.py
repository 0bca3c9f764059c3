"""Downloads of dead letters: all of a selection, in bounded memory, by right, and never a part that looks whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import aiohttp
import pytest

from broker.errors import StoreError
from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.retry.redrive import Redrives
from proxy.admin.letter_download import PAGE_LETTERS, LetterDownload
from pyddmq.testing import ManualClock, SimDisk
from tests.access.admin_world import AdminWorld, Answer
from tests.admin_node import NOW_MS
from tests.integration.store_tools import HOST, open_store

COUNT = 3_456
PATH = "/api/dead-letters/download"


def world_with(count: int, *, body_bytes: int = 10, group: str = "billing") -> AdminWorld:
    """Return a port over a store with dead letters; every third one has another reason."""
    world, disk = AdminWorld(), SimDisk()
    store = open_store(disk, clock=ManualClock(NOW_MS - 1_000), segment_bytes=1 << 22)
    topic = store.create_topic(f"%DLQ%{group}", 1)
    blocks = [
        encode_properties(
            {"KEYS": "k", "DLQ_ORIGIN_TOPIC": "permits", "DLQ_REASON": reason, "DLQ_ACTION": "PullServer"}
        )
        for reason in ("declined", "locked", "locked")
    ]
    for first in range(0, count, 64):
        numbers = range(first, min(first + 64, count))
        puts = [Put(topic, 0, b"%d" % n + b"x" * body_bytes, blocks[n % 3], b"", prepared_offset=1) for n in numbers]
        store.append(puts, born_ms=NOW_MS, born_host=HOST)
    store.flush()
    world.node.messages, world.node.letters = store, (store, Redrives(store, disk=disk))
    return world


def lines(answer: Answer) -> list[dict[str, Any]]:
    """Return what the lines of a download hold."""
    assert answer.status == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_all_of_a_selection_are_downloaded() -> None:
    """Several thousand, each once and in order; with a filter those alone; with bodies these whole."""
    world = world_with(COUNT, body_bytes=2_000)

    async def scenario() -> None:
        answer = await world.ask(f"{PATH}?group=billing", by="viewer")
        assert [each["offset"] for each in lines(answer)] == list(range(COUNT))
        assert "attachment" in answer.headers["Content-Disposition"]
        assert (answer.headers["Cache-Control"], answer.headers["Server"]) == ("no-store", "pyddmq")
        selected = await world.ask(f"{PATH}?group=billing&reason=declined&bodies=true", by="all")
        found = [(each["offset"], each["message"]["body"]) for each in lines(selected)]
        assert found == [(n, f"{n}" + "x" * 2_000) for n in range(0, COUNT, 3)]

    world.run(scenario)


def test_client_that_takes_nothing_holds_up_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are read as the client takes them: what waits is in its socket; others are answered meanwhile."""
    world = world_with(COUNT, body_bytes=8_000)
    read: list[tuple[int, int]] = []
    page = LetterDownload.page_from

    async def noted(download: LetterDownload, place: tuple[int, int]) -> Any:
        read.append(place)
        return await page(download, place)

    monkeypatch.setattr(LetterDownload, "page_from", noted)

    async def scenario() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1_024)
        head = f"Host: 127.0.0.1:{world.port}\r\nAuthorization: Bearer {world.token('all')}\r\n"
        writer.write(f"GET {PATH}?group=billing&bodies=true HTTP/1.1\r\n{head}\r\n".encode())
        before = -1
        while len(read) > before:
            before = len(read)
            await asyncio.sleep(0.2)
        assert 0 < len(read) < COUNT // PAGE_LETTERS // 2
        assert len(lines(await world.ask(f"{PATH}?group=billing&reason=declined", by="viewer"))) == COUNT // 3
        received = 0
        while b"0\r\n\r\n" not in (part := await reader.read(1 << 16)):
            received += len(part)
        assert received > COUNT * 8_000
        writer.close()

    world.run(scenario)


def test_dead_letters_that_come_meanwhile_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a download ends, however fast a group fails."""
    world = world_with(2 * PAGE_LETTERS)
    assert world.node.letters is not None
    store, page = world.node.letters[0], LetterDownload.page_from

    async def failing(download: LetterDownload, place: tuple[int, int]) -> Any:
        puts = [Put(store.topics["%DLQ%billing"], 0, b"late", b"", b"") for _ in range(PAGE_LETTERS)]
        store.append(puts, born_ms=NOW_MS, born_host=HOST)
        store.flush()
        return await page(download, place)

    monkeypatch.setattr(LetterDownload, "page_from", failing)

    async def scenario() -> None:
        answer = await asyncio.wait_for(world.ask(f"{PATH}?group=billing", by="viewer"), 60)
        assert len(lines(answer)) == 2 * PAGE_LETTERS

    world.run(scenario)


def test_failure_in_the_middle_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends without the last chunk, so that a client or browser reports a failed download."""
    world = world_with(3 * PAGE_LETTERS, body_bytes=2_000)
    page = LetterDownload.page_from

    async def failing(download: LetterDownload, place: tuple[int, int]) -> Any:
        if place[1] >= PAGE_LETTERS:
            raise StoreError("the disk is gone")
        return await page(download, place)

    monkeypatch.setattr(LetterDownload, "page_from", failing)

    async def scenario() -> None:
        with pytest.raises(aiohttp.ClientPayloadError):
            await world.ask(f"{PATH}?group=billing&bodies=true", by="all")

    world.run(scenario)


@pytest.mark.parametrize(
    ("person", "query", "status"),
    [
        ("narrow", "group=billing", 200),
        ("narrow", "group=payroll", 403),
        ("narrow", "group=billing&bodies=true", 403),
        ("viewer", "group=billing&bodies=true", 403),
        ("stranger", "group=billing", 403),
        ("viewer", "group=payroll", 404),
        ("viewer", "", 400),
        ("viewer", "group=billing&limit=5", 400),
        ("viewer", "group=billing&from=never", 400),
        ("viewer", "group=billing&colour=blue", 400),
    ],
)
def test_download_is_refused_before_it_begins(person: str, query: str, status: int) -> None:
    """By right and by parameter, with a sentence."""
    world = world_with(3)

    async def scenario() -> None:
        answer = await world.ask(f"{PATH}?{query}", by=person)
        assert answer.status == status
        assert status == 200 or answer.error

    world.run(scenario)


def test_page_links_to_the_download_of_what_its_filter_matches() -> None:
    """The filter is part of the address; bodies are offered to those who may read them."""
    world = world_with(3)

    async def scenario() -> None:
        text = (await world.ask("/dead-letters?group=billing&reason=declined", by="all")).text
        links: Sequence[str] = [part.split('"')[0] for part in text.split('href="') if part.startswith(PATH)]
        assert [len(lines(await world.ask(each.replace("&amp;", "&"), by="all"))) for each in links] == [1, 1]
        assert "bodies=true" in links[1]

    world.run(scenario)
