"""An ended run as EventBridge's event has it."""

from profiler.record.record_model import Container, Cost, Metrics, Recommendation, Record
from tests.ended_runs import NOTICE, changed, ended, report_line

RECORD = Record(
    task_id="0123",
    container=Container(name="batch"),
    metrics=Metrics(
        duration_ms=7_980_000, billed_duration_ms=60_000, vcpu_size=0.5, max_memory_used_mb=993.3
    ),
    cost=Cost(usd=0.0123, price_basis="fargate"),
    recommendation=Recommendation(vcpu=0.25, memory_mb=2048, reasons=("x" * 500,) * 9),
    finished_at="2026-03-01T12:00:00.000Z",
)
RUN = ended(
    changed(NOTICE, report_line=report_line(RECORD)), cause="oom", out_of_memory=True, reason="why"
)
