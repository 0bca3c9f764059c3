"""What a fetcher may ack: never a message that is not done, whatever is done behind it (W94)."""

from __future__ import annotations

import pytest

from pyddmq import ClientMisuse, FetchedMessage, FetchedQueue, Fetcher, idl
from pyddmq.client.pulling.fetches import Hand

QUEUE = ("t", "q")


def row(*offsets: int, next_offset: int | None = None, qid: str = "q") -> FetchedQueue:
    """A queue of a reply with messages of these offsets."""
    messages = [FetchedMessage("t", qid, offset, None, None, b"", {}, 0, 0) for offset in offsets]
    return FetchedQueue("t", qid, offsets[-1] + 1 if next_offset is None else next_offset, messages)


def taken(hand: Hand, found: FetchedQueue) -> list[FetchedMessage]:
    """Take a reply of one queue."""
    hand.take([found], keeps_others=False)
    return found.messages


def test_position_stands_at_the_first_that_is_not_done() -> None:
    """Done in any order; one that was skipped or failed holds the position, also over later fetches."""
    hand = Hand()
    first, second, third = taken(hand, row(4, 5, 6))
    assert hand.due() == {}
    assert hand.finish(second)
    assert hand.finish(third)
    assert hand.due() == {}
    [later] = taken(hand, row(7))
    assert hand.finish(later)
    assert hand.due() == {}
    assert hand.finish(first)
    assert hand.due() == {QUEUE: 8}
    hand.acked({QUEUE: 8})
    assert hand.due() == {}
    assert not hand.finish(first)


def test_position_passes_what_was_not_given() -> None:
    """Offsets that hold nothing for the group: the reply's next offset says so."""
    hand = Hand()
    [message] = taken(hand, row(4, next_offset=9))
    assert hand.positions() == {"t": {"q": 9}}
    hand.finish(message)
    assert hand.due() == {QUEUE: 9}


def test_queue_that_is_not_in_a_reply_is_somebody_elses() -> None:
    """Nothing of it is acked any more; when it comes back it begins where the node says."""
    hand = Hand()
    [message] = taken(hand, row(4))
    taken(hand, row(0, qid="other"))
    assert not hand.finish(message)
    assert hand.due() == {}
    assert hand.positions() == {"t": {"other": 1}}


def test_reset_forgets_what_was_in_hand() -> None:
    """A reply from further back than asked: an operator moved the group, and what is acked must have come again."""
    hand = Hand()
    messages = taken(hand, row(4, 5))
    for each in messages:
        hand.finish(each)
    hand.acked(hand.due())
    again = taken(hand, row(2, 3))
    assert hand.positions() == {"t": {"q": 4}}
    assert hand.due() == {}
    hand.finish(again[0])
    assert hand.due() == {QUEUE: 3}


def test_rewind_goes_back_to_what_is_not_done() -> None:
    """And what is done behind it comes again with it."""
    hand = Hand()
    first, second, third = taken(hand, row(4, 5, 6))
    hand.finish(first)
    hand.finish(third)
    hand.rewind()
    assert hand.positions() == {"t": {"q": 5}}
    assert not hand.finish(second)
    hand.seek({QUEUE: -1})
    with pytest.raises(ClientMisuse, match="begin at 0"):
        hand.positions()


def test_empty_fetch_waits_by_itself_where_the_node_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """W94: a node that answers empty at once is not hammered; one that has news is asked again at once."""
    waits: list[float] = []
    fetcher = Fetcher("127.0.0.1:9", "low", linger_ms=5_000)
    response = idl.load("consumer").FetchResponse(results=[])
    monkeypatch.setattr(fetcher, "_call", lambda *_: response)
    monkeypatch.setattr(vars(fetcher)["_stopping"], "wait", waits.append)
    assert fetcher.fetch() == []
    [seconds] = waits
    assert seconds > 0
    empty = idl.load("consumer").QidResponse(topic="t", qid="q", nextRequestOffset=7, messages=[])
    response.results = [empty]
    fetcher.seek({QUEUE: 3})
    assert [queue.next_offset for queue in fetcher.fetch()] == [7]
    assert len(waits) == 1
    assert [queue.next_offset for queue in fetcher.fetch()] == [7]
    assert len(waits) == 2
