"""Every place that gives a verdict on a node, and what each of them shows, in one form."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lag.journal.writer import FOLDER
from proxy.operate.attention.kinds import KINDS
from tests.simulation.ward import Ward
from tests.simulation.world import DATA
from tests.verdicts.admin_port import AdminPort, Done

LEVELS = ("OK", "WARN", "ERR", "UNKNOWN")
"""By exit code of a check, and by value of a gauge."""
AS_JSON = ("--format", "json", "--out", "-")
"""Options of a report."""
_OF_SEVERITY = {"bad": "ERR", "watch": "WARN"}


class Shown(NamedTuple):
    """One trouble, as one place shows it; None is what the place does not say.

    Attributes:
        group: The group; "" for the node.
        kind: The finding's kind.
        status: The lag status; "" where there is none.
        level: `ERR`, `WARN` or `UNKNOWN`.
        cause: The cause; "" where there is none.
        text: What the place says about it.
    """

    group: str
    kind: str | None = None
    status: str | None = None
    level: str | None = None
    cause: str | None = None
    text: str | None = None


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


Places = Mapping[str, Callable[[], list[Shown]]]


class Observer:
    """Asks every place about a ward's node; what a path or a command said is kept until `look`.

    Args:
        ward: The ward.
        folder: An empty folder, for the lag journal.
    """

    def __init__(self, ward: Ward, folder: Path) -> None:
        self.ward = ward
        self.port = AdminPort(ward)
        self._folder = folder
        self._kept: dict[tuple[str, ...], Any] = {}
        self.findings: Places = {
            "/api/attention": lambda: _findings(self._json("/api/attention")),
            "/api/lag": lambda: _findings(self._json("/api/lag")),
            "/readyz?verbose": lambda: _findings(self._json("/readyz?verbose")),
            "/metrics": self._attention_gauges,
            "console": self._page,
            "pyddmq groups": lambda: self._listed("groups"),
            "pyddmq groups stuck": lambda: self._listed("groups", "stuck"),
            "pyddmq groups stuck --json": lambda: _findings(json.loads(self._run("groups", "stuck", "--json").out)),
            "pyddmq stats": lambda: self._listed("stats"),
            "pyddmq lag": lambda: self._listed("lag"),
            "pyddmq lag check": lambda: self._listed("lag", "check"),
            "pyddmq lag check --json": lambda: _findings(self._check()["lag"]),
        }
        """Those that list all findings."""
        self.queues: Places = {
            "queues of /api/lag": lambda: _queues(self._json("/api/lag")),
            "queues of /metrics": self._lag_gauges,
            "queues of pyddmq lag": self._lag_command,
            "pyddmq lag --journal": self._journal,
            "pyddmq lag report": lambda: self.reported(is_open=True),
        }
        """Those that show the verdict of the lag rules on queues."""
        self.worst: Places = {
            "webhook": self._webhook,
            "gauge of reported verdicts": self._verdict_gauges,
            "groups of the console": self._lag_table,
        }
        """Those that show the worst of each group."""

    def levels(self) -> dict[str, str]:
        """Return the level of the node, by place."""
        check = self._run("lag", "check")
        [(_, gauge)] = self._gauges("pyddmq_level")
        return {
            "/api/attention": self._json("/api/attention")["level"],
            "/api/lag": self._json("/api/lag")["level"],
            "/metrics": LEVELS[int(gauge)],
            "pyddmq lag check": check.out.partition(":")[0],
            "exit code of pyddmq lag check": LEVELS[check.code],
            "pyddmq lag check --json": self._check()["level"],
        }

    def look(self) -> None:
        """Ask anew from now on."""
        self._kept.clear()

    def _text(self, path: str) -> str:
        if (path,) not in self._kept:
            self._kept[path,] = self.port.text(path)
        found: str = self._kept[path,]
        return found

    def _json(self, path: str) -> Any:
        return json.loads(self._text(path))

    def _run(self, *words: str) -> Done:
        if words not in self._kept:
            self._kept[words] = self.port.command(*words)
        done: Done = self._kept[words]
        return done

    def _check(self) -> Any:
        done = self._run("lag", "check", "--json")
        found = json.loads(done.out)
        assert LEVELS[done.code] == found["level"]
        return found

    def _attention_gauges(self) -> list[Shown]:
        return [
            Shown(each["group"], kind=each["finding"], level=_OF_SEVERITY[each["severity"]])
            for each, _ in self._gauges("pyddmq_attention")
        ]

    def _page(self) -> list[Shown]:
        text = self._text("/")
        items = re.findall(r'<li class="(ERR|WARN)">\s*<p><strong>(.*?)</strong>', text)
        assert bool(items) != ("Nothing needs attention" in text)
        return [self._named(html.unescape(said), level) for level, said in items]

    def _listed(self, *words: str) -> list[Shown]:
        """Return the findings that a command lists for people."""
        lines = re.findall(r"^  (!!| !) (.*)$", self._run(*words).out, re.MULTILINE)
        return [self._named(said, "ERR" if mark == "!!" else "WARN") for mark, said in lines]

    def _named(self, text: str, level: str) -> Shown:
        """Name a finding that a place shows for people, by its text; some ms may have passed since."""
        for each in _findings(self._json("/api/attention")):
            if _without_figures(each.text or "").startswith(_without_figures(text)):
                return Shown(each.group, kind=each.kind, level=level, text=text)
        return Shown("", kind="in no list", level=level, text=text)

    def _gauges(self, name: str) -> list[tuple[dict[str, str], float]]:
        lines = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", self._text("/metrics"), re.MULTILINE)
        return [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in lines]

    def _lag_gauges(self) -> list[Shown]:
        causes = {_place(each): each["cause"] for each, _ in self._gauges("pyddmq_lag_cause")}
        return [
            Shown(each["group"], status=each["status"], level=LEVELS[int(value)], cause=causes.get(_place(each), ""))
            for each, value in self._gauges("pyddmq_lag_status")
            if not _is_well(each["status"])
        ]

    def _verdict_gauges(self) -> list[Shown]:
        return [
            Shown(each["group"], status=each["status"], level=LEVELS[int(value)])
            for each, value in self._gauges("pyddmq_lag_verdict")
            if not _is_well(each["status"])
        ]

    def _lag_table(self) -> list[Shown]:
        found = []
        section = self._text("/").partition("<h2>Groups")[2].partition("<h2>")[0]
        for row in re.findall(r"<tr>(<td.*?)</tr>", section):
            cells = [html.unescape(re.sub("<.*?>", "", cell)) for cell in re.findall(r"<td.*?>(.*?)</td>", row)]
            cause, _, evidence = cells[-1].partition(": ")
            if not _is_well(cells[1]):
                found.append(Shown(cells[0], status=cells[1], cause=cause.replace(" ", "_"), text=evidence))
        return found

    def _lag_command(self) -> list[Shown]:
        lines = self._run("lag").out.splitlines()
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
        found = []
        for group, _, _, status, *_, said in (row for row in rows if len(row) == 11 and not _is_well(row[3])):
            cause, _, evidence = said.partition(": ")
            found.append(Shown(group, status=status, cause=cause, text=evidence))
        return found

    def _webhook(self) -> list[Shown]:
        last = {each["group"]: each for each in Posts.made}.values()
        return [
            Shown(each["group"], None, each["status"], each["level"], each["cause"] or "", each["evidence"])
            for each in last
            if not _is_well(each["status"])
        ]

    def _journal(self) -> list[Shown]:
        return _queues(json.loads(self._run("lag", "--json", "--journal", str(self.copy_journal())).out))

    def reported(self, *, is_open: bool) -> list[Shown]:
        """Return the findings of a report over the journal that are still open at its end, or have ended."""
        words = ("--since", "30h", "--no-compare", "--engine", "local", *AS_JSON)
        report = json.loads(self._run("lag", "report", "--journal", str(self.copy_journal()), *words).out)
        return [
            Shown(group, None, each["status"], each["level"], each["cause"].replace(" ", "_"), each["evidence"])
            for each in report["findings"]
            for group in each["groups"]
            if (each["to_ms"] is None) == is_open and not _is_well(each["status"])
        ]

    def copy_journal(self) -> Path:
        """Copy the node's lag journal from its simulated disk to a real folder, and return that."""
        disk, source = self.ward.disk, f"{DATA}/{FOLDER}"
        for name in disk.list(source):
            file = disk.open(f"{source}/{name}")
            (self._folder / name).write_bytes(file.read(0, file.size()))
            file.close()
        return self._folder


def _findings(answer: Any) -> list[Shown]:
    assert {each["finding"] for each in answer["findings"]} <= set(KINDS)
    return [
        Shown(
            each["group"] or "",
            each["finding"],
            each["status"] or "",
            _OF_SEVERITY[each["severity"]],
            each["cause"] or "",
            f"{each['text']} {each['evidence']}",
        )
        for each in answer["findings"]
    ]


def _queues(answer: Any) -> list[Shown]:
    return [
        Shown(each["group"], None, each["status"], each["level"], each["cause"] or "", each["evidence"])
        for each in answer["queues"]
        if not _is_well(each["status"])
    ]


def _place(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels["group"], labels["topic"], labels["queue"]


def _is_well(status: str) -> bool:
    """Whether a status says no more than that all is well."""
    return status in ("OK", "CATCHING_UP", "REMOVED")


def _without_figures(text: str) -> str:
    return re.sub(r"[\d.,]+", "", text)
