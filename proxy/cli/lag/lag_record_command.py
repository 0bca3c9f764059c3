"""`pyddmq lag record`: writes a lag journal of all groups of a Kafka cluster, of other programs too."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from lag.journal.writer import FOLDER, JournalOrigin
from proxy.cli.errors import CliError
from proxy.cli.moments import duration_option
from proxy.cli.options import AsJson
from proxy.cli.output import check_reader, print_error, print_json, print_line
from proxy.operate.text import amount, printable
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from conf.sections.kafka import KafkaClusterConfig
    from proxy.recording.cluster_recording import ClusterRecording, Recorded
    from upstream.kafka_client.all_groups_process import SurveyProcess

NODE = "lag-record"
"""Who writes, in the journal."""
LOCK = "lag-record.lock"

Kafka = Annotated[
    str,
    typer.Option(
        "--kafka", metavar="HOST:PORT", help="Bootstrap servers of the cluster, or with --config its name under kafka."
    ),
]
Journal = Annotated[str, typer.Option("--journal", metavar="DIR", help="Folder of the journal; created if missing.")]
Config = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="FILE", help="A node's configuration, whose kafka section has the connection settings."
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME", help="Name of the cluster in reports; the default is its own."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="PATTERN", help="Only matching groups, such as orders-*; repeatable."),
]
Every = Annotated[str, typer.Option("--every", metavar="SPAN", help="Time between rounds.")]
Once = Annotated[bool, typer.Option("--once", help="Record one round, then exit; for cron.")]


def record_lag(
    *, kafka: Kafka, journal: Journal, config: Config = None, cluster: Cluster = None, groups: Groups = None,
    every: Every = "10s", once: Once = False, as_json: AsJson = False,
) -> int:  # fmt: skip
    """Record the lag of all consumer groups of a Kafka cluster until stopped; joins no group."""
    from proxy.recording.cluster_recording import ClusterRecording, JournalOfOthers
    from proxy.recording.cluster_samples import ClusterSampler

    every_ms = duration_option(every, option="--every")
    if not every_ms:
        raise CliError("--every must be above 0, such as 10s", ExitCode.USAGE)
    clock, disk = SystemClock(), RealDisk()
    survey, name = _connect(kafka, config, cluster)
    try:
        folder = str(Path(journal) / FOLDER)
        sampler = ClusterSampler(survey, clock, cluster=name, node=NODE, wanted=_wanted(groups))
        origin = _origin(name)
        try:
            disk.make_folder(journal)
            lock = disk.lock(f"{journal}/{LOCK}")
        except BlockingIOError as error:
            raise CliError(f"another process records to {journal}; stop it", ExitCode.DATA_UNUSABLE) from error
        except OSError as error:
            raise CliError(
                f"{journal} cannot be written: {error}; pass another folder", ExitCode.DATA_UNUSABLE
            ) from error
        try:
            recording = ClusterRecording(
                sampler, disk=disk, folder=folder, clock=clock, origin=origin, every_ms=every_ms
            )
            return _record(recording, every_ms, once=once, as_json=as_json)
        except JournalOfOthers as error:
            raise CliError(str(error), ExitCode.DATA_UNUSABLE) from error
        finally:
            lock.release()
    finally:
        survey.close()


def _record(recording: ClusterRecording, every_ms: int, *, once: bool, as_json: bool) -> int:
    clock = SystemClock()
    reported: str | None = None
    first = True
    try:
        while True:
            due = clock.monotonic() + every_ms / 1000
            recorded = recording.round()
            problem = _problem(recorded)
            if problem is not None and problem != reported:
                print_error(printable(problem), code=ExitCode.CHECK_FAILED, as_json=as_json)
            reported = problem
            if first or as_json:
                _print(recorded, as_json=as_json)
            first = False
            if once:
                return ExitCode.OK if problem is None else ExitCode.CHECK_FAILED
            check_reader()
            clock.sleep(max(0.0, due - clock.monotonic()))
    finally:
        recording.close()


def _connect(kafka: str, config: str | None, cluster: str | None) -> tuple[SurveyProcess, str]:
    """Return the way to the cluster and its name. Raises CliError: there is none."""
    from conf.secrets import SecretUnreadable
    from upstream.kafka.link import KafkaFailure
    from upstream.kafka_client.all_groups_process import SurveyProcess
    from upstream.kafka_client.package import KafkaUnusable

    settings = _settings(kafka, config)
    try:
        survey = SurveyProcess(kafka, settings, client_id=f"pyddmq-{NODE}")
    except KafkaUnusable as error:
        code = ExitCode.WRONG_PYTHON if isinstance(error.__cause__, ImportError) else ExitCode.USAGE
        raise CliError(str(error), code) from None
    except SecretUnreadable as error:
        raise CliError(str(error), ExitCode.USAGE) from None
    except KafkaFailure as error:
        raise CliError(str(error), ExitCode.CHECK_FAILED) from None
    try:
        return survey, cluster or (kafka if config is not None else survey.cluster_id())
    except KafkaFailure as error:
        survey.close()
        raise CliError(f"{settings.bootstrap_servers} does not respond: {error}", ExitCode.CANNOT_CONNECT) from None


def _settings(kafka: str, config: str | None) -> KafkaClusterConfig:
    from pydantic import ValidationError

    from conf import ConfigError, load
    from conf.sections.kafka import KafkaClusterConfig

    if config is None:
        try:
            return KafkaClusterConfig.model_validate({"bootstrapServers": kafka})
        except ValidationError:
            text = f"--kafka is {kafka!r}; write host:port, or pass --config with a cluster of that name"
            raise CliError(text, ExitCode.USAGE) from None
    try:
        clusters = load(config).config.kafka
    except ConfigError as error:
        raise CliError(f"--config: {error}", ExitCode.USAGE) from error
    if kafka not in clusters:
        known = ", ".join(sorted(clusters)) or "none"
        raise CliError(f"--kafka is {kafka!r}: {config} has these clusters under kafka: {known}", ExitCode.USAGE)
    return clusters[kafka]


def _origin(cluster: str) -> JournalOrigin:
    return JournalOrigin(cluster=cluster, node=NODE, epoch=uuid.uuid4().int >> 64)


def _wanted(patterns: list[str] | None) -> Callable[[str], bool]:
    return lambda group: not patterns or any(fnmatchcase(group, each) for each in patterns)


def _problem(recorded: Recorded) -> str | None:
    if recorded.failure is not None:
        return f"the cluster does not respond, so the lag is unknown now: {recorded.failure}"
    if recorded.trouble is not None:
        return f"the journal cannot be written: {recorded.trouble}"
    found = recorded.found
    names = ", ".join(name or '""' for name in found.unreported[:10])
    more = f" and {len(found.unreported) - 10} more" if len(found.unreported) > 10 else ""
    if found.incomplete is not None:
        known = f"; unknown in this round: {names}{more}" if names else ""
        return f"a broker does not list its groups, so some may be missing: {found.incomplete}{known}"
    if names:
        return f"the positions of {amount(len(found.unreported), 'group')} are unknown in this round: {names}{more}"
    return None


def _print(recorded: Recorded, *, as_json: bool) -> None:
    queues = recorded.found.queues
    groups = len({key.group for key, _ in queues})
    if as_json:
        print_json({"timeMs": recorded.found.time_ms, "groups": groups, "queues": len(queues),
                    "untold": recorded.found.unreported, "incomplete": recorded.found.incomplete})  # fmt: skip
    else:
        print_line(f"{amount(groups, 'group')} with {amount(len(queues), 'partition')} recorded")
