"""What sendDelaySync may ask for: every field with DDMQ's codes (reference 4.1, 4.4), and what DDMQ forgot (W77)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.scheduled.recurring.occurrence import NUMBER_MAX, Occurrence, parse_id
from proxy.services.delay_rules import AHEAD_SECONDS_MAX, check_action, check_add, check_cancel
from proxy.services.message_rules import Refusal
from pyddmq.codes import ResultCode

NOW = 1_800_000_000
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
HORIZON = 366 * 86_400
ONCE = {"action": 1, "timestamp": NOW + 60, "dmsgtype": 2, "uuid": UUID}
LOOP: dict[str, Any] = {**ONCE, "dmsgtype": 3, "interval": 60, "times": 3, "expire": NOW + 3600}
GROWING = {**LOOP, "dmsgtype": 4, "interval": 2}


def add(message: dict[str, Any]) -> Occurrence:
    """Check an add."""
    return check_add(message, now_s=NOW, interval_max=HORIZON)


def code_of(message: dict[str, Any]) -> int:
    """The code with which an add is refused, 0 if it is not."""
    try:
        add(message)
    except Refusal as refusal:
        return refusal.code
    return 0


def test_ids_are_ddmqs() -> None:
    """R104: single messages expire after two days in their id, loops as they were asked for."""
    assert add(ONCE).id == f"{NOW + 60}-2-{NOW + 60 + 172_800}-0-0-0-0-{UUID}"
    assert add({**ONCE, "expire": 7}).id == add(ONCE).id
    assert add(LOOP).id == f"{NOW + 60}-3-{NOW + 3600}-3-0-60-0-{UUID}"
    assert add(GROWING).id == f"{NOW + 60}-4-{NOW + 3600}-3-0-2-0-{UUID}"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"timestamp": 999_999_999}, 33),
        ({"timestamp": 1_000_000_000}, 0),
        ({"timestamp": NOW + AHEAD_SECONDS_MAX}, 0),
        ({"timestamp": NOW + AHEAD_SECONDS_MAX + 1}, 33),
        ({"timestamp": -1}, 33),
        ({"timestamp": NOW * 1000}, 33),
        ({"dmsgtype": 0}, 31),
        ({"dmsgtype": 1}, 31),
        ({"dmsgtype": 5}, 31),
        ({"times": 1}, 35),
        ({"times": -1}, 35),
        ({"interval": -1}, 37),
        ({"interval": NUMBER_MAX + 1}, 37),
        ({"expire": -5}, 0),
        ({"uuid": ""}, 11),
        ({"uuid": UUID.upper()}, 11),
        ({"uuid": UUID[:-1]}, 11),
        ({"uuid": UUID + "-1"}, 11),
        ({"uuid": UUID + "\n"}, 11),
        ({"uuid": "x" * 100_000}, 11),
    ],
)
def test_single_messages(changed: dict[str, Any], code: int) -> None:
    """Each field out of its range gets the code of its own."""
    assert code_of({**ONCE, **changed}) == code


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"times": 0}, 35),
        ({"times": -1}, 35),
        ({"times": NUMBER_MAX}, 0),
        ({"times": NUMBER_MAX + 1}, 35),
        ({"expire": NOW + 60}, 36),
        ({"expire": NOW + 61}, 0),
        ({"expire": 9_999_999_999}, 0),
        ({"expire": 10_000_000_000}, 36),
        ({"expire": 0}, 36),
    ],
)
@pytest.mark.parametrize("loop", [LOOP, GROWING])
def test_loops(loop: dict[str, Any], changed: dict[str, Any], code: int) -> None:
    """Both kinds share times and expiry; what is absent counts as 0."""
    assert code_of({**loop, **changed}) == code


def test_gaps_of_loops() -> None:
    """3 s at the least, the node's horizon at the most; a base of at least 2."""
    assert [code_of({**LOOP, "interval": each}) for each in (-3, 0, 2, 3, HORIZON, HORIZON + 1)] == [
        37,
        37,
        37,
        0,
        0,
        37,
    ]
    assert [code_of({**GROWING, "interval": each}) for each in (-3, 1, 2, NUMBER_MAX, NUMBER_MAX + 1)] == [
        38,
        38,
        0,
        0,
        38,
    ]


def test_first_wrong_field_decides_in_ddmqs_order() -> None:
    """R102: timestamp, type, times, expiry, gap."""
    wrong: dict[str, Any] = {"timestamp": 1, "dmsgtype": 9, "times": 0, "expire": 0, "interval": 0}
    codes = []
    for name in wrong:
        codes.append(code_of({**LOOP, **wrong}))
        wrong = {**wrong, name: LOOP[name]}
    assert codes == [33, 31, 35, 36, 37]


def test_actions() -> None:
    """1 and 2; anything else, and nothing, is code 32."""
    assert [check_action({"action": each}) for each in (1, 2)] == [1, 2]
    for message in ({}, {"action": 0}, {"action": 3}):
        with pytest.raises(Refusal) as refused:
            check_action(message)
        assert refused.value.code == ResultCode.FAIL_ILLEGAL_DELAY_ACTION


def test_cancel_takes_every_id_that_an_add_gives() -> None:
    """The id of the add, and those of all later occurrences."""
    each: Occurrence | None = add(LOOP)
    while each is not None:
        assert check_cancel({"uniqDelayMsgId": each.id}) == each
        each = each.next()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, 30),
        ("", 30),
        ("  ", 30),
        (UUID, 30),
        (f"{NOW}-3-{NOW + 1}-1-0-99999999999-0-{UUID}", 30),
        (f"{NOW}-0-{NOW + 1}-1-0-3-0-{UUID}", 31),
        (f"{NOW}-5-{NOW + 1}-1-0-3-0-{UUID}", 31),
        (f"{NOW}-3-{NOW + 1}-1-0-3-1-{UUID}", 34),
    ],
)
def test_cancel_with_another_id(text: str | None, code: int) -> None:
    """R103, and ids of other systems."""
    with pytest.raises(Refusal) as refused:
        check_cancel({} if text is None else {"uniqDelayMsgId": text})
    assert refused.value.code == code


numbers = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 100), st.integers(NOW - 100, NOW + 4000))
texts = st.one_of(st.just(UUID), st.text(max_size=40))


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "timestamp": numbers,
            "dmsgtype": numbers,
            "interval": numbers,
            "expire": numbers,
            "times": numbers,
            "uuid": texts,
            "uniqDelayMsgId": texts,
        },
    )
)
def test_any_fields_give_an_id_that_can_be_cancelled_or_a_code(message: dict[str, Any]) -> None:
    """W77: whatever is taken has an id that a cancel takes, and that says what was asked for."""
    message = {"dmsgtype": 2, "timestamp": NOW, **message}
    code = code_of(message)
    assert code in {0, 11, 31, 33, 35, 36, 37, 38}
    if code:
        return
    found = add(message)
    assert parse_id(found.id) == found
    assert check_cancel({"uniqDelayMsgId": found.id}) == found
    assert not found.is_loop or found.valid


def test_handle_of_a_timer_is_refused_with_the_way_that_works() -> None:
    """The receipt of `deliver_at_ms` has a handle, which no client can cancel: the error names who can, and how."""
    with pytest.raises(Refusal) as refused:
        check_cancel({"uniqDelayMsgId": "1760000000000-7F000001"})
    assert "returned by sendDelaySync" in refused.value.text
    assert "pyddmq timers cancel" in refused.value.text


def test_moments_in_milliseconds_are_refused_with_the_seconds() -> None:
    """DDMQ's delayed messages count seconds, and all others milliseconds."""
    with pytest.raises(Refusal, match="looks like milliseconds, write 1760000000"):
        check_add({"timestamp": 1_760_000_000_000}, now_s=1_760_000_000, interval_max=1)
