"""What files are written by, and the kinds of what it refuses: the node's disk and object stores."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from actions.sinks.faults import ServerAway, ServerRefusedMessage, fault_of_disk
from actions.sinks.files.arrow import ArrowFolders
from actions.sinks.files.folders import FolderWish
from conf.secrets import Secret
from pyddmq.testing.sim_disk import SimDisk
from tests.conftest import need_module
from tests.unit.actions.sinks.surroundings import InlineKeep


@pytest.mark.parametrize(
    ("code", "kind", "waits", "is_partial"),
    [
        (errno.ENAMETOOLONG, ServerRefusedMessage, False, False),
        (errno.ENOTDIR, ServerRefusedMessage, False, False),
        (errno.EACCES, ServerRefusedMessage, True, False),
        (errno.EDQUOT, ServerRefusedMessage, True, True),
        (errno.ENOSPC, ServerAway, False, False),
        (errno.EIO, ServerAway, False, False),
    ],
)
def test_errors_of_a_disk_are_sorted(code: int, kind: type[Exception], waits: bool, is_partial: bool) -> None:
    """A name, permission or quota is about the file's messages; a full or broken disk is about all."""
    found = fault_of_disk(OSError(code, "text"), "text")

    assert type(found) is kind
    assert (getattr(found, "waits", False), getattr(found, "is_partial", False)) == (waits, is_partial)


def test_rotated_secret_key_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a refusal an object store is opened anew, with the secret of this moment; a missing one is waited for."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    import pyarrow.fs

    class Store:
        type_name = "s3"
        secrets: list[str] = []  # noqa: RUF012

        def __init__(self, *, secret_key: str, **more: Any) -> None:
            self.secret_key = secret_key
            self.secrets.append(secret_key)

        def open_output_stream(self, where: str) -> Any:
            if "long" in where:
                raise OSError("AWS Error UNKNOWN (HTTP status 400) during PutObject operation: KeyTooLongError")
            if self.secret_key != "new":
                raise OSError("AWS Error SIGNATURE_DOES_NOT_MATCH during PutObject operation")
            return open(tmp_path / "object", "wb")

    monkeypatch.setattr(pyarrow.fs, "S3FileSystem", Store)
    file = tmp_path / "secret"
    file.write_text("old")
    wish = FolderWish(kind="arrow", urls=("s3://b",), access_key="a", token=Secret(file=str(file)))
    folders = ArrowFolders(wish, InlineKeep(SimDisk(), "/data"))

    async def run() -> None:
        with pytest.raises(ServerAway, match="SIGNATURE"):
            await folders.put("/a", b"1")
        file.unlink()
        with pytest.raises(ServerAway, match="cannot be read"):
            await folders.put("/a", b"1")
        file.write_text("new")
        await folders.put("/a", b"1")
        with pytest.raises(ServerRefusedMessage):
            await folders.put("/long", b"1")

    asyncio.run(run())
    assert Store.secrets == ["old", "new"]
    assert (tmp_path / "object").read_bytes() == b"1"
