"""The package confluent-kafka, and the words for what it raises."""

from __future__ import annotations

from typing import Any

from upstream.kafka.link import KafkaFailure

FENCED = frozenset(
    {
        "FENCED",
        "FENCED_INSTANCE_ID",
        "FENCED_MEMBER_EPOCH",
        "ILLEGAL_GENERATION",
        "STALE_MEMBER_EPOCH",
        "UNKNOWN_MEMBER_ID",
    }
)
"""The member is none of its group any more."""
UNKNOWN = frozenset(
    {
        "DESTROY",
        "FAIL",
        "MSG_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "PURGE_INFLIGHT",
        "REQUEST_TIMED_OUT",
        "TIMED_OUT",
        "TRANSPORT",
    }
)
"""It may have happened. librdkafka has one name for a record that was never sent and one that was: MSG_TIMED_OUT."""


class KafkaUnusable(Exception):
    """There can be no client: the package is missing, or refuses a setting; the sentence says what would be right."""


def confluent() -> Any:
    """Return the module `confluent_kafka`.

    Raises:
        KafkaUnusable: It is not installed.
    """
    try:
        import confluent_kafka
    except ImportError as error:
        text = f"topics in Kafka need the package confluent-kafka ({error}): pip install 'pyddmq[kafka]'"
        raise KafkaUnusable(text) from error
    return confluent_kafka


def failure_of(error: Any, text: str | None = None) -> KafkaFailure:
    """Return what an error of the package's says.

    Args:
        error: A `KafkaError`, or a `KafkaException` that carries one.
        text: A sentence in the place of its own.
    """
    if isinstance(error, BaseException):
        error = error.args[0] if error.args else error
    if not hasattr(error, "name"):
        return KafkaFailure("FAIL", text or str(error), unknown=True)
    code = error.name().removeprefix("_")
    return KafkaFailure(code, text or error.str() or code, fenced=code in FENCED, unknown=code in UNKNOWN)


def cause_of(error: BaseException) -> Any | None:
    """Return the `KafkaException` for which a call of the package's raised something; None: there is none.

    A fatal error goes up through the callbacks that are due: then it is the cause of what one of them seems to raise.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, confluent().KafkaException):
        cause = cause.__cause__ or cause.__context__
    return cause
