"""The File sink in an object store that speaks S3: moto's server, a process of the test's own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from tests.conftest import need_module
from tests.patient import Producer, quiet_ports, until
from tests.running_node import RunningNode

pytestmark = pytest.mark.long

BUCKET = "archive"
YAML = """
topics: {{orders: {{queues: 1}}}}
groups:
  - group: g
    topics:
      - topic: orders
        actions: [Async, File]
        concurrency: 1000
        options:
          File:
            url: s3://{bucket}/{form}
            path: "${{topic}}"
            format: {form}
            endpoint: "{endpoint}"
            region: us-east-1
            accessKey: testing
            secretKey: {{env: PYDDMQ_TEST_S3}}
            rotateMessages: 20
            idleSeconds: 1
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server, with an empty bucket."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    need_module("moto", "pip install 'pyddmq[s3test]'")
    [port] = quiet_ports(1)
    address = f"http://127.0.0.1:{port}"
    with (tmp_path_factory.mktemp("s3") / "moto.log").open("w") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def made() -> bool:
        with contextlib.suppress(URLError, ConnectionError), urlopen(Request(f"{address}/{BUCKET}", method="PUT")):
            return True
        assert process.poll() is None, "moto has ended"
        return False

    try:
        until(made, "moto makes the bucket")
        yield address
    finally:
        process.kill()
        process.wait()


def numbers_in(endpoint: str, form: str) -> list[int]:
    """Numbers of the messages in all objects, by the objects' names."""
    import pyarrow.fs
    import pyarrow.parquet

    fs: Any = pyarrow.fs
    read_table: Any = pyarrow.parquet.read_table
    system = fs.S3FileSystem(
        access_key="testing", secret_key="testing", endpoint_override=endpoint.partition("://")[2], scheme="http"
    )
    found: list[int] = []
    places = fs.FileSelector(f"{BUCKET}/{form}", recursive=True, allow_not_found=True)
    for info in sorted(system.get_file_info(places), key=lambda each: str(each.path)):
        if not info.is_file:
            continue
        with system.open_input_file(info.path) as file:
            if form == "parquet":
                found += [json.loads(row["body"])["n"] for row in read_table(file).to_pylist()]
            else:
                found += [json.loads(line)["body"]["n"] for line in file.read().splitlines()]
    return found


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_each_message_is_once_in_the_objects_after_a_kill(
    endpoint: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole objects alone, in the queue's order; what was unanswered at the kill comes again (D46)."""
    monkeypatch.setenv("PYDDMQ_TEST_S3", "testing")
    yaml = YAML.format(bucket=BUCKET, form=form, endpoint=endpoint)
    for life in range(2):
        node = RunningNode(yaml, tmp_path / "data", drain_seconds=60)
        with node:
            with Producer(node.producer) as producer:
                for number in range(life * 50, life * 50 + 50):
                    producer.send("orders", b'{"n": %d}' % number)
            if not life:
                until(lambda: len(numbers_in(endpoint, form)) >= 20, "the first object")
                node.kill()

    assert numbers_in(endpoint, form) == list(range(100))
