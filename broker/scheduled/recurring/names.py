"""The name under which a loop's state is in a message that waits."""

LOOP_NAME = b"__PYDDMQ_LOOP"
"""Holds the id of the pending occurrence; what is delivered here does not have it."""
