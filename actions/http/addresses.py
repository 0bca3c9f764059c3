"""Which addresses a URL that came with a message may be connected to (D43). No I/O.

Only global unicast addresses are public: for IPv6 what is in 2000::/3, for IPv4 everything, and of both without the
blocks of IANA's special-purpose registries, whatever `ipaddress` of the running Python thinks of them. An address that
carries an IPv4 address (mapped, compatible, 6to4, NAT64, Teredo, ISATAP) is never public by itself: a router on the
way may unwrap it. Mapped ones are looked at as the address inside, because the system connects to that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_SPECIAL = tuple(
    ipaddress.ip_network(block)
    for block in (
        "0.0.0.0/8",  # this network; 0.0.0.0 connects to the machine itself
        "10.0.0.0/8",
        "100.64.0.0/10",  # carriers' NAT; Alibaba's metadata at 100.100.100.200
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's host, which machines of any tenant reach
        "169.254.0.0/16",  # link local; metadata of most clouds at 169.254.169.254
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata at 192.0.0.192
        "192.0.2.0/24",
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # Teredo, ORCHID, benchmarks
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
    )
)
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_ISATAP = 0x00005EFE
"""The middle of an interface's part that holds an IPv4 address; the bit for `global` is left out of the comparison."""


def refusal(host: str, allowed: Sequence[Network] = ()) -> str | None:
    """Return why an address may not be connected to; None when it may.

    Args:
        host: A numeric address as sockets take it: IPv4, or IPv6, perhaps with a scope.
        allowed: Blocks that are allowed although they are not public.
    """
    try:
        address: Address = ipaddress.ip_address(host)
    except ValueError:
        return f"{host!r:.60} is not a valid address"
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return f"{host} has a scope id, so it is valid only on one link"
        address = address.ipv4_mapped or address
    if any(address in block for block in allowed if block.version == address.version):
        return None
    return None if is_public(address) else f"{host} is not a public address"


def is_public(address: Address) -> bool:
    """Whether this is a public address of the internet."""
    if any(address in block for block in _SPECIAL if block.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return True
    isatap = (int(address) >> 32) & 0xFDFFFFFF == _ISATAP
    return address in _GLOBAL_V6 and not isatap


def looks_numeric(host: str) -> bool:
    """Whether resolvers may take a host for an IPv4 address: its last label is a number, decimal, octal or hex.

    `2130706433`, `0x7f.1` and `127.1` are all 127.0.0.1 to a resolver. Such a host must be written as four plain
    decimal numbers; browsers decide by the same rule (WHATWG URL, "ends in a number").
    """
    last = host.rstrip(".").rpartition(".")[2].lower()
    if last and all(digit in "0123456789" for digit in last):
        return True
    return last.startswith("0x") and all(digit in "0123456789abcdef" for digit in last[2:])
