"""Whether the next runs will overlap."""

import pytest

from profiler.core.timestamps import parse_ns
from profiler.schedules.overlap_ahead import overlap_ahead
from profiler.schedules.schedule_model import Schedule

NOW = parse_ns("2026-11-20T00:00:00Z") or 0
MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("expression", "median", "p95", "overlap"),
    [
        ("cron(0 * * * ? *)", 70, 80, "takes 1h 10m, due every 1h 00m"),
        ("cron(0 * * * ? *)", 50, 65, "takes up to 1h 05m, due every 1h 00m"),
        ("cron(0 * * * ? *)", 50, 60, None),
        ("cron(0 2,3 * * ? *)", 70, 80, "takes 1h 10m, due again after 1h 00m"),
        ("rate(30 minutes)", 31, 31, "takes 31m 00s, due every 30m 00s"),
        ("at(2026-12-01T00:00:00)", 9999, 9999, None),
    ],
)
def test_the_usual_duration_against_the_shortest_gap(
    expression: str, median: float, p95: float, overlap: str | None
) -> None:
    schedule = Schedule(
        kind="schedule", name="a", expression=expression, created_ns=NOW, cluster_arn="c", definition_arn="d"
    )
    assert overlap_ahead(schedule, NOW, median * MINUTE_MS, p95 * MINUTE_MS) == overlap
