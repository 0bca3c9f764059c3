"""What stands beside the nodes: a plain confluent-kafka consumer, and Confluent's parallel consumer (Java).

The parallel consumer is what does most of what a group over Kafka does: more at a time than there are partitions, in
the order of each key, with acks out of order kept beside the committed offset. Its user function runs in its own
process and looks at each record; a node's clients are elsewhere and answer over the network. Before it is measured it
works through WARM_MESSAGES, for the JVM to compile what is used much.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from bench.kafka.costs import Cost, Group, Load, measure, new_topic, send, sending
from bench.servers.java import JavaProcess
from bench.servers.maven import Jars, Programs, compile_programs

HERE = Path(__file__).parent / "parallel"
VERSION = "0.5.3.3"
JARS = Jars(f"Confluent's parallel consumer {VERSION}", HERE / "pom.xml", f"parallel-consumer-{VERSION}")
WARM_MESSAGES = 200_000
JVM = ("-Xmx512m", "-Djava.net.preferIPv4Stack=true")
"""Both compilers, as it is by default: it is to be as fast as it can."""


def measure_plain(load: Load, batch: int) -> Cost:
    """Measure a plain consumer that takes so many records at a time."""
    topic = new_topic(load)
    command = [sys.executable, "-m", "bench.kafka.plain", load.address, topic, str(load.messages), str(batch)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = process.stdout

        def hear(wanted: str) -> None:
            said = lines.readline().strip()
            assert said == wanted, f"the plain consumer said {said!r} in the place of {wanted!r}"

        def run() -> None:
            sender = sending(load, topic)
            hear("seen")
            sender.join()

        hear("ready")
        return measure([process.pid], load.messages, load.rest, run, lambda: hear("committed"))


def compiled(folder: Path) -> Programs:
    """Return the parallel consumer's program. Raises JarsMissing, BenchError."""
    return compile_programs(JARS.fetch(), HERE, folder / "parallel-classes")


def measure_parallel(load: Load, programs: Programs, folder: Path, warm: int = WARM_MESSAGES) -> Cost:
    """Measure the parallel consumer, after so many messages to warm up."""
    topic = new_topic(load)
    group = f"parallel-{topic}"
    counts = [str(warm), str(warm + load.messages)]
    arguments = ["Parallel", load.address, topic, group, str(load.partitions), *counts]
    with ExitStack() as stack:
        java = JavaProcess(folder / group, programs, arguments, piped=True, options=JVM)
        stack.callback(java.kill)
        found = Group(load, group, topic)
        stack.callback(found.close)
        java.wait_for("ready")
        send(load.address, topic, warm)
        java.wait_for(f"seen {warm}")
        found.wait_committed(warm)

        def run() -> None:
            sender = sending(load, topic)
            java.wait_for(f"seen {warm + load.messages}")
            sender.join()

        return measure(
            [java.process.pid], load.messages, load.rest, run, lambda: found.wait_committed(warm + load.messages)
        )
