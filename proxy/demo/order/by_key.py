"""Order by key, at a running node over Thrift: both riders in one queue, and A's chain alone waits.

Two clients pull one message at a time. The one that gets A's accept first keeps silent for ever; the subscription's
timeout gives it to the other. Messages carry the run's id in key and property: those of older runs are acked and not
judged, and an older A that still hangs does not stand before this one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from broker.runtime.seams import Clock
from proxy.demo.events import RUN_PROPERTY
from proxy.demo.order.story import RIDERS, STEPS, Story, all_steps
from pyddmq import Consumer, Producer, PulledMessage

TOPIC = "rides"
GROUP = "rides-dispatch"
CLIENTS = 2
PULL_LINGER_MS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ByKeyOptions:
    """Where and as what.

    Attributes:
        producer: Address of the producer port.
        consumer: Address of the consumer port.
        run: Run id, new for each run.
        patience_seconds: How long nothing may happen before it is over. Longer than the subscription's timeout.
    """

    producer: str
    consumer: str
    run: str
    patience_seconds: float = 20.0


class ByKey:
    """One run; the caller's thread sends, each client has a thread of its own.

    Attributes:
        story: What happened.
        foreign: Messages of others, acked on the way.
    """

    def __init__(self, options: ByKeyOptions, *, clock: Clock) -> None:
        self._options = options
        self.story = Story(clock)
        self.foreign = 0
        self._over = threading.Event()
        self._error: Exception | None = None

    def execute(self) -> None:
        """Send, work, and wait until all is done or nothing happens any more.

        Raises:
            ClientError: The node is not there, refuses, or went away.
        """
        consumers = [self._consumer() for _ in range(CLIENTS)]
        # No resends: a resend may store a step twice, and the check would blame the node for it.
        with Producer(self._options.producer, resends=0, timeout_ms=30_000) as producer:
            producer.connect()
            for consumer in consumers:
                consumer.connect()
            consumers[0].stats()
            self.story.begin()
            threads = [
                threading.Thread(target=self._work, args=(consumer, f"client {number}"), daemon=True)
                for number, consumer in enumerate(consumers, 1)
            ]
            for thread in threads:
                thread.start()
            try:
                for rider, step in all_steps():
                    self._send(producer, rider, step)
                self._wait()
            finally:
                self._over.set()
                for thread in threads:
                    thread.join()
        if self._error is not None:
            raise self._error

    def _consumer(self) -> Consumer:
        address = self._options.consumer
        return Consumer(address, GROUP, TOPIC, batch_size=1, linger_ms=PULL_LINGER_MS, timeout_ms=30_000)

    def _send(self, producer: Producer, rider: str, step: str) -> None:
        run = self._options.run
        producer.send(TOPIC, f"{rider} {step}".encode(), key=f"{run}/{rider}", properties={RUN_PROPERTY: run})

    def _wait(self) -> None:
        while not self._over.is_set() and not self.story.finished.wait(0.05):
            if self.story.quiet_seconds() > self._options.patience_seconds:
                return

    def _work(self, consumer: Consumer, name: str) -> None:
        """Pull until it is over; one client's whole life."""
        try:
            with consumer:
                while not self._over.is_set():
                    for message in consumer.pull():
                        if self._take(message, name):
                            # It hangs: no answer, and no further pull.
                            self._over.wait()
                            return
                        consumer.ack(message)
        except Exception as error:
            # The caller's thread raises it.
            self._error = self._error or error
            self._over.set()

    def _take(self, message: PulledMessage, name: str) -> bool:
        """Do a step; returns whether the client hangs on it."""
        rider, _, step = message.body.decode("utf-8", "replace").partition(" ")
        if message.properties.get(RUN_PROPERTY) != self._options.run or rider not in RIDERS or step not in STEPS:
            self.foreign += 1
            return False
        if self.story.take(rider, step, name):
            return True
        self.story.done(rider, step, name)
        return False
