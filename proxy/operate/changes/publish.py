"""Publishing one message through the admin port, checked as a producer's (`proxy.services.message_checks`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace

from broker.errors import StoreError
from broker.log.put import Put
from proxy.access.rules import Permission
from proxy.node.node import Node
from proxy.operate.changes.desk import Change, ChangeBody, ChangeRefused, others_first
from proxy.operate.changes.groups import need_ready
from proxy.operate.changes.steps import durable
from proxy.operate.views.changes import PublishResult
from proxy.services.kafka.codes import refusal_of
from proxy.services.kafka.ports import KafkaPort
from proxy.services.kafka.sends import record_of
from proxy.services.message_checks import MessageChecks, give_tokens_back
from proxy.services.message_rules import Refusal
from proxy.services.topic_port import TopicPort
from proxy.wire.values import SendMessage
from upstream.kafka.link import KafkaFailure

_BORN_HOST = bytes((127, 0, 0, 1)) + bytes(4)


class PublishBody(ChangeBody, frozen=True):
    """One message; a delay by level, by moment, or by span."""

    topic: str
    body: str
    key: str = ""
    tag: str = ""
    properties: Mapping[str, str] = {}
    delay_level: int = 0
    deliver_at_ms: int = 0
    delay_ms: int = 0

    @property
    def noted(self) -> PublishBody:
        """Without the message's body and properties: those may be secrets."""
        return replace(self, body=f"({len(self.body)} characters)", properties={})


def publish_changes(node: Node) -> list[Change]:
    """Return the change that publishes a message."""

    async def publish(body: PublishBody) -> PublishResult:
        opened = need_ready(node)
        ports, store, config = opened.ports, opened.store, node.in_force.config
        checks = MessageChecks(
            ports.by_name,
            store=store,
            runtime=node.runtime,
            body_bytes_max=config.node.max_message_bytes,
            auto_create=lambda name: ports.auto_create(name, config),
            disabled=lambda name: name in config.topics and not config.topics[name].enabled,
        )
        puts: list[Put] = []
        found: list[TopicPort] = []
        try:
            delays = checks.check([_message(body)], puts, found)
            waits = checks.delay(puts, found, delays)
            if isinstance(found[0], KafkaPort):
                [unique_key] = store.unique_keys.take(1, node.runtime.clock.wall_ms())
                return await _publish_to_kafka(puts[0], found[0], unique_key)
        except Refusal as refusal:
            raise ChangeRefused(409, f"{refusal.text}.") from refusal
        except UnicodeError as error:
            raise ChangeRefused(400, f"The message is not valid UTF-8: {error}.") from error
        try:
            [position] = store.append(puts, born_ms=node.runtime.clock.wall_ms(), born_host=_BORN_HOST)
        except StoreError:
            give_tokens_back(found)
            raise
        await durable(opened)
        port = found[0]
        port.messages.value += 1
        port.body_bytes.value += len(body.body.encode())
        return PublishResult(
            id=position.unique_key.decode(),
            topic=body.topic,
            queue=None if waits else position.queue_id,
            offset=None if waits else position.offset,
        )

    return [
        Change(
            name="publish_message",
            path="/api/messages/publish",
            action=Permission.PRODUCE,
            on=lambda body: (body.topic,),
            run=publish,
            body=PublishBody,
        )
    ]


async def _publish_to_kafka(put: Put, port: KafkaPort, unique_key: bytes) -> PublishResult:
    """Publish a message to its cluster. Raises Refusal: it is not stored, or that is not known."""
    ended: asyncio.Future[tuple[KafkaFailure | None, int, int]] = asyncio.get_running_loop().create_future()

    def done(failure: KafkaFailure | None, partition: int, offset: int) -> None:
        if not ended.done():
            ended.set_result((failure, partition, offset))

    try:
        port.producer.produce(*record_of(put, port, unique_key), done)
        async with others_first():
            failure, partition, offset = await ended
        if failure is not None:
            raise failure
    except KafkaFailure as error:
        give_tokens_back([port])
        raise refusal_of(error, port.cluster, port.topic.name) from error
    port.messages.value += 1
    port.body_bytes.value += len(put.body)
    waits = port.waits is not None
    return PublishResult(
        id=unique_key.decode(),
        topic=port.topic.name,
        queue=None if waits else partition,
        offset=None if waits else offset,
    )


def _message(body: PublishBody) -> SendMessage:
    names = tuple(name.encode() for name in body.properties)
    values = tuple(value.encode() for value in body.properties.values())
    return SendMessage(
        topic=body.topic.encode(),
        key=body.key.encode() or None,
        value=None,
        hash_id=0,
        tags=body.tag.encode() or None,
        partition_id=-1,
        body=memoryview(body.body.encode()),
        version=None,
        properties=(names, values) if names else None,
        delay_level=body.delay_level or None,
        deliver_at_ms=body.deliver_at_ms or None,
        delay_ms=body.delay_ms or None,
    )
