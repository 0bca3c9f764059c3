"""What docs/lag.md shows of Spark runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyddmq.broker import open_store
from tests.spark.test_sources import write_journal

PAGE = Path(__file__).parents[2] / "docs" / "lag.md"


def test_sources_are_read_as_the_page_says(spark: Any, tmp_path: Path) -> None:
    """A journal and a store, at the places of a data directory."""
    (first,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    store = open_store(str(tmp_path / "data"))
    store.put(store.create_topic("orders", 1), b"hello", key="k")
    store.close()
    write_journal(tmp_path / "data" / "pyddmq" / "lag", snapshots=2)
    names: dict[str, Any] = {}
    exec(compile(first.replace('"data', f'"{tmp_path}/data'), str(PAGE), "exec"), names)

    assert names["samples"].count() == 12
    assert [bytes(row.body) for row in names["messages"].collect()] == [b"hello"]
