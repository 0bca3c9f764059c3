"""The part of `pyddmq config check` that asks the Kafka clusters of a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from conf import Config
    from conf.problems import Problem


def look_at_clusters(config: Config, file: str) -> tuple[ExitCode, list[Problem], list[Problem]]:
    """Return the code for what was found, the errors, and the warnings."""
    # Cold (D38): who checks a file alone needs none of it.
    from conf.problems import Problem
    from conf.secrets import SecretUnreadable
    from upstream.kafka.cluster_facts import ClusterFacts
    from upstream.kafka.cluster_rules import mismatches, wanted_of
    from upstream.kafka_client.look_process import look_beside
    from upstream.kafka_client.package import KafkaUnusable

    problems: list[Problem] = []
    warnings: list[Problem] = []
    unasked = False
    for name, cluster in config.kafka.items():
        try:
            facts: ClusterFacts = look_beside(name, cluster, *wanted_of(config, name))
        except (KafkaUnusable, SecretUnreadable) as error:
            problems.append(Problem(file, None, f"kafka.{name}", str(error)))
            unasked = True
            continue
        unasked |= bool(facts.trouble)
        for path, bad, text in mismatches(config, name, facts):
            (problems if bad else warnings).append(Problem(file, None, ".".join(path), text))
    return ExitCode.CANNOT_CONNECT if unasked else ExitCode.CHECK_FAILED, problems, warnings
