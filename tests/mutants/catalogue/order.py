"""DDMQ's faults of order per key: W55 to W57."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PIPELINE = "tests/integration/upstream/test_ddmq_faults_pipeline.py"
GROUP = "tests/unit/upstream/delivery/test_group.py"

MUTANTS = (
    Mutant(
        name="keys are compared by Java's hash of them",
        file="upstream/embedded/source.py",
        old="                return self._make_keyed(units, keys)\n",
        new="                from broker.format.java import string_hash\n\n"
        "                hashes = [key and str(string_hash(bytes(key).decode())) for key in keys]\n"
        "                return self._make_keyed(units, hashes)\n",
        caught_by=(f"{PIPELINE}::test_keys_are_compared_whole_and_per_topic",),
        rows=("W55",),
    ),
    Mutant(
        name="keys are compared over all topics",
        file="upstream/waiting/order.py",
        old="""    __slots__ = ("tails", "waiting")

    def __init__(self) -> None:
        self.tails: dict[OrderKey, UpstreamJob] = {}
""",
        new="""    __slots__ = ("waiting",)
    tails: dict[OrderKey, UpstreamJob] = {}

    def __init__(self) -> None:
""",
        caught_by=(
            f"{PIPELINE}::test_keys_are_compared_whole_and_per_topic",
            f"{PIPELINE}::test_queues_as_keys_are_told_apart_by_topic",
        ),
        rows=("W55",),
    ),
    Mutant(
        name="a path whose value no Json has parsed is accepted",
        file="conf/checks.py",
        old="    if any(spec.provides_json for spec in specs[:gate]):\n",
        new="    if gate >= 0:\n",
        caught_by=("tests/unit/conf/test_conf_loader.py::test_subscription_error_says_what_would_be_right",),
        rows=("W56",),
    ),
    Mutant(
        name="a path that names no single value is accepted",
        file="conf/order_key.py",
        old="    if not query.singular_query():\n",
        new="    if not query:\n",
        caught_by=("tests/unit/conf/test_conf_models.py::test_order_key_refuses_what_cannot_name_one_key",),
        rows=("W56",),
    ),
    Mutant(
        name="messages without a value at their path are unordered in silence",
        file="upstream/delivery/subscription.py",
        old="            self.counters.unordered.value += unordered\n",
        new="            pass\n",
        caught_by=(f"{PIPELINE}::test_message_without_its_key_is_unordered_and_counted",),
        rows=("W56",),
    ),
    Mutant(
        name="a failed message lets the next of its key pass",
        file="upstream/outcomes/outcomes.py",
        old="        move(job, Event.RETRY)\n        if not "
        "self.draining:\n            self._due.add(job, self._clock.monotonic() + wait_ms / 1000)\n",
        new="        move(job, Event.RETRY)\n        if not "
        "self.draining:\n            self._due.add(job, self._clock.monotonic() + wait_ms / 1000)\n"
        "            if job.key is not None:\n                self._release(job)\n",
        caught_by=(f"{GROUP}::test_fail_is_retried_in_place_and_then_dead_lettered",),
        rows=("W57",),
    ),
    Mutant(
        name="a message may pass an earlier one of its key that has not begun",
        file="upstream/waiting/job_loops.py",
        old="            if tail is not None:\n                tail.successor = job\n",
        new="            if tail is not None and tail.state is not _READY:\n                tail.successor = job\n",
        caught_by=("tests/unit/upstream/waiting/test_order.py::test_order_queue_runs_one_per_key_in_order",),
        rows=("W57",),
    ),
    Mutant(
        name="all topics of a group share their permits",
        file="upstream/outcomes/outcomes.py",
        old="        self.permits = Permits(config.concurrency)\n",
        new='        self.permits = vars(buffer).setdefault("permits", Permits(config.concurrency))\n',
        caught_by=(f"{PIPELINE}::test_slow_topic_does_not_starve_another",),
        rows=("W57",),
    ),
    Mutant(
        name="pulls get what a topic has before another one has its turn",
        file="upstream/waiting/buffer.py",
        old="                rotation.append(line)\n            else:\n"
        "                line.listed = False\n            if batch",
        new="                rotation.appendleft(line)\n            else:\n"
        "                line.listed = False\n            if batch",
        caught_by=(
            "tests/unit/upstream/waiting/test_buffer.py::test_long_line_of_one_topic_delays_another_by_one_batch_at_most",
        ),
        rows=("W57",),
    ),
)
