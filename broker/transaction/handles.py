"""The handle of a transaction: what a producer gives back to decide it, opaque to it.

`offset-physical-id`: queue offset and commit-log offset of the half in decimal digits, and the transaction's id. The
id finds the half again when it was put elsewhere in the log; the offsets only save the search.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.format.numbers import whole_number

HANDLE_CHARS_MAX = 1024


class TransactionHandle(NamedTuple):
    """Queue offset and commit-log offset of the half, transaction id."""

    offset: int
    physical: int
    transaction_id: str

    def __str__(self) -> str:
        return f"{self.offset}-{self.physical}-{self.transaction_id}"


def parse_handle(text: str) -> TransactionHandle | None:
    """Return what a handle says; None when it is none."""
    offset, _, rest = text[: HANDLE_CHARS_MAX + 1].partition("-")
    physical, _, transaction_id = rest.partition("-")
    places = whole_number(offset), whole_number(physical)
    if len(text) > HANDLE_CHARS_MAX or not transaction_id or places[0] is None or places[1] is None:
        return None
    return TransactionHandle(places[0], places[1], transaction_id)
