"""Clients and the limits that they are held to (docs/security.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from broker.views import View


class HeldView(View, frozen=True, kw_only=True):
    """How a client is being held to one limit; over when it was not for a minute.

    Attributes:
        limit: Its key in the section `limits`.
        text: What it says.
        since_ms: Since when.
        waited: Calls after which its connection was held back.
        refused: Calls, messages, waiting pulls and connections that were refused.
    """

    limit: str
    text: str
    since_ms: int
    waited: int
    refused: int


class ClientView(View, frozen=True, kw_only=True):
    """What one client has at present.

    Attributes:
        told_by: The kind of its identity.
        client: Its principal, or its address.
        connections: Of both Thrift ports.
        parked_pulls: Pulls, fetches and fetches of checks that wait.
        open_transactions: That wait for a decision; null of an address, which they are not known by.
        pending_timers: Messages that wait for their moment; null where they are not counted.
        held: The limits that it was held to within the last minute.
    """

    told_by: Literal["principal", "address"]
    client: str
    connections: int
    parked_pulls: int
    open_transactions: int | None
    pending_timers: int | None
    held: Sequence[HeldView]


class LimitsAnswer(View, frozen=True, kw_only=True):
    """Clients that have limits.

    Attributes:
        now_ms: Now, by the node's wall clock.
        clients_total: How many are counted.
        clients: Those that are held to a limit first, then by kind and name.
    """

    now_ms: int
    clients_total: int
    clients: Sequence[ClientView]
