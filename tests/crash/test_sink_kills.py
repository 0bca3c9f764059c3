"""Sinks of a node process that is killed on the way, whose server is killed, and whose disk is full."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from tests.conftest import need
from tests.sinks.lives import KEYS, Lives
from tests.sinks.small_disk import SmallDisk
from tests.unit.actions.sinks.real_redis import RedisServer


def numbers_in(folder: Path) -> list[int]:
    """Numbers of the lines below a folder, file by file; open files too."""
    found = []
    for file in sorted(folder.rglob("*jsonl*"), key=lambda each: each.name.lstrip(".").removesuffix(".open")):
        found += [json.loads(line)["body"]["n"] for line in file.read_text().splitlines()]
    return found


def lines_in(folder: Path) -> int:
    """How many lines there are below a folder; a file may get its name meanwhile."""
    lines = 0
    for file in folder.rglob("*jsonl*"):
        with contextlib.suppress(FileNotFoundError):
            lines += file.read_bytes().count(b"\n")
    return lines


def test_redis_has_each_message_once_after_kills_of_both_and_without_memory(tmp_path: Path) -> None:
    """SIGKILL of the node, of the server, memory that is full, and a kill while it is: nothing lost, nothing twice."""
    need(shutil.which("redis-server"), "redis-server (apt install redis-server)")
    server = RedisServer(tmp_path / "redis")
    with server.client() as client:
        options = {
            "hosts": [server.address],
            "once": True,
            "commands": [["RPUSH", "list:${key}", "${body}"], ["INCR", "count"]],
        }
        lives = Lives(tmp_path, "Redis", options, lambda: int(client.get("count") or 0))
        with contextlib.closing(lives):
            lives.begin()
            lives.in_the_middle()
            lives.kill()

            lives.begin()
            lives.in_the_middle()
            server.kill()
            lives.is_away()
            server.start()
            lives.in_the_middle()
            client.config_set("maxmemory", 1)
            lives.is_away()
            lives.kill()

            lives.begin()
            lives.is_away()
            client.config_set("maxmemory", 0)
            lives.in_the_middle()
            lives.finish()

        lists = [client.lrange(f"list:k{key}", 0, -1) for key in range(KEYS)]
        lives.check(json.loads(each)["n"] for raw in lists for each in raw)
        assert int(client.get("count")) == sum(len(raw) for raw in lists)
    server.kill()


def test_files_have_each_message_once_after_kills_and_a_full_disk(tmp_path: Path) -> None:
    """SIGKILL of the node in the middle of its flushes, and while the disk is full; no line twice, none torn (D46)."""
    out = tmp_path / "out"
    out.mkdir()
    with SmallDisk(out, 8 * 1024 * 1024) as disk:
        options = {"url": str(out), "path": "${topic}", "flushMs": 5, "rotateMessages": 100}
        lives = Lives(tmp_path, "File", options, lambda: lines_in(disk.path), prefix=disk.prefix)
        with contextlib.closing(lives):
            for _ in range(2):
                lives.begin()
                lives.in_the_middle()
                lives.kill()

            lives.begin()
            lives.in_the_middle()
            disk.fill()
            lives.is_away()
            lives.kill()

            lives.begin()
            lives.is_away()
            disk.empty()
            lives.in_the_middle()
            lives.finish()

        lives.check(numbers_in(disk.path))
        assert not list(disk.path.rglob(".*.open")), "a node that stops closes its files"
