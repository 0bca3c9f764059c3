"""What is told of clients at a limit of their own: who was refused, or held back often; a few by name."""

from __future__ import annotations

from proxy.limits.limiter import HeldClient
from proxy.node.trouble_facts import NodeTroubles
from proxy.operate.attention.of_clients import HELD_BACK, LIMITED_MAX, findings


def held(name: str, *, waited: int = 0, refused: int = 0) -> HeldClient:
    """A client at its limit of requests."""
    return HeldClient("principal", name, "requestsPerSecond", "5 requests a second", 1_760_000_000_000, waited, refused)


def test_who_is_refused_is_told_of_and_who_waits_a_little_is_not() -> None:
    """A rate that a client touches now and then is no trouble."""
    clients = (held("shop", waited=1200, refused=2), held("calm", waited=HELD_BACK - 1), held("busy", waited=HELD_BACK))
    found = list(findings(NodeTroubles(limited=clients)))
    assert [each.count for each in found] == [1202, HELD_BACK]
    assert found[0].text == (
        "The principal shop is at its limit since 2025-10-09T08:53:20.000Z: 5 requests a second "
        "(requestsPerSecond); 1,200 calls delayed, 2 refused."
    )
    assert not found[0].bad


def test_many_are_told_of_by_their_number() -> None:
    """A page of names helps nobody."""
    found = list(findings(NodeTroubles(limited=[held(f"p{at}", refused=1) for at in range(LIMITED_MAX + 7)])))
    assert len(found) == LIMITED_MAX
    assert found[0].text.endswith("1 refused, and 7 further limits of clients.")
