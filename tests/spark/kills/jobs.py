"""The jobs that are killed, as a program: `python -m tests.spark.kills.jobs '{"copy": {...}, "watch": [...]}'`.

`copy` moves messages from one topic of a node to another, by source and sink; `watch` is the program of verdicts. Both
in one process, if both are given: a start of Spark costs more than the rest of a short campaign.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from lag.spark.jobs.program import main as program
from lag.spark.session import SessionOptions, session
from lag.spark.shipping import ship

SMALL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings for little work: compiling a plan costs more than running it."""


def main(text: str) -> int:
    """Run what is asked for until it is killed, or with `once` until it has all that there was."""
    given = json.loads(text)
    spark = session(
        SessionOptions(name="kills", master=given["master"], ui=False, log_file=given["log"], settings=SMALL)
    )
    ship(spark)
    query = copying(spark, given["copy"]) if "copy" in given else None
    if "watch" in given:
        return program(["watch", *given["watch"], "--log", given["log"]])
    assert query is not None, "there is something to do"
    query.awaitTermination()
    return 0


def copying(spark: Any, given: dict[str, Any]) -> Any:
    """Start the query from one topic to the other."""
    source = {"node": given["consumer"], "group": "spark", "topic": "permits", "patience": "240", **given["source"]}
    frame = spark.readStream.format("pyddmq_messages").options(**source).load().select("body")
    writer = frame.writeStream.format("pyddmq").options(node=given["producer"], topic="copies", **given["sink"])
    writer = writer.option("patience", "240").option("checkpointLocation", given["checkpoint"])
    trigger = {"availableNow": True} if given.get("once") else {"processingTime": "100 milliseconds"}
    return writer.trigger(**trigger).start()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
