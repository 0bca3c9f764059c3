"""Every place that gives a verdict on a node, and what each of them shows, in one form."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lag.journal.writer import FOLDER
from lag.rules.statuses import BY_NAME
from proxy.operate.attention.kinds import KINDS
from tests.simulation.ward import Ward
from tests.simulation.world import DATA
from tests.verdicts.admin_port import AdminPort


class Shown(NamedTuple):
    """One trouble, as one place shows it.

    Attributes:
        kind: A finding's kind, or a lag status.
        group: The group; "" for the node.
        level: `ERR`, `WARN` or `UNKNOWN`; "" where the place does not say it.
        cause: The cause; None where there is none, or the place does not say it.
        text: What the place says about it; "" where it shows names alone.
    """

    kind: str
    group: str
    level: str = ""
    cause: str | None = None
    text: str = ""


class Posts:
    """Stands for the webhook's thread: keeps what was posted."""

    made: list[dict[str, Any]] = []  # noqa: RUF012 - of the test that runs
    trouble = None

    def __init__(self, _url: str, _timeout_ms: int) -> None:
        self.counts = {"sent": 0, "failed": 0, "refused": 0, "dropped": 0}

    def offer(self, changes: list[dict[str, Any]]) -> None:
        """Take changes."""
        self.made.extend(changes)

    def close(self) -> None:
        """End."""


class Places:
    """All places that tell of a ward's node.

    Args:
        ward: The ward.
        folder: An empty folder, for the lag journal.
    """

    def __init__(self, ward: Ward, folder: Path) -> None:
        self.ward = ward
        self.port = AdminPort(ward)
        self._folder = folder
        self.findings: Mapping[str, Callable[[], Iterator[Shown]]] = {
            "/api/attention": self._attention,
            "/readyz?verbose": self._readiness,
            "/metrics": self._attention_gauges,
            "status page": self._page,
            "pyddmq groups": lambda: self._terminal("groups"),
            "pyddmq stats": lambda: self._terminal("stats"),
            "pyddmq groups stuck --json": self._stuck,
        }
        """Those that show findings."""
        self.lag: Mapping[str, Callable[[], Iterator[Shown]]] = {
            "/api/lag": lambda: _of_lag(self.port.json("/api/lag?limit=100")),
            "/metrics": self._lag_gauges,
            "status page": self._lag_table,
            "pyddmq lag": self._lag_command,
            "pyddmq lag --json": lambda: _of_lag(json.loads(self._run("lag", "--json"))),
            "pyddmq lag check": self._check,
            "pyddmq lag check --json": self._check_json,
            "webhook": self._webhook,
            "gauge of reported verdicts": self._verdict_gauges,
            "pyddmq lag --journal": self._journal,
        }
        """Those that judge lag."""

    def _run(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        done = self.port.command(*words)
        assert done.code in codes, done
        return done.out

    # Findings.

    def _attention(self) -> Iterator[Shown]:
        return _of_findings(self.port.json("/api/attention"))

    def _readiness(self) -> Iterator[Shown]:
        return _of_findings(self.port.json("/readyz?verbose"))

    def _stuck(self) -> Iterator[Shown]:
        return _of_findings(json.loads(self._run("groups", "stuck", "--json")))

    def _attention_gauges(self) -> Iterator[Shown]:
        for labels, _ in self._gauges("pyddmq_attention"):
            yield Shown(labels["finding"], labels["group"])

    def _page(self) -> Iterator[Shown]:
        text = self.port.text("/")
        [listed] = re.findall(r'<ul class="look">(.*?)</ul>', text.partition('<dl class="tiles">')[0])
        items = re.findall(r'<li class="(\w+)">(.*?)<small>', listed)
        assert bool(items) != ("Nothing needs attention." in listed)
        for tone, said in items:
            yield self._named(html.unescape(said), "ERR" if tone == "bad" else "WARN")

    def _terminal(self, *words: str) -> Iterator[Shown]:
        for mark, said in re.findall(r"^  (!!| !) (.*)$", self._run(*words), re.MULTILINE):
            yield self._named(said, "ERR" if mark == "!!" else "WARN")

    def _named(self, text: str, level: str) -> Shown:
        """Name a finding that a place shows for people, by its text; ages may differ by what passed since."""
        for each in self._attention():
            if re.sub(r"\d", "", each.text) == re.sub(r"\d", "", text):
                return each._replace(level=level, text=text)
        return Shown("unknown", "", level, None, text)

    # Lag.

    def _lag_gauges(self) -> Iterator[Shown]:
        gauges = self._gauges("pyddmq_lag_cause")
        causes = {(each["group"], each["topic"], each["queue"]): each["cause"] for each, _ in gauges}
        for labels, value in self._gauges("pyddmq_lag_status"):
            if _is_shown(labels["status"]):
                place = labels["group"], labels["topic"], labels["queue"]
                yield Shown(labels["status"], labels["group"], _LEVELS[int(value)], causes.get(place))

    def _verdict_gauges(self) -> Iterator[Shown]:
        for labels, value in self._gauges("pyddmq_lag_verdict"):
            if _is_shown(labels["status"]):
                yield Shown(labels["status"], labels["group"], _LEVELS[int(value)])

    def _gauges(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        for found in re.finditer(rf"^{name}{{(.*)}} (\S+)$", self.port.text("/metrics"), re.MULTILINE):
            yield dict(re.findall(r'(\w+)="([^"]*)"', found[1])), float(found[2])

    def _lag_table(self) -> Iterator[Shown]:
        section = self.port.text("/").partition("<h2>Lag")[2].partition("<h2>")[0]
        for row in re.findall(r"<tr>(<td.*?)</tr>", section):
            cells = [html.unescape(re.sub("<.*?>", "", cell)) for cell in re.findall(r"<td.*?>(.*?)</td>", row)]
            name, _, evidence = cells[-1].partition(": ")
            yield from _unless_well(cells[1], cells[0], name.replace(" ", "_") or None, evidence)

    def _lag_command(self) -> Iterator[Shown]:
        return _of_table(self._run("lag"))

    def _check(self) -> Iterator[Shown]:
        done = self.port.command("lag", "check")
        level, _, _ = done.out.partition(":")
        assert _LEVELS[done.code] == level, done
        for group, status in re.findall(r"^(\S+)(?:: \S+ \d+)? is ([A-Z_]+)\b", done.out, re.MULTILINE):
            yield Shown(status, group, level)

    def _check_json(self) -> Iterator[Shown]:
        done = self.port.command("lag", "check", "--json")
        found = json.loads(done.out)
        assert _LEVELS[done.code] == found["level"]
        return _of_lag(found["lag"])

    def _webhook(self) -> Iterator[Shown]:
        last = {each["group"]: each for each in Posts.made}
        for group, each in last.items():
            if _is_shown(each["status"]):
                yield Shown(each["status"], group, each["level"], each["cause"], each["evidence"])

    def _journal(self) -> Iterator[Shown]:
        folder = self.copy_journal()
        return _of_lag(json.loads(self._run("lag", "--json", "--journal", str(folder))))

    def copy_journal(self) -> Path:
        """Copy the node's lag journal from its simulated disk to a real folder, and return that."""
        disk, source = self.ward.disk, f"{DATA}/{FOLDER}"
        for name in disk.list(source):
            file = disk.open(f"{source}/{name}")
            (self._folder / name).write_bytes(file.read(0, file.size()))
            file.close()
        return self._folder


_LEVELS = ("OK", "WARN", "ERR", "UNKNOWN")


def _of_findings(answer: Any) -> Iterator[Shown]:
    for each in answer["findings"]:
        assert each["finding"] in KINDS
        level = "ERR" if each["severity"] == "bad" else "WARN"
        yield Shown(each["finding"], each["group"] or "", level, None, each["text"])


def _of_lag(answer: Any) -> Iterator[Shown]:
    for each in answer["queues"]:
        yield from _unless_well(each["status"], each["group"], each["cause"], each["evidence"])


def _of_table(text: str) -> Iterator[Shown]:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    for group, _, _, status, *_, said in rows:
        cause, _, evidence = said.partition(": ")
        yield from _unless_well(status, group, cause or None, evidence)


def _unless_well(status: str, group: str, cause: str | None, text: str) -> Iterator[Shown]:
    if _is_shown(status):
        yield Shown(status, group, BY_NAME[status].level.name, cause, text)


def _is_shown(status: str) -> bool:
    """Whether a status is more than that all is well."""
    return status not in ("OK", "CATCHING_UP", "REMOVED")
