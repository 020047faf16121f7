"""What so many runs a day mean on AWS: loads, prices, and the rate at which each setting has to change. Pure.

    python -m benchmarks.plan

prints the tables of docs/contributing/scale.md. Change benchmarks/plan_inputs.py to your own numbers
and print again.
"""

from collections.abc import Callable, Sequence
from math import ceil

from msgspec import Struct

from benchmarks import plan_inputs as inputs
from benchmarks.plan_inputs import ASSUMED, MEASURED, TUNED, TUNED_MEASURED, Assumed, Measured

RATES = (10_000, 1_000_000, 100_000_000)


class Step(Struct, frozen=True, kw_only=True):
    """A limit, how the rate at which it is reached comes about, and what to do then."""

    limit: str
    formula: str
    runs_per_day: float
    change: str


class Price(Struct, frozen=True, kw_only=True):
    """A row of the table of prices: USD for a million runs."""

    what: str
    formula: str
    usd: float


class Load(Struct, frozen=True, kw_only=True):
    """A row of the table of loads."""

    what: str
    formula: str
    value: Callable[[float], float]
    digits: int = 0


def steps(measured: Measured = MEASURED, assumed: Assumed = ASSUMED) -> list[Step]:
    """All limits, those that are reached first before the others."""
    by_peak = inputs.DAY_SECONDS / assumed.busiest
    by_month = 1 / inputs.MONTH_DAYS
    found = [
        Step(
            limit=f"GetLogEvents, {inputs.GET_LOG_EVENTS_A_SECOND} to 25 a second by Region, not adjustable",
            formula="one read a task: quota × 86,400 / B",
            runs_per_day=inputs.GET_LOG_EVENTS_A_SECOND * by_peak,
            change="Restrict task_stopped to the clusters that need notices (`ClusterArns`), and set "
            "`ReportWaitSeconds=0`. A throttled read costs the notice the report's numbers; the document keeps them",
        ),
        Step(
            limit=f"CreateLogStream, {inputs.CREATE_STREAMS_A_SECOND} a second",
            formula="two streams a task (batch and monitor): quota / 2 × 86,400 / B",
            runs_per_day=inputs.CREATE_STREAMS_A_SECOND / 2 * by_peak,
            change="Ask for a higher quota (L-76507CEF), or spread the schedules",
        ),
        Step(
            limit=f"A panel over 30 days takes {inputs.LONGEST_PANEL_SECONDS:g} s on one shard",
            formula="10 s / (s per million documents) / 30.4",
            runs_per_day=inputs.LONGEST_PANEL_SECONDS
            / measured.slowest_panel_seconds_a_million
            * inputs.MILLION
            * by_month,
            change="`number_of_shards` = cores that may work on one search (4, say); look at a week instead of a month",
        ),
        Step(
            limit=f"A month's reports fill a shard of {inputs.SHARD_GB} GB",
            formula="50 GB / D / 30.4",
            runs_per_day=inputs.SHARD_GB * inputs.GB / measured.report_disk_bytes * by_month,
            change='`number_of_shards` = GB a month / 40; `"codec": "best_compression"` first, which leaves 0.6 of it',
        ),
        Step(
            limit=f"A month's checkpoints fill a shard of {inputs.SHARD_GB} GB",
            formula="50 GB / (C × Dc) / 30.4",
            runs_per_day=inputs.SHARD_GB
            * inputs.GB
            / (measured.checkpoints_a_run * measured.checkpoint_disk_bytes)
            * by_month,
            change="Do not subscribe the monitors' log group, or `TASK_PROFILER_CHECKPOINT_SECONDS=600`; else shards "
            "as below, and delete checkpoints after 45 days",
        ),
        Step(
            limit=f"{inputs.SHARD_DOCUMENTS / inputs.MILLION:.0f} million reports in a shard",
            formula="200 million / 30.4",
            runs_per_day=inputs.SHARD_DOCUMENTS * by_month,
            change="As for GB",
        ),
        Step(
            limit=f"Fargate launches, {inputs.LAUNCHES_A_SECOND} a second",
            formula="quota × 86,400, if spread over the whole day",
            runs_per_day=inputs.LAUNCHES_A_SECOND * inputs.DAY_SECONDS,
            change="More accounts or Regions, or EC2: ECS itself does not start more",
        ),
        Step(
            limit=f"Lambda concurrency, {inputs.LAMBDA_CONCURRENCY}",
            formula="quota / (0.7 s + 0.03 s) × 86,400 / B",
            runs_per_day=inputs.LAMBDA_CONCURRENCY / (assumed.task_stopped_seconds + assumed.handler_seconds) * by_peak,
            change="Ask for more (L-B99A9384), or restrict task_stopped as above",
        ),
        Step(
            limit=f"PutLogEvents, {inputs.PUT_LOG_EVENTS_A_SECOND:,} a second",
            formula="a report and C checkpoints a run: quota / (1 + C) × 86,400 / B",
            runs_per_day=inputs.PUT_LOG_EVENTS_A_SECOND / (1 + measured.checkpoints_a_run) * by_peak,
            change="Ask for a higher quota (L-7E1FAE88). The batches' own lines count, too",
        ),
    ]
    return sorted(found, key=lambda step: step.runs_per_day)


def loads(measured: Measured = MEASURED, assumed: Assumed = ASSUMED) -> tuple[Load, ...]:
    """What a rate of runs a day comes to."""
    log_bytes = measured.report_line_bytes + measured.checkpoints_a_run * measured.checkpoint_line_bytes
    peak = assumed.busiest / inputs.DAY_SECONDS
    month_gb = inputs.MONTH_DAYS * measured.report_disk_bytes / inputs.GB
    return (
        Load(what="runs a second, mean", formula="R / 86,400", value=lambda r: r / inputs.DAY_SECONDS, digits=1),
        Load(what="the same in the busiest minute", formula="R × B / 86,400", value=lambda r: r * peak, digits=1),
        Load(
            what="forward_logs at once, busiest",
            formula="that × 0.03 s",
            value=lambda r: r * peak * assumed.handler_seconds,
            digits=1,
        ),
        Load(
            what="task_stopped at once, busiest",
            formula="that × 0.7 s",
            value=lambda r: r * peak * assumed.task_stopped_seconds,
            digits=1,
        ),
        Load(
            what="log lines with checkpoints, GB a day",
            formula="R × (L + C × Lc)",
            value=lambda r: r * log_bytes / inputs.GB,
            digits=1,
        ),
        Load(what="reports of a month, GB", formula="R × 30.4 × D", value=lambda r: r * month_gb, digits=1),
        Load(
            what="disk, TB",
            formula="R × 400 d × (D + C × Dc) × 2 × 1.45",
            value=lambda r: _disk_gb(r, measured, assumed) / 1000,
            digits=2,
        ),
        Load(what="nodes", formula="see below", value=lambda r: _nodes(r, measured, assumed)),
    )


def prices(runs_per_day: float, measured: Measured, assumed: Assumed) -> tuple[Price, ...]:
    """What a million runs cost at this rate."""
    kept = inputs.USD_A_LOG_GB + inputs.USD_A_LOG_GB_MONTH * assumed.logs_kept_months
    gb_a_line_byte = inputs.MILLION / inputs.GB
    an_event = _invocations_usd(assumed.handler_seconds, assumed) / assumed.reports_an_event
    month_millions = runs_per_day * inputs.MONTH_DAYS / inputs.MILLION
    nodes_usd = _nodes(runs_per_day, measured, assumed) * inputs.USD_A_NODE_HOUR * inputs.MONTH_HOURS
    disks_usd = _disk_gb(runs_per_day, measured, assumed) * inputs.USD_A_DISK_GB_MONTH
    ends = _invocations_usd(assumed.task_stopped_seconds, assumed)
    writes = inputs.DYNAMODB_WRITES * inputs.USD_A_DYNAMODB_WRITE_MILLION
    return (
        Price(
            what="CloudWatch Logs: reports",
            formula="L × (0.50 + 0.03) a GB",
            usd=measured.report_line_bytes * gb_a_line_byte * kept,
        ),
        Price(
            what="CloudWatch Logs: checkpoints",
            formula="C × Lc × (0.50 + 0.03) a GB",
            usd=measured.checkpoints_a_run * measured.checkpoint_line_bytes * gb_a_line_byte * kept,
        ),
        Price(what="forward_logs: reports", formula="(0.20 + 0.5 GB × S × 13.33) / E", usd=an_event),
        Price(what="forward_logs: checkpoints", formula="C × the same", usd=measured.checkpoints_a_run * an_event),
        Price(
            what="data stream",
            formula="shards × 0.015 × 730 h / M + 0.014",
            usd=_stream_usd(runs_per_day, assumed) / month_millions,
        ),
        Price(
            what="task_stopped, once a task",
            formula="T × (0.20 + 0.5 GB × 0.7 s × 13.33 + 2 × 0.625)",
            usd=assumed.told_share * (ends + writes),
        ),
        Price(what="cluster: nodes", formula="nodes × 0.178 × 730 h / M", usd=nodes_usd / month_millions),
        Price(what="cluster: disks", formula="disk × 0.122 / M", usd=disks_usd / month_millions),
    )


def _invocations_usd(seconds: float, assumed: Assumed) -> float:
    """Of a million."""
    return inputs.USD_A_LAMBDA_MILLION + assumed.memory_gb * seconds * inputs.MILLION * inputs.USD_A_LAMBDA_GB_SECOND


def _stream_usd(runs_per_day: float, assumed: Assumed) -> float:
    """Of a month; 0 where there is none."""
    if assumed.reports_an_event == 1:
        return 0
    shards = ceil(runs_per_day * assumed.busiest / inputs.DAY_SECONDS / inputs.STREAM_RECORDS_A_SECOND)
    puts = runs_per_day * inputs.MONTH_DAYS / inputs.MILLION * inputs.USD_A_STREAM_PUT_MILLION
    return shards * inputs.USD_A_STREAM_SHARD_HOUR * inputs.MONTH_HOURS + puts


def _disk_gb(runs_per_day: float, measured: Measured, assumed: Assumed) -> float:
    """Reports and checkpoints are kept as long as each other."""
    run_bytes = measured.report_disk_bytes + measured.checkpoints_a_run * measured.checkpoint_disk_bytes
    return runs_per_day * assumed.retention_days * run_bytes * assumed.copies * assumed.overhead / inputs.GB


def _nodes(runs_per_day: float, measured: Measured, assumed: Assumed) -> int:
    """Enough for the disk and for the writing; a data stream spreads the busiest minute over the hour after it."""
    busiest = assumed.busiest if assumed.reports_an_event == 1 else 2
    documents_a_day = runs_per_day * (1 + measured.checkpoints_a_run)
    written_a_second = documents_a_day * busiest / inputs.DAY_SECONDS * assumed.copies
    by_writing = ceil(written_a_second / measured.documents_a_second)
    by_disk = ceil(_disk_gb(runs_per_day, measured, assumed) / assumed.node_data_gb)
    return max(by_writing, by_disk, inputs.FEWEST_NODES)


def steps_table() -> str:
    """Markdown."""
    rows = [["from runs a day", "limit", "how it comes about", "what to change then"]]
    rows += [[_rounded(step.runs_per_day), step.limit, step.formula, step.change] for step in steps()]
    return _markdown(rows)


def loads_table() -> str:
    """Markdown, a column for each rate."""
    rows = [["at R runs a day", "formula", *(f"{rate:,}" for rate in RATES)]]
    rows += [[load.what, load.formula, *(f"{load.value(rate):,.{load.digits}f}" for rate in RATES)] for load in loads()]
    return _markdown(rows)


def prices_table() -> str:
    """Markdown: as deployed at three rates, then tuned at the two larger ones."""
    columns = [
        *((f"{rate:,}", prices(rate, MEASURED, ASSUMED)) for rate in RATES),
        *((f"{rate:,}, tuned", prices(rate, TUNED_MEASURED, TUNED)) for rate in RATES[1:]),
    ]
    rows = [["USD for a million runs, at R a day", "formula", *(name for name, _ in columns)]]
    for place, price in enumerate(columns[0][1]):
        rows.append([price.what, price.formula, *(f"{column[place].usd:,.2f}" for _, column in columns)])
    rows.append(["**sum**", "", *(f"**{sum(price.usd for price in column):,.2f}**" for _, column in columns)])
    return _markdown(rows)


def _rounded(number: float) -> str:
    """Two digits: the inputs are not known better."""
    return f"{float(f'{number:.2g}'):,.0f}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *others = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *others])


if __name__ == "__main__":
    print(f"{loads_table()}\n\n{steps_table()}\n\n{prices_table()}")
