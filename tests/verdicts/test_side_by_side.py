"""Six situations as the person on call sees them: console, check, scrape and report name one cause in one sentence.

With `PYDDMQ_PICTURES=FOLDER` each is kept there as text and, where there is Chromium, as pictures of a desktop's and a
phone's width: `PYDDMQ_PICTURES=/tmp/pictures .venv/bin/python -m pytest tests/verdicts/test_side_by_side.py`.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lag.rules.statuses import BY_NAME
from proxy.recording import verdicts
from tests.simulation.ward import Ward
from tests.verdicts.of_lag import SITUATIONS
from tests.verdicts.places import Observer, Posts
from tests.verdicts.test_verdicts import ROUND_SECONDS

STAGED = (
    "slow_consumer",
    "nobody_reads",
    "poison_key",
    "retention_takes_messages_without_a_consumer",
    "operator_reset",
)
CHROMIUM = shutil.which("chromium")
WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(autouse=True)
def posts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the webhook gets."""
    monkeypatch.setattr(verdicts, "Webhook", Posts)
    monkeypatch.setattr(Posts, "made", [])


def looked_at(observer: Observer, name: str, folder: Path) -> dict[str, str]:
    """Return what each place shows, as text without figures, and keep it where pictures are wanted."""
    observer.look()
    shown = {
        "page.html": observer.port.text("/"),
        "group.html": observer.port.text("/group?group=by-key"),
        "check.txt": observer.port.command("lag", "check").out,
        "metrics.txt": observer.port.text("/metrics"),
    }
    out = folder / "report.html"
    journal = observer.copy_journal()
    done = observer.port.command(
        "lag", "report", "--journal", f"{journal}", "--since", "3h", "--engine", "local", "--out", f"{out}"
    )
    assert out.exists(), done.err
    shown["report.txt"] = done.out
    shown["report.html"] = out.read_text()
    wanted = os.environ.get("PYDDMQ_PICTURES")
    if wanted:
        pictures(shown, Path(wanted) / name)
    return {place: re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]*>", "", text))) for place, text in shown.items()}


def without_figures(text: str) -> str:
    """Return a text without numbers and capitals: places look at moments that are some seconds apart."""
    return re.sub(r"[\d.,]+ ?(ms|s|min|h)?", "", text).lower()


def pictures(shown: dict[str, str], folder: Path) -> None:
    """Write what is shown, and pictures of the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in shown.items():
        (folder / file).write_text(text)
        for device, width in WIDTHS.items() if file.endswith(".html") and CHROMIUM else ():
            picture = folder / f"{Path(file).stem}-{device}.png"
            options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
            window = (f"--window-size={width},1600", f"--screenshot={picture}", f"file://{folder / file}")
            subprocess.run([f"{CHROMIUM}", *options, *window], check=True, capture_output=True, timeout=60)


def staged(name: str, folder: Path) -> tuple[Ward, Observer]:
    """Return a node in a situation."""
    ward = Ward(SITUATIONS[name].prepare)
    (folder / "journal").mkdir()
    observer = Observer(ward, folder / "journal")
    ward.run(40)
    return ward, observer


@pytest.mark.parametrize("name", STAGED)
def test_places_beside_each_other_say_the_same(name: str, tmp_path: Path) -> None:
    """Status, cause and the sentence of evidence; a scrape has status and cause as labels."""
    ward, observer = staged(name, tmp_path)
    next(SITUATIONS[name].run(ward))
    ward.run(ROUND_SECONDS)
    shown = looked_at(observer, name, tmp_path)
    answer = observer.port.json("/api/lag")
    [queue], [finding] = answer["queues"], [each for each in answer["findings"] if each["status"]]
    cause, is_loss = queue["cause"].replace("_", " "), queue["status"] == "DATA_LOSS"
    for place in ("page.html", "check.txt"):
        # The page has a button where the others have the command.
        text = finding["text"].partition(". To end it")[0] if place == "page.html" else finding["text"]
        assert text in shown[place], place
        assert finding["advice"].replace("`", "") in shown[place].replace("`", ""), place
    for place in ("page.html", "group.html"):
        assert f"{cause}: {queue['evidence']}" in shown[place], place
    labels = 'group="by-key",topic="orders",queue="0",'
    assert f'pyddmq_lag_status{{{labels}status="{queue["status"]}"}}' in shown["metrics.txt"]
    assert f'pyddmq_lag_cause{{{labels}cause="{queue["cause"]}"}}' in shown["metrics.txt"]
    assert f"by-key {queue['status']} since" in shown["report.html"]
    assert without_figures(queue["evidence"]) in without_figures(shown["report.html"])
    assert f"{queue['advice']} " in shown["report.html"]
    assert finding["advice"].startswith(queue["advice"])
    # The advice of the status would only repeat that of the cause, or contradict it.
    assert (BY_NAME[queue["status"]].advice in shown["report.html"]) == is_loss


def test_recovered_group_is_well_everywhere_and_its_outage_is_in_the_report(tmp_path: Path) -> None:
    """Two minutes after consumers came back nothing is shown; the report has the outage, and that it ended."""
    ward, observer = staged("consumers_went", tmp_path)
    staging = SITUATIONS["consumers_went"].run(ward)
    next(staging)
    next(staging, None)
    ward.run(120)
    shown = looked_at(observer, "recovered", tmp_path)
    assert "Nothing needs attention" in shown["page.html"]
    assert shown["check.txt"].startswith("OK: 1 group, 0 messages left")
    assert "pyddmq_level 0.0" in shown["metrics.txt"]
    assert "pyddmq_attention{" not in shown["metrics.txt"]
    assert "1 of 1 group was in trouble; none of them still is." in shown["report.html"]
    [finding] = re.findall("Findings (.*?) Overview", shown["report.html"])
    assert "Then: no client of the group has pulled" in finding
    assert "Start" not in finding
