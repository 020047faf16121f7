"""The forwarder writes into the document what the profiler calculates from the record."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwarder.documents import Document, report_document
from profiler.record.model import Container, Distribution, Metrics, OtherContainer, Record, Report, TaskSize
from profiler.sizing.requirements import requirements_of

numbers = st.none() | st.floats(min_value=0, max_value=200_000)
metrics = st.builds(
    Metrics,
    memory_size_mb=numbers,
    vcpu_size=numbers,
    max_memory_used_mb=numbers,
    vcpu_used=st.none() | st.builds(Distribution, p95=numbers),
)
records = st.builds(
    Record,
    task_id=st.just("0123"),
    container=st.just(Container(name="batch")),
    status=st.just("success"),
    metrics=metrics,
    containers=st.lists(
        st.builds(OtherContainer, name=st.just("side"), metrics=st.none() | metrics), min_size=1, max_size=4
    ).map(tuple),
    task_size=st.none() | st.builds(TaskSize, vcpu=numbers, memory_mb=numbers),
)


def task_fields(record: Record) -> dict[str, Any]:
    """``usage.task`` of the record's document; fields without a value are left out."""
    report = Report(time="2026-03-01T10:00:03Z", type="task.report", record=record)
    document = report_document(report, "", prefix="task")
    assert isinstance(document, Document)
    fields: dict[str, Any] = document.fields.get("usage", {}).get("task", {})
    return fields


@given(records)
def test_both_say_the_same(record: Record) -> None:
    need = requirements_of(record)
    told = task_fields(record)
    assert told.get("memory_mb") == (None if need.memory_mb is None else pytest.approx(need.memory_mb))
    assert told.get("vcpu_p95") == (None if need.vcpu is None else pytest.approx(need.vcpu))


def test_a_batch_alone_needs_nothing_said_beside_its_own_numbers() -> None:
    alone = Record(
        task_id="1", container=Container(name="batch"), status="success", metrics=Metrics(max_memory_used_mb=5)
    )
    assert task_fields(alone) == {}


@pytest.mark.parametrize("kind", ["reports", "checkpoints"])
def test_the_index_has_both_as_numbers_that_keep_their_digits(kind: str) -> None:
    template = json.loads((Path(__file__).parents[3] / f"kibana/index-templates/task-{kind}.json").read_text())
    usage = template["template"]["mappings"]["properties"]["usage"]["properties"]
    assert usage["task"]["properties"] == {"memory_mb": {"type": "double"}, "vcpu_p95": {"type": "double"}}
