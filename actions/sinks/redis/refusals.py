"""Sorts what Redis answers into the kinds of `actions.sinks.faults`."""

from __future__ import annotations

from actions.sinks.faults import ConnectionStale, MessageRefused, ServerAway

STALE = ("READONLY", "MOVED ", "ASK ", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH", "WRONGPASS")
"""The address leads to a server of another role, or the password changed: a new connection may reach the right one."""

AWAY = ("MISCONF", "NOREPLICAS", "BUSY ", "ERR max number of clients")
"""The server takes no writes now."""

WAITS = ("OOM", "TRYAGAIN")
"""The server has no room for this command, or its keys are between two servers; other commands still work."""


def fault_of(reason: str) -> Exception:
    """Return the fault that a refusal means; anything unknown is about the message."""
    if reason.startswith(STALE):
        hint = "; the server is a node of a Redis Cluster: set `cluster: true`" if reason.startswith("MOVED ") else ""
        return ConnectionStale(reason + hint)
    if reason.startswith(AWAY):
        return ServerAway(reason)
    return MessageRefused(reason, waits=reason.startswith(WAITS))


def asked_of(reason: str, server: str) -> str | None:
    """Return the address to which ASK sends one message; None for another refusal.

    Args:
        reason: `ASK SLOT HOST:PORT`; without a host it is that of the server which answered.
        server: The server which answered.
    """
    if not reason.startswith("ASK "):
        return None
    host, _, port = reason.split(" ")[2].rpartition(":")
    return f"{host or server.rpartition(':')[0]}:{port}"
