"""When a failed send is sent again, how long after, and what its receipt says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyddmq.client.errors import (
    CannotConnect,
    ClientError,
    ClientMisuse,
    ConnectionLost,
    NotThrift,
    pull_refusal,
    send_refusal,
)
from pyddmq.client.sends import HALF, OutgoingMessage, Resending, SendReceipt, knows_numbers, receipts_of, wire_message

REFUSED, LOST = CannotConnect("h:1", "refused"), ConnectionLost("h:1", "send", "reset")
SHUTTING_DOWN, LIMITED, ILLEGAL = (send_refusal(code, "") for code in (20, 15, 11))


def resending(*, resends: int = 2, pause_ms: int = 100, patience_ms: int = 5000) -> Resending:
    """Two more attempts, and five seconds of patience."""
    return Resending(resends=resends, pause_ms=pause_ms, patience_ms=patience_ms, on_resend=None)


@pytest.mark.parametrize(
    ("error", "attempts", "is_known", "patience_left", "is_over"),
    [
        (LOST, 2, False, True, False),
        (LOST, 3, False, True, True),
        (LOST, 3, True, True, False),
        (LOST, 3, True, False, True),
        (REFUSED, 9, True, True, False),
        (SHUTTING_DOWN, 9, True, True, False),
        (LIMITED, 2, True, True, False),
        (LIMITED, 3, True, True, True),
        (ILLEGAL, 1, True, True, True),
        (NotThrift("h:1", "HTTP"), 1, True, True, True),
    ],
)
def test_send_is_over_after_its_resends_unless_a_node_that_knows_numbers_is_awaited(
    error: ClientError, attempts: int, is_known: bool, patience_left: bool, is_over: bool
) -> None:
    """Patience is for a node that is away; what repeating cannot cure is not repeated."""
    made = resending()
    assert made.is_over("send", error, attempts, is_known=is_known, patience_left=patience_left) is is_over


def test_half_that_may_be_stored_is_not_sent_again_where_that_could_make_a_second_one() -> None:
    """A second half would be asked about, and maybe committed, for ever apart from the first."""
    made = resending()
    assert made.is_over(HALF, LOST, 1, is_known=False, patience_left=True)
    assert not made.is_over(HALF, LOST, 1, is_known=True, patience_left=True)
    assert not made.is_over(HALF, REFUSED, 1, is_known=False, patience_left=True)


@pytest.mark.parametrize(
    ("pause_ms", "attempts", "waits"),
    [(100, 1, 100), (100, 2, 100), (100, 3, 200), (100, 5, 800), (100, 6, 1000), (100, 500, 1000), (3000, 9, 3000)],
)
def test_pause_is_as_it_was_asked_for_and_doubles_while_patience_lasts(
    pause_ms: int, attempts: int, waits: int
) -> None:
    """Up to a second, so that a node that comes back is found; a longer one that was asked for stays."""
    assert resending(pause_ms=pause_ms).wait_ms(attempts, LOST) == waits
    assert resending(pause_ms=0).wait_ms(attempts, LOST) == 0


def test_pause_is_as_long_as_the_node_says_within_reason() -> None:
    """A client above its rate comes when it may; one that believed any number would never come."""
    assert resending(pause_ms=100).wait_ms(1, send_refusal(15, "", 2_500)) == 2_500
    assert resending(pause_ms=100).wait_ms(1, send_refusal(15, "", 5)) == 100
    assert resending(pause_ms=100).wait_ms(1, send_refusal(15, "", -1)) == 100
    assert resending(pause_ms=100).wait_ms(1, send_refusal(15, "", 1 << 30)) == 30_000
    assert pull_refusal(9, "", 700).retry_after_ms == 700
    assert pull_refusal(9, "").retry_after_ms == 0


@pytest.mark.parametrize("name", ["resends", "pause_ms", "patience_ms"])
def test_negative_number_is_the_programs_own_mistake(name: str) -> None:
    """Said when the producer is made, and not with the first send that fails."""
    with pytest.raises(ClientMisuse, match="must be 0 or above"):
        resending(**{name: -1})


def reported(**fields: Any) -> Any:
    """An answer, or a receipt; what is not named was not told."""
    return SimpleNamespace(**{"msg": None, "repeat": None, "receipts": None, **fields})


def test_message_leaves_out_what_was_not_asked_for() -> None:
    """A node of DDMQ's does not know the additive fields; absent, they cost it nothing."""
    message = OutgoingMessage(topic="t", body=bytearray(b"x"), properties={})
    made = wire_message(SimpleNamespace(Message=SimpleNamespace), message)
    assert (made.body, made.properties) == (b"x", None)
    with pytest.raises(ClientMisuse, match=r"the body of a message is str: give bytes"):
        wire_message(SimpleNamespace(Message=SimpleNamespace), OutgoingMessage(topic="t", body="x"))  # type: ignore[arg-type]
    assert (made.delayLevel, made.deliverAtMs, made.delayMs) == (None, None, None)


@pytest.mark.parametrize(
    ("answer", "knows"),
    [
        (reported(repeat=1), True),
        (reported(receipts=[SimpleNamespace(msgId="K1")]), True),
        (reported(receipts=[SimpleNamespace(msgId="other")]), False),
        (reported(msgId="K1"), True),
        (reported(msgId=None, transactionId="K1"), True),
        (reported(), False),
    ],
)
def test_node_knows_numbers_when_it_names_a_message_by_its_number(answer: Any, knows: bool) -> None:
    """Only then is it safe to be patient: any other node stores each attempt anew."""
    assert knows_numbers(answer, [SimpleNamespace(uniqKey="K1")]) is knows
    assert knows_numbers(reported(receipts=[SimpleNamespace(msgId=None)]), [SimpleNamespace(uniqKey=None)]) is False


def test_batch_has_a_receipt_for_each_message_also_from_a_node_that_tells_none() -> None:
    """DDMQ's stores the batch and says nothing of places."""
    idl = SimpleNamespace(Receipt=lambda: SimpleNamespace(msgId=None, qid=None, offset=None, handle=None))
    messages = [SimpleNamespace(uniqKey="K1"), SimpleNamespace(uniqKey="K2")]
    unknown = SendReceipt(code=0, msg="", message_id="", qid="", offset=-1, attempts=3)
    for receipts in (None, [], [SimpleNamespace(msgId="K1", qid="q", offset=0, handle=None)]):
        assert receipts_of(idl, reported(receipts=receipts), messages, 3) == [unknown, unknown]
    assert receipts_of(idl, reported(), [SimpleNamespace(uniqKey=None)], 3) == [unknown]
    places = [SimpleNamespace(msgId=key, qid="q", offset=at, handle=None) for at, key in enumerate(("K1", "K9"))]
    first, second = receipts_of(idl, reported(receipts=places, repeat=1), messages, 3)
    assert first == SendReceipt(code=0, msg="", message_id="K1", qid="q", offset=0, attempts=3, numbered=True, repeat=1)
    assert (second.offset, second.numbered) == (1, False)
