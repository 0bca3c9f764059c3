"""Which group protocol `groupProtocol: auto` means for a cluster: KIP-848 where brokers have it, else classic (D80)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.subscriptions import is_expression

CLASSIC = "classic"
CONSUMER = "consumer"
AUTO = "auto"
_PROTOCOLS = "group.coordinator.rebalance.protocols"
_SESSION = "group.consumer.session.timeout.ms"


class ProtocolFound(NamedTuple):
    """A protocol, and why it is not KIP-848; "" where it is."""

    protocol: str
    why: str = ""


REFUSED = ProtocolFound(CLASSIC, "the cluster does not accept KIP-848; its feature group.version must be 1")


def found_by(facts: ClusterFacts, session_ms: int) -> ProtocolFound:
    """Return the protocol for a cluster that was looked at.

    Args:
        facts: What was found.
        session_ms: Configured `sessionTimeout`.
    """
    offered = facts.settings.get(_PROTOCOLS)
    if not facts.settings:
        return ProtocolFound(CLASSIC, "this user may not read the brokers' settings; allow it DescribeConfigs")
    if offered is None or CONSUMER not in {each.strip() for each in offered.split(",")}:
        return ProtocolFound(CLASSIC, f"the brokers do not offer KIP-848 ({_PROTOCOLS})")
    theirs = facts.settings.get(_SESSION)
    if theirs != str(session_ms):
        return ProtocolFound(CLASSIC, f"sessionTimeout is {session_ms} and the brokers' {_SESSION} is {theirs}")
    return ProtocolFound(CONSUMER)


def stays_classic(names: Iterable[str]) -> bool:
    """Whether a group of these topics stays classic: brokers read expressions in another way."""
    return any(is_expression(name) for name in names)
