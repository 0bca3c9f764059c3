"""Makes store-0.2.0.tar.xz: fills a node of 0.2.0 with one of everything and kills it; account.json says what is left.

Run it by the Python of an environment with that version, from any folder: ``PYDDMQ_PURE=1 PYTHON fill_store.py``. It
needs GNU tar and xz.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from pyddmq import (
    Consumer,
    Fetcher,
    LocalState,
    OutgoingMessage,
    Producer,
    PulledMessage,
    TransactionMessage,
    TransactionProducer,
)

Ready = dict[str, str]
"""The addresses of the node's ready line."""
Account = dict[str, Any]
"""What the node owes, by group and by kind."""
HERE = Path(__file__).parent
HOUR_MS = 3_600_000


class Undecided:
    """Decides no transaction."""

    def execute(self, message: TransactionMessage, arg: Any) -> LocalState:
        """Leave it open."""
        return LocalState.UNKNOWN

    def check(self, message: TransactionMessage) -> LocalState:
        """Leave it open."""
        return LocalState.UNKNOWN


def cli(ready: Ready, *arguments: str) -> str:
    """Run a command at the admin port; returns what it printed."""
    command = [sys.executable, "-m", "pyddmq", *arguments, "--admin", ready["admin"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def pull(ready: Ready, group: str, count: int) -> tuple[Consumer, list[PulledMessage]]:
    """Take this many messages; returns the consumer, which still holds them, and the messages."""
    consumer = Consumer(ready["consumer"], group, batch_size=1)
    taken: list[PulledMessage] = []
    deadline = time.monotonic() + 30
    while len(taken) < count:
        taken += consumer.pull()
        if time.monotonic() > deadline:
            sys.exit(f"{group}: only {len(taken)} of {count} messages came")
    return consumer, taken


def left_of(messages: list[tuple[str, str]], done: set[str]) -> dict[str, list[str]]:
    """Bodies by key of those that are not done, in order."""
    left = defaultdict(list)
    for key, body in messages:
        if body not in done:
            left[key].append(body)
    return dict(left)


def fill_orders(ready: Ready, producer: Producer, account: Account) -> None:
    """Keys with acks out of order over keys, a failed one whose retry is pending, one that a client holds."""
    messages = [(f"key-{key}", f"key-{key} {number}") for number in range(8) for key in range(10)]
    receipts = {}
    for key, body in messages:
        receipts[body] = producer.send("orders", body.encode(), key=key, tags="t", properties={"pad": "x" * 700})
    # The first of each key is out; then a second of some, as they are acked.
    consumer, taken = pull(ready, "by-key", 10)
    done: set[str] = set()
    for message in taken:
        number = int((message.key or "")[-1])
        if number in (2, 5, 8):
            consumer.ack(message)
            done.add(message.body.decode())
        elif number == 3:
            consumer.fail(message, "out of stock")
    consumer.flush()
    # The seconds of 2, 5 and 8, and the repeat of 3, which fails once more and now waits an hour.
    failed = 1
    while len(done) < 9 or failed < 2:
        for message in consumer.pull():
            if message.key == "key-3":
                consumer.fail(message, "out of stock again")
                failed += 1
            elif len(done) < 9:
                consumer.ack(message)
                done.add(message.body.decode())
    consumer.flush()
    account["by-key"] = left_of(messages, done)
    account["by-key, after an hour"] = {"key-3": account["by-key"].pop("key-3")}
    # Every third is done, over all queues: acks in no order of offsets.
    consumer, taken = pull(ready, "unordered", len(messages))
    acked: set[str] = set()
    later: set[str] = set()
    for number, message in enumerate(reversed(taken)):
        if number % 3 == 0:
            consumer.ack(message)
            acked.add(message.body.decode())
        elif number % 3 == 1:
            consumer.fail(message, "later")
            later.add(message.body.decode())
    consumer.flush()
    account["unordered"] = left_of(messages, acked | later)
    account["unordered, after an hour"] = left_of(messages, {body for _, body in messages} - later)
    fetcher = Fetcher(ready["consumer"], "positions", batch_size=4)
    fetched: list[str] = []
    while len(fetched) < 12:
        for queue in fetcher.fetch():
            for each in queue.messages:
                fetcher.ack(each)
                fetched.append(each.body.decode())
    assert fetcher.flush()
    account["positions"] = left_of(messages, set(fetched))
    fetcher.close()
    account["receipts"] = {body: [each.message_id, each.qid, each.offset] for body, each in list(receipts.items())[-3:]}


def fill_chores(ready: Ready, producer: Producer, account: Account) -> None:
    """A retry topic with messages that wait in it, and dead letters, one of which is acked."""
    bodies = [f"chore {number}" for number in range(12)]
    for body in bodies:
        producer.send("chores", body.encode())
    consumer, taken = pull(ready, "by-retry-topic", 12)
    for message in taken[:4]:
        consumer.fail(message, "not yet")
    for message in taken[4:8]:
        consumer.ack(message)
    consumer.flush()
    account["by-retry-topic, at once"] = sorted(message.body.decode() for message in taken[8:])
    account["by-retry-topic, after an hour"] = sorted(message.body.decode() for message in taken[:4])
    consumer, taken = pull(ready, "strict", 12)
    for message in taken[:5]:
        consumer.fail(message, "cannot be")
    for message in taken[5:10]:
        consumer.ack(message)
    consumer.flush()
    account["strict"] = sorted(message.body.decode() for message in taken[10:])
    repair, letters = pull(ready, "strict-repair", 5)
    repair.ack(letters[0])
    repair.flush()
    account["strict-repair"] = sorted(message.body.decode() for message in letters[1:])


def fill_reminders(ready: Ready, producer: Producer, account: Account) -> None:
    """Delay levels, timers and loops: delivered, pending, cancelled."""
    now_ms = int(time.time() * 1000)
    producer.send("reminders", b"level delivered", delay_level=1)
    producer.send("reminders", b"timer delivered", delay_ms=1000)
    consumer, taken = pull(ready, "inbox", 2)
    for message in taken:
        consumer.ack(message)
    consumer.flush()
    later = []
    for number in range(3):
        producer.send("reminders", f"level {number}".encode(), delay_level=17)
        later.append(f"level {number}")
    ids = {}
    for number in range(6):
        body = f"timer {number}"
        receipt = producer.send("reminders", body.encode(), deliver_at_ms=now_ms + HOUR_MS + number * 250)
        ids[body] = receipt.message_id
        later.append(body)
    cli(ready, "timers", "cancel", ids["timer 2"])
    later.remove("timer 2")
    account["cancel timer"] = ids["timer 4"]
    later.remove("timer 4")
    producer.send_delay("reminders", b"once", at=now_ms // 1000 + 3600)
    later.append("once")
    producer.send_delay("reminders", b"loop", at=now_ms // 1000 + 3600, every=60, times=2)
    later += ["loop", "loop"]
    cancelled = producer.send_delay("reminders", b"cancelled", at=now_ms // 1000 + 3600)
    producer.cancel_delay(cancelled, "reminders")
    account["cancel loop"] = producer.send_delay(
        "reminders", b"cancelled later", at=now_ms // 1000 + 3600, every=60, times=2
    )
    account["inbox, after two hours"] = sorted(later)


def fill_transfers(ready: Ready, account: Account) -> None:
    """Halves: undecided ones, a committed and a rolled-back one."""
    halves = {}
    with TransactionProducer(ready["producer"], "transfer-service", Undecided()) as producer:
        for number in range(6):
            body = f"transfer {number}"
            message = OutgoingMessage(topic="transfers", body=body.encode(), key=body)
            halves[body] = producer.send_in_transaction(message, None).transaction_id
    cli(ready, "transactions", "commit", halves.pop("transfer 0"))
    cli(ready, "transactions", "rollback", halves.pop("transfer 1"))
    account["audit"] = ["transfer 0"]
    account["halves"] = halves


def main() -> None:
    """Fill a node, kill it, and pack its data."""
    with tempfile.TemporaryDirectory() as folder:
        file = HERE / "node-0.2.0.yaml"
        command = [sys.executable, "-m", "pyddmq", "serve", "--config", str(file), "--data", f"{folder}/data", "--json"]
        node = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder)
        try:
            assert node.stdout is not None
            ready = json.loads(node.stdout.readline())
            account: Account = {}
            with Producer(ready["producer"]) as producer:
                fill_orders(ready, producer, account)
                fill_chores(ready, producer, account)
                fill_reminders(ready, producer, account)
                fill_transfers(ready, account)
                producer.send("paused", b"rests")
                cli(ready, "groups", "pause", "rests")
                account["rests, when resumed"] = ["rests"]
                # Behind what the node writes now and then: offsets, acks, samples of lag, a queue file that is full.
                time.sleep(15)
                for number in range(20):
                    producer.send("orders", f"last {number}".encode(), key=f"last-{number % 2}")
                for group in ("by-key", "unordered", "positions"):
                    account[group] |= {
                        f"last-{each}": [f"last {number}" for number in range(each, 20, 2)] for each in (0, 1)
                    }
            account["killedMs"] = int(time.time() * 1000)
        finally:
            node.kill()
            node.wait()
        (Path(folder) / "account.json").write_text(json.dumps(account, indent=1))
        archive = HERE / "store-0.2.0.tar.xz"
        with contextlib.suppress(FileNotFoundError):
            archive.unlink()
        environment = {**os.environ, "XZ_OPT": "-9e"}
        owner = ["--owner=0", "--group=0", "--sort=name"]
        subprocess.run(
            ["tar", "-C", folder, "-cSJf", archive, *owner, "account.json", "data"], env=environment, check=True
        )
        print(f"{archive.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
