"""The sockets of AsyncHttp: where an address is looked at before anything is sent to it (D43).

The check is made where a socket is made, behind the resolver, so that it sees the very address that is connected to,
whatever the name resolved to a moment earlier, and literal addresses, for which no resolver is asked.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from functools import partial
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver

from actions.http.addresses import Network, refusal
from actions.http.connection_options import AddressRefused, HttpWish
from conf.file_faults import file_fault

DNS_SECONDS = 10
KEPT_SECONDS = 15.0
"""Less than the 60 s and more that servers keep a connection, so that few requests meet one that is just closed."""


def connector(wish: HttpWish, *, resolver: AbstractResolver | None = None) -> aiohttp.TCPConnector:
    """Make a connector.

    Args:
        wish: What is wanted.
        resolver: Takes the place of the system's.

    Raises:
        OSError: `ca_file` cannot be read, or holds no certificate (ssl.SSLError).
    """
    guarded = wish.allowed is not None
    trusted: ssl.SSLContext | bool = True
    if wish.ca_file is not None:
        try:
            trusted = ssl.create_default_context(cafile=wish.ca_file)
        except OSError as error:
            raise OSError(f"tls.caFile {wish.ca_file} cannot be used: {file_fault(error, wish.ca_file)}") from error
    kept: dict[str, Any] = {"keepalive_timeout": KEPT_SECONDS} if wish.keep else {"force_close": True}
    return aiohttp.TCPConnector(
        limit=wish.connections_max,
        ssl=trusted,
        ttl_dns_cache=DNS_SECONDS,
        resolver=resolver,
        socket_factory=partial(guarded_socket, wish.allowed or ()) if guarded else None,
        # One address after the other, so that the first that is refused ends the attempt.
        happy_eyeballs_delay=None if guarded else 0.25,
        **kept,
    )


def guarded_socket(allowed: Sequence[Network], address: Any) -> socket.socket:
    """Make a socket for an address of the resolver's, if it may be connected to.

    Raises:
        AddressRefused: It may not.
    """
    family, kind, protocol, _, place = address
    why = refusal(place[0], allowed) if family in (socket.AF_INET, socket.AF_INET6) else f"family {family}"
    if why is None and family == socket.AF_INET6 and len(place) > 3 and place[3]:
        why = f"{place[0]} has a scope id, so it is valid only on one link"
    if why is not None:
        raise AddressRefused(why)
    return socket.socket(family, kind, protocol)
