"""The rules of `lag.rules` as columns of Spark, without a Python function per row.

Rules over single values are the very expressions of `lag.rules`, written out as SQL. What walks a window
(`lag.rules.facts`) is written here a second time, by running aggregates and, for slopes, over an array of the window's
samples; one table of cases and random windows hold both forms together (`tests/spark/test_columns.py`).

Every row is judged as the newest sample of its queue: a row of output per row of input. There is one sample per queue
and moment; of two, which one comes first is not defined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import DataFrame

from lag.rules import causes, statuses
from lag.rules.expression import RuleExpression, Value, names_in
from lag.rules.facts import WINDOW_FACTS
from lag.rules.limits import LagLimits
from lag.rules.quantities import QUANTITIES, TOPIC_QUANTITIES, Quantity
from lag.rules.topic_rules import ALONE

BUCKET_MS: Final = 10_000
"""Samples of a topic's queues within one such stretch of time are of one moment."""

SHORT: Final = 330
"""Characters of SQL that may be said again where they are needed: each step that adds columns copies all of a row."""

_TEMPLATES: Final = {
    "add": "({} + {})",
    "subtract": "({} - {})",
    "multiply": "({} * {})",
    "divide": "try_divide(CAST({} AS DOUBLE), CAST({} AS DOUBLE))",
    "less": "({} < {})",
    "less_equal": "({} <= {})",
    "greater": "({} > {})",
    "greater_equal": "({} >= {})",
    "equals": "({} = {})",
    # Spark's greatest leaves nulls out.
    "highest": "if({0} >= {1}, {0}, if({0} < {1}, {1}, NULL))",
    "and": "({} AND {})",
    "or": "({} OR {})",
    "not": "(NOT {})",
    "is_null": "({} IS NULL)",
    "if_else": "if({}, {}, {})",
}
"""SQL of each operation of `lag.rules.expression.PLAIN` that takes a fixed number of parts."""


def sql_of(
    expression: RuleExpression, constants: Mapping[str, Value] | None = None, written: Mapping[str, str] | None = None
) -> str:
    """Return an expression as Spark's SQL.

    Args:
        expression: The rule.
        constants: Facts that are no columns, with their values.
        written: Facts that are no columns, as SQL.
    """
    constants, written = constants or {}, written or {}
    if expression.operation == "constant":
        return _literal(expression.leaf)
    if expression.operation == "fact":
        name = str(expression.leaf)
        return _literal(constants[name]) if name in constants else written.get(name, f"`{name}`")
    parts = [sql_of(part, constants, written) for part in expression.parts]
    if expression.operation in ("coalesce", "latest"):
        function = "coalesce" if expression.operation == "coalesce" or len(parts) == 1 else "greatest"
        return f"{function}({', '.join(parts)})"
    return _TEMPLATES[expression.operation].format(*parts)


def _literal(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"{value!r}D" if isinstance(value, float) else f"{value}L"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The columns that say whose sample a row is; who has numbers for the names gives those.

    Attributes:
        topic: Of the topic of one group: its queues stand beside each other.
        queue: Of the queue within it.
    """

    topic: Sequence[str] = ("cluster", "group", "topic")
    queue: Sequence[str] = ("node", "queue")

    @property
    def one(self) -> str:
        """The columns of one queue, as SQL has a list."""
        return ", ".join(f"`{name}`" for name in (*self.topic, *self.queue))


BY_NAME: Final = Names()


def with_status(samples: DataFrame, limits: LagLimits, names: Names = BY_NAME) -> DataFrame:
    """Add what needs no other queue: facts, quantities, `status`. One sort, by queue and moment, serves all of it.

    Args:
        samples: The fields of `QueueKey`, under `names`, and of `QueueSample` that rules look at; besides, if it has
            them, `now_ms`, the moment that is judged (else that of the sample), and `reset_ms`, when an operator last
            reset the group's offset on the queue by then.
        limits: Thresholds.
        names: Whose samples rows are.
    """
    constants: dict[str, Value] = asdict(limits)
    frame = _with_quantities(_with_facts(samples, limits, names), QUANTITIES, constants)
    return frame.selectExpr("*", f"{sql_of(statuses.RULE, constants)} AS status")


def with_cause(frame: DataFrame, limits: LagLimits) -> DataFrame:
    """Add `skew`, `hot` and `cause` to rows that have what these look at."""
    constants: dict[str, Value] = asdict(limits)
    frame = _with_quantities(frame, TOPIC_QUANTITIES, constants)
    return frame.selectExpr("*", f"CAST({sql_of(causes.RULE, constants)} AS STRING) AS cause")


def _with_quantities(frame: DataFrame, table: Mapping[str, Quantity], constants: Mapping[str, Value]) -> DataFrame:
    """Add a table's quantities, those that build on others after them; where the others are short, with them."""
    types = {"int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN", "str": "STRING"}
    rest = {name: each for name, each in table.items() if name not in frame.columns}
    while rest:
        made: dict[str, str] = {}
        short: dict[str, str] = {}
        while ready := [
            each
            for each in rest.values()
            if each.name not in made and not names_in(each.rule) & rest.keys() - short.keys()
        ]:
            for each in ready:
                made[each.name] = f"CAST({sql_of(each.rule, constants, short)} AS {types[each.kind]})"
            short |= {name: text for name, text in made.items() if len(text) <= SHORT}
        assert made, f"quantities that need each other: {sorted(rest)}"
        frame = frame.selectExpr("*", *(f"{text} AS `{name}`" for name, text in made.items()))
        for name in made:
            del rest[name]
    return frame


_READABLE = "(`start` IS NOT NULL AND `end` IS NOT NULL)"


def _slopes(points: str, field: str) -> str:
    """Return SQL of the slopes that `lag.rules.facts.median_slope` takes the median of, highest first, then nulls.

    A point has no partner, and null for a slope, where the array ends half its length behind it. There is cheaper and
    dearer to say it: `slice` looks its own name up by a regular expression for each row, and `array_sort` compares by a
    lambda.
    """
    partners = f"filter({points}, (x, i) -> i >= size({points}) DIV 2)"
    return f"sort_array(zip_with({points}, {partners}, (a, b) -> {_slope('a', 'b', field)}), false)"


def _middle(slopes: str) -> str:
    """Return SQL of the median of slopes as `_slopes` sorts them, without the nulls at their end."""
    count = f"(size({slopes}) - size({slopes}) DIV 2)"
    low, high = (f"get({slopes}, CAST(({count} - {less}) DIV 2 AS INT))" for less in (1, 0))
    return f"({low} + {high}) / 2"


def _slope(first: str, second: str, field: str) -> str:
    return f"CAST({second}.{field} - {first}.{field} AS DOUBLE) * 1000.0D / CAST({second}.t - {first}.t AS DOUBLE)"


def _recent(points: str, field: str, limits: LagLimits) -> str:
    """Return SQL of `lag.rules.facts.recent_slope`."""
    last = f"get({points}, size({points}) - 1)"
    before = f"size(filter({points}, x -> x.t <= {last}.t - {limits.recent_ms}L))"
    first = f"get({points}, greatest({before} - 1, 0))"
    return f"if(size({points}) < 2, NULL, {_slope(first, last, field)})"


def _halves(points: str, field: str) -> tuple[str, str]:
    middle = f"get({points}, CAST(size({points}) DIV 2 AS INT))"
    first, last = f"get({points}, 0)", f"get({points}, size({points}) - 1)"
    few = f"size({points}) < 3"
    return f"if({few}, NULL, {_slope(first, middle, field)})", f"if({few}, NULL, {_slope(middle, last, field)})"


def _with_facts(samples: DataFrame, limits: LagLimits, names: Names) -> DataFrame:
    """Add what each row's window says: the same as `lag.rules.facts.facts_of`.

    All is by one order, queue and moment, so that one sort serves it, in two walks. The first takes the samples of the
    window as an array (`_all`), their extremes, and the readable sample before each; the second, which compares the
    two, where runs began: a trailing run began at the last sample that began one, or at the window's first if that is
    later.

    Where `end` fell (`_life_ms`) within a window, `_w` is the array from there on, and extremes are taken of that.
    Slopes look through arrays only where a figure has moved within the window.
    """
    back = limits.window_ms
    now = "greatest(now_ms, time_ms)" if "now_ms" in samples.columns else "time_ms"
    reset = "reset_ms" if "reset_ms" in samples.columns else "CAST(NULL AS BIGINT)"
    kept = [f"`{name}`" for name in samples.columns if name not in ("now_ms", "reset_ms")]
    over = f"OVER (PARTITION BY {names.one} ORDER BY time_ms"
    before = f"{over} RANGE BETWEEN UNBOUNDED PRECEDING AND {back + 1} PRECEDING)"
    within = f"{over} RANGE BETWEEN {back} PRECEDING AND CURRENT ROW)"
    so_far = f"{over} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    unfinished = "greatest(0L, greatest(0L, `end` - greatest(`start`, committed)) - finished)"
    frame = samples.selectExpr(
        *kept,
        f"{now} AS now_ms",
        f"if({reset} BETWEEN time_ms - {back}L AND {now}, {reset}, NULL) AS reset_ms",
        f"{_READABLE} AS _r",
        f"{_READABLE} AND `end` > greatest(`start`, coalesce(committed, 0)) AS _left",
        f"if({_READABLE} AND committed IS NOT NULL, {unfinished}, NULL) AS _unfinished",
    )
    held = (
        "named_struct('t', time_ms, 's', `start`, 'e', `end`, 'c', committed, 'x', expired, 'u', _unfinished, 'd', "
        "if(committed IS NULL, NULL, greatest(`start`, committed) - expired - skipped))"
    )
    life = "if(_r AND committed IS NOT NULL, struct(-coalesce(base, 0L) AS b, committed AS c), NULL)"
    taken = "if(_r, struct(`start`, expired, skipped), NULL)"
    frame = frame.selectExpr(
        "*",
        f"collect_list(if(_r, {held}, NULL)) {within} AS _all",
        f"min(_unfinished) {within} AS _least",
        f"max(if(_r, committed, NULL)) {within} AS _most",
        f"count(if(_r AND committed IS NULL, 1, NULL)) {within} AS _unknown",
        f"min(if(_r, `start`, NULL)) {within} = max(if(_r, `start`, NULL)) {within} AS _start_stood",
        f"min({taken}) {within} = max({taken}) {within} AS _taken_stood",
        f"lag(_unfinished) IGNORE NULLS {over}) AS _unfinished_before",
        f"last(if(_r, struct(expired, committed), NULL), true) {before} AS _before",
        f"lag(if(_r, named_struct('e', `end`, 'c', committed, 'left', _left), NULL)) IGNORE NULLS {over}) AS _one",
        f"lag({life}) IGNORE NULLS {over}) AS _life_before",
    ).selectExpr("*", "_r AND coalesce(`end` < _one.e, true) AS _begins")
    frame = frame.selectExpr(
        "*",
        f"max(if(_begins, time_ms, NULL)) {so_far} AS _life_ms",
        f"max(if(_r AND paused, time_ms, NULL)) {so_far} AS _paused_ms",
        f"max(if(_begins OR (_r AND NOT (committed <=> _one.c)), time_ms, NULL)) {so_far} AS _moved_ms",
        f"max(if(_left AND (_begins OR NOT _one.left), time_ms, NULL)) {so_far} AS _left_ms",
        f"max(if({life} < _life_before, time_ms, NULL)) {so_far} AS _fell_ms",
        f"max(if(_unfinished < _unfinished_before, time_ms, NULL)) {so_far} AS _fewer_ms",
    )
    # What is cheap is said again, and no column: each step copies all of a row.
    cut, placed = "(_life_ms > get(_all, 0).t)", "(`start` IS NOT NULL AND committed IS NOT NULL)"
    first_ms, end = "get(_w, 0).t", "get(_w, size(_w) - 1).e"
    frame = frame.selectExpr(
        "*",
        f"if({cut}, filter(_all, x -> x.t >= _life_ms), _all) AS _w",
        "greatest(coalesce(_fell_ms, 0L), coalesce(reset_ms, 0L)) AS _rises_from",
    )
    rising = "filter(_w, x -> x.c IS NOT NULL AND x.t >= _rises_from)"
    below = "size(filter(_w, x -> x.e <= greatest(`start`, committed)))"
    stood = "size(_rising) < 2 OR _taken_stood AND get(_rising, size(_rising) - 1).c = get(_rising, 0).c"
    grows = "filter(_w, x -> x.u IS NOT NULL AND x.t >= coalesce(_fewer_ms, 0L))"
    frame = frame.selectExpr(
        "*",
        f"if(_unknown = 0 AND _rises_from <= {first_ms}, _w, {rising}) AS _rising",
        f"if({placed} AND {end} > greatest(`start`, committed), {below}, NULL) AS _below",
        f"if({end} = get(_w, 0).e, NULL, {_slopes('_w', 'e')}) AS _ends",
        f"if(_start_stood OR size(_w) < 2, NULL, {_slopes('_w', 's')}) AS _starts",
        f"{grows} AS _grows",
    ).selectExpr(
        "*",
        f"if({stood}, NULL, {_slopes('_rising', 'd')}) AS _commits",
        "get(_grows, size(filter(_grows, x -> x.u = get(_grows, 0).u)) - 1) AS _least_of_run",
        "get(_grows, size(_grows) - 1) AS _last_of_run",
    )
    produce, consume = _halves("_w", "e"), _halves("_rising", "d")
    after_reset = "array_max(transform(filter(_w, x -> x.t >= reset_ms), x -> x.c))"
    before_reset = "filter(_w, x -> x.t < reset_ms AND x.c IS NOT NULL)"
    facts = {
        "reset_ago_s": "(now_ms - reset_ms) DIV 1000",
        "readable": "CAST(size(_w) AS BIGINT)",
        "flat_since_ms": f"if({placed} AND size(_w) > 0 AND if(_r, committed, _one.c) = committed, "
        f"greatest(_moved_ms, {first_ms}), NULL)",
        "behind_since_ms": f"if(size(_w) > 0 AND if(_r, _left, _one.left), greatest(_left_ms, {first_ms}), NULL)",
        "paused_until_ms": f"if(_paused_ms >= greatest(time_ms - {back}L, _life_ms), _paused_ms, NULL)",
        "least_unfinished": f"if({cut}, array_min(transform(_w, x -> x.u)), _least)",
        "peak_committed": f"if(reset_ms IS NULL, if({cut}, array_max(transform(_w, x -> x.c)), _most), {after_reset})",
        # The last of them: moments are what is compared first.
        "committed_before": f"if(reset_ms IS NULL, NULL, array_max({before_reset}).c)",
        "earlier_expired": "if(size(_w) > 0, coalesce(_before.expired, get(_w, 0).x), NULL)",
        "earlier_committed": "if(size(_w) > 0, if(_before IS NULL, get(_w, 0).c, _before.committed), NULL)",
        "below_ms": "if(_below > 0, get(_w, _below - 1).t, NULL)",
        "below_end": "if(_below > 0, get(_w, _below - 1).e, NULL)",
        "above_ms": "get(_w, _below).t",
        "above_end": "get(_w, _below).e",
        "growing_since_ms": "_least_of_run.t",
        "grown": "_last_of_run.u - _least_of_run.u",
        "grown_produced": "_last_of_run.e - _least_of_run.e",
        "peak_before": "array_max(transform(filter(_w, x -> x.t < _least_of_run.t), x -> x.u))",
        "produce_recent": _recent("_w", "e", limits),
        "consume_recent": _recent("_rising", "d", limits),
        "produce_slope": f"if(size(_w) < 2, NULL, if(_ends IS NULL, 0.0D, {_middle('_ends')}))",
        "consume_slope": f"if(size(_rising) < 2, NULL, if(_commits IS NULL, 0.0D, {_middle('_commits')}))",
        "start_slope": f"if(size(_w) < 2, NULL, if(_starts IS NULL, 0.0D, {_middle('_starts')}))",
        "produce_first": produce[0],
        "produce_second": produce[1],
        "consume_first": consume[0],
        "consume_second": consume[1],
    }
    assert {*facts, "now_ms", "reset_ms"} == WINDOW_FACTS.keys()
    frame = frame.selectExpr("*", *(f"{rule} AS `{name}`" for name, rule in facts.items()))
    return frame.drop(*(name for name in frame.columns if name.startswith("_")))


def with_neighbours(frame: DataFrame, names: Names = BY_NAME) -> DataFrame:
    """Add what the topic's other queues say at the same moment: the same as `lag.rules.topic_rules.beside`.

    Of a queue that was read twice within one moment the later sample counts.

    Args:
        frame: Rows with `time_ms`, `lag`, `produce_trend` and their names.
        names: Whose samples rows are.
    """
    bucket = f"time_ms DIV {BUCKET_MS}"
    topic = f"{', '.join(f'`{name}`' for name in names.topic)}, _moment"
    # In this order one sort serves both.
    own = f"OVER (PARTITION BY {topic}, {', '.join(f'`{name}`' for name in names.queue)})"
    over = f"OVER (PARTITION BY {topic})"
    figures = {"lag": "lag", "rate": "produce_trend"}
    frame = frame.selectExpr("*", f"{bucket} AS _moment").selectExpr(
        "*",
        f"time_ms = max(time_ms) {own} AS _counts",
        *(f"CAST(max_by(`{name}`, time_ms) {own} AS DOUBLE) AS _{short}_own" for short, name in figures.items()),
    )
    frame = frame.selectExpr("*", *(f"if(_counts, _{short}_own, NULL) AS _{short}" for short in figures))
    sums = []
    for short in figures:
        sums += [
            f"count(_{short}) {over} AS _{short}_count",
            f"coalesce(sum(_{short}) {over}, 0.0D) AS _{short}_sum",
            f"coalesce(sum(_{short} * _{short}) {over}, 0.0D) AS _{short}_squares",
        ]
    frame = frame.selectExpr("*", *sums, f"max(_lag) {over} AS lag_max")
    rest = []
    for short in figures:
        mine = f"coalesce(_{short}_own, 0.0D)"
        count = f"CAST(_{short}_count - if(_{short}_own IS NULL, 0, 1) AS DOUBLE)"
        mean = f"try_divide(_{short}_sum - {mine}, {count})"
        squares = f"try_divide(_{short}_squares - {mine} * {mine}, {count})"
        rest += [
            f"{mean} AS others_{short}_mean",
            f"if({count} > 0, sqrt(greatest(0.0D, {squares} - {mean} * {mean})), NULL) AS others_{short}_deviation",
        ]
    frame = frame.selectExpr(
        "*", *rest, "_lag_count AS lag_queues", "try_divide(_lag_sum, CAST(_lag_count AS DOUBLE)) AS lag_mean"
    )
    assert ALONE.keys() <= set(frame.columns)
    return frame.drop(*(name for name in frame.columns if name.startswith("_")))
