"""Inputs of the capacity plan: measurements, assumptions, and AWS prices and quotas.

Prices are in USD for US East (N. Virginia). 1 GB is 10^9 bytes. In formulas, R is the number of runs a day and B the
load of the busiest minute as a multiple of the mean. L and Lc are the bytes of a line, and D and Dc those on disk (of a
report, of a checkpoint). C is the checkpoints per run, W the documents written per second, S the seconds and E the
reports of an invocation, T the share of tasks for which task_stopped runs, and M the runs a month in millions.
"""

from msgspec import Struct
from msgspec.structs import replace


class Measured(Struct, frozen=True, kw_only=True):
    """Results of benchmarks/scale.py on 2026-11-21. Disk bytes are those of a primary shard."""

    report_line_bytes: float
    checkpoint_line_bytes: float
    checkpoints_per_run: float
    report_disk_bytes: float
    checkpoint_disk_bytes: float
    slowest_panel_seconds_per_million: float
    documents_per_second: float
    direct_requests_per_second: float


class Assumed(Struct, frozen=True, kw_only=True):
    """Assumptions. Replace them by your own numbers.

    ``task_stopped_share`` is the share of tasks for which task_stopped runs, ``log_read_share`` the share of tasks
    whose report it does not find in the cluster. ``reports_per_event`` is above 1 only with a data stream.
    """

    peak_factor: float = 10  # load of the busiest minute, as a multiple of the mean
    reports_per_event: int = 1
    handler_seconds: float = 0.03  # forward_logs at 512 MB, warm, with one report
    task_stopped_seconds: float = (
        0.7  # at 512 MB, if the report is available at once: ECS, CloudWatch Logs, cluster, Slack
    )
    task_stopped_share: float = 1
    log_read_share: float = 0.02
    memory_gb: float = 0.5
    retention_days: float = 400  # kibana/lifecycle
    copies: float = 2  # primary and one replica
    overhead: float = 1.45  # AWS recommendation for free disk space
    node_data_gb: float = 480  # r7g.large: 16 GiB of memory, 30 GB of data per GiB
    logs_kept_months: float = 1


MEASURED = Measured(
    report_line_bytes=2337,
    checkpoint_line_bytes=2620,
    checkpoints_per_run=5.8,
    report_disk_bytes=1960,
    checkpoint_disk_bytes=1290,
    slowest_panel_seconds_per_million=0.375,
    documents_per_second=2100,
    direct_requests_per_second=180,
)
ASSUMED = Assumed()
_COMPRESSED_DISK_BYTES = 1190
# For very high rates: no checkpoints, reports by data stream, two weeks of retention, task_stopped for failures only.
TUNED_MEASURED = replace(MEASURED, checkpoints_per_run=0, report_disk_bytes=_COMPRESSED_DISK_BYTES)
TUNED = Assumed(reports_per_event=500, handler_seconds=0.6, task_stopped_share=0.02, retention_days=14)

# https://aws.amazon.com/cloudwatch/pricing/, June 2026
USD_PER_LOG_GB, USD_PER_LOG_GB_MONTH = 0.50, 0.03
# arm64, https://aws.amazon.com/lambda/pricing/, May 2026
USD_PER_MILLION_INVOCATIONS, USD_PER_LAMBDA_GB_SECOND = 0.20, 0.0000133334
# on demand, https://aws.amazon.com/dynamodb/pricing/on-demand/, July 2026; two writes per task
USD_PER_MILLION_DYNAMODB_WRITES, DYNAMODB_WRITES = 0.625, 2
# https://aws.amazon.com/kinesis/data-streams/pricing/, 2026; the price per million records is from memory
USD_PER_STREAM_SHARD_HOUR, USD_PER_MILLION_STREAM_PUTS, STREAM_RECORDS_PER_SECOND = 0.015, 0.014, 1000
# r7g.large.search, from copies of the price list made in 2026; gp3, from memory
USD_PER_NODE_HOUR, USD_PER_DISK_GB_MONTH = 0.178, 0.122
MIN_NODES = 3

# Quotas per account and Region:
# https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/cloudwatch_limits_cwl.html, 2026 (GetLogEvents is 10 to 30 a
# second by Region), https://docs.aws.amazon.com/lambda/latest/dg/scaling-behavior.html, 2026 (1,000 environments every
# 10 s; the concurrency is from memory), https://docs.aws.amazon.com/AmazonECS/latest/developerguide/throttling.html
GET_LOG_EVENTS_PER_SECOND, CREATE_STREAMS_PER_SECOND, PUT_LOG_EVENTS_PER_SECOND = 10, 50, 5000
LAMBDA_CONCURRENCY, LAUNCHES_PER_SECOND = 1000, 20
# https://www.elastic.co/guide/en/elasticsearch/reference/8.15/size-your-shards.html
SHARD_GB, SHARD_DOCUMENTS = 50, 200e6
MAX_PANEL_SECONDS = 10.0

DAY_SECONDS, MONTH_DAYS, MONTH_HOURS = 86_400, 30.4, 730
MILLION, GB = 1e6, 1e9
