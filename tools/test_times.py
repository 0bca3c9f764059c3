"""What each part of the suite takes: `python -m tools.test_times [--write]`, from the report that `make test` leaves.

Seconds are those of the worker that ran a test, its fixtures included. `--write` puts the table into docs/testing.md.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / ".test-times.xml"
PAGE = ROOT / "docs" / "testing.md"
HEAD = "| part | tests | seconds |\n| --- | --- | --- |\n"


def table_of(report: str) -> str:
    """Return the table of a JUnit report, the longest part first."""
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for case in ElementTree.fromstring(report).iter("testcase"):
        part = case.attrib["classname"].split(".")[1]
        tests[part] += 1
        seconds[part] += round(float(case.attrib["time"]) * 1000)
    rows = [*seconds.most_common(), ("all", sum(seconds.values()))]
    tests["all"] = sum(tests.values())
    return HEAD + "".join(f"| {part} | {tests[part]:,} | {taken / 1000:,.0f} |\n" for part, taken in rows)


def main() -> None:
    """Print the table, and write it into the page where that is asked for."""
    table = table_of(REPORT.read_text(encoding="utf-8"))
    print(table)
    if "--write" in sys.argv[1:]:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table, page), encoding="utf-8")


if __name__ == "__main__":
    main()
