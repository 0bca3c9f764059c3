"""What an operator sees of a sink that waits."""

from __future__ import annotations

from actions.sinks.server_outage import ALONE_MS, FORGET_SECONDS, Away
from tests.unit.actions.sinks.surroundings import FakeContext


def test_wait_is_shown_with_cause_since_its_first_failure() -> None:
    """Further failures change the reason and not the time; an answer ends it."""
    context = FakeContext()
    away = Away("Redis at h:1", lambda: context)
    assert away.view("Redis") is None
    since = context.wall_ms()
    away.failed("connection refused")
    context.ahead += 1
    away.failed("LOADING")

    view = away.view("Redis")

    assert view is not None
    assert (view.action, view.server, view.since_ms, view.reason) == ("Redis", "Redis at h:1", since, "LOADING")
    away.answered()
    assert away.view("Redis") is None


def test_messages_that_wait_alone_are_shown_while_they_come_again() -> None:
    """An answer to another message does not end it; no message for a while does."""
    context = FakeContext()
    away = Away("Redis at h:1", lambda: context)
    since = context.wall_ms()
    away.alone("OOM")
    away.answered()
    context.ahead += ALONE_MS / 1000
    away.alone("OOM")

    view = away.view("Redis")

    assert view is not None
    assert (view.since_ms, view.reason, view.messages_alone) == (since, "OOM", True)
    context.ahead += ALONE_MS / 1000 + FORGET_SECONDS + 1
    assert away.view("Redis") is None


def test_wait_that_no_message_ends_is_forgotten() -> None:
    """The group was paused, or the message ended otherwise: nothing waits for the server any more."""
    context = FakeContext()
    away = Away("Redis at h:1", lambda: context)
    away.failed("connection refused")
    context.ahead += FORGET_SECONDS + 1
    assert away.view("Redis") is None
