"""From what a group says about itself to what the admin port shows of it."""

from __future__ import annotations

from proxy.operate.view import Delivery, GroupView, QueueLag, StuckKey, SubscriptionView
from upstream.delivery.stats import GroupStats, TopicStats
from upstream.delivery.stats import StuckKey as StuckKeyStats


def group_view(stats: GroupStats, *, details_max: int) -> GroupView:
    """Return the view of a group, with at most `details_max` deliveries, and as many stuck keys per topic."""
    return GroupView(
        group=stats.group,
        topics=[_subscription(topic, details_max) for topic in stats.topics],
        in_flight=[
            Delivery(topic=each.topic, qid=each.qid, offset=each.offset, holder=each.holder, since_ms=each.since_ms)
            for each in stats.in_flight[:details_max]
        ],
        in_flight_total=stats.in_flight_total,
        parked=stats.parked,
    )


def _subscription(topic: TopicStats, details_max: int) -> SubscriptionView:
    left = [queue.left for queue in topic.queues if queue.left is not None]
    return SubscriptionView(
        topic=topic.topic,
        state=topic.state,
        in_flight=topic.in_flight,
        waiting=topic.waiting,
        buffered=topic.buffered,
        retrying=topic.retrying,
        reading_stopped=topic.reading_stopped,
        queues=[
            QueueLag(
                qid=queue.qid,
                committed=queue.committed,
                produced=queue.produced,
                lag=queue.lag,
                lag_seconds=queue.lag_seconds,
            )
            for queue in topic.queues
        ],
        stuck_keys=[_key(key) for key in topic.stuck_keys[:details_max]],
        failing=[_key(key) for key in topic.failing[:details_max]],
        failing_total=topic.failing_total,
        burials_refused=topic.burials_refused,
        problem=topic.problem,
        stuck_keys_total=topic.stuck_keys_total,
        paused_since_ms=topic.paused.since_ms if topic.paused is not None else None,
        paused_by=topic.paused.who if topic.paused is not None else None,
        owner=topic.owner,
        lost=topic.loss.messages,
        lost_at_ms=topic.loss.at_ms,
        expires_seconds=min((each.seconds for each in left if each.seconds is not None), default=None),
        expires_bytes=min((each.bytes for each in left if each.bytes is not None), default=None),
        expires_share=min((each.share for each in left if each.share is not None), default=None),
    )


def _key(key: StuckKeyStats) -> StuckKey:
    return StuckKey(
        key=key.key,
        topic=key.topic,
        qid=key.qid,
        offset=key.offset,
        attempts=key.attempts,
        holder=key.holder,
        since_ms=key.since_ms,
        waiting=key.waiting,
        state=key.state,
        reason=key.reason,
        earlier=key.earlier,
    )
