"""The dashboard *Task run* has the numbers of a run with the digits, units and marks of the other
screens: the document of its report, drawn by the oldest and the newest Vega.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kibana.build import DRAWINGS
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.run_documents import report_document
from profiler.record.fact_list import COST, DURATION, MEMORY_PEAK, NumberRow, number_fact
from profiler.record.measured import UNKNOWN
from profiler.record.record_model import Report, encode
from profiler.record.task_needs import vcpu_size
from profiler.record.units import format_memory, format_percent
from tests.awkward_runs import RUNS, recommended
from tests.vega_views import VERSIONS, evaluate

pytestmark = pytest.mark.search

(CURVES,) = (drawing for drawing in DRAWINGS if drawing.key == "run-curves")
# How the facts below the tiles begin; a tile has its title beside it.
IN_FACTS: Mapping[NumberRow, str] = {DURATION: "", COST: "", MEMORY_PEAK: "Memory peak "}


def newest(*documents: Mapping[str, Any]) -> Mapping[str, Any]:
    hits = [{"_source": document} for document in documents]
    return {"doc_count": len(hits), "newest": {"hits": {"hits": hits}}}


def texts_of(report: Report, version: str) -> list[str]:
    """All texts of the run's drawing, its facts one by one."""
    made = report_document(report, encode(report).decode(), ForwarderSettings())
    assert isinstance(made, Document)
    run = {"report": newest(made.fields), "checkpoint": {**newest(), "at": {"buckets": []}}}
    answers = {"run": {"aggregations": {"task": {"buckets": [{"run": {"buckets": [run]}}]}}}}
    view = evaluate(CURVES, answers, version)
    assert view["warnings"] == []
    return [part.strip() for text in view["texts"] for part in text.split("·")]


def wanted(report: Report) -> Iterator[str]:
    """What the other screens say of the run."""
    record = report.record
    for row, beginning in IN_FACTS.items():
        fact = number_fact(row, record)
        if fact.number is not UNKNOWN:
            yield f"{beginning}{fact.text}"
    metrics = record.metrics
    size = vcpu_size(record)
    if size and metrics.vcpu_used.avg is not None:
        yield format_percent(100 * metrics.vcpu_used.avg / size)
        yield f"of {size:g} vCPU"
    if metrics.memory_size_mb is not None and metrics.memory_utilization_percent.max is not None:
        yield f"of {format_memory(metrics.memory_size_mb)}"
    advice = record.recommendation
    if advice.vcpu is not None and advice.memory_mb is not None:
        yield f"{advice.vcpu:g} vCPU, {format_memory(advice.memory_mb)}"
    if advice.saving_percent and advice.saving_percent > 0:
        yield f"saves {format_percent(advice.saving_percent)}"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_drawing_of_a_run_has_the_numbers_of_the_other_screens(version: str) -> None:
    counted = 0
    missing = {}
    for name, make in RUNS.items():
        report = recommended(make)
        texts = texts_of(report, version)
        found = [text for text in wanted(report) if text not in texts]
        counted += len([*wanted(report)])
        if found:
            missing[name] = (found, texts)
    assert missing == {}
    assert counted > 3 * len(RUNS)
