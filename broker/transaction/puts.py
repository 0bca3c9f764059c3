"""A message on its way into the half topic: RocketMQ's form of a half (TransactionalMessageBridge)."""

from __future__ import annotations

from broker.errors import MessageRefused
from broker.format.properties import PROPERTIES_BYTES_MAX, find_property
from broker.log.owner import OWNER_NAME
from broker.log.put import Put
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.release import check_waits, closed, without
from broker.scheduled.timer.puts import TimedPuts
from broker.store import Store
from broker.transaction.half import PRIVATE
from broker.transaction.halves import Halves
from broker.transaction.names import DELAY_MS, DELIVER_AT, HALF_TOPIC, LEVEL

GROUP_BYTES_MAX = 255
_ROOM_BYTES = 512
"""Left in the property block for what a put-back, a discard or a commit with a delay adds."""
_FACTS = b"TRAN_MSG\x01true\x02PGROUP\x01%b\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02__transactionId__\x01%b\x02"


def half_put(
    halves: Halves,
    put: Put,
    *,
    group: str,
    delay_level: int,
    deliver_at_ms: int,
    delay_ms: int,
    immunity_seconds: int | None,
    owner: str | None,
) -> Put:
    """Return what to append so that a message waits for its producer's decision; see `Transactions.half`."""
    store, now_ms = halves.store, halves.clock.wall_ms()
    check_waits(put, body_bytes_max=store.options.message_bytes_max, which="half")
    name = group.encode("utf-8", "surrogatepass")
    if not name or len(name) > GROUP_BYTES_MAX or b"\x01" in name or b"\x02" in name:
        raise MessageRefused(
            f"the producer group {group[:80]!r} is not a valid name: 1 to {GROUP_BYTES_MAX} bytes, "
            "without 0x01 and 0x02"
        )
    if put.reconsume_times > 0 and delay_level > 0:
        # A retry of a message that came out of a transaction is an ordinary one (RocketMQ's SendMessageProcessor).
        return store.waiting(DelayedPuts).put(put, delay_level)
    _check_delay(store, delay_level, deliver_at_ms, delay_ms, now_ms)
    block = put.properties
    immunity = find_property(block, b"CHECK_IMMUNITY_TIME_IN_SECONDS")
    key = put.unique_key or store.unique_keys.take(1, now_ms)[0]
    block = closed(without(block, PRIVATE))
    own = _FACTS % (name, put.topic.name_bytes, put.queue_id, key)
    if not put.unique_key:
        own += b"UNIQ_KEY\x01%b\x02" % key
    if immunity_seconds is not None:
        immunity = b"%d" % immunity_seconds
    if immunity:
        own += b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01%b\x02" % immunity
    for kind, value in ((LEVEL, delay_level), (DELIVER_AT, deliver_at_ms), (DELAY_MS, delay_ms)):
        if value:
            own += b"%b\x01%d\x02" % (kind, value)
    if owner is not None:
        own += b"%b\x01%b\x02" % (OWNER_NAME, owner.encode())
    room = PROPERTIES_BYTES_MAX - _ROOM_BYTES
    if len(block) + len(own) > room:
        raise MessageRefused(
            f"key, tags and properties of a message in a transaction have {len(block) + len(own)} bytes; "
            f"the limit is {room}"
        )
    return put._replace(topic=halves.topic(HALF_TOPIC), queue_id=0, properties=block + own, unique_key=key)


def _check_delay(store: Store, level: int, deliver_at_ms: int, delay_ms: int, now_ms: int) -> None:
    """Refuse now what the commit would be refused for. Raises MessageRefused."""
    if level < 0 or deliver_at_ms < 0 or delay_ms < 0:
        raise MessageRefused("a delay level, time or delay is negative; use 0 for none")
    if not level:
        limit = store.waiting(TimedPuts).options.delay_ms_max
        wait = delay_ms or deliver_at_ms - now_ms
        if (delay_ms or deliver_at_ms) and wait > limit:
            raise MessageRefused(
                f"the message of the transaction is due in {wait / 86400000:,.1f} days; the limit is "
                f"{limit / 86400000:,.1f} (timerMaxDelaySec)"
            )
