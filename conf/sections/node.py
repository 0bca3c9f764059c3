"""Settings of one node: where it listens, how it stores, and its bounds."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from conf.base import Model, PlainName, Reload, setting
from conf.sections.tracing import TracingConfig

_LIVE = Reload.LIVE
_RESTART = Reload.RESTART
_MIB = 1024 * 1024

FlushMode = Literal["sync", "async"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "console", "json"]
Access = Literal["loopback", "open"]


def _check_path(path: str) -> str:
    if not path or "\x00" in path:
        raise ValueError("the path is empty; use a folder, for example `./data`")
    return path


def _check_queue_file_units(units: int) -> int:
    if units % 10:
        # 20-byte units times a multiple of 10 keep file names (byte positions) round, as RocketMQ's 300,000 does.
        raise ValueError(f"{units} is not a multiple of 10; use {max(10, units // 10 * 10)}")
    return units


def _check_segment_bytes(size: int) -> int:
    if size % 4096:
        raise ValueError(f"{size} is not a multiple of 4,096 (a page); use {max(1, size // 4096) * 4096}")
    return size


_DELAY = re.compile(r"[1-9][0-9]{0,6}[smhd]")
_DELAYS_MAX = 100


def _check_delay_levels(text: str) -> str:
    """Check a list of delays in the same way as `broker.scheduled.delay.levels`, which this room may not know."""
    entries = text.split()
    if not 1 <= len(entries) <= _DELAYS_MAX:
        raise ValueError(f"{len(entries)} delays; write a list of 1 to {_DELAYS_MAX} delays")
    for entry in entries:
        if not _DELAY.fullmatch(entry):
            raise ValueError(f"{entry!r} is not a valid delay; write a number and one of s, m, h, d, such as 30s or 2h")
    return text


Port = Annotated[int, Field(ge=0, le=65535)]


class NodeConfig(Model):
    """The `node` section: one process with its ports, its store and its limits."""

    host: str = setting(
        "127.0.0.1",
        "Address that the two Thrift ports bind. The default is the loopback address, in DDMQ every "
        "interface (W99). Another address, such as `0.0.0.0`, needs a section `access`, or `access: open` "
        "here.",
        reload=_RESTART,
        min_length=1,
    )
    producer_port: Port | None = setting(
        9613,
        "Port of ProducerService; 0 selects any free port, null disables it: then it is served only by TLS.",
        reload=_RESTART,
    )
    consumer_port: Port | None = setting(9713, "Port of ConsumerService; 0 and null as above.", reload=_RESTART)
    admin_host: str = setting(
        "127.0.0.1",
        "Address of the admin HTTP port: health, metrics, console. A non-loopback address needs a section `access`.",
        reload=_RESTART,
        min_length=1,
    )
    admin_port: Port | None = setting(9813, "Port of the admin HTTP server; 0 and null as above.", reload=_RESTART)
    access: Access = setting(
        "loopback",
        "`open` allows a non-loopback `host` without access rules: then any client that reaches the Thrift "
        "ports may publish, pull and acknowledge for any group. A section `access` also allows such a "
        "host, with rules. `open` applies only to the Thrift ports, not to the admin port.",
        reload=_RESTART,
    )
    admin_token_file: str | None = setting(
        None,
        "File with the token that admin requests for changes must send (`Authorization: Bearer`). It is "
        "read for each request, so the token can be changed. Read requests need no token. Only for nodes "
        "without a section `access`; with rules it is refused.",
        absent="no token is required",
        reload=_RESTART,
        min_length=1,
    )
    backlog: int = setting(
        128, "Connections that the system may queue before they are accepted.", reload=_RESTART, ge=1, le=65535
    )
    data: Annotated[str, AfterValidator(_check_path)] = setting(
        "./data", "Folder of the store, relative to the working directory of the process.", reload=_RESTART
    )
    broker_cluster: PlainName = setting(
        "pyddmq", "First part of the queue ids on the wire: `<brokerCluster>_<brokerName>_<queueId>`.", reload=_RESTART
    )
    broker_name: PlainName = setting(
        "broker-0",
        "Second part of the queue ids on the wire; unique among nodes that share a Kafka cluster's waiting messages.",
        reload=_RESTART,
    )

    flush: FlushMode = setting(
        "sync",
        "`sync` answers a publish after fdatasync; `async` after the write. Then a power loss may lose "
        "answered messages of about the last half second (a killed process loses nothing in either mode).",
        reload=_RESTART,
    )
    ack_flush: FlushMode = setting(
        "async",
        "`async` makes acks durable soon after a log sync, after 100 ms at the latest; with `sync` every "
        "reply waits for it (D9). A killed process loses no ack in either mode. For a group that reads "
        "from Kafka, `sync` makes replies wait for the commit there (D52).",
        reload=_RESTART,
    )
    segment_bytes: Annotated[int, AfterValidator(_check_segment_bytes)] = setting(
        64 * _MIB,
        "Size of a commit-log file in bytes, a multiple of 4,096; fixed when the store is created (D4). "
        "RocketMQ's default is 1 GiB.",
        reload=_RESTART,
        ge=64 * 1024,
        le=2**30,
    )
    queue_file_units: Annotated[int, AfterValidator(_check_queue_file_units)] = setting(
        30_000,
        "Messages per consume-queue file, 20 bytes each; fixed when the store is created (D4). RocketMQ's "
        "default is 300,000.",
        reload=_RESTART,
        ge=10,
        le=10_000_000,
    )
    ack_segment_bytes: int = setting(
        2 * _MIB,
        "Bytes of acks after which the ack journal starts a new file with a snapshot; it uses twice that "
        "on disk (D10).",
        reload=_RESTART,
        ge=4096,
        le=2**30,
    )
    max_message_bytes: int = setting(
        2 * _MIB, "Largest message body in bytes; a larger one is refused with code 11.", reload=_RESTART, ge=1
    )
    message_delay_level: Annotated[str, AfterValidator(_check_delay_levels)] = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of the delay levels 1, 2, 3 ... in s, m, h or d, as in RocketMQ's broker.conf, which must "
        "have the same (docs/delays.md). A shorter delay also applies to pending messages.",
        reload=_RESTART,
    )
    timer_max_delay_sec: int = setting(
        34_560_000,
        "How far ahead a timer (deliverAtMs, delayMs) may be due, in seconds, as in RocketMQ's broker.conf "
        "(there 3 days); a later one is refused with code 11 (docs/timers.md). Pending timers stay.",
        reload=_RESTART,
        ge=1,
        le=3_153_600_000,
    )
    timer_congest_num_each_slot: int = setting(
        0,
        "Soft limit of timers due in one second: above it further ones are refused with rising "
        "probability, above twice this number all. 0 means no limit. RocketMQ's name.",
        reload=_RESTART,
        ge=0,
    )
    timer_log_file_bytes: int = setting(
        100 * _MIB,
        "Size of a new file of the timer log in bytes, sparse; existing files keep their size. RocketMQ's "
        "is mappedFileSizeTimerLog.",
        reload=_RESTART,
        ge=4096,
        le=2**30,
    )
    transaction_time_out: int = setting(
        6_000,
        "Age in ms at which an undecided transaction is checked for the first time, if its message does "
        "not set another (docs/transactions.md).",
        reload=_LIVE,
        ge=1,
        le=2_000_000_000,
    )
    transaction_check_interval: int = setting(
        30_000,
        "Time in ms between two checks of a transaction, and the time for a producer to answer one.",
        reload=_LIVE,
        ge=1,
        le=2_000_000_000,
    )
    transaction_check_max: int = setting(
        15, "Checks after which an undecided transaction goes to TRANS_CHECK_MAX_TIME_TOPIC.", reload=_LIVE, ge=1
    )
    transaction_discard_hours: float = setting(
        168.0,
        "Hours of uptime after which an undecided transaction goes there, checked or not.",
        reload=_LIVE,
        gt=0,
        le=1_000_000,
    )
    deduplication_sec: int = setting(
        600,
        "Seconds without a message after which a deduplicating producer is forgotten (docs/deduplication.md).",
        reload=_RESTART,
        ge=1,
        le=2_000_000,
    )
    deduplication_messages: int = setting(
        1024,
        "Number of recent messages per deduplicating producer whose receipts are kept for resends.",
        reload=_RESTART,
        ge=1,
        le=100_000,
    )
    deduplication_producers: int = setting(
        10_000,
        "Maximum number of known deduplicating producers; above it the one with the longest silence is forgotten.",
        reload=_RESTART,
        ge=1,
        le=1_000_000,
    )
    auto_create_topics: bool = setting(
        False,
        "Whether a publish to an unknown topic creates it, with defaultQueues queues; otherwise it is "
        "refused with code 14.",
        reload=_LIVE,
    )
    default_queues: int = setting(8, "Number of queues of a topic without `queues`.", reload=_LIVE, ge=1, le=1024)

    max_read_buffer_bytes: int = setting(
        5_000_000,
        "Maximum frame size in bytes; a larger frame closes its connection before memory is allocated. A "
        "frame contains a whole sendBatchSync.",
        reload=_RESTART,
        ge=1024,
        le=256 * _MIB,
    )
    max_recv_msgs_length: int = setting(
        4_194_304,
        "Maximum size of a pull reply in bytes: messages are added while they fit, and always at least one "
        "(R40; counted with keys and properties, W8).",
        reload=_LIVE,
        ge=1024,
        le=256 * _MIB,
    )
    memory_max: int = setting(
        512 * _MIB,
        "Limit in bytes of the memory held for clients and groups: incomplete frames, unsent replies, "
        "waiting pulls, jobs. Near it, requests are delayed or refused (docs/operations.md). The process "
        "itself needs about 100 MB more.",
        reload=_LIVE,
        ge=64 * _MIB,
    )
    max_connections: int = setting(
        10_000, "Maximum connections of one Thrift port; a further one is closed immediately.", reload=_LIVE, ge=1
    )
    max_connections_per_address: int | None = setting(
        None,
        "Maximum connections of one Thrift port from one address; a further one is closed immediately. "
        "Null: three quarters of maxConnections, so that one address cannot use all.",
        reload=_LIVE,
        ge=1,
    )
    idle_timeout: int = setting(
        600_000,
        "Silence in ms, with nothing waiting or unanswered, after which a connection may be closed when "
        "its port or address has no free connection left; otherwise idle connections stay open.",
        reload=_LIVE,
        ge=1000,
    )
    frame_timeout: int = setting(
        30_000,
        "Time limit in ms for a frame to arrive, from its first byte; then its connection is closed.",
        reload=_LIVE,
        ge=100,
    )
    write_timeout: int = setting(
        30_000,
        "Time in ms for a client to read 64 KiB of its pending replies, or all of them if they are fewer; "
        "a slower client is closed.",
        reload=_LIVE,
        ge=1000,
    )
    max_outstanding_per_connection: int = setting(
        1024, "Maximum unanswered requests of one connection; then reading from it pauses (D18).", reload=_LIVE, ge=1
    )
    output_buffer_bytes: int = setting(
        16 * _MIB,
        "Maximum unsent reply bytes of one connection; then reading from it pauses until the client reads some (D18).",
        reload=_LIVE,
        ge=64 * 1024,
    )
    max_parked_pulls: int = setting(
        10_000, "Maximum waiting pulls of one group; a further one is refused as overloaded.", reload=_LIVE, ge=1
    )
    max_linger_time: int = setting(
        30_000, "Maximum wait of one pull in ms; a longer request waits this long (W7).", reload=_LIVE, ge=0
    )
    max_waiting_per_topic: int = setting(
        100_000,
        "Maximum jobs of one subscription that wait for their order keys; at the limit reading pauses, and "
        "the stats name the key (D15).",
        reload=_LIVE,
        ge=1,
    )
    action_threads: int = setting(
        64,
        "Threads for blocking actions, created as needed. One half is divided among the subscriptions with "
        "such actions, at least one thread for each; the other half is shared on demand (docs/actions.md).",
        reload=_LIVE,
        ge=1,
        le=10_000,
    )
    commit_interval_ms: int = setting(
        5_000, "How often consumerOffset.json is written, in ms.", reload=_LIVE, ge=10, le=3_600_000
    )
    max_tps: Annotated[float, Field(gt=0)] | None = setting(
        None,
        "Maximum publishes per second over all topics; more are refused with code 15, after one retry "
        "(R94, R95). DDMQ's 100,000 is not a default here.",
        reload=_LIVE,
        absent="no limit",
    )
    limiter_failure_retry_queue_size: int = setting(
        1024,
        "Maximum sends above a rate that wait for their retry (R95, limiterFailureRetryInterval); others "
        "are refused immediately.",
        reload=_LIVE,
        ge=0,
        le=1_000_000,
    )
    drain_seconds: int = setting(
        30,
        "How long a stop, or the restart of a subscription, waits for messages in flight, in seconds (D22).",
        reload=_LIVE,
        ge=0,
        le=3600,
    )
    retention_hours: Annotated[float, Field(ge=0)] | None = setting(
        72.0,
        "Age in hours at which a log file is deleted, counted from its last message; 0 or null means never "
        "(docs/retention.md).",
        reload=_LIVE,
        le=1_000_000,
    )
    retention_bytes: Annotated[int, Field(ge=0)] | None = setting(
        None,
        "Maximum size of the log's files in bytes; above it the oldest is deleted. 0 or null means no limit.",
        reload=_LIVE,
        absent="no limit",
    )
    retention_disk_ratio: Annotated[float, Field(ge=0, le=1)] | None = setting(
        0.85,
        "Share of the disk in use above which the oldest log file is deleted early, if no group needs it; "
        "0 or null means never.",
        reload=_LIVE,
    )
    retention_disk_ratio_forced: Annotated[float, Field(ge=0, le=1)] | None = setting(
        None,
        "Share of the disk in use above which the oldest log file is deleted although groups need it. 0 or "
        "null means never: a full disk then refuses publishes instead.",
        reload=_LIVE,
        absent="never",
    )
    log_level: LogLevel = setting("info", "Minimum level of log lines.", reload=_LIVE)
    log_format: LogFormat = setting(
        "auto", "`console` for people, `json` for machines, `auto`: console on a terminal, else JSON.", reload=_RESTART
    )
    tracing: TracingConfig | None = setting(
        None,
        "Traces of messages, sent to a collector of OpenTelemetry; needs the extra `otel` (docs/howto/trace.md).",
        reload=_RESTART,
        absent="nothing is traced",
    )
