"""A node in virtual time whose troubles are staged, and everything that tells of them: page, JSON, readiness, gauge."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import yaml

from broker.runtime.steps import run_now
from conf import Loaded, loads
from conf.sections.access_files import FileState
from proxy.admin.exposition import THROTTLED, NodeCollector
from proxy.admin.server import LoopLag
from proxy.node.node import Node
from proxy.node.reload import Reloader
from proxy.operate.attention.findings import judged, verdicts
from proxy.operate.live_node import LiveNode
from proxy.operate.views.findings import Finding
from proxy.process.serve import ConfigWatch
from proxy.recording.trace_export import Send
from pyddmq.testing import NetworkFaults
from pyddmq.testing.sim_disk import SimDisk
from tests.console_page import fragment
from tests.insides import opened_of
from tests.simulation.caller import Line, Waiting
from tests.simulation.ledger import Place
from tests.simulation.wire import Reply, consumer_codec, consumer_idl, producer_codec, producer_idl
from tests.simulation.world import DATA, World, settings
from upstream.operate.heads import find_head, skip

SEGMENT_BYTES = 131_072
POLL_SECONDS = 0.25


class Ward:
    """A node, a client that does as it is told, and an observer.

    Args:
        change: Changes the configuration before the node starts.
        send_spans: Takes the node's spans.
    """

    def __init__(
        self, change: Callable[[dict[str, Any]], None] = lambda _: None, *, send_spans: Send | None = None
    ) -> None:
        self.world = World(1, faults=NetworkFaults(delay_ms_max=0.2, fragment_share=0))
        self.world.send_spans = send_spans
        self.wanted = copy.deepcopy(settings())
        change(self.wanted)
        self._first_group = copy.deepcopy(self.wanted["groups"][0])
        self.text: str | None = None
        self.world.config = self.load().config
        self.signature: FileState = (1, 1, 1)
        self.lag = LoopLag(self.world.loop, self.world.clock)
        self.start()
        self.lag.start()
        self.consumer = Line(self.world, "10.9.0.1", consumer_codec(), 9713)
        self.producer = Line(self.world, "10.9.0.1", producer_codec(), 9613)

    # The node.

    @property
    def node(self) -> Node:
        """The one that runs."""
        assert self.world.node is not None
        return self.world.node

    @property
    def disk(self) -> SimDisk:
        """Its disk."""
        return self.world.disk

    def start(self) -> None:
        """Start the node, and observe it."""
        self.observe(self.world.start())

    def observe(self, node: Node) -> None:
        """Look at a node from now on."""
        reloader = Reloader(node, self.load, file="node.yaml")
        self.view = LiveNode(node, reloader)
        self.view.observe(loop_lag=lambda: self.lag.seconds, judging=partial(verdicts, self.view))
        self.watch = ConfigWatch(lambda: self.signature, self.signature, reloader)

    def restart(self, between: Callable[[], None] = lambda: None, *, kill: bool = False) -> None:
        """End the node, do something to its files, and start it again."""
        if kill:
            self.world.kill()
        else:
            self.world.stop()
        between()
        self.start()

    def load(self) -> Loaded:
        text = yaml.safe_dump(self.wanted, sort_keys=False) if self.text is None else self.text
        return loads(text, file="node.yaml", actions=self.world.registry)

    def reload(self, **node: Any) -> None:
        """Change settings of the node, by `pyddmq reload --accept-loss`; it must accept them."""
        self.wanted["node"].update(node)
        assert self.edit(accept_loss=True).accepted

    def edit(self, text: str | None = None, *, accept_loss: bool = False) -> Any:
        """Write the file, with this text or as wanted, and have it read as SIGHUP does."""
        self.text = text
        result = self.process_run(lambda: run_now(self.view._reloader.reloading(accept_loss=accept_loss)))
        if result.accepted:
            self.world.config = self.node.in_force.config
        return result

    def edit_group(self, edit: Callable[[list[Any]], Any]) -> None:
        """Change the groups of the file and have it read; it must be taken."""
        edit(self.wanted["groups"])
        result = self.edit()
        assert result.accepted, result.problems

    @property
    def first_group(self) -> dict[str, Any]:
        """The group `by-key` as it was at first."""
        return copy.deepcopy(self._first_group)

    def line(self, host: str) -> Line:
        """Return a further connection to the consumer port."""
        return Line(self.world, host, consumer_codec(), 9713)

    def process_run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Do something as the node."""
        assert self.world.process is not None
        return self.world.process.run(work, *args)

    def look(self) -> None:
        """Have the file looked at, as each second."""
        assert self.world.process is not None
        self.world.loop.run_task(self.watch.look())

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run(seconds=seconds)

    # Clients.

    def call(self, line: Line, method: str, **arguments: Any) -> Reply:
        """Call the node and wait for its answer."""
        line.connect()
        life = self.world.ledger.life
        assert self.world.run(until=lambda: line.link is not None and line.link.life == life, seconds=40)
        waiting = Waiting()
        line.call(method, waiting, **arguments)
        self.world.run(until=lambda: waiting.reply is not None or waiting.lost, seconds=40)
        return waiting.reply or Reply(method, 0, None, "the connection was closed")

    def publish(self, topic: str, key: str = "k", *, body_bytes: int = 10, **wait: int) -> int:
        """Publish one message; returns the result code."""
        message = producer_idl.Message(topic=topic, key=key, body=b'{"x": "%s"}' % (b"x" * body_bytes), **wait)
        code: int = self.call(self.producer, "sendSync", message=message, timeout=1_000).value.code
        return code

    def send(self, topic: str, key: str = "k", **wait: int) -> None:
        """Publish one message, which must be stored."""
        assert self.publish(topic, key, **wait) == 0

    def fill(self, segments: int, topic: str = "orders") -> None:
        """Publish until the log has so many files more."""
        end = opened_of(self.node).store.end + segments * SEGMENT_BYTES
        while opened_of(self.node).store.end < end:
            assert self.publish(topic, f"k{opened_of(self.node).store.end}", body_bytes=20_000) == 0

    def fill_disk(self) -> None:
        """Leave no space, and publish until that is noticed."""
        self.disk.capacity_bytes = self.disk.used_bytes()
        for body_bytes in (20_000, 10):
            while self.publish("orders", f"k{opened_of(self.node).store.end}", body_bytes=body_bytes) == 0:
                pass

    def pull(self, group: str = "by-key", *, linger_ms: int = 2_000, count: int = 8) -> list[Place]:
        """Pull; returns the places of what came."""
        request = consumer_idl.PullRequest(groupId=group, maxBatchSize=count, maxLingerTime=linger_ms, version="ward")
        reply = self.call(self.consumer, "pull", request=request)
        if reply.error is not None:
            return []
        response = reply.value
        context = response.context
        return [Place(context.topic, context.qid, each.offset) for each in response.messages or ()]

    def answer(self, place: Place, *, success: bool, group: str = "by-key") -> None:
        """Submit one result."""
        done, failed = ([place.offset], []) if success else ([], [place.offset])
        context = consumer_idl.Context(groupId=group, topic=place.topic, qid=place.qid)
        result = consumer_idl.ConsumeResult(context=context, successOffsets=done, failOffsets=failed)
        self.call(self.consumer, "submit", result=result)

    def fail(self, times: int) -> None:
        """Pull and fail until so many messages were failed."""
        while times > 0:
            for place in self.pull():
                self.answer(place, success=False)
                times -= 1

    def finish(self) -> None:
        """Pull and acknowledge until nothing comes any more."""
        while found := self.pull(linger_ms=2_500):
            for place in found:
                self.answer(place, success=True)

    def skip(self, place: Place, *, group: str = "by-key") -> None:
        """Pass over a message that nobody has, as an operator does."""
        group_queue = self.node.in_force.groups[group].group_queue(place.topic, int(place.qid.rpartition("_")[2]))
        assert group_queue is not None
        head = find_head(self.node.in_force.groups[group], group_queue, place.offset)
        self.process_run(lambda: skip(head, force=False, progress=opened_of(self.node).progress))

    # What is seen.

    def findings(self) -> list[Finding]:
        """What needs attention, looked up as an operator would."""
        return list(judged(self.view).findings)

    def shown(self, kind: str) -> bool:
        """Whether there is a finding of the kind."""
        return any(each.finding == kind for each in self.findings())

    def appears(self, kind: str, *, seconds: float = 5.0) -> Finding:
        """Wait for a finding."""
        self.wait(lambda: self.shown(kind), f"there is no {kind}", seconds)
        [found, *_] = [each for each in self.findings() if each.finding == kind]
        return found

    def goes(self, kind: str, *, seconds: float = 5.0) -> None:
        """Wait until there is no such finding any more."""
        self.wait(lambda: not self.shown(kind), f"{kind} does not go", seconds)

    def wait(self, until: Callable[[], bool], problem: str, seconds: float) -> None:
        """Look several times a second, or a hundred times in all."""
        end = self.world.loop.time() + seconds
        while not until():
            assert self.world.loop.time() < end, f"{problem}: {self.findings()}"
            self.run(max(POLL_SECONDS, seconds / 100))

    def page_and_throttled(self) -> tuple[str, list[tuple[str, ...]]]:
        """Return the pages of all groups, and the groups, topics and limits of the gauge of limits."""
        text = "".join(fragment(self.view, "/group", group=each.group) for each in self.view.groups(details_max=0))
        families = NodeCollector(self.view, "virtual").collect()
        samples = [sample for family in families if family.name == THROTTLED for sample in family.samples]
        return text, [(each.labels["group"], each.labels["topic"], each.labels["limit"]) for each in samples]

    def flip(self, path: str, place: int) -> None:
        """Damage a file of the data directory."""
        self.disk.flip_bit(f"{DATA}/{path}", place)
