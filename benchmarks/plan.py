"""Calculate capacity on AWS from the number of runs per day: loads, prices, and the limits that require a change.

    python -m benchmarks.plan

The program prints loads, limits and prices. docs/contributing/scale.md contains the limits, without their formulas. To
calculate with your own numbers, edit benchmarks/plan_inputs.py.
"""

from collections.abc import Callable
from math import ceil

from msgspec import Struct

from benchmarks import plan_inputs as inputs
from benchmarks.figures import markdown_table
from benchmarks.plan_inputs import ASSUMED, MEASURED, TUNED, TUNED_MEASURED, Assumed, Measured

RATES = (10_000, 1_000_000, 100_000_000)


class ScalingLimit(Struct, frozen=True, kw_only=True):
    """A limit, the rate of runs that reaches it with its formula, and the change that it requires."""

    limit: str
    formula: str
    runs_per_day: float
    change: str


class Price(Struct, frozen=True, kw_only=True):
    """A row of the price table: USD per million runs."""

    name: str
    formula: str
    usd: float


class Load(Struct, frozen=True, kw_only=True):
    """A row of the load table."""

    name: str
    formula: str
    value: Callable[[float], float]
    digits: int = 0


def scaling_limits(measured: Measured = MEASURED, assumed: Assumed = ASSUMED) -> list[ScalingLimit]:
    """All limits in the order in which a growing number of runs reaches them."""
    at_peak_rate = inputs.DAY_SECONDS / assumed.peak_factor
    months_per_day = 1 / inputs.MONTH_DAYS
    limits = [
        ScalingLimit(
            limit=f"GetLogEvents, {inputs.GET_LOG_EVENTS_PER_SECOND} a second, not adjustable",
            formula="one read per task whose report is not in the cluster: quota / 0.02 × 86,400 / B",
            runs_per_day=inputs.GET_LOG_EVENTS_PER_SECOND / assumed.log_read_share * at_peak_rate,
            change="Restrict task_stopped (`ClusterArns`), and set `ReportWaitSeconds=0`",
        ),
        ScalingLimit(
            limit=f"`Ingestion=direct`, {measured.direct_requests_per_second:.0f} bulk requests a second on two cores",
            formula="requests × 86,400 / B",
            runs_per_day=measured.direct_requests_per_second * at_peak_rate,
            change="`Ingestion=stream`: up to 500 reports per bulk request",
        ),
        ScalingLimit(
            limit=f"One stream shard, {inputs.STREAM_RECORDS_PER_SECOND:,} deliveries a second",
            formula="quota × 86,400 / B",
            runs_per_day=inputs.STREAM_RECORDS_PER_SECOND * at_peak_rate,
            change="Raise `StreamShards`",
        ),
        ScalingLimit(
            limit=f"CreateLogStream, {inputs.CREATE_STREAMS_PER_SECOND} a second",
            formula="two streams per task (batch and monitor): quota / 2 × 86,400 / B",
            runs_per_day=inputs.CREATE_STREAMS_PER_SECOND / 2 * at_peak_rate,
            change="Quota L-76507CEF, or spread the schedules",
        ),
        ScalingLimit(
            limit=f"A panel over 30 days takes {inputs.MAX_PANEL_SECONDS:g} s on one shard",
            formula="10 s / (s per million documents) / 30.4",
            runs_per_day=inputs.MAX_PANEL_SECONDS
            / measured.slowest_panel_seconds_per_million
            * inputs.MILLION
            * months_per_day,
            change="Raise `number_of_shards`, or view a week",
        ),
        ScalingLimit(
            limit=f"A month's reports fill a shard of {inputs.SHARD_GB} GB",
            formula="50 GB / D / 30.4",
            runs_per_day=inputs.SHARD_GB * inputs.GB / measured.report_disk_bytes * months_per_day,
            change='`"codec": "best_compression"` (0.6 of the size), then `number_of_shards`',
        ),
        ScalingLimit(
            limit=f"A month's checkpoints fill a shard of {inputs.SHARD_GB} GB",
            formula="50 GB / (C × Dc) / 30.4",
            runs_per_day=inputs.SHARD_GB
            * inputs.GB
            / (measured.checkpoints_per_run * measured.checkpoint_disk_bytes)
            * months_per_day,
            change="Do not subscribe the monitors' log group, or set `TASK_PROFILER_CHECKPOINT_SECONDS=600`",
        ),
        ScalingLimit(
            limit=f"{inputs.SHARD_DOCUMENTS / inputs.MILLION:.0f} million reports in a shard",
            formula="200 million / 30.4",
            runs_per_day=inputs.SHARD_DOCUMENTS * months_per_day,
            change="Raise `number_of_shards`",
        ),
        ScalingLimit(
            limit=f"Fargate launches, {inputs.LAUNCHES_PER_SECOND} a second",
            formula="quota × 86,400, if spread evenly over the day",
            runs_per_day=inputs.LAUNCHES_PER_SECOND * inputs.DAY_SECONDS,
            change="More accounts or Regions, or EC2",
        ),
        ScalingLimit(
            limit=f"Lambda concurrency, {inputs.LAMBDA_CONCURRENCY}",
            formula="quota / (0.7 s + 0.03 s) × 86,400 / B",
            runs_per_day=inputs.LAMBDA_CONCURRENCY
            / (assumed.task_stopped_seconds + assumed.handler_seconds)
            * at_peak_rate,
            change="Quota L-B99A9384, or restrict task_stopped",
        ),
        ScalingLimit(
            limit=f"PutLogEvents, {inputs.PUT_LOG_EVENTS_PER_SECOND:,} a second",
            formula="a report and C checkpoints per run: quota / (1 + C) × 86,400 / B",
            runs_per_day=inputs.PUT_LOG_EVENTS_PER_SECOND / (1 + measured.checkpoints_per_run) * at_peak_rate,
            change="Quota L-7E1FAE88",
        ),
    ]
    return sorted(limits, key=lambda entry: entry.runs_per_day)


def loads(measured: Measured = MEASURED, assumed: Assumed = ASSUMED) -> tuple[Load, ...]:
    """The loads as functions of the number of runs per day."""
    log_bytes = measured.report_line_bytes + measured.checkpoints_per_run * measured.checkpoint_line_bytes
    peak = assumed.peak_factor / inputs.DAY_SECONDS
    month_gb = inputs.MONTH_DAYS * measured.report_disk_bytes / inputs.GB
    return (
        Load(name="runs a second, mean", formula="R / 86,400", value=lambda r: r / inputs.DAY_SECONDS, digits=1),
        Load(name="runs a second, busiest minute", formula="R × B / 86,400", value=lambda r: r * peak, digits=1),
        Load(
            name="concurrent forward_logs, busiest minute",
            formula="R × B / 86,400 × 0.03 s",
            value=lambda r: r * peak * assumed.handler_seconds,
            digits=1,
        ),
        Load(
            name="concurrent task_stopped, busiest minute",
            formula="R × B / 86,400 × 0.7 s",
            value=lambda r: r * peak * assumed.task_stopped_seconds,
            digits=1,
        ),
        Load(
            name="log lines with checkpoints, GB a day",
            formula="R × (L + C × Lc)",
            value=lambda r: r * log_bytes / inputs.GB,
            digits=1,
        ),
        Load(name="reports per month, GB", formula="R × 30.4 × D", value=lambda r: r * month_gb, digits=1),
        Load(
            name="disk, TB",
            formula="R × 400 d × (D + C × Dc) × 2 × 1.45",
            value=lambda r: _disk_gb(r, measured, assumed) / 1000,
            digits=2,
        ),
        Load(
            name="nodes",
            formula="disk / 480 GB, or R × (1 + C) × B / 86,400 × 2 / W if larger; at least 3",
            value=lambda r: _nodes(r, measured, assumed),
        ),
    )


def prices(runs_per_day: float, measured: Measured, assumed: Assumed) -> tuple[Price, ...]:
    """The prices of a million runs at this number of runs per day."""
    usd_per_gb = inputs.USD_PER_LOG_GB + inputs.USD_PER_LOG_GB_MONTH * assumed.logs_kept_months
    gb_per_line_byte = inputs.MILLION / inputs.GB
    event_usd = _invocations_usd(assumed.handler_seconds, assumed) / assumed.reports_per_event
    month_millions = runs_per_day * inputs.MONTH_DAYS / inputs.MILLION
    nodes_usd = _nodes(runs_per_day, measured, assumed) * inputs.USD_PER_NODE_HOUR * inputs.MONTH_HOURS
    disks_usd = _disk_gb(runs_per_day, measured, assumed) * inputs.USD_PER_DISK_GB_MONTH
    invocation_usd = _invocations_usd(assumed.task_stopped_seconds, assumed)
    dynamodb_usd = inputs.DYNAMODB_WRITES * inputs.USD_PER_MILLION_DYNAMODB_WRITES
    return (
        Price(
            name="CloudWatch Logs: reports",
            formula="L × (0.50 + 0.03) a GB",
            usd=measured.report_line_bytes * gb_per_line_byte * usd_per_gb,
        ),
        Price(
            name="CloudWatch Logs: checkpoints",
            formula="C × Lc × (0.50 + 0.03) a GB",
            usd=measured.checkpoints_per_run * measured.checkpoint_line_bytes * gb_per_line_byte * usd_per_gb,
        ),
        Price(name="forward_logs: reports", formula="(0.20 + 0.5 GB × S × 13.33) / E", usd=event_usd),
        Price(
            name="forward_logs: checkpoints",
            formula="C × price for reports",
            usd=measured.checkpoints_per_run * event_usd,
        ),
        Price(
            name="data stream",
            formula="shards × 0.015 × 730 h / M + 0.014",
            usd=_stream_usd(runs_per_day, assumed) / month_millions,
        ),
        Price(
            name="task_stopped, once per task",
            formula="T × (0.20 + 0.5 GB × 0.7 s × 13.33 + 2 × 0.625)",
            usd=assumed.task_stopped_share * (invocation_usd + dynamodb_usd),
        ),
        Price(name="cluster: nodes", formula="nodes × 0.178 × 730 h / M", usd=nodes_usd / month_millions),
        Price(name="cluster: disks", formula="disk × 0.122 / M", usd=disks_usd / month_millions),
    )


def _invocations_usd(seconds: float, assumed: Assumed) -> float:
    """The price of a million invocations."""
    return (
        inputs.USD_PER_MILLION_INVOCATIONS
        + assumed.memory_gb * seconds * inputs.MILLION * inputs.USD_PER_LAMBDA_GB_SECOND
    )


def _stream_usd(runs_per_day: float, assumed: Assumed) -> float:
    """The price of the data stream per month; 0 if there is none."""
    if assumed.reports_per_event == 1:
        return 0
    shards = ceil(runs_per_day * assumed.peak_factor / inputs.DAY_SECONDS / inputs.STREAM_RECORDS_PER_SECOND)
    puts = runs_per_day * inputs.MONTH_DAYS / inputs.MILLION * inputs.USD_PER_MILLION_STREAM_PUTS
    return shards * inputs.USD_PER_STREAM_SHARD_HOUR * inputs.MONTH_HOURS + puts


def _disk_gb(runs_per_day: float, measured: Measured, assumed: Assumed) -> float:
    """The disk space of the cluster. Reports and checkpoints have the same retention."""
    run_bytes = measured.report_disk_bytes + measured.checkpoints_per_run * measured.checkpoint_disk_bytes
    return runs_per_day * assumed.retention_days * run_bytes * assumed.copies * assumed.overhead / inputs.GB


def _nodes(runs_per_day: float, measured: Measured, assumed: Assumed) -> int:
    """The number of nodes for the disk space and for the write rate.

    A data stream spreads the load of the busiest minute over the following hour.
    """
    peak_factor = assumed.peak_factor if assumed.reports_per_event == 1 else 2
    documents_per_day = runs_per_day * (1 + measured.checkpoints_per_run)
    writes_per_second = documents_per_day * peak_factor / inputs.DAY_SECONDS * assumed.copies
    by_writing = ceil(writes_per_second / measured.documents_per_second)
    by_disk = ceil(_disk_gb(runs_per_day, measured, assumed) / assumed.node_data_gb)
    return max(by_writing, by_disk, inputs.MIN_NODES)


def scaling_limits_table() -> str:
    """The limits as a Markdown table."""
    rows = [[_round_to_two_digits(entry.runs_per_day), entry.limit, entry.change] for entry in scaling_limits()]
    return markdown_table(["runs a day", "limit", "change"], rows)


def formulas_table() -> str:
    """The formulas of the limits as a Markdown table."""
    return markdown_table(["limit", "runs a day"], [[entry.limit, entry.formula] for entry in scaling_limits()])


def loads_table() -> str:
    """The loads as a Markdown table with a column for each rate."""
    head = ["at R runs a day", "formula", *(f"{rate:,}" for rate in RATES)]
    rows = [[load.name, load.formula, *(f"{load.value(rate):,.{load.digits}f}" for rate in RATES)] for load in loads()]
    return markdown_table(head, rows)


def prices_table() -> str:
    """The prices as a Markdown table: with default settings at three rates, and tuned at the two higher rates."""
    columns = [
        *((f"{rate:,}", prices(rate, MEASURED, ASSUMED)) for rate in RATES),
        *((f"{rate:,}, tuned", prices(rate, TUNED_MEASURED, TUNED)) for rate in RATES[1:]),
    ]
    head = ["USD per million runs, at R runs a day", "formula", *(name for name, _ in columns)]
    rows = [
        [price.name, price.formula, *(f"{column[index].usd:,.2f}" for _, column in columns)]
        for index, price in enumerate(columns[0][1])
    ]
    rows.append(["**sum**", "", *(f"**{sum(price.usd for price in column):,.2f}**" for _, column in columns)])
    return markdown_table(head, rows)


def _round_to_two_digits(number: float) -> str:
    """Round to two significant digits, the precision of the inputs."""
    return f"{float(f'{number:.2g}'):,.0f}"


if __name__ == "__main__":
    print(f"{loads_table()}\n\n{scaling_limits_table()}\n\n{formulas_table()}\n\n{prices_table()}")
