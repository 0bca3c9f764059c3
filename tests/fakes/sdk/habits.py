"""What each of DDMQ's client libraries does, as far as a node can tell them apart (docs/protocol.md, S1 to S9).

Times are the libraries' own in seconds; a run may shorten all of them alike.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHabits:
    """How a library pulls.

    Attributes:
        name: Of the library.
        compact: TCompactProtocol, as all of DDMQ's; else TBinaryProtocol.
        batch: maxBatchSize of its pulls.
        linger_ms: maxLingerTime of its pulls.
        timeout: How long it waits for an answer; then it closes the connection and keeps the results.
        retry: Pause after a pull that failed or brought nothing.
        reconnect: Pause before it connects again.
        throws_away: It forgets the results that ride on a pull when that is answered with an exception; the others
            send the same pull, with the same results, again and again.
        out_after_application: For how long it leaves a node out that answers with a TApplicationException.
        close_share: Of its batches, how many end with a last `submit` and a close that does not wait for the answer.
        drop_share: Of its batches, how many it drops with its connection, unanswered, as an interrupted thread does.
        stall_share: Of its pulls, how many it does not read the answer of for a while, while it comes in.
        skip_share: Of its messages, how many it reports nothing about (SKIP): the node's timeout decides.
        fail_share: Of its messages, how many its processor fails.
    """

    name: str
    compact: bool = True
    batch: int = 8
    linger_ms: int = 50
    timeout: float = 5.0
    retry: float = 0.05
    reconnect: float = 0.05
    throws_away: bool = False
    out_after_application: float = 0.0
    close_share: float = 0.0
    drop_share: float = 0.0
    stall_share: float = 0.0
    skip_share: float = 0.0
    fail_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerHabits:
    """How a library sends.

    Attributes:
        name: Of the library.
        compact: TCompactProtocol; else TBinaryProtocol.
        send_timeout_ms: What it tells the node.
        timeout: How long it waits for an answer; then it sends again over a new connection (S9).
        retries: How often a send is tried again before its caller is told that it failed.
        cool_down: For how long it leaves a node out after a code outside of 11 to 15.
        out_after_application: The same after a TApplicationException.
        body_in_value: It puts the body, any bytes, into the text field of old clients.
        numbered: It numbers its messages (docs/deduplication.md), as none of DDMQ's does.
        odd_key_share: Of its sends, how many have a key that is not UTF-8; they are refused, whatever comes of it.
    """

    name: str
    compact: bool = True
    send_timeout_ms: int = 50
    timeout: float = 0.1
    retries: int = 2
    cool_down: float = 2.0
    out_after_application: float = 0.0
    body_in_value: bool = False
    numbered: bool = False
    odd_key_share: float = 0.0


CONSUMERS = (
    ConsumerHabits(name="java", drop_share=0.01, skip_share=0.002, fail_share=0.01),
    ConsumerHabits(
        name="go", timeout=2.0, reconnect=5.0, retry=0.5, out_after_application=2.5, close_share=0.01, linger_ms=50
    ),
    ConsumerHabits(name="cpp", throws_away=True, fail_share=0.01),
    ConsumerHabits(name="php", batch=4, close_share=0.05),
    ConsumerHabits(name="python", stall_share=0.01, retry=0.01),
)
"""One of each, with what was seen of it; what no library is known for is given to one of them all the same.

Shares of messages and batches are those of an application's own errors and restarts.
"""

PRODUCERS = (
    ProducerHabits(name="java"),
    ProducerHabits(name="go", cool_down=0.0, out_after_application=2.5),
    ProducerHabits(name="cpp", timeout=0.2),
    ProducerHabits(name="php", body_in_value=True, odd_key_share=0.01),
    ProducerHabits(name="python", timeout=0.5, retries=5),
)
