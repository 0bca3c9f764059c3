"""What a starting and stopping node reports to the service manager (systemd) and a terminal.

With Type=notify systemd waits for READY=1, shows STATUS in `systemctl status` and knows of a stop that takes time. The
messages go to the datagram socket that it names in NOTIFY_SOCKET; without one nothing is sent.
"""

from __future__ import annotations

import asyncio
from typing import TextIO

from proxy.node.node import Node
from proxy.port.network import send_datagram

REPORT_SECONDS = 0.5
EXTEND_SECONDS = 30
"""A recovery that continues asks for this much more time with each report, so that a start is never timed out by it."""


class ServiceManager:
    """Sends a service manager the state of this process.

    Args:
        address: Path of its datagram socket, or its abstract name after an `@`; empty: none.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def ready(self, status: str) -> None:
        """The node takes and hands out messages."""
        self._send("READY=1", f"STATUS={status}")

    def starting(self, status: str) -> None:
        """The node is not ready yet and is getting on."""
        self._send(f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={EXTEND_SECONDS * 1_000_000}")

    def stopping(self, status: str) -> None:
        """A stop of the node was requested."""
        self._send("STOPPING=1", f"STATUS={status}")

    def _send(self, *lines: str) -> None:
        if self._address:
            send_datagram(self._address, "\n".join(lines).encode())


class StartReporter:
    """Says how far a recovery is, until it is cancelled."""

    def __init__(self, node: Node, manager: ServiceManager, *, terminal: TextIO | None) -> None:
        """Set up.

        Args:
            node: Being started.
            manager: Told the status.
            terminal: Gets a line that is written over again and again, if it is a terminal.
        """
        self._node = node
        self._manager = manager
        self._terminal = terminal if terminal is not None and terminal.isatty() else None

    async def run(self) -> None:
        """Report twice a second."""
        try:
            while True:
                await asyncio.sleep(REPORT_SECONDS)
                startup = self._node.startup
                if startup is not None:
                    self._say(f"recovering: {startup.view.sentence}")
        finally:
            self._show("")

    def _say(self, text: str) -> None:
        self._manager.starting(text)
        self._show(text)

    def _show(self, text: str) -> None:
        if self._terminal is not None:
            self._terminal.write(f"\r\x1b[K{text}")
            self._terminal.flush()
