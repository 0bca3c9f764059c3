"""redis-server as a process of the test's own, on a port of its own, with its log in a folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import redis

from tests.conftest import need
from tests.patient import quiet_ports, until


class RedisServer:
    """Starts on a free port; every write is in its log before it is answered."""

    def __init__(self, folder: Path, *options: str) -> None:
        need(shutil.which("redis-server") is not None, "redis-server (apt install redis-server)")
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        [self.port] = quiet_ports(1)
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, with what is in its folder."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        command += ["--appendonly", "yes", "--appendfsync", "everysec", *self._options, "--save", ""]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._answers, "redis-server answers")

    def _answers(self) -> bool:
        try:
            return bool(self.client().ping())
        except redis.ConnectionError:
            return False
        except redis.AuthenticationError:
            return True
        except redis.ResponseError as error:
            return "NOAUTH" in str(error)

    def client(self, **more: Any) -> redis.Redis:
        """A client of the test's own."""
        return redis.Redis("127.0.0.1", self.port, **more)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
