"""Result codes of the producer service and codes of PullException, listed once; docs/protocol.md shows them."""

from __future__ import annotations

import enum
from typing import Self


class _Code(enum.IntEnum):
    """A number that peers get, with its meaning and whether it pays to try again."""

    text: str
    retriable: bool

    def __new__(cls, number: int, text: str, retriable: bool) -> Self:
        code = int.__new__(cls, number)
        code._value_ = number
        code.text = text
        code.retriable = retriable
        return code


class ResultCode(_Code):
    """`Result.code` and `DelayResult.code`: DDMQ's numbers (R, section 4.1 of its reference); from 40 on our own (D33).

    DDMQ's client libraries send again after any code above 0; 11 to 15 leave the node in their rotation, others cool
    it down (S9).

    Attributes:
        text: Meaning, for people.
        retriable: Whether the same message may be taken another time.
    """

    OK = 0, "stored, or nothing to store", False
    FAIL_UNKNOWN = 10, "the message could not be stored", True
    FAIL_ILLEGAL_MSG = 11, "the message violates a rule", False
    FAIL_TIMEOUT = 12, "the outcome was not known within its timeout; the message may still be stored", True
    FAIL_TOPIC_NOT_ALLOWED = 13, "the topic accepts no messages here", False
    FAIL_TOPIC_NOT_EXIST = 14, "no such topic", False
    FAIL_REFUSED_BY_RATE_LIMITER = 15, "above a rate: the topic's, the node's or the client's", True
    FAIL_TOPIC_IS_NOT_DELAY = 18, "a delay message for a topic without delays", False
    FAIL_TOPIC_IS_DELAY = 19, "an ordinary message for a delay topic", False
    FAIL_SERVER_SHUTDOWN = 20, "the node is starting or shutting down", True
    FAIL_NO_PRODUCER_FOR_CLUSTER = 21, "the topic's cluster is not connected", True
    FAIL_ILLEGAL_UNIQ_DELAY_MSG_ID = 30, "cancel with a blank or malformed id", False
    FAIL_ILLEGAL_DELAY_MSG_TYPE = 31, "delay type is not 2, 3 or 4", False
    FAIL_ILLEGAL_DELAY_ACTION = 32, "delay action is not 1 or 2", False
    FAIL_ILLEGAL_DELAY_TIMESTAMP = 33, "delay timestamp is below 1,000,000,000 or too far ahead", False
    FAIL_ILLEGAL_DELAY_INNER_TOPIC_SEQ = 34, "cancel with an id of another installation", False
    FAIL_ILLEGAL_DELAY_LOOP_TIMES = 35, "delay with times other than 0, or loop with times below 1", False
    FAIL_ILLEGAL_DELAY_LOOP_EXPIRE = 36, "loop that expires before it begins", False
    FAIL_ILLEGAL_DELAY_LOOP_INTERVAL = 37, "loop interval below 3 s", False
    FAIL_ILLEGAL_DELAY_LOOP_EXPONENT_BASE = 38, "loop exponent base below 2", False
    FAIL_ILLEGAL_PRODUCER_GROUP = 40, "no producer group, or one that is not a valid group name", False
    FAIL_NO_SUCH_HALF = 41, "no half message of this handle", False
    FAIL_OTHER_PRODUCER_GROUP = 42, "the half message is of another producer group", False
    FAIL_ILLEGAL_TRANSACTION_STATE = 43, "the state is not 0, 8 or 12", False
    FAIL_DECIDED_OTHERWISE = 44, "the transaction has been decided the other way", False
    FAIL_TOO_LATE = 45, "past its immunity: only an answer to a check decides the half now", False
    FAIL_DISCARDED = 46, "the half ran out of checks and waits for an operator", False
    FAIL_COMMIT_REFUSED = 47, "the message cannot be stored where it belongs; the half stays undecided", False
    FAIL_GAP = 48, "a message with a lower number of its producer is missing here", False
    FAIL_WRITE_DIFFERS = 49, "the batch was begun with other rows, or in other partitions", False
    FAIL_WRITE_WAITS = 50, "another partition of the batch must be declared first, or it cannot be noted now", True


class Repeat(enum.IntEnum):
    """`repeat` of a result: what became of a message that has a number (docs/deduplication.md)."""

    FIRST_RECEIPT = 1
    """Stored before; the result is the receipt of that."""
    OLDER = 2
    """Stored before, and longer ago than receipts are known."""
    GAP = 3
    """Not stored: one that its producer numbered lower is missing."""


class PullCode(_Code):
    """`PullException.code`. DDMQ declares the exception and never raises it (R, 1.1.9; W6): the numbers are ours.

    They are stable: a number keeps its meaning, new meanings get new numbers.

    Attributes:
        text: Meaning, for people.
        retriable: Whether the same call may succeed on this node later without any change.
    """

    NO_SUCH_GROUP = 1, "no such group on this node", False
    NO_SUCH_TOPIC = 2, "the group does not subscribe to this topic", False
    STARTING = 3, "the node is starting", True
    OVERLOADED = 4, "too many pulls are waiting", True
    GROUP_DISABLED = 5, "the group or its topic is disabled", False
    ACKS_REFUSED = 6, "results cannot be recorded: the disk is full", True
    STORE_FAILED = 7, "results cannot be recorded until the node is restarted: a write failed", False
    DENIED = 8, "no rule allows this to the client", False
    LIMITED = 9, "the client exceeds its own limit", True
    LOW_LEVEL = 10, "the group is low level: fetch and ack", False
    NOT_LOW_LEVEL = 11, "the group is not low level: pull and submit", False
    NO_SUCH_QUEUE = 12, "a requested queue is not on this node", False
    OTHER_CLUSTER = 13, "the node serves another broker cluster", False
