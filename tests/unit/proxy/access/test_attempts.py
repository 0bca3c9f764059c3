"""How often an address may try to sign in."""

from __future__ import annotations

from proxy.admin.entry.gate import ADDRESSES_MAX, BURST, SECONDS_EACH, Attempts
from pyddmq.testing import ManualClock
from tests.insides import most_kept


def test_address_has_so_many_tries_and_then_one_after_the_other() -> None:
    """Who is told to wait has not tried: waiting that long is enough. Others are not held up by it."""
    clock = ManualClock()
    attempts = Attempts(clock)
    assert [attempts.wait_seconds("192.0.2.7") for _ in range(BURST)] == [0.0] * BURST
    for _ in range(5):
        assert attempts.wait_seconds("192.0.2.7") == SECONDS_EACH
    assert attempts.wait_seconds("192.0.2.8") == 0.0
    clock.advance(SECONDS_EACH - 1)
    assert attempts.wait_seconds("192.0.2.7") == 1.0
    clock.advance(1)
    assert attempts.wait_seconds("192.0.2.7") == 0.0
    assert attempts.wait_seconds("192.0.2.7") == SECONDS_EACH
    clock.advance(SECONDS_EACH * BURST * 2)
    assert [attempts.wait_seconds("192.0.2.7") for _ in range(BURST + 1)] == [0.0] * BURST + [SECONDS_EACH]


def test_who_has_a_network_of_addresses_has_no_more_tries() -> None:
    """IPv6 by /64, and IPv4 is the same within IPv6."""
    attempts = Attempts(ManualClock())
    for number in range(BURST):
        assert attempts.wait_seconds(f"2001:db8::{number:x}") == 0.0
    assert attempts.wait_seconds("2001:db8::ffff") > 0
    assert attempts.wait_seconds("2001:db8:0:1::1") == 0.0
    for _ in range(BURST):
        attempts.wait_seconds("192.0.2.7")
    assert attempts.wait_seconds("::ffff:192.0.2.7") > 0


def test_places_are_bounded_and_come_back() -> None:
    """While all are taken new addresses share one; who has not tried for a while takes none."""
    clock = ManualClock()
    attempts = Attempts(clock)
    for number in range(ADDRESSES_MAX):
        assert attempts.wait_seconds(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}") == 0.0
    waits = [attempts.wait_seconds(f"172.16.0.{number}") for number in range(BURST + 1)]
    assert waits == [0.0] * BURST + [SECONDS_EACH]
    assert most_kept(attempts) == ADDRESSES_MAX + 1
    clock.advance(SECONDS_EACH * BURST)
    assert attempts.wait_seconds("172.16.0.200") == 0.0
    assert most_kept(attempts) == 1
