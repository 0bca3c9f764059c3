"""What Kafka refuses, as DDMQ's codes (docs/kafka.md#producing has the table).

The code says what DDMQ's client libraries do next: 11 to 15 leave the node in their rotation and the send is made
again, any other takes the node out for a while, so that the next try goes to another node (S9). So a cluster that this
node cannot reach is 21, and what only time or an operator of Kafka changes is not.
"""

from __future__ import annotations

from proxy.services.message_rules import Refusal
from pyddmq.codes import ResultCode
from upstream.kafka.link import KafkaFailure

_UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC UNKNOWN_PARTITION UNKNOWN_TOPIC_ID"
_ILLEGAL = (
    "MSG_SIZE_TOO_LARGE INVALID_MSG_SIZE RECORD_LIST_TOO_LARGE INVALID_MSG INVALID_RECORD BAD_MSG INVALID_TIMESTAMP "
    "TOPIC_EXCEPTION INVALID_ARG INVALID_TYPE POLICY_VIOLATION INVALID_REQUIRED_ACKS"
)
_DENIED = (
    "TOPIC_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED AUTHENTICATION "
    "SASL_AUTHENTICATION_FAILED SECURITY_DISABLED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE SSL"
)
_LIMITED = "QUEUE_FULL THROTTLING_QUOTA_EXCEEDED"
_UNDECIDED = "MSG_TIMED_OUT TIMED_OUT TIMED_OUT_QUEUE REQUEST_TIMED_OUT NOT_ENOUGH_REPLICAS_AFTER_APPEND PURGE_INFLIGHT"
_CLOSING = "PURGE_QUEUE DESTROY STATE"
_UNREACHED = (
    "NOT_SENT TRANSPORT ALL_BROKERS_DOWN RESOLVE NO_CLIENT FATAL BROKER_NOT_AVAILABLE LEADER_NOT_AVAILABLE "
    "REPLICA_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION NOT_LEADER_OR_FOLLOWER NOT_ENOUGH_REPLICAS NETWORK_EXCEPTION "
    "KAFKA_STORAGE_ERROR "
    "WAIT_COORD NOT_CONTROLLER FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH PREFERRED_LEADER_NOT_AVAILABLE "
    "OFFSET_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE"
)
_KINDS = (
    (_UNKNOWN_TOPIC, ResultCode.FAIL_TOPIC_NOT_EXIST, "topic {topic} does not exist there; create it"),
    (_ILLEGAL, ResultCode.FAIL_ILLEGAL_MSG, "it rejects the message for topic {topic}"),
    (_DENIED, ResultCode.FAIL_TOPIC_NOT_ALLOWED, "it does not allow this node to write to topic {topic}"),
    (_LIMITED, ResultCode.FAIL_REFUSED_BY_RATE_LIMITER, "too many messages wait for it; send more slowly"),
    (
        _UNDECIDED,
        ResultCode.FAIL_TIMEOUT,
        "it did not respond for topic {topic}; the message may still be stored",
    ),
    (_CLOSING, ResultCode.FAIL_SERVER_SHUTDOWN, "the node is shutting down; send to another node"),
    (_UNREACHED, ResultCode.FAIL_NO_PRODUCER_FOR_CLUSTER, "it cannot be reached; send again, or to another node"),
)
_BY_NAME = {name: (code, text) for names, code, text in _KINDS for name in names.split()}
_TIMEOUT = _BY_NAME["MSG_TIMED_OUT"]
_OTHER = (ResultCode.FAIL_UNKNOWN, "it rejected a message for topic {topic}")


def refusal_of(failure: KafkaFailure, cluster: str, topic: str) -> Refusal:
    """Return the answer to a producer for a record that is not, or perhaps not, in its cluster."""
    code, text = _TIMEOUT if failure.unknown else _BY_NAME.get(failure.code, _OTHER)
    return Refusal(code, f"Kafka cluster {cluster}: {text.format(topic=topic)} ({failure})")


def is_unknown_topic(failure: KafkaFailure) -> bool:
    """Whether a cluster says that it does not have a topic."""
    return failure.code in _UNKNOWN_TOPIC.split() and failure.code != "UNKNOWN_PARTITION"
