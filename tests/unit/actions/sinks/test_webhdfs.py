"""The HDFS sink and what a name node refuses: a name, a folder, a token; over aiohttp's own server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import BaseConnector

from actions.client_factories import Outside, real_connector
from actions.http.connection_options import HttpWish
from actions.sinks.faults import ServerAway, ServerRefusedMessage
from actions.sinks.files.folders import FolderWish
from actions.sinks.files.sink import HdfsSink
from actions.sinks.files.webhdfs import WebHdfs
from conf.secrets import Secret
from pyddmq.actions import Failed, RetryLater, Status
from pyddmq.testing.sim_disk import SimDisk
from tests.unit.actions.sinks.memory_hdfs import NameNode
from tests.unit.actions.sinks.surroundings import FakeJob, InlineKeep, opened


def written(node: NameNode, jobs: list[FakeJob], **options: Any) -> Any:
    """Write messages by the sink and return it, closed."""

    async def work(url: str) -> Any:
        outside = Outside(keep=InlineKeep(SimDisk(), "/data"))
        given = {"urls": [url], "rootPath": "/orders", "filePath": "${yyyy}", "userName": "etl", "flushMs": 1}
        sink = opened(HdfsSink, {**given, "fileType": "json", **options}, outside)
        for job, answer in zip(jobs, sink.act_many(jobs), strict=True):
            if answer is not Status.ASYNCHRONIZED:
                job.answer(answer)
        sink.drain()
        while not all(job.answers for job in jobs):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await sink.close()
        return sink

    return asyncio.run(asyncio.wait_for(node.run(work), 30))


def in_year(offset: int, year: int) -> FakeJob:
    """A message whose folder is the year."""
    return FakeJob(offset, b"{}", stored_ms=(year - 1970) * 31_557_600_000 + 86_400_000 * 30)


@pytest.mark.parametrize("form", ["json", "parquet"])
@pytest.mark.parametrize(
    ("status", "name", "kind"),
    [
        (400, "IllegalArgumentException", Failed),
        (403, "PathComponentTooLongException", Failed),
        (403, "AccessControlException", RetryLater),
        (403, "NSQuotaExceededException", RetryLater),
        (403, "DSQuotaExceededException", RetryLater),
    ],
)
def test_refused_folder_concerns_its_messages_alone(status: int, name: str, kind: type[Exception], form: str) -> None:
    """A name that HDFS cannot have fails its messages; a quota or permission lets them wait; others are written."""
    node = NameNode(
        lambda request: (status, name) if "/2021/" in request.path and "CREATE" in str(request.url) else None
    )
    jobs = [in_year(1, 2020), in_year(2, 2021), in_year(3, 2022)]

    sink = written(node, jobs, fileType=form)

    assert jobs[0].answered is jobs[2].answered is Status.FINISH
    assert isinstance(jobs[1].answered, kind)
    assert name in str(jobs[1].answered)
    assert not sink.context.counts["server_away"]
    assert sorted(path.split("/")[2] for path in node.files) == ["2020", "2022"]


def test_file_with_a_writer_that_is_gone_is_judged_by_its_recovered_length() -> None:
    """After a kill of both, the name node gives the length without the last block until it has ended the lease."""
    node, disk = NameNode(), SimDisk()
    first, second = in_year(1, 2020), in_year(2, 2020)

    async def life(url: str, job: FakeJob) -> Any:
        given = {"urls": [url], "rootPath": "/orders", "filePath": "orders", "userName": "etl", "flushMs": 1}
        sink = opened(HdfsSink, {**given, "fileType": "json"}, Outside(keep=InlineKeep(disk, "/data")))
        while job.answered is not Status.FINISH:
            job.answers.clear()
            if (answer := sink.act_many([job])[0]) is not Status.ASYNCHRONIZED:
                job.answer(answer)
            while not job.answers:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            sink.context.ahead += 60
        sink.drain()
        await sink.close()
        return sink

    async def lives(url: str) -> Any:
        node.refuse = lambda request: (403, "SafeModeException") if "RENAME" in str(request.url) else None
        await life(url, first)
        node.refuse = lambda _: None
        [path] = node.files
        node.under_construction[path], node.files[path] = node.files[path], b""
        return await life(url, second)

    sink = asyncio.run(asyncio.wait_for(node.run(lives), 30))

    assert not sink.context.counts["file_cut"]
    assert [json.loads(line)["offset"] for file in node.files.values() for line in file.splitlines()] == [1, 2]


def test_safe_mode_is_waited_for() -> None:
    """It says nothing of a message: all of them wait, and the reason is whole."""
    node = NameNode(lambda request: (403, "SafeModeException") if "CREATE" in str(request.url) else None)
    jobs = [in_year(1, 2020)]

    sink = written(node, jobs)

    assert isinstance(jobs[0].answered, RetryLater)
    assert sink.context.counts["server_away"]


def tried(node: NameNode, wish: FolderWish, work: Callable[[WebHdfs], Any]) -> Any:
    """Run work over the client alone."""

    async def run(url: str) -> Any:
        client = WebHdfs(FolderWish(kind="webhdfs", urls=(url,), user=wish.user, token=wish.token), real_connector)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(asyncio.wait_for(node.run(run), 30))


@pytest.mark.parametrize("status", [401, 403])
def test_rotated_token_is_read_again(status: int, tmp_path: Path) -> None:
    """A refused token is read again from its file, and the call is made once more at once."""
    file = tmp_path / "token"
    file.write_text("old")
    accepted = ["old"]
    node = NameNode(lambda request: None if request.query["delegation"] == accepted[0] else (status, "InvalidToken"))

    async def work(client: WebHdfs) -> None:
        await client.append("/a", 0, b"1")
        file.write_text("new")
        accepted[0] = "new"
        await client.append("/a", 1, b"2")

    tried(node, FolderWish(kind="webhdfs", token=Secret(file=str(file))), work)
    assert node.files["/a"] == b"12"
    assert node.tokens == ["old", "old", "new"]


def test_token_that_stays_refused_is_waited_for(tmp_path: Path) -> None:
    """Also a missing file: each time it is read again."""
    file = tmp_path / "token"
    file.write_text("old")
    node = NameNode(lambda _: (401, "InvalidToken"))

    async def work(client: WebHdfs) -> None:
        with pytest.raises(ServerAway, match="InvalidToken"):
            await client.append("/a", 0, b"1")
        file.unlink()
        with pytest.raises(ServerAway, match="cannot be read"):
            await client.append("/a", 0, b"1")

    tried(node, FolderWish(kind="webhdfs", token=Secret(file=str(file))), work)
    assert node.tokens == ["old", "old"]


def test_answer_that_is_lost_renews_connections_and_certificates() -> None:
    """The next call has a new connector: it looks the name up and reads `caFile` again."""
    node, made = NameNode(), []

    async def run(url: str) -> int | None:
        def connector(wish: HttpWish) -> BaseConnector:
            made.append(wish)
            return real_connector(wish)

        client = WebHdfs(FolderWish(kind="webhdfs", urls=(url,), user="etl"), connector)
        await client.append("/a", 0, b"1")
        urls = client._urls
        there, urls[:] = urls[:], ["http://127.0.0.1:1"]
        with pytest.raises(ServerAway):
            await client.size("/a")
        urls[:] = there
        size = await client.size("/a")
        await client.close()
        return size

    assert asyncio.run(node.run(run)) == 1
    assert len(made) == 2


def test_refused_name_is_not_away() -> None:
    """Every call sorts what it is answered."""
    node = NameNode(lambda _: (400, "InvalidPathException"))

    async def work(client: WebHdfs) -> None:
        for call in (
            client.size("/a:b"),
            client.publish("/a", "/a:b"),
            client.put("/a:b", b"1"),
            client.truncate("/a", 1),
        ):
            with pytest.raises(ServerRefusedMessage):
                await call

    tried(node, FolderWish(kind="webhdfs", user="etl"), work)
