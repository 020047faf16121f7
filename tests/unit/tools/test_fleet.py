"""The simulated fleet of the scale benchmark."""

import json
from collections import Counter
from datetime import datetime, timedelta
from itertools import islice, pairwise

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwarder.documents import Document, report_document
from profiler.record.record_model import Distribution, decode, encode, json_schema
from tools.fleet import Fleet, families, runs
from tools.fleet_record import checkpoints

VALIDATOR = jsonschema.Draft202012Validator(json_schema())

fleets = st.builds(
    Fleet,
    runs_per_day=st.integers(0, 60),
    days=st.integers(1, 3),
    families=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)


def moment(text: str | None) -> datetime:
    assert text is not None
    return datetime.fromisoformat(text)


def percentiles(distribution: Distribution | None) -> list[float]:
    assert distribution is not None
    found = [distribution.p50, distribution.p95, distribution.p99, distribution.max]
    return [value for value in found if value is not None]


@given(fleets)
@settings(max_examples=40)
def test_every_simulated_line_is_valid_and_becomes_a_document(fleet: Fleet) -> None:
    for report in islice(runs(fleet), 10):
        line = encode(report)
        VALIDATOR.validate(json.loads(line))
        assert decode(line) == report
        document = report_document(report, line.decode(), prefix="task")
        assert isinstance(document, Document)
        assert document.id == f"{report.record.task_id}/batch"


@given(fleets)
@settings(max_examples=40)
def test_each_day_has_exactly_the_requested_number_of_runs(fleet: Fleet) -> None:
    started = [moment(report.record.started_at) for report in runs(fleet)]
    days = Counter((start - fleet.first_day).days for start in started)
    assert days == ({} if fleet.runs_per_day == 0 else dict.fromkeys(range(fleet.days), fleet.runs_per_day))
    assert started == sorted(started)


@given(fleets)
@settings(max_examples=20)
def test_the_same_seed_generates_the_same_lines_with_unique_ids(fleet: Fleet) -> None:
    first = [encode(report) for report in runs(fleet)]
    assert first == [encode(report) for report in runs(fleet)]
    assert len({decode(line).record.task_id for line in first}) == len(first)


def test_another_seed_generates_other_runs() -> None:
    one, other = (next(runs(Fleet(runs_per_day=1, seed=seed))).record.task_id for seed in (1, 2))
    assert one != other


@given(fleets)
@settings(max_examples=40)
def test_the_numbers_of_a_run_agree_with_each_other(fleet: Fleet) -> None:
    for report in runs(fleet):
        record, metrics = report.record, report.record.metrics
        assert moment(record.finished_at) - moment(record.started_at) == timedelta(
            milliseconds=metrics.duration_ms or -1
        )
        assert moment(report.time) > moment(record.finished_at)
        assert (metrics.billed_duration_ms or 0) >= max(
            60_000, (metrics.duration_ms or 0) + (metrics.init_duration_ms or 0)
        )
        assert (metrics.max_memory_used_mb or 0) <= (metrics.memory_size_mb or 0)
        for distribution in (metrics.vcpu_used, metrics.cpu_utilization_percent, metrics.memory_used_mb):
            assert all(low <= high for low, high in pairwise(percentiles(distribution)))
        assert (record.exit_code is None) == (record.status == "stopped")
        assert record.likely_out_of_memory is (record.exit_code == 137)
        assert (record.cost is None) == (record.launch_type == "EC2")


def test_a_few_families_have_most_runs_and_shares_add_up() -> None:
    found = families(Fleet(runs_per_day=1))
    assert sum(one.share for one in found) == pytest.approx(1)
    assert sum(one.share for one in found[:20]) > 0.5
    assert len({one.batch.family for one in found}) == len(found) == 200


def test_a_month_has_every_kind_of_run_and_mostly_successes() -> None:
    records = [report.record for report in runs(Fleet(runs_per_day=400))]
    statuses = Counter(record.status for record in records)
    assert statuses["success"] > 0.9 * len(records)
    assert min(statuses["failure"], statuses["stopped"]) > 0
    assert any(record.likely_out_of_memory for record in records)
    assert any(record.gpus for record in records)
    assert any(record.recommendation for record in records)


def test_memory_of_growing_families_grows_over_the_fleets_days() -> None:
    fleet = Fleet(runs_per_day=2000, days=2)
    growing = {one.batch.family: one.batch.growth for one in families(fleet) if one.batch.growth}
    peaks: dict[tuple[str, bool], list[float]] = {}
    for report in runs(fleet):
        record = report.record
        if record.family in growing:
            is_late = moment(record.started_at) >= fleet.first_day + timedelta(days=1)
            peak = (record.metrics.max_memory_used_mb or 0) / (record.metrics.memory_size_mb or 1)
            peaks.setdefault((record.family, is_late), []).append(peak)
    seen = [family for family in growing if (family, False) in peaks and (family, True) in peaks]
    assert seen
    for family in seen:
        early, late = (sum(found) / len(found) for found in (peaks[family, False], peaks[family, True]))
        assert late > early or early > 0.9  # a family that is killed for memory cannot grow further


def test_a_run_has_a_checkpoint_each_minute_with_growing_numbers() -> None:
    report = next(one for one in runs(Fleet(runs_per_day=200)) if (one.record.metrics.duration_ms or 0) > 300_000)
    found = list(checkpoints(report))
    assert len(found) == int((report.record.metrics.duration_ms or 0) // 60_000)
    started = moment(report.record.started_at)
    assert [moment(one.time) - started for one in found] == [timedelta(minutes=n + 1) for n in range(len(found))]
    for one in found:
        assert decode(encode(one)) == one
        assert (one.type, one.record.status, one.record.finished_at) == ("task.checkpoint", "running", None)
        assert one.record.task_id == report.record.task_id
    seconds = [one.record.metrics.cpu_seconds or 0 for one in found]
    assert seconds == sorted(seconds)
    assert seconds[-1] <= (report.record.metrics.cpu_seconds or 0)


def test_a_run_shorter_than_a_minute_has_no_checkpoint() -> None:
    report = next(one for one in runs(Fleet(runs_per_day=200)) if (one.record.metrics.duration_ms or 0) < 60_000)
    assert list(checkpoints(report)) == []
