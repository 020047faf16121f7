"""The made-up runs that fill the dashboards show something true on each panel of GPUs and Neuron."""

import json
from datetime import datetime
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest

from kibana.dashboard_model import Panel
from kibana.run_panels import GPU, NEURON
from profiler.core.ecs_terms import VCPU_SIZES
from tools import example_documents
from tools.example_fleet import FLEET, MORNING
from tools.panel_searches import fields_of, kql_query

_DAYS = 7
_PANELS = [part for board in (GPU, NEURON) for part in board.panels if isinstance(part, Panel)]


@cache
def made_up_documents() -> tuple[tuple[str, dict[str, Any]], ...]:
    """The documents of the families with accelerators, with their indices."""
    return documents_of(*(batch.family for batch in FLEET if batch.has_accelerator))


def made_without_checkpoints(*families: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    with patch.object(example_documents, "_checkpoints_of", return_value=()):
        return documents_of(*families)


def documents_of(*families: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """The documents of some families, with their indices."""
    fleet = tuple(batch for batch in FLEET if batch.family in families)
    with patch.object(example_documents, "FLEET", fleet):
        made = example_documents.documents(MORNING, count=len(fleet), days=_DAYS)
        return tuple((one.index, json.loads(json.dumps(one.fields))) for one in made)


def values_of(document: dict[str, Any], field: str) -> list[Any]:
    """The values of a field, as the servers find them: none without the field."""
    value: Any = document
    for name in field.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def matches(document: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Whether a query of the panels' kinds finds a document."""
    ((kind, body),) = asked.items()
    if kind == "bool":
        ((way, parts),) = body.items()
        found = [matches(document, part) for part in parts]
        return {"should": any(found), "filter": all(found), "must_not": not any(found)}[way]
    if kind == "exists":
        return bool(values_of(document, body["field"]))
    assert kind == "term", kind
    ((field, value),) = body.items()
    return value in values_of(document, field)


def found_by(panel: Panel) -> list[dict[str, Any]]:
    asked = kql_query(panel.condition)
    return [
        fields
        for index, fields in made_up_documents()
        if index.startswith(f"task-{panel.index}-") and matches(fields, asked)
    ]


@pytest.mark.diagonal(3)
@pytest.mark.parametrize("panel", _PANELS, ids=[panel.key for panel in _PANELS])
def test_each_panel_of_accelerators_has_something_to_show(panel: Panel) -> None:
    found = found_by(panel)
    assert found
    for field, use in fields_of(panel):
        if use not in ("filter", "flag", "comparison", "exists") and field != "links.run":
            assert any(values_of(fields, field) for fields in found), field


def test_the_errors_of_gpus_are_those_of_runs_that_failed() -> None:
    (panel,) = (panel for panel in _PANELS if panel.key == "gpu-errors")
    outcomes = {fields["task"]["outcome"]: fields for fields in found_by(panel)}
    assert set(outcomes) == {"gpu-oom", "gpu-error"}
    assert values_of(outcomes["gpu-error"], "task.gpu_error") == [31]
    peak_mb = outcomes["gpu-oom"]["usage"]["gpu"]["memory_mb"]["max"]
    assert 0.9 < peak_mb / 81_559 < 1


def test_the_course_of_a_run_has_no_verdict_before_its_end() -> None:
    running = [fields for index, fields in made_up_documents() if index.startswith("task-check")]
    assert running
    assert not any(values_of(fields, "usage.gpu.out_of_memory") for fields in running)


def test_a_run_takes_longer_at_each_size_that_its_curve_exceeds() -> None:
    exceeded = 0
    for index, fields in made_without_checkpoints("partner-feeds", "nightly-etl"):
        if not index.startswith("task-reports"):
            continue
        record = json.loads(fields["record"])["record"]
        most = max(record["series"]["vcpuUsed"])
        factors = record["metrics"]["slowdownAtVcpu"]
        for size in VCPU_SIZES:
            if most > 1.2 * size and record["metrics"]["vcpuSize"] > size:
                assert factors[f"{size:g}"]["max"] > 1
                exceeded += 1
    assert exceeded


def test_a_notice_agrees_with_the_run_that_it_is_about() -> None:
    families = ("stock-sync", *(batch.family for batch in FLEET if batch.minutes > 90))
    made = made_without_checkpoints(*families)
    runs = {fields["task"]["id"]: fields for index, fields in made if "reports" in index}
    kinds = set()
    for index, fields in made:
        if "notices" in index and fields["event"]["dataset"] == "task.notice":
            event = runs[fields["task"]["id"]]["event"]
            assert event["start"] <= fields["@timestamp"] <= event["end"]
            kind = fields["notice"]["kind"]
            assert kind != "stuck" or _minutes(event) > 30
            kinds.add(kind)
    assert kinds >= {"stuck", "overdue", "memory"}


def test_a_job_has_one_revision() -> None:
    for index, fields in made_without_checkpoints("image-moderation"):
        if index.startswith("task-reports"):
            record = json.loads(fields["record"])["record"]
            assert str(record["batch"]["jobDefinitionRevision"]) == record["revision"]


def _minutes(event: dict[str, Any]) -> float:
    started, ended = (datetime.fromisoformat(event[name]) for name in ("start", "end"))
    return (ended - started).total_seconds() / 60
