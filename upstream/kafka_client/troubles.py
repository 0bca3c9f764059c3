"""What is wrong with a cluster at present, reported once when it begins, changes and ends."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from upstream.kafka.link import KafkaFailure
from upstream.kafka_client.package import failure_of

_LINK = frozenset({"ALL_BROKERS_DOWN", "AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "SSL"})
"""The cluster cannot be reached; an answer to anything shows that it can be again."""
LINK_LOST = frozenset({"TRANSPORT", "RESOLVE"})
"""One connection failed."""
_OF_NO_CONCERN = frozenset({*LINK_LOST, "TIMED_OUT", "PARTITION_EOF", "MAX_POLL_EXCEEDED", "AUTO_OFFSET_RESET"})
"""One of several brokers is away, which librdkafka makes good; or it shows elsewhere."""

_ALL_DOWN = "ALL_BROKERS_DOWN"
_LAPSE = re.compile(r" \(after \d+ms in state \w+[^)]*\)")
_ADVICE = {
    "INCONSISTENT_GROUP_PROTOCOL": (
        "another program consumes in this group with an assignment strategy other than cooperative-sticky; "
        "stop it or use another group"
    ),
    "AUTHENTICATION": "the cluster rejects the user; check sasl.mechanism, sasl.username and sasl.password",
    "SASL_AUTHENTICATION_FAILED": "the cluster rejects the user; check sasl.mechanism and its secrets",
}
_CERTIFICATE = (
    "the broker's certificate is rejected: no CA in ssl.ca.location issued it, or it is for another host name"
)


def sentence_of(code: str, said: str) -> str:
    """Return one sentence for a trouble of the link: what is wrong, where to look, and librdkafka's words."""
    said = _LAPSE.sub("", said)
    if code == "SSL" and "certificate verify failed" in said:
        # librdkafka says the same of an unknown authority and of a name that does not fit.
        return f"{_CERTIFICATE} ({said.partition(': ')[0]})"
    return f"{_ADVICE[code]} ({said})" if code in _ADVICE else said


class ClientTroubles:
    """Kept by threads; `report` is called in the thread that notices a change."""

    def __init__(self, report: Callable[[KafkaFailure | None], object], hide: Callable[[str], str]) -> None:
        self._report = report
        self._hide = hide
        self._lock = threading.Lock()
        self._link: KafkaFailure | None = None
        self._refused: dict[str, KafkaFailure] = {}
        self._heard = ""
        """What one connection last said."""
        self._reported: str | None = None

    @property
    def cut_off(self) -> bool:
        """Whether the cluster cannot be reached, as far as is known."""
        return self._link is not None

    def note(self, error: Any, topic: str = "") -> None:
        """Take an error of librdkafka's, of one topic or of all."""
        said = self._hide(error.str() or error.name())
        code = failure_of(error).code
        if code in _OF_NO_CONCERN:
            if code in LINK_LOST:
                self._heard = _LAPSE.sub("", said)
            return
        if code == _ALL_DOWN and self._heard:
            said = f"{said}; {self._heard}"
        failure = failure_of(error, sentence_of(code, said))
        with self._lock:
            if failure.code in _LINK:
                if code == _ALL_DOWN and self._link is not None:
                    return  # Why is known already.
                self._link = failure
            else:
                self._refused[topic] = failure
            self._report_change()

    def unanswered(self, said: str) -> None:
        """The cluster does not answer a look from outside, which ended with this text of a `KafkaFailure`."""
        text, _, code = said.removesuffix(")").rpartition(" (")
        code = code if text and code.isupper() else _ALL_DOWN
        with self._lock:
            self._link = KafkaFailure(code, sentence_of(code, self._hide(text or said)))
            self._report_change()

    def answered(self) -> None:
        """The cluster has answered."""
        if self._link is not None:
            with self._lock:
                self._link = None
                self._heard = ""
                self._report_change()

    def allowed(self, *topics: str) -> None:
        """What was refused of these topics, and of all (an empty name), is given now."""
        if self._refused:
            with self._lock:
                for topic in ("", *topics):
                    self._refused.pop(topic, None)
                self._report_change()

    def forget(self) -> None:
        """Other topics are asked for: what was refused of the former ones has ended."""
        with self._lock:
            self._refused.clear()
            self._report_change()

    def _report_change(self) -> None:
        foremost = self._link or next(iter(self._refused.values()), None)
        reported = str(foremost) if foremost is not None else None
        # The text of all brokers down counts them, so the code distinguishes troubles.
        key = foremost.code if foremost is self._link and foremost is not None else reported
        if key != self._reported:
            self._reported = key
            self._report(foremost)
