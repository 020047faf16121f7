"""An ended run as EventBridge's event has it, and the mail that a rule makes of it."""

import re
from collections.abc import Mapping
from typing import Any

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


def mail_of(transformer: Mapping[str, Any], detail: Mapping[str, Any]) -> str:
    """The text that EventBridge's input transformer makes of an event. An absent value is empty."""
    text = str(transformer["InputTemplate"])
    for name, path in transformer["InputPathsMap"].items():
        value: Any = {"detail": detail}
        for part in re.findall(r"[A-Za-z]+|\d+", path):
            value = _part_of(value, part)
        assert f"<{name}>" in text
        text = text.replace(f"<{name}>", "" if value is None else str(value))
    return text


def _part_of(value: Any, part: str) -> Any:
    if isinstance(value, list):
        return value[int(part)]
    return value.get(part) if isinstance(value, dict) else None
