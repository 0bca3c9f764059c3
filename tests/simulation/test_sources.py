"""Seeded lives of one group over each broker: order per key, nothing lost, and what was acknowledged stays so.

The whole node runs over the embedded broker in `test_seeds`; here the same group machinery also runs over partitions in
memory, with gaps, slow appends and commits, bodies that come later, and queues that are revoked and given back.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.contract.grounds import EmbeddedGround, Ground, MemoryGround
from tests.unit.upstream_world import Client

SEEDS = 20
SEEDS_LONG = 300
STEPS = 250
QUEUES = 3
KEYS = "abcdefg"
TIMEOUT_SECONDS = 3
FAILS_MAX = 3
CONFIG = {
    "topic": "t",
    "orderKey": "KEY",
    "maxPullBatchSize": 4,
    "concurrency": 16,
    "timeout": TIMEOUT_SECONDS * 1000,
    "retryIntervals": [200] * (FAILS_MAX - 1),
    "maxRetry": -1,
}

Place = tuple[str, int]


class Life:
    """A run of one seed, and what is known of each message."""

    def __init__(self, kind: type[Ground], seed: int) -> None:
        self.random = Random(seed)
        self.ground = MemoryGround(CONFIG, seed=seed, queues=QUEUES) if kind is MemoryGround else kind(CONFIG, queues=3)
        self.clients = [Client(f"10.0.0.{number}:1") for number in range(3)]
        self.sent: dict[str, int] = dict.fromkeys(KEYS, 0)
        self.acked: set[bytes] = set()
        self.fails: dict[bytes, int] = {}
        self.out: dict[Place, tuple[Client, bytes, float]] = {}
        self.revoked: set[int] = set()
        self.done: dict[str, int] = {}

    def step(self) -> None:
        """Do one thing."""
        memory = isinstance(self.ground, MemoryGround)
        acts = {
            self.send: 30,
            self.pull: 30,
            self.ack: 25,
            self.fail: 8,
            self.be_silent: 2,
            self.wait: 25,
            self.kill: 1,
        }
        acts |= {self.ground.commit: 3, self.change_queues: 4 * memory}
        [act] = self.random.choices(list(acts), list(acts.values()))
        self.done[act.__name__] = self.done.get(act.__name__, 0) + 1
        act()

    def send(self) -> None:
        """Publish the next message of a key; a key stays in its queue."""
        key = self.random.choice(KEYS)
        self.ground.put(f"{key}/{self.sent[key]}", key=key, queue=KEYS.index(key) % QUEUES)
        self.sent[key] += 1

    def pull(self) -> None:
        """Pull once, and check what comes."""
        client = self.random.choice(self.clients)
        batch = self.ground.pull(client)
        if batch is None:
            return
        for offset, (view, start, end, _, _) in self.ground.messages(batch):
            self.check(body := bytes(view[start:end]))
            self.out[batch.qid, offset] = client, body, self.ground.clock.monotonic() + TIMEOUT_SECONDS

    def check(self, body: bytes) -> None:
        """No message is acknowledged already, overtakes another of its key, or goes beside one."""
        key, number = body.decode().split("/")
        assert body not in self.acked, f"{body!r} was acknowledged, and comes again"
        letters = self.ground.letters()
        assert body not in letters, f"{body!r} is a dead letter, and comes again"
        for earlier in (f"{key}/{each}".encode() for each in range(int(number))):
            assert earlier in self.acked or earlier in letters, f"{body!r} overtakes {earlier!r}"
        now = self.ground.clock.monotonic()
        beside = [
            other for _, other, until in self.out.values() if until > now and other.startswith(f"{key}/".encode())
        ]
        assert not beside, f"{body!r} goes out beside {beside}"

    def _some(self) -> tuple[Place, Client, bytes] | None:
        now = self.ground.clock.monotonic()
        held = [place for place, (_, _, until) in self.out.items() if until > now]
        if not held:
            return None
        place = self.random.choice(held)
        client, body, _ = self.out.pop(place)
        return place, client, body

    def ack(self) -> None:
        """Answer one with success."""
        if (found := self._some()) is not None:
            place, client, body = found
            assert self.ground.ack(client, place) == 1, f"the success of {body!r} did not count"
            self.acked.add(body)

    def fail(self) -> None:
        """Answer one with a fail."""
        if (found := self._some()) is not None:
            place, client, body = found
            # One that may be of an earlier delivery does not count (D40), and its message stays out.
            self.fails[body] = self.fails.get(body, 0) + self.ground.ack(client, place, fail=True)

    def be_silent(self) -> None:
        """Let all that is out time out."""
        self.ground.advance(TIMEOUT_SECONDS + 0.5)
        self.out.clear()

    def wait(self) -> None:
        """Let some time pass."""
        self.ground.advance(self.random.choice((0.001, 0.02, 0.1, 0.4)))

    def kill(self) -> None:
        """End the process, and start it again."""
        self.ground.kill()
        if isinstance(self.ground, MemoryGround):
            self.revoked.clear()
        self.out.clear()

    def change_queues(self) -> None:
        """Take a queue away, or give it back."""
        assert isinstance(self.ground, MemoryGround)
        queue = self.random.randrange(QUEUES)
        if queue in self.revoked:
            self.revoked.discard(queue)
            self.ground.memory.give("t", queue)
        else:
            self.revoked.add(queue)
            qid = self.ground.group_queue(queue).qid
            self.ground.memory.revoke("t", queue)
            self.out = {place: held for place, held in self.out.items() if place[0] != qid}
        self.ground.turn_end()

    def end(self) -> None:
        """Give all back, consume what is left, and look whether everything came to an end."""
        while self.revoked:
            assert isinstance(self.ground, MemoryGround)
            self.ground.memory.give("t", self.revoked.pop())
        quiet = 0
        while quiet < 5:
            before = len(self.acked)
            self.be_silent()
            for _ in range(20):
                self.pull()
                while self.out:
                    self.ack()
                self.ground.advance(0.1)
            quiet = quiet + 1 if len(self.acked) == before else 0
        letters = self.ground.letters()
        assert len(set(letters)) == len(letters), "a dead letter is there twice"
        assert not self.acked & set(letters)
        for key, count in self.sent.items():
            for number in range(count):
                body = f"{key}/{number}".encode()
                assert body in self.acked or body in letters, f"{body!r} was lost"
        assert all(self.fails.get(letter, 0) >= FAILS_MAX for letter in letters), "given up too early"
        for queue in range(QUEUES):
            group_queue = self.ground.group_queue(queue)
            assert group_queue.tracker.watermark == group_queue.queue.max_offset


def live(kind: type[Ground], seeds: range) -> dict[str, int]:
    """Live through these seeds; returns how often each thing was done."""
    total: dict[str, int] = {}
    for seed in seeds:
        life = Life(kind, seed)
        try:
            for _ in range(STEPS):
                life.step()
            life.end()
        except AssertionError as error:
            raise AssertionError(f"seed {seed} over {kind.__name__}: {error}") from error
        for name, count in life.done.items():
            total[name] = total.get(name, 0) + count
    return total


@pytest.mark.parametrize(("kind", "count"), [(MemoryGround, SEEDS), (EmbeddedGround, SEEDS // 4)])
def test_promises_hold_over_each_source(kind: type[Ground], count: int) -> None:
    """Over some seeds; all that can happen happens."""
    done = live(kind, range(count))
    assert min(done.values()) > 0
    assert len(done) == (9 if kind is MemoryGround else 8)


@pytest.mark.long
@pytest.mark.parametrize("kind", [MemoryGround, EmbeddedGround])
def test_promises_hold_over_each_source_for_long(kind: type[Ground]) -> None:
    """Over many."""
    live(kind, range(SEEDS, SEEDS_LONG))
