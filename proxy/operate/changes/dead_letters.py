"""Redriving dead letters through the admin port: page by page, shown first (dry run), durable before the answer.

Each page is one step: what it appended is durable when it is answered, and known as redriven, so that a caller that
stops anywhere continues by asking again.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from broker.log.durability import AwaitedSteps, saved
from broker.query import NotFound, QueryRefused
from broker.retry.letters import DeadLetterFilter
from broker.retry.redrive import Redrives
from broker.runtime.async_steps import run_async
from broker.runtime.file_writes import can_wait
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.store import Store
from conf.moments import check_moment
from proxy.access.rules import Permission
from proxy.node.node import Node
from proxy.operate.changes.desk import Change, ChangeBody, ChangeRefused, others_first
from proxy.operate.changes.groups import need_ready
from proxy.operate.changes.steps import durable, run_steps
from proxy.operate.lookups.dead_letters import LetterPage
from proxy.operate.lookups.in_kafka import InKafka
from proxy.operate.lookups.letters_in_kafka import KafkaRedrive
from proxy.operate.lookups.messages_in_kafka import ClusterUnavailable
from proxy.operate.lookups.redrives import Redrive
from proxy.operate.views.dead_letters import RedriveResult

PAGE_LIMIT_MAX = 1000


class RedriveBody(ChangeBody, frozen=True):
    """Which dead letters of a group are to be redriven, and how; what is left out does not matter."""

    group: str
    id: str | None = None
    topic: str | None = None
    reason: str | None = None
    action: str | None = None
    key: str | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    to: str | None = None
    again: bool = False
    dry_run: bool = True
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_LIMIT_MAX)] = 100

    def __post_init__(self) -> None:
        for moment_ms in (self.from_ms, self.until_ms):
            if moment_ms is not None:
                check_moment(moment_ms)

    @property
    def wanted(self) -> DeadLetterFilter:
        """Which are meant."""
        return DeadLetterFilter(
            id=self.id,
            topic=self.topic,
            reason=self.reason,
            action=self.action,
            key=self.key,
            from_ms=self.from_ms,
            until_ms=self.until_ms,
        )


def dead_letter_changes(node: Node) -> list[Change]:
    """Return the changes of dead letters."""

    async def redrive(body: RedriveBody) -> RedriveResult:
        opened = need_ready(node)
        store, redrives, in_kafka = opened.store, opened.redrives, InKafka(node.in_force.config)
        cluster = in_kafka.cluster_of_letters(body.group)
        if cluster is not None:
            redrive = KafkaRedrive(
                letters=node.parts.kafka.letters(cluster, body.group),
                in_kafka=in_kafka,
                runtime=node.runtime,
                cluster=cluster,
                group=body.group,
                to=body.to,
                again=body.again,
                dry=body.dry_run,
            )
            return await _redriven_in_kafka(redrive, body)
        try:
            page = LetterPage(store, body.group, body.wanted, cursor=body.cursor, limit=body.limit)
        except NotFound as error:
            raise ChangeRefused(404, f"{error}.") from error
        except QueryRefused as error:
            raise ChangeRefused(400, f"{error}.") from error
        await run_async(redrives.opening())
        work = Redrive(store, redrives, body.group, page, to=body.to, again=body.again, dry=body.dry_run)
        await run_async(work.steps())
        if not body.dry_run:
            await durable(opened)
            if work.is_last:
                await run_steps(_saved(store, redrives, node.runtime.limited_log))
        return work.result()

    return [
        Change(
            name="redrive_dead_letters",
            path="/api/dead-letters/redrive",
            action=Permission.OPERATE,
            # They go back to where they came from, or to another topic.
            on=lambda body: (body.group,) if body.to is None else (body.group, body.to),
            run=redrive,
            body=RedriveBody,
        )
    ]


async def _redriven_in_kafka(redrive: KafkaRedrive, body: RedriveBody) -> RedriveResult:
    try:
        async with others_first():
            return await redrive.run(body.wanted, body.cursor, body.limit)
    except NotFound as error:
        raise ChangeRefused(404, f"{error}.") from error
    except QueryRefused as error:
        raise ChangeRefused(400, f"{error}.") from error
    except ClusterUnavailable as error:
        raise ChangeRefused(503, f"{error}.") from error


def _saved(store: Store, redrives: Redrives, limited_log: RateLimitedLog) -> AwaitedSteps[None]:
    """Write down how far redrives are; the log knows it anyhow, so a full disk costs nothing but reading it."""
    try:
        yield from saved(store.writes, redrives.writing())
    except OSError as error:
        limited_log.note("redrives_not_written", error=str(error), cost="the log is read for them")
        if not can_wait(error):
            raise store.writes.fail("writing the checkpoint of redrives", error) from error
