"""Commands that work on files know no rules: the file system guards what they read and make (docs/security.md)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.runtime.disk import RealDisk
from pyddmq.testing import ManualClock
from tests.integration.store_tools import HOST, open_store
from tests.tls.test_served import command


@pytest.fixture
def lax_umask() -> Iterator[None]:
    """Let the process make files that everybody may read, where nothing says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[int, set[int]]:
    """Modes of a folder and all below it, of folders and of files."""
    found: dict[int, set[int]] = {stat.S_IFDIR: set(), stat.S_IFREG: set()}
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        found[stat.S_IFMT(mode)].add(stat.S_IMODE(mode))
    return found


OWNERS = {stat.S_IFDIR: {0o700}, stat.S_IFREG: {0o600}}


@pytest.mark.usefixtures("lax_umask")
def test_data_backups_and_what_is_restored_are_their_owners_alone(tmp_path: Path) -> None:
    """Folders 0700 and files 0600, whatever the umask; so are exports and files of tokens."""
    data, backup, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    store = open_store(RealDisk(), root=str(data), clock=ManualClock(1_760_000_000_000), segment_bytes=1 << 20)
    topic = store.create_topic("orders", 1)
    store.append([Put(topic, 0, b"secret", encode_properties({"KEYS": "k"}))], born_ms=0, born_host=HOST)
    store.close()
    assert command("store", "backup", data, backup).code == 0
    assert command("store", "restore", backup, restored).code == 0
    for folder in (data, backup, restored):
        assert modes(folder) == OWNERS, folder
    exported = tmp_path / "orders.jsonl"
    assert command("messages", "export", "orders", "--data", data, "--output", exported).code == 0
    assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    body = tmp_path / "body"
    named = ("messages", "show", "--topic", "orders", "--queue", "0", "--offset", "0", "--data", data)
    assert command(*named, "--raw", "--output", body).code == 0
    assert (body.read_bytes(), stat.S_IMODE(body.stat().st_mode)) == (b"secret", 0o600)
    assert command("access", "token", "create", "--file", tmp_path / "tokens.json", "--principal", "anna").code == 0
    assert stat.S_IMODE((tmp_path / "tokens.json").stat().st_mode) == 0o600
