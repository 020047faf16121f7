"""Calculate the number of runs a day on AWS at which each limit is reached, and the change that it requires.

    python -m benchmarks.plan

docs/contributing/scale.md contains the limits, without their formulas. To calculate with your own numbers, edit
``MEASURED`` and ``ASSUMED``. 1 GB is 10^9 bytes. In formulas, B is the load of the busiest minute as a multiple of the
mean, D and Dc are the bytes of a report and of a checkpoint on disk, and C is the number of checkpoints per run.
"""

from msgspec import Struct

from benchmarks.figures import markdown_table


class Measured(Struct, frozen=True, kw_only=True):
    """Results of benchmarks/scale.py on 2026-11-21. Disk bytes are those of a primary shard."""

    checkpoints_per_run: float
    report_disk_bytes: float
    checkpoint_disk_bytes: float
    slowest_panel_seconds_per_million: float
    direct_requests_per_second: float


class Assumed(Struct, frozen=True, kw_only=True):
    """Assumptions. ``log_read_share`` is the share of tasks whose report task_stopped does not find in the cluster."""

    peak_factor: float = 10  # load of the busiest minute, as a multiple of the mean
    handler_seconds: float = 0.03  # forward_logs at 512 MB, warm, with one report
    # task_stopped at 512 MB, if the report is available at once: ECS, CloudWatch Logs, search cluster, Slack
    task_stopped_seconds: float = 0.7
    log_read_share: float = 0.02


MEASURED = Measured(
    checkpoints_per_run=5.8,
    report_disk_bytes=1960,
    checkpoint_disk_bytes=1290,
    slowest_panel_seconds_per_million=0.375,
    direct_requests_per_second=180,
)
ASSUMED = Assumed()

# Quotas per account and Region:
# https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/cloudwatch_limits_cwl.html, 2026 (GetLogEvents is 10 to 30 a
# second by Region), https://docs.aws.amazon.com/lambda/latest/dg/scaling-behavior.html, 2026 (1,000 environments every
# 10 s; the concurrency is from memory), https://docs.aws.amazon.com/AmazonECS/latest/developerguide/throttling.html
_GET_LOG_EVENTS_PER_SECOND, _CREATE_STREAMS_PER_SECOND, _PUT_LOG_EVENTS_PER_SECOND = 10, 50, 5000
_LAMBDA_CONCURRENCY, _LAUNCHES_PER_SECOND = 1000, 20
_STREAM_RECORDS_PER_SECOND = 1000  # of one shard, https://aws.amazon.com/kinesis/data-streams/pricing/, 2026
# https://www.elastic.co/guide/en/elasticsearch/reference/8.15/size-your-shards.html
_SHARD_GB, _SHARD_DOCUMENTS = 50, 200e6
_MAX_PANEL_SECONDS = 10.0

_DAY_SECONDS, _MONTH_DAYS = 86_400, 30.4
_MILLION, _GB = 1e6, 1e9


class ScalingLimit(Struct, frozen=True, kw_only=True):
    """A limit, the rate of runs that reaches it with its formula, and the change that it requires."""

    limit: str
    formula: str
    runs_per_day: float
    change: str


def scaling_limits(measured: Measured = MEASURED, assumed: Assumed = ASSUMED) -> list[ScalingLimit]:
    """All limits in the order in which a growing number of runs reaches them."""
    at_peak_rate = _DAY_SECONDS / assumed.peak_factor
    months_per_day = 1 / _MONTH_DAYS
    limits = [
        ScalingLimit(
            limit=f"GetLogEvents, {_GET_LOG_EVENTS_PER_SECOND} a second, not adjustable",
            formula="one read per task whose report is not in the cluster: quota / 0.02 × 86,400 / B",
            runs_per_day=_GET_LOG_EVENTS_PER_SECOND / assumed.log_read_share * at_peak_rate,
            change="Restrict task_stopped (`ClusterArns`), and set `ReportWaitSeconds=0`",
        ),
        ScalingLimit(
            limit=f"`Ingestion=direct`, {measured.direct_requests_per_second:.0f} bulk requests a second on two cores",
            formula="requests × 86,400 / B",
            runs_per_day=measured.direct_requests_per_second * at_peak_rate,
            change="`Ingestion=stream`: up to 500 reports per bulk request",
        ),
        ScalingLimit(
            limit=f"One stream shard, {_STREAM_RECORDS_PER_SECOND:,} deliveries a second",
            formula="quota × 86,400 / B",
            runs_per_day=_STREAM_RECORDS_PER_SECOND * at_peak_rate,
            change="Raise `StreamShards`",
        ),
        ScalingLimit(
            limit=f"CreateLogStream, {_CREATE_STREAMS_PER_SECOND} a second",
            formula="two streams per task (batch and monitor): quota / 2 × 86,400 / B",
            runs_per_day=_CREATE_STREAMS_PER_SECOND / 2 * at_peak_rate,
            change="Quota L-76507CEF, or spread the schedules",
        ),
        ScalingLimit(
            limit=f"A panel over 30 days takes {_MAX_PANEL_SECONDS:g} s on one shard",
            formula="10 s / (s per million documents) / 30.4",
            runs_per_day=_MAX_PANEL_SECONDS / measured.slowest_panel_seconds_per_million * _MILLION * months_per_day,
            change="Raise `number_of_shards`, or view a week",
        ),
        ScalingLimit(
            limit=f"A month's reports fill a shard of {_SHARD_GB} GB",
            formula="50 GB / D / 30.4",
            runs_per_day=_SHARD_GB * _GB / measured.report_disk_bytes * months_per_day,
            change='`"codec": "best_compression"` (0.6 of the size), then `number_of_shards`',
        ),
        ScalingLimit(
            limit=f"A month's checkpoints fill a shard of {_SHARD_GB} GB",
            formula="50 GB / (C × Dc) / 30.4",
            runs_per_day=_SHARD_GB
            * _GB
            / (measured.checkpoints_per_run * measured.checkpoint_disk_bytes)
            * months_per_day,
            change="Do not subscribe the monitors' log group, or set `TASK_PROFILER_CHECKPOINT_SECONDS=600`",
        ),
        ScalingLimit(
            limit=f"{_SHARD_DOCUMENTS / _MILLION:.0f} million reports in a shard",
            formula="200 million / 30.4",
            runs_per_day=_SHARD_DOCUMENTS * months_per_day,
            change="Raise `number_of_shards`",
        ),
        ScalingLimit(
            limit=f"Fargate launches, {_LAUNCHES_PER_SECOND} a second",
            formula="quota × 86,400, if spread evenly over the day",
            runs_per_day=_LAUNCHES_PER_SECOND * _DAY_SECONDS,
            change="More accounts or Regions, or EC2",
        ),
        ScalingLimit(
            limit=f"Lambda concurrency, {_LAMBDA_CONCURRENCY}",
            formula="quota / (0.7 s + 0.03 s) × 86,400 / B",
            runs_per_day=_LAMBDA_CONCURRENCY / (assumed.task_stopped_seconds + assumed.handler_seconds) * at_peak_rate,
            change="Quota L-B99A9384, or restrict task_stopped",
        ),
        ScalingLimit(
            limit=f"PutLogEvents, {_PUT_LOG_EVENTS_PER_SECOND:,} a second",
            formula="a report and C checkpoints per run: quota / (1 + C) × 86,400 / B",
            runs_per_day=_PUT_LOG_EVENTS_PER_SECOND / (1 + measured.checkpoints_per_run) * at_peak_rate,
            change="Quota L-7E1FAE88",
        ),
    ]
    return sorted(limits, key=lambda entry: entry.runs_per_day)


def scaling_limits_table() -> str:
    """The limits as a Markdown table."""
    rows = [[_round_to_two_digits(entry.runs_per_day), entry.limit, entry.change] for entry in scaling_limits()]
    return markdown_table(["runs a day", "limit", "change"], rows)


def formulas_table() -> str:
    """The formulas of the limits as a Markdown table."""
    return markdown_table(["limit", "runs a day"], [[entry.limit, entry.formula] for entry in scaling_limits()])


def _round_to_two_digits(number: float) -> str:
    """Round to two significant digits, the precision of the inputs."""
    return f"{float(f'{number:.2g}'):,.0f}"


if __name__ == "__main__":
    print(f"{scaling_limits_table()}\n\n{formulas_table()}")
