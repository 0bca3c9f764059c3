"""The HTML report: one file of bounded size, whose names are users' and whose figures are the report's."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.unit.lag.report.examples import TO_MS, group_part, report, troubled

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from lag.report import texts
from lag.report.page import page

VOID = {"meta", "link", "br", "use", "path", "rect"}


class Reader(HTMLParser):
    """Reads a page: its elements, texts and attributes, and that each is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def text() -> str:
    """Render a report with one of each kind of trouble."""
    return page.render_html(troubled())


def test_page_stands_alone_and_runs_nothing(text: str) -> None:
    """No script, no style, picture or font from elsewhere; every element is closed."""
    read = Reader(text)

    assert read.open == []
    assert not {"script", "link", "img", "iframe", "object"} & set(read.tags)
    addresses = [value for name, value in read.attributes if name in ("href", "src", "action")]
    assert addresses
    assert all(value is not None and value.startswith("#") for value in addresses)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def sheet(text: str, medium: str) -> str:
    """Return the rules of the page's style sheet for a medium."""
    (found,) = re.findall(rf"@media {re.escape(medium)}\{{(.*?\}})\}}", text, re.DOTALL)
    return str(found)


def test_page_fits_a_telephone(text: str) -> None:
    """Labels stand above bands, no chart is wider than the screen, and paper is no telephone, however narrow."""
    rules = sheet(text, "screen and (max-width:640px)")
    assert ".bands .row{grid-template-columns:1fr}" in rules
    assert ".chart svg{min-width:0}" in rules
    assert ".chart text{font-size:19px!important}" in rules, "the chart is half as wide as it was drawn"
    assert text.count("max-width:640px") == 1
    overview = text.partition("<h2>Overview</h2>")[2].partition("<table>")[0]
    assert '<div class="bands"' in overview
    assert 'class="chart"' not in overview, "nothing of it scrolls"


def test_paper_cuts_no_row_and_has_colours(text: str) -> None:
    """Pages break between rows of tables and bands; colours are printed, since they say what a status is."""
    rules = sheet(text, "print")
    unbroken = re.findall(r"([^{}]*)\{break-inside:avoid\}", rules)[0].strip().split(",")
    assert {"tr", ".row", ".card", "ol.look li", "dl div"} <= set(unbroken)
    assert "print-color-adjust:exact" in rules
    assert "h2,h3{break-after:avoid}" in rules
    assert ".wrap,.chart{overflow:visible}" in rules, "paper does not scroll"


def test_names_of_users_are_text(text: str) -> None:
    """In the page, its links and its charts."""
    assert "<script>" not in text
    assert text.count("billing &lt;script&gt;alert(1)&lt;/script&gt;") >= 4
    assert "billing &lt;scr…t(1)&lt;/script&gt;" in text, "the chart has it cut"


def test_colours_are_the_style_sheets(text: str) -> None:
    """A chart has no colour of its own, so that it is readable by night."""
    charts = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))

    assert "var(--bad)" in charts
    assert not re.search(r"(?:fill|stroke): ?#[0-9a-f]{6}", charts)
    used = set(re.findall(r"var\(--([\w-]+)\)", text))
    assert used <= set(re.findall(r"--([\w-]+):", text))


def test_findings_come_first_and_lead_to_their_sections(text: str) -> None:
    """The worst on top; what is open before what ended; what is OK is not a finding."""
    findings = text.partition("<h2>Findings</h2>")[2].partition("</ol>")[0]

    links = re.findall(r'href="#(g\d+)"', findings)
    assert links == ["g1", "g2", "g3", "g4", "g6", "g5"]
    assert all(f'id="{link}"' in text for link in links)
    assert "audit" not in findings


def test_what_is_not_known_is_neither_zero_nor_good() -> None:
    """Of a group without figures."""
    part = group_part("silent", "UNKNOWN")
    part = replace(part, lag=None, unfinished=None, seconds=None, peak_lag=None, peak_seconds=None)
    text = page.render_html(report([part]))
    row = text.partition("<tbody>")[2].partition("</tr>")[0]

    assert 'class="chip dark">UNKNOWN' in row
    assert row.count(">–<") == 4


def test_group_that_was_never_behind_has_a_sentence_for_charts() -> None:
    """Two empty charts would say less."""
    section = page.render_html(report([group_part("quiet", "OK")])).partition('<section class="group"')[2]
    assert "No message waited" in section
    assert "<svg" not in section


def test_no_samples_are_said_in_a_sentence() -> None:
    """No group is no good news."""
    text = page.render_html(report([]))
    assert "There are no samples of any group in this window" in text
    assert "OK" not in text.partition("<main>")[2]


def test_gaps_stand_before_the_overview(text: str) -> None:
    """Who reads a green band must have read what is missing."""
    assert text.index("node-2: no samples") < text.index("<h2>Overview</h2>")


def test_page_of_many_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst have sections; the overview keeps all, and the page says so."""
    monkeypatch.setattr(page, "SECTIONS_MAX", 3)
    groups = [group_part(f"group-{number}", "WARN", height=9_000 + number, queues=3) for number in range(70)]
    text = page.render_html(report(groups))

    assert len(text.encode()) <= page.BYTES_MAX
    assert text.count('<section class="group"') == 3
    assert all(f">group-{number}<" in text for number in range(70))
    assert "67 more groups have no section of their own" in text


def test_charts_go_where_they_would_make_the_page_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first groups, which are the worst, keep theirs longest."""
    monkeypatch.setattr(page, "BYTES_MAX", 230_000)
    groups = [group_part(f"group-{number}", "WARN", height=9_000, queues=3) for number in range(6)]
    text = page.render_html(report(groups))

    assert len(text.encode()) <= 230_000
    with_charts = ["<svg" in each for each in text.split('<section class="group"')[1:]]
    assert with_charts == sorted(with_charts, reverse=True)
    assert with_charts[0]
    assert not with_charts[-1]


def test_same_report_gives_the_same_bytes() -> None:
    """So that a report can be compared with another."""
    small = report([group_part("a", "STOP", height=40, queues=2)])
    assert page.render_html(small) == page.render_html(small)


def test_evidence_and_advice_are_sentences_of_their_own() -> None:
    """Among the findings, in the group's section, and of an incident."""
    part = group_part("a", "STOP", height=50)
    part = replace(
        part,
        evidence="no client pulls; 5 are ready",
        advice="Start them",
        incidents=[replace(each, evidence="12 wait") for each in part.incidents],
    )
    text = re.sub(r"(?:\s|<[^>]*>)+", " ", page.render_html(report([part])))
    assert "Poison message. No client pulls; 5 are ready. → Start them." in text
    assert "12 wait. Skip or dead-letter that message, or fix the cause of its failure. " in text
    assert "Start the consumers" not in text


def test_ended_finding_is_told_in_the_past_and_needs_nothing() -> None:
    """Advice is for what still holds; a loss keeps its advice, since the messages are missed."""
    [finding] = report([group_part("a", "STOP", height=50)]).findings
    ended = replace(finding, to_ms=finding.from_ms + 60_000, evidence="5 are ready")
    assert (ended.advice, texts.evidence(ended)) == ("", "Then: 5 are ready.")
    assert replace(ended, status_advice="Send them again", lost=3).advice == "Send them again"
    assert texts.evidence(replace(ended, to_ms=None)) == "5 are ready."


def test_summary_stands_first_and_events_have_a_list(text: str) -> None:
    """One sentence above all; a reset of many queues is one event."""
    assert "4 of 7 groups were in trouble; 4 still are: billing" in text
    assert text.index('class="summary bad"') < text.index("<h2>Findings</h2>")
    assert "reset of mailer (1\u202f024 times): to the end" in text
    assert "stop of node node-1" in text


def test_local_time_stands_beside_utc_and_contacts_beside_the_group() -> None:
    """A reader at 3 a.m. looks at the clock on the wall."""
    part = replace(group_part("a", "STOP", height=50), contacts=("night-desk",))
    found = report([part])
    found = replace(found, timezone="Europe/Berlin", findings=[replace(found.findings[0], contacts=["night-desk"])])
    text = page.render_html(found)
    assert "Since 2024-05-06 21:00 (19:00 UTC), still open after 4 h" in text
    assert text.count("Call night-desk.") == 2


def test_deleted_group_has_left_and_coverage_stands_beside_shares() -> None:
    """When it left, in place of a status; how many samples the share before is of."""
    part = replace(group_part("a", "OK"), status="LEFT", left_ms=TO_MS - 3_600_000)
    text = page.render_html(report([part]))
    assert "left at 22:00" in text
    assert "UNKNOWN" not in text
    assert "8\u202f000 samples" in text
    assert "99.80 % known" in text
