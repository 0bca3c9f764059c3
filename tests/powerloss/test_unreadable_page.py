"""A page that a real file system does not give out, under a process that maps it: SIGBUS, unless it is read first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.bad_pages import SEGMENT_BYTES, fill, hit
from tests.patient import PATIENCE_SECONDS
from tests.powerloss.mount import Mount

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("fuse")]
ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def test_process_on_a_disk_with_a_bad_page_loses_what_lies_on_it(tmp_path: Path) -> None:
    """The file system gives EIO for one page of the log; the page does end a process that looks at it unread."""
    mount = Mount(tmp_path, 1)
    try:
        data = mount.path / "data"
        places = fill(str(data))
        mount.spoil(f"data/commitlog/{0:020d}", 20)
        file = data / "commitlog" / f"{0:020d}"
        look = f"import mmap; f = open({str(file)!r}, 'rb'); mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[20 * 4096]"
        looked = run("-c", look)
        assert looked.returncode == -signal.SIGBUS, looked.stderr
        lost = sorted(hit(places, 0, {20}))
        assert 0 < len(lost) < 5
        assert os.stat(file).st_size == SEGMENT_BYTES
        read = run("-m", "tests.integration.bad_pages", str(data), "told", ",".join(map(str, lost)))
        assert read.returncode == 0, read.stderr[-3000:]
    finally:
        mount.close()
