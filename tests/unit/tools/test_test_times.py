"""The table of what the parts of the suite take."""

from __future__ import annotations

from tools.test_times import HEAD, table_of

REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.conf.test_a" name="a" time="0.5"/>
<testcase classname="tests.unit.test_b" name="b" time="1.0"/>
<testcase classname="tests.spark.test_c.TestD" name="c" time="2.25"/>
</testsuite></testsuites>"""


def test_parts_are_listed_with_their_tests_and_seconds() -> None:
    """The longest first, the sum last."""
    assert table_of(REPORT) == HEAD + "| spark | 1 | 2 |\n| unit | 2 | 2 |\n| all | 3 | 4 |\n"
