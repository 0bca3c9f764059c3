"""Checks of every message before it is stored, in each call: topic, body, properties, type, rate.

A message that passes has its topic's port, its queue (D7), its property block in RocketMQ's form and a `Put`; one that
does not is a `Refusal` with DDMQ's code (R91, D34).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.errors import DiskFull, MessageRefused, StoreError
from broker.format.java import queue_of_hash, string_hash
from broker.format.message_type import MessageKind, MessageType, MessageTypeMismatch, mismatch
from broker.format.properties import find_property
from broker.log.put import Put
from broker.queues.topics import Topic, is_system
from broker.runtime.accelerators import accelerated
from broker.runtime.bundle import Runtime
from broker.runtime.seams import Buffer
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.timer.puts import TimedPuts
from broker.store import Store
from conf.moments import check_moment
from proxy.services.kafka.ports import KafkaPort, Until
from proxy.services.message_rules import Limited, PropertyRules, Refusal
from proxy.services.topic_port import TopicPort
from proxy.wire.texts import shown
from proxy.wire.values import SendMessage
from pyddmq.codes import ResultCode
from upstream.waiting.limits import TokenBucket

_HASHES_MAX = 65_536

_MISMATCH_CODES = {
    MessageTypeMismatch.DELAY: ResultCode.FAIL_TOPIC_IS_NOT_DELAY,
    MessageTypeMismatch.NO_DELAY: ResultCode.FAIL_TOPIC_IS_DELAY,
}

# A copy of Put.__new__'s work without its Python frame: there is one per message.
_new_put = tuple.__new__


class Delay(NamedTuple):
    """How a message is to wait: by a level, until a moment, or for a while; one of the three is above 0.

    Attributes:
        level: A delay level.
        deliver_at_ms: When it is due, ms since the epoch.
        delay_ms: Ms from receipt to then.
    """

    level: int
    deliver_at_ms: int
    delay_ms: int


def _check_none(  # noqa: PLR0917 - what compiled functions take by name costs more
    messages: Sequence[SendMessage],
    puts: list[Put],
    ports: list[TopicPort],
    known_ports: dict[bytes, TopicPort],
    body_bytes_max: int,
    good: dict[tuple[bytes, ...], bytes],
    key_hash: Callable[[bytes], int],
    keyed: bool,
) -> int:
    """Leave all to the general way, which is the quickest in Python; `proxy.services.check_accelerator` does more.

    Args:
        messages: What was sent.
        puts: Gets what becomes of the first messages, as far as they are usual.
        ports: Gets the port of each of these.
        known_ports: Published topics.
        body_bytes_max: Largest body.
        good: Sets of names that may stand in a message (`PropertyRules.good`).
        key_hash: Java's hash of a key.
        keyed: As `MessageChecks.check` has it.

    Returns:
        How many these are; the next one goes the general way.
    """
    return 0


_check = accelerated("proxy.services.check_accelerator", "check", _check_none)


class MessageChecks:
    """The checks of one producer port.

    Args:
        ports: Published topics by UTF-8 name; read at each call, so that a reload shows at once.
        store: Where messages go.
        runtime: Its wall clock is that from which delays count; its randomness is for partitionId -2 and below.
        body_bytes_max: Largest body (R91).
        auto_create: Makes a topic on its first publish, or answers None where that is off.
        disabled: Whether a topic is configured and switched off.
    """

    def __init__(
        self,
        ports: dict[bytes, TopicPort],
        *,
        store: Store,
        runtime: Runtime,
        body_bytes_max: int,
        auto_create: Callable[[str], TopicPort | None],
        disabled: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._ports = ports
        self._topics = store.topics
        self._delayed, self._timed = store.waiting(DelayedPuts), store.waiting(TimedPuts)
        self._clock = runtime.clock
        self._random = runtime.random
        self._body_bytes_max = body_bytes_max
        self._auto_create = auto_create
        self._disabled = disabled
        self._rules = PropertyRules()
        self._hashes: dict[bytes, int] = {}

    def check(
        self,
        messages: Sequence[SendMessage],
        puts: list[Put],
        ports: list[TopicPort],
        *,
        transactional: bool = False,
        charge: bool = True,
        keyed: bool = False,
    ) -> dict[int, Delay]:
        """Check messages in order and choose their queues: each message itself, its topic, its type, its rate (R102).

        Args:
            messages: What was sent.
            puts: Gets each message as it would be stored without a delay.
            ports: Gets the port of each.
            transactional: They are half messages, for topics with a message type.
            charge: Whether they take their rate tokens; where more is to be asked of them, `charge` does afterwards.
            keyed: They have unique keys of their producer's, which were judged; else none has.

        Returns:
            What was asked for those that are to wait, by place; `delay` turns their puts into ones that wait.

        Raises:
            Refusal: The message after those in `puts` and `ports` is refused; rate tokens were taken for these.
        """
        known_ports = self._ports
        body_bytes_max = self._body_bytes_max
        block_of = self._rules.block
        delays: dict[int, Delay] = {}
        done = _check(messages, puts, ports, known_ports, body_bytes_max, self._rules.good, self._key_hash, keyed)
        if done:
            if done == len(messages):
                return delays
            messages = messages[done:]
        # Unpacked at once: an attribute of a named tuple costs more than a local, and this runs for every message.
        for (
            topic, key, value, hash_id, tags, partition_id, body, _, properties, level, deliver_at, delay, unique_key
        ) in messages:  # fmt: skip
            content = value if body is None else body
            if not content or len(content) > body_bytes_max:
                raise self._body_refusal(content)
            if level or deliver_at or delay:
                delays[len(puts)] = _checked_delay(level, deliver_at, delay)
            block = block_of(key, tags, properties)
            if (unique_key is not None) != keyed:
                raise _mixed_refusal()
            if unique_key is not None:
                block = b"%bUNIQ_KEY\x01%b\x02" % (block, unique_key)
            port = known_ports.get(topic)
            if port is None:
                port = self._new_port(topic)
            queues = port.queue_count
            if isinstance(port, KafkaPort):
                queue_id = port.place(partition_id, hash_id, self._random)
            elif partition_id >= 0:
                queue_id = partition_id % queues
            elif partition_id < -1:
                queue_id = self._random.randrange(queues)
            elif hash_id:
                queue_id = queue_of_hash(hash_id, queues)
            elif key:
                queue_id = queue_of_hash(self._key_hash(key), queues)
            else:
                queue_id = port.round = (port.round + 1) % queues
            if port.guarded:
                if port.topic.message_type is not MessageType.MIXED:
                    ordered = bool(hash_id) or partition_id >= 0
                    delayed = bool(level or deliver_at or delay)
                    self._check_type(port.topic, MessageKind(transactional, delayed, ordered or bool(key), ordered))
                if charge:
                    self.charge(port)
            puts.append(
                _new_put(Put, (port.topic, queue_id, content, block, tags or b"", unique_key or b"", 0, 0, 0, 0))
            )
            ports.append(port)
        return delays

    def delay(
        self, puts: list[Put], ports: list[TopicPort], delays: Mapping[int, Delay], owner: str | None = None
    ) -> dict[int, int]:
        """Turn puts, by place, into ones that wait; due times are fixed now (D35). Those of Kafka wait by their port.

        Returns:
            The places of those that wait (a timer whose time has passed does not), with the TIMER_OUT_MS of timers and
            0 for levels.

        Raises:
            Refusal: One cannot wait so; it and those behind it are left out, and their rate tokens given back.
        """
        now_ms = self._clock.wall_ms()
        waiting: dict[int, int] = {}
        for place, (level, deliver_at_ms, delay_ms) in delays.items():
            put, port = puts[place], ports[place]
            if isinstance(port, KafkaPort):
                due_ms = now_ms + self._delayed.levels.ms(level) if level else deliver_at_ms or now_ms + delay_ms
                try:
                    until = Until(due_ms, "level" if level else "timer", owner or "", level=level or 0)
                    ports[place] = port.until(until, now_ms)
                except Refusal:
                    give_tokens_back(ports[place:])
                    del puts[place:], ports[place:]
                    raise
                if ports[place] is not port:
                    waiting[place] = 0 if level else due_ms
                continue
            try:
                if level:
                    delayed = self._delayed.put(put, level)
                else:
                    delayed = self._timed.put(put, deliver_at_ms or now_ms + delay_ms)
            except StoreError as error:
                give_tokens_back(ports[place:])
                del puts[place:], ports[place:]
                raise store_refusal(error) from error
            if delayed is not put:
                puts[place] = delayed
                waiting[place] = 0 if level else int(find_property(delayed.properties, b"TIMER_OUT_MS") or 0)
        return waiting

    def half_delay(self, delay_level: int, deliver_at_ms: int, delay_ms: int) -> tuple[int, int]:
        """Return the moment and the delay that a commit begins, ms; 0, 0: none. A level wins, then a moment (D32)."""
        if delay_level:
            return 0, self._delayed.levels.ms(delay_level)
        return deliver_at_ms, 0 if deliver_at_ms else delay_ms

    def dues_ms(self, delays: Iterable[Delay]) -> list[int]:
        """Return when messages that are to wait are due, by now; ms since the epoch."""
        now_ms = self._clock.wall_ms()
        levels = self._delayed.levels
        return [
            now_ms + levels.ms(level) if level else deliver_at_ms or now_ms + delay_ms
            for level, deliver_at_ms, delay_ms in delays
        ]

    def cluster_of(self, topic: bytes) -> str | None:
        """Return the Kafka cluster of a published topic; None: it is not in Kafka."""
        port = self._ports.get(topic)
        return port.cluster if isinstance(port, KafkaPort) else None

    @property
    def now_ms(self) -> int:
        """The wall clock from which delays count."""
        return self._clock.wall_ms()

    def _body_refusal(self, content: Buffer | None) -> Refusal:
        if not content:
            return Refusal(ResultCode.FAIL_ILLEGAL_MSG, "the body is empty; set body or value")
        text = f"the body has {len(content)} bytes; the limit is {self._body_bytes_max}"
        return Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)

    @staticmethod
    def _check_type(topic: Topic, kind: MessageKind) -> None:
        problem = mismatch(topic.message_type, kind)
        if problem is not None:
            code = _MISMATCH_CODES.get(problem, ResultCode.FAIL_ILLEGAL_MSG)
            raise Refusal(code, f"topic {topic.name} is of the type {topic.message_type}: it {problem}")

    @staticmethod
    def charge(port: TopicPort) -> None:
        """Take the rate tokens of one message, its topic's and the node's (R94). Raises Limited: one is not there."""
        limit, node_limit = port.limit, port.node_limit
        if limit is not None and _spent(limit):
            text = f"topic {port.topic.name} is above its maxTps; send more slowly"
            raise Limited(text, port.retry_ms, after_ms=_after_ms(limit))
        if node_limit is not None:
            if _spent(node_limit):
                text = "the node is above its maxTps; send more slowly, or to another node"
                raise Limited(text, port.retry_ms, after_ms=_after_ms(node_limit))
            node_limit.take(1)
        if limit is not None:
            limit.take(1)

    def _key_hash(self, key: bytes) -> int:
        """Java's hash of a key, remembered: it costs microseconds in Python, and keys come again."""
        known = self._hashes.get(key)
        if known is None:
            if len(self._hashes) >= _HASHES_MAX:
                self._hashes.clear()
            known = self._hashes[key] = string_hash(key.decode())
        return known

    def _new_port(self, name: bytes) -> TopicPort:
        try:
            port = self._auto_create(shown(name))
        except StoreError as error:
            raise store_refusal(error) from error
        if port is None:
            raise self._no_topic(shown(name))
        return port

    def _no_topic(self, text: str) -> Refusal:
        topic = self._topics.get(text)
        if is_system(text) or (topic is not None and topic.system):
            why = f"{text} is an internal topic of the broker; clients cannot send to it"
        elif self._disabled(text):
            why = f"topic {text} is disabled; set `enabled: true` for it in the configuration"
        elif topic is not None:
            why = f"topic {text} is not served; it is not in the configuration"
        else:
            why = f"no topic {text!r}; add it under topics in the configuration"
            return Refusal(ResultCode.FAIL_TOPIC_NOT_EXIST, why)
        return Refusal(ResultCode.FAIL_TOPIC_NOT_ALLOWED, why)


def _mixed_refusal() -> Refusal:
    text = "some messages of the batch have a uniqKey and others have none; set it for all or none"
    return Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)


def store_refusal(error: StoreError) -> Refusal:
    """Return the answer to a producer when the store does not take a message."""
    if isinstance(error, MessageRefused):
        return Refusal(ResultCode.FAIL_ILLEGAL_MSG, str(error))
    if isinstance(error, DiskFull):
        return Refusal(ResultCode.FAIL_UNKNOWN, f"disk full: {error}")
    return Refusal(ResultCode.FAIL_UNKNOWN, str(error))


def give_tokens_back(ports: Sequence[TopicPort]) -> None:
    """Return the rate tokens of messages that are not stored after all."""
    for port in ports:
        if port.limit is not None:
            port.limit.take(-1)
        if port.node_limit is not None:
            port.node_limit.take(-1)


def _spent(limit: TokenBucket) -> bool:
    available = limit.available()
    return available is not None and available < 1


def _after_ms(limit: TokenBucket) -> int:
    return int(limit.wait_seconds() * 1000) + 1


def _checked_delay(level: int | None, deliver_at_ms: int | None, delay_ms: int | None) -> Delay:
    """Return what a message asks for. Raises Refusal: it cannot be delayed so."""
    asked = Delay(level or 0, deliver_at_ms or 0, delay_ms or 0)
    if min(asked) < 0:
        if asked.level < 0:
            text = f"delayLevel {level} is negative; use 1 and above (docs/delays.md), or omit it"
        elif asked.delay_ms < 0:
            text = f"delayMs {delay_ms} is negative; use the milliseconds to wait, or omit it"
        else:
            text = f"deliverAtMs {deliver_at_ms} is negative; use milliseconds since 1970, or omit it"
        raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
    if asked.count(0) < 2:
        text = "delayLevel, deliverAtMs and delayMs exclude each other; set only one"
        raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, text)
    if asked.deliver_at_ms:
        try:
            check_moment(asked.deliver_at_ms)
        except ValueError as error:
            raise Refusal(ResultCode.FAIL_ILLEGAL_MSG, f"deliverAtMs: {error}") from error
    return asked
