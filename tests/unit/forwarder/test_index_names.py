"""The names of the indices."""

from datetime import UTC, datetime

import pytest

from forwarder.documents import Document, report_document
from forwarder.index_names import IndexKind, IndexPeriod, index_name
from profiler.record.record_model import Container, Metrics, Record, Report

MOMENT = datetime(2026, 3, 1, 0, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "period", "name"),
    [
        ("reports", "month", "p-reports-2026.03"),
        ("checkpoints", "day", "p-checkpoints-2026.03.01"),
        ("logs", "day", "p-logs-2026.03.01"),
    ],
)
def test_an_index_is_named_by_its_kind_and_period(kind: IndexKind, period: IndexPeriod, name: str) -> None:
    assert index_name(kind, MOMENT, prefix="p", period=period) == name


@pytest.mark.parametrize(("period", "name"), [("month", "task-reports-2026.02"), ("day", "task-reports-2026.02.28")])
def test_a_reports_index_is_that_of_the_start_of_the_image_pull(period: IndexPeriod, name: str) -> None:
    """The monitor's report and ECS's event both contain this time, so both use the same index even around midnight."""
    record = Record(
        task_id="1",
        container=Container(name="b"),
        started_at="2026-03-01T00:00:05Z",
        metrics=Metrics(init_duration_ms=6000),
    )
    report = Report(time="2026-03-01T00:10:00Z", type="task.report", record=record)
    document = report_document(report, "{}", prefix="task", period=period)
    assert isinstance(document, Document)
    assert document.index == name
