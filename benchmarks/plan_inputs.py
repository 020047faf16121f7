"""What the plan on AWS reckons with: what was measured, what was assumed, AWS's prices and quotas.

Sources and dates stand in docs/contributing/scale.md. Prices are USD in US East (N. Virginia); GB are
10^9 bytes.
"""

from msgspec import Struct
from msgspec.structs import replace


class Measured(Struct, frozen=True, kw_only=True):
    """From the run of benchmarks/scale.py that the page shows; disk bytes are those of a primary shard."""

    report_line_bytes: float
    checkpoint_line_bytes: float
    checkpoints_a_run: float
    report_disk_bytes: float
    checkpoint_disk_bytes: float
    slowest_panel_seconds_a_million: float
    documents_a_second: float


class Assumed(Struct, frozen=True, kw_only=True):
    """Neither measured here nor AWS's: put in your own.

    ``told_share`` is the share of tasks for which task_stopped runs; ``reports_an_event`` is more
    than one only behind a data stream.
    """

    busiest: float = 10  # load of the busiest minute, as a multiple of the mean
    reports_an_event: int = 1
    handler_seconds: float = 0.03  # forward_logs at 512 MB, warm, with one report
    task_stopped_seconds: float = 0.7  # at 512 MB, its report found at once: ECS, CloudWatch Logs, cluster, Slack
    told_share: float = 1
    memory_gb: float = 0.5
    retention_days: float = 400  # kibana/lifecycle
    copies: float = 2  # primary and one replica
    overhead: float = 1.45  # AWS's rule for free disk space
    node_data_gb: float = 480  # r7g.large: 16 GiB of memory, 30 GB of data a GiB
    logs_kept_months: float = 1


MEASURED = Measured(
    report_line_bytes=2337,
    checkpoint_line_bytes=2620,
    checkpoints_a_run=5.8,
    report_disk_bytes=1900,
    checkpoint_disk_bytes=1220,
    slowest_panel_seconds_a_million=2.2,
    documents_a_second=1400,
)
ASSUMED = Assumed()
_COMPRESSED_DISK_BYTES = 1190
# For very many runs: no checkpoints forwarded, reports through a data stream, two weeks kept, failures alone told.
TUNED_MEASURED = replace(MEASURED, checkpoints_a_run=0, report_disk_bytes=_COMPRESSED_DISK_BYTES)
TUNED = Assumed(reports_an_event=500, handler_seconds=0.6, told_share=0.02, retention_days=14)

USD_A_LOG_GB, USD_A_LOG_GB_MONTH = 0.50, 0.03
USD_A_LAMBDA_MILLION, USD_A_LAMBDA_GB_SECOND = 0.20, 0.0000133334
USD_A_DYNAMODB_WRITE_MILLION, DYNAMODB_WRITES = 0.625, 2
USD_A_STREAM_SHARD_HOUR, USD_A_STREAM_PUT_MILLION, STREAM_RECORDS_A_SECOND = 0.015, 0.014, 1000
USD_A_NODE_HOUR, USD_A_DISK_GB_MONTH = 0.178, 0.122
FEWEST_NODES = 3

# Of an account and Region.
GET_LOG_EVENTS_A_SECOND, CREATE_STREAMS_A_SECOND, PUT_LOG_EVENTS_A_SECOND = 10, 50, 5000
LAMBDA_CONCURRENCY, LAUNCHES_A_SECOND = 1000, 20
SHARD_GB, SHARD_DOCUMENTS = 50, 200e6
LONGEST_PANEL_SECONDS = 10.0

DAY_SECONDS, MONTH_DAYS, MONTH_HOURS = 86_400, 30.4, 730
MILLION, GB = 1e6, 1e9
