"""What programs import: `pyddmq`, whole, light, and what its names were before."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import pyddmq.__main__
import pyddmq.broker
from pyddmq import actions as public
from pyddmq import client, rooms
from upstream.history import JobHistory
from upstream.job import UpstreamJob

ROOT = Path(__file__).parents[3]


def test_every_public_name_of_the_client_is_a_name_of_pyddmq() -> None:
    """The lazy names are the client's own objects, and a wrong one is an AttributeError as anywhere."""
    of_asyncio = {"AsyncConsumer", "AsyncProducer", "AsyncTransactionProducer"}
    public = {name for name, found in vars(client).items() if name[0] != "_" and not isinstance(found, ModuleType)}
    assert set(pyddmq.__all__) == public | of_asyncio
    assert all(getattr(pyddmq, name) is getattr(client, name) for name in public)
    assert pyddmq.AsyncProducer.__module__ == "pyddmq.client.aio.async_producer"
    assert set(pyddmq.__all__) <= set(dir(pyddmq))
    with pytest.raises(AttributeError, match="has no attribute 'Produzer'"):
        pyddmq.Produzer  # type: ignore[attr-defined]  # noqa: B018


def test_client_is_imported_without_rooms_and_without_what_servers_need() -> None:
    """A program with the client alone loads none of our rooms and no package but thriftpy2."""
    code = (
        "import sys; from pyddmq import Consumer, Producer; from pyddmq.testing.client import ScriptedNode\n"
        "Producer('127.0.0.1:1').close(); Consumer('127.0.0.1:1', 'g').close()\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"pyddmq", "thriftpy2"} <= loaded
    rooms_and_servers = {
        "conf",
        "broker",
        "upstream",
        "actions",
        "lag",
        "proxy",
        "structlog",
        "msgspec",
        "pydantic",
        "yaml",
    }
    assert not loaded & (rooms_and_servers | {"asyncio", "typer", "aiohttp", "prometheus_client"})


def test_places_before_the_last_version_are_gone() -> None:
    """What 0.2.0 had with a warning: `proxy.client`, `upstream.action`, and the names of users in `actions`."""
    assert not [name for name in ("proxy.client", "upstream.action") if importlib.util.find_spec(name)]
    assert not {"Action", "Status", "UpstreamJob"} & set(dir(importlib.import_module("actions")))


def test_job_of_the_pipeline_is_what_actions_are_promised() -> None:
    """The class has every attribute that `pyddmq.actions.Job` and `History` declare."""
    reported = {*vars(public.Job), *public.Job.__annotations__}
    assert {name for name in reported if name[0] != "_"} <= set(dir(UpstreamJob))
    assert set(public.History.__annotations__) <= set(dir(JobHistory))
    assert "finish" in reported


def test_examples_of_actions_stand_before_a_strict_type_checker(tmp_path: Path) -> None:
    """The programs of docs/actions.md, with nothing of ours on the path but `pyddmq`, have no untyped base."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "actions.md").read_text(), re.DOTALL)
    for number, block in enumerate(blocks):
        (tmp_path / f"block{number}.py").write_text(block)
    shutil.copytree(ROOT / "pyddmq", tmp_path / "packages" / "pyddmq", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", f"--cache-dir={tmp_path / 'c'}"]
    done = subprocess.run(
        [*command, *(f"block{number}.py" for number in range(len(blocks)))],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(tmp_path / "packages")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(blocks) >= 2
    assert done.returncode == 0, done.stdout + done.stderr


def test_module_of_the_program_in_the_place_of_a_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has imported a `conf` of its own is told so by the broker, and reads which file it is."""
    own = ModuleType("conf")
    own.__file__ = str(tmp_path / "conf.py")
    monkeypatch.setitem(sys.modules, "conf", own)
    with pytest.raises(rooms.NameTaken, match=r"the broker needs the name 'conf'.*conf\.py: give that another"):
        rooms.pin("the broker")


def test_rooms_come_first_on_the_path_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found before a folder that came first, and asking again adds nothing."""
    monkeypatch.setattr(sys, "path", ["elsewhere", *sys.path])
    rooms.pin("a test")
    rooms.pin("a test")
    assert sys.path[:2] == [str(ROOT), "elsewhere"]


def test_every_name_of_the_broker_is_there() -> None:
    """`pyddmq.broker` has what it lists, and lists what it imports of the rooms."""
    tree = ast.parse((ROOT / "pyddmq" / "broker.py").read_text())
    imported = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("broker")
        for alias in node.names
    }
    assert imported == set(pyddmq.broker.__all__)
    assert pyddmq.broker.open_store.__module__ == "broker.embedded"


def test_installation_of_the_client_alone_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Command and broker are asked for where what the rooms need is missing: one sentence, exit code 8."""
    monkeypatch.setattr(rooms, "find_spec", lambda _name: None)
    with pytest.raises(rooms.ClientAlone, match=r"pip install 'pyddmq\[server\]'"):
        rooms.pin("the embedded broker")
    with pytest.raises(SystemExit) as end:
        pyddmq.__main__.main()
    assert end.value.code == 8
