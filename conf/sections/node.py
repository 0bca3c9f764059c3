"""Settings of one node: where it listens, how it stores, and its bounds."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from conf.base import Model, PlainName, Reload, setting

_LIVE = Reload.LIVE
_RESTART = Reload.RESTART
_MIB = 1024 * 1024

FlushMode = Literal["sync", "async"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "console", "json"]
Access = Literal["loopback", "open"]


def _check_path(path: str) -> str:
    if not path or "\x00" in path:
        raise ValueError("the path is empty; give a folder, for example `./data`")
    return path


def _check_queue_file_units(units: int) -> int:
    if units % 10:
        # 20-byte units times a multiple of 10 keep file names (byte positions) round, as RocketMQ's 300,000 does.
        raise ValueError(f"{units} is not a multiple of 10; take {max(10, units // 10 * 10)}")
    return units


def _check_segment_bytes(size: int) -> int:
    if size % 4096:
        raise ValueError(f"{size} is not a multiple of 4,096 (a page); take {max(1, size // 4096) * 4096}")
    return size


_DELAY = re.compile(r"[1-9][0-9]{0,6}[smhd]")
_DELAYS_MAX = 100


def _check_delay_levels(text: str) -> str:
    """Check a list of delays in the same way as `broker.scheduled.delay.levels`, which this room may not know."""
    entries = text.split()
    if not 1 <= len(entries) <= _DELAYS_MAX:
        raise ValueError(f"a list of 1 to {_DELAYS_MAX} delays is wanted, not {len(entries)}")
    for entry in entries:
        if not _DELAY.fullmatch(entry):
            raise ValueError(f"{entry!r} is not a valid delay; write a number and one of s, m, h, d, such as 30s or 2h")
    return text


Port = Annotated[int, Field(ge=0, le=65535)]


class NodeConfig(Model):
    """The `node` section: one process with its ports, its store and its limits."""

    host: str = setting(
        "127.0.0.1",
        "Address that the two Thrift ports bind. DDMQ binds every interface (W99); here the loopback. Another address, "
        "such as `0.0.0.0`, needs a section `access`, or `access: open` here.",
        reload=_RESTART,
        min_length=1,
    )
    producer_port: Port | None = setting(
        9613,
        "Port of ProducerService; 0 takes any free port, null none: then it is served by TLS alone.",
        reload=_RESTART,
    )
    consumer_port: Port | None = setting(9713, "Port of ConsumerService; likewise.", reload=_RESTART)
    admin_host: str = setting(
        "127.0.0.1",
        "Address of the admin HTTP port: health, metrics, status page. Another address than the loopback needs a "
        "section `access`.",
        reload=_RESTART,
        min_length=1,
    )
    admin_port: Port | None = setting(9813, "Port of the admin HTTP server; likewise.", reload=_RESTART)
    access: Access = setting(
        "loopback",
        "`open` lets `host` be another address than the loopback although nothing says who may do what: who reaches "
        "the Thrift ports may then publish, pull and acknowledge for any group. A section `access` lets it be one, "
        "too, and says who may. `open` is for the Thrift ports alone: it does not open the admin port.",
        reload=_RESTART,
    )
    admin_token_file: str | None = setting(
        None,
        "File that holds the token which admin requests that change something must bring (`Authorization: Bearer`); "
        "read for each request, so that the token can be changed. Reading needs none. For nodes without a "
        "section `access`: with one, rules say who may do what, and this is refused.",
        absent="no token is required",
        reload=_RESTART,
        min_length=1,
    )
    backlog: int = setting(
        128, "Connections that the system may hold before they are accepted.", reload=_RESTART, ge=1, le=65535
    )
    data: Annotated[str, AfterValidator(_check_path)] = setting(
        "./data", "Folder of the store, from the working directory of the process.", reload=_RESTART
    )
    broker_cluster: PlainName = setting(
        "pyddmq", "First part of the queue ids on the wire: `<brokerCluster>_<brokerName>_<queueId>`.", reload=_RESTART
    )
    broker_name: PlainName = setting("broker-0", "Second part of the queue ids on the wire.", reload=_RESTART)

    flush: FlushMode = setting(
        "sync",
        "`sync` answers a publish after fdatasync; `async` after the write, so that a power loss may take what was "
        "answered in about the last half second (a killed process loses nothing either way).",
        reload=_RESTART,
    )
    ack_flush: FlushMode = setting(
        "async",
        "`async` makes acks durable soon after a log sync and after 100 ms at the latest; `sync` makes every reply "
        "wait for it (D9). A killed process loses no ack either way. Of a group that reads from Kafka `sync` makes "
        "replies wait for the commit there (D52).",
        reload=_RESTART,
    )
    segment_bytes: Annotated[int, AfterValidator(_check_segment_bytes)] = setting(
        64 * _MIB,
        "Size of a commit-log file in bytes, a multiple of 4,096; fixed when the store is made (D4). RocketMQ's own "
        "is 1 GiB.",
        reload=_RESTART,
        ge=64 * 1024,
        le=2**30,
    )
    queue_file_units: Annotated[int, AfterValidator(_check_queue_file_units)] = setting(
        30_000,
        "Messages per consume-queue file, 20 bytes each; fixed when the store is made (D4). RocketMQ's own is 300,000.",
        reload=_RESTART,
        ge=10,
        le=10_000_000,
    )
    ack_segment_bytes: int = setting(
        2 * _MIB,
        "Bytes of acks after which the ack journal begins a new file with a snapshot; twice that is on disk (D10).",
        reload=_RESTART,
        ge=4096,
        le=2**30,
    )
    max_message_bytes: int = setting(
        2 * _MIB, "Largest message body in bytes; a larger one is refused with code 11.", reload=_RESTART, ge=1
    )
    message_delay_level: Annotated[str, AfterValidator(_check_delay_levels)] = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of the delay levels 1, 2, 3 ... in s, m, h or d, as in RocketMQ's broker.conf, which must have the "
        "same (docs/delays.md). A shorter delay also applies to pending messages.",
        reload=_RESTART,
    )
    timer_max_delay_sec: int = setting(
        34_560_000,
        "How far ahead a timer (deliverAtMs, delayMs) may be due, in seconds, as in RocketMQ's broker.conf (there 3 "
        "days); a later one is refused with code 11 (docs/timers.md). What is pending stays.",
        reload=_RESTART,
        ge=1,
        le=3_153_600_000,
    )
    timer_congest_num_each_slot: int = setting(
        0,
        "Timers of one second above which further ones for that second are refused, ever more, all at twice the "
        "number; 0: no bound. RocketMQ's name.",
        reload=_RESTART,
        ge=0,
    )
    timer_log_file_bytes: int = setting(
        100 * _MIB,
        "Size of a new file of the timer log in bytes, sparse; that of the files that are there wins. RocketMQ's is "
        "mappedFileSizeTimerLog.",
        reload=_RESTART,
        ge=4096,
        le=2**30,
    )
    transaction_time_out: int = setting(
        6_000,
        "Age in ms at which an undecided transaction is checked for the first time, where its message asks for no "
        "other time (docs/transactions.md).",
        reload=_LIVE,
        ge=1,
        le=2_000_000_000,
    )
    transaction_check_interval: int = setting(
        30_000,
        "Time in ms between two checks of a transaction; as long a producer has to answer one.",
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
        "Last messages of each deduplicating producer whose receipts are known, when they are sent again.",
        reload=_RESTART,
        ge=1,
        le=100_000,
    )
    deduplication_producers: int = setting(
        10_000,
        "Deduplicating producers that are known; above it the one that was silent longest is forgotten.",
        reload=_RESTART,
        ge=1,
        le=1_000_000,
    )
    auto_create_topics: bool = setting(
        False,
        "Whether a publish to an unknown topic makes it, with defaultQueues queues; otherwise it is refused with "
        "code 14.",
        reload=_LIVE,
    )
    default_queues: int = setting(8, "Queues of a topic whose `queues` is not given.", reload=_LIVE, ge=1, le=1024)

    max_read_buffer_bytes: int = setting(
        5_000_000,
        "Largest frame in bytes; a larger one closes its connection before memory is taken for it. A frame carries "
        "a whole sendBatchSync.",
        reload=_RESTART,
        ge=1024,
        le=256 * _MIB,
    )
    max_recv_msgs_length: int = setting(
        4_194_304,
        "Bytes of one pull reply: messages are added while they fit, and always at least one (R40; counted with keys "
        "and properties, W8).",
        reload=_LIVE,
        ge=1024,
        le=256 * _MIB,
    )
    memory_max: int = setting(
        512 * _MIB,
        "Ceiling in bytes of what the node holds for clients and groups: unfinished frames, replies that were not "
        "taken, waiting pulls, jobs. The nearer it is, the more is held back or refused (docs/operations.md). The "
        "process itself takes about 100 MB beside it.",
        reload=_LIVE,
        ge=64 * _MIB,
    )
    max_connections: int = setting(
        10_000, "Connections of one Thrift port; one more is closed at once.", reload=_LIVE, ge=1
    )
    max_connections_per_address: int | None = setting(
        None,
        "Connections of one Thrift port from one address; one more is closed at once. Null: three quarters of "
        "maxConnections, so that no address takes all.",
        reload=_LIVE,
        ge=1,
    )
    idle_timeout: int = setting(
        600_000,
        "Silence in ms, with nothing waiting or unanswered, after which a connection makes room where its port or its "
        "address has no place left; while there are places no idle connection is closed.",
        reload=_LIVE,
        ge=1000,
    )
    frame_timeout: int = setting(
        30_000,
        "How long a frame may take to arrive, from its first byte on, in ms; then its connection is closed.",
        reload=_LIVE,
        ge=100,
    )
    write_timeout: int = setting(
        30_000,
        "Time in ms for a client to read 64 KiB of the replies that wait for it, or all of them if they are fewer; a "
        "client that reads less is closed.",
        reload=_LIVE,
        ge=1000,
    )
    max_outstanding_per_connection: int = setting(
        1024, "Requests of one connection that wait for their reply; then its reading stops (D18).", reload=_LIVE, ge=1
    )
    output_buffer_bytes: int = setting(
        16 * _MIB,
        "Replies in bytes that one connection may have unsent; then its reading stops until it takes some (D18).",
        reload=_LIVE,
        ge=64 * 1024,
    )
    max_parked_pulls: int = setting(
        10_000, "Pulls of one group that wait for messages; one more is refused as overloaded.", reload=_LIVE, ge=1
    )
    max_linger_time: int = setting(
        30_000, "Longest wait of one pull in ms; a pull that asks for more waits this long (W7).", reload=_LIVE, ge=0
    )
    max_waiting_per_topic: int = setting(
        100_000,
        "Jobs of one subscription that may wait for their order keys; at the cap its reading stops, and the stats "
        "name the key (D15).",
        reload=_LIVE,
        ge=1,
    )
    action_threads: int = setting(
        64,
        "Threads in which blocking actions run, made as they are needed. One half is shared out over the subscriptions "
        "that have such actions, at least one thread for each; the other is shared on demand (docs/actions.md).",
        reload=_LIVE,
        ge=1,
        le=10_000,
    )
    commit_interval_ms: int = setting(
        5_000, "How often consumerOffset.json is written, in ms.", reload=_LIVE, ge=10, le=3_600_000
    )
    max_tps: Annotated[float, Field(gt=0)] | None = setting(
        None,
        "Publishes per second that the node takes over all topics; more are refused with code 15, after one more try "
        "(R94, R95). DDMQ's 100,000 is not a default here.",
        reload=_LIVE,
        absent="no limit",
    )
    limiter_failure_retry_queue_size: int = setting(
        1024,
        "Sends above a rate that may wait for their one second try (R95, limiterFailureRetryInterval); others are "
        "refused at once.",
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
        "Age in hours at which a log file is deleted, counted from its last message; 0 or null: never "
        "(docs/retention.md).",
        reload=_LIVE,
        le=1_000_000,
    )
    retention_bytes: Annotated[int, Field(ge=0)] | None = setting(
        None,
        "Bytes that the log's files may take; above that the oldest is deleted. 0 or null: no limit.",
        reload=_LIVE,
        absent="no limit",
    )
    retention_disk_ratio: Annotated[float, Field(ge=0, le=1)] | None = setting(
        0.85,
        "Part of the disk in use above which the oldest log file is deleted early, if no group needs anything in it; 0 "
        "or null: never.",
        reload=_LIVE,
    )
    retention_disk_ratio_forced: Annotated[float, Field(ge=0, le=1)] | None = setting(
        None,
        "Part of the disk in use above which the oldest log file is deleted although groups need it; 0 or null: never: "
        "a full disk then refuses publishes instead.",
        reload=_LIVE,
        absent="never",
    )
    log_level: LogLevel = setting("info", "Lowest level of log lines that are written.", reload=_LIVE)
    log_format: LogFormat = setting(
        "auto", "`console` for people, `json` for machines, `auto`: console on a terminal, else JSON.", reload=_RESTART
    )
