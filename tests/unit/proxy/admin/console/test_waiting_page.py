"""The page of what waits: changes of all that it lists."""

from __future__ import annotations

from typing import Any

from broker.views import TimerView
from proxy.admin.console.buttons import Button, reset
from proxy.admin.console.waiting import WaitingRow, cancel_all, timer_buttons


def row(name: str, *, may: bool = True) -> WaitingRow:
    """A timer with its buttons, where the viewer may operate its topic."""
    named = [{"id": name, "topic": "orders"}]
    cancel = Button(label="Cancel", path="/api/timers/cancel", body={"timers": named}, command="", text="")
    move = Button(label="Move", path="/api/timers/reschedule", body={"id": name}, command="", text="")
    return WaitingRow(buttons=[cancel, move] if may else [])


def test_all_that_a_page_lists_is_cancelled_by_one_button() -> None:
    """It says how many, and names none that the viewer may not cancel."""
    [button] = cancel_all([row("a"), row("b", may=False), row("c"), row("d"), row("e")], "timers", "timers", "timer")
    assert button.label == "Cancel these 4 timers"
    assert button.body == {"timers": [{"id": each, "topic": "orders"} for each in "acde"]}
    assert (button.path, button.tone, button.command) == ("/api/timers/cancel", "bad", "pyddmq timers cancel a c d …")


def test_one_message_has_its_own_button_alone() -> None:
    """As has what the viewer may not change."""
    assert cancel_all([row("a"), row("b", may=False)], "timers", "timers", "timer") == []


def test_each_field_of_a_button_has_its_option_in_the_command() -> None:
    """The dialog writes the command with what is filled in."""
    waits: dict[str, Any] = {"id": "t", "topic": "orders", "key": "", "due_ms": 1, "stored_ms": 1, "queue": 0}
    timer = TimerView(**waits, delay_id=None, rolls=0, loop=None, physical=0)
    fields = [each for button in (*timer_buttons(timer, 0), *reset("g", "orders")) for each in button.fields]
    assert [each["option"] for each in fields] == ["--at", "--to-time", "--to-offset"]
