"""How many steps a frame may make its scanner take for what the scanner has no use for.

Unknown fields, fields of another type than theirs, fields given twice or out of order, and elements of
containers that are passed over one by one: newer peers send a few of them, and a frame of a few megabytes could hold
millions. What is passed over as one slice (bytes, numbers of fixed width) is one step, however long it is.
"""

from __future__ import annotations

from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import OFFSETS_MAX, PROPERTIES_PER_CALL_MAX, STEPS_MAX


class Steps:
    """The steps that are left of a frame.

    Attributes:
        left: How many.
        offsets: How many success and fail offsets it may still have.
        numbers: How many numbers of deliveries and reasons.
        properties: How many properties of messages.
    """

    __slots__ = ("left", "numbers", "offsets", "properties")

    def __init__(self, left: int = STEPS_MAX) -> None:
        self.left = left
        self.offsets = OFFSETS_MAX
        self.numbers = OFFSETS_MAX
        self.properties = PROPERTIES_PER_CALL_MAX

    def take(self, count: int = 1) -> None:
        """Take so many of them. Raises ArgumentsError, with nothing taken, when there are not as many."""
        left = self.left - count
        if left < 0:
            text = f"more than {STEPS_MAX} fields and elements that are unknown, repeated or out of order"
            raise ArgumentsError(text)
        self.left = left
