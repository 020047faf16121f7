"""The monitor in Docker on cgroup v2 with the systemd driver: the assertions on the results of the scenarios."""

from typing import Any

import pytest

from profiler.record.record_model import Record
from tests.cgroup2.conftest import Results, max_used_mb, record_of
from tests.cgroup2.container_scenarios import SPIKE_MIB
from tests.values import present


def _record(result: Any, *, exit_code: int = 0) -> Record:
    record = record_of(result, exit_code=exit_code)
    assert present(record.sampling).sources == ("task-metadata-v4", "processes")
    return record


def _has_the_spike(record: Record) -> bool:
    return SPIKE_MIB <= max_used_mb(record) < SPIKE_MIB + 30


@pytest.mark.scenario("early_spike_root")
def test_as_root_a_spike_is_reported(results: Results) -> None:
    record = _record(results)
    assert _has_the_spike(record)
    assert max_used_mb(record) == pytest.approx(results["kernelPeakMB"], rel=0.02)


@pytest.mark.scenario("early_spike_user")
def test_as_another_user_a_spike_is_reported_and_never_as_the_kernels(results: Results) -> None:
    record = _record(results)
    assert _has_the_spike(record)
    assert record.metrics.memory_peak_source == "sampled"


@pytest.mark.scenario("spike_at_the_end_root")
def test_only_a_mark_of_the_whole_batch_is_called_the_kernels(results: Results) -> None:
    """On an emulated processor the group may be gone before the monitor reads it."""
    records = [_record(result) for result in results["tasks"]]
    assert len(records) == 5
    assert all(_has_the_spike(record) for record in records if record.metrics.memory_peak_source == "kernel")


@pytest.mark.scenario("container_killed")
def test_a_batch_killed_for_memory_is_known(results: Results) -> None:
    record = _record(results, exit_code=137)
    assert (record.status, record.likely_out_of_memory) == ("failure", True)


@pytest.mark.scenario("container_child_killed")
def test_a_child_killed_for_memory_is_known(results: Results) -> None:
    record = _record(results, exit_code=3)
    assert (record.status, record.likely_out_of_memory) == ("failure", True)
    assert record.out_of_memory_evidence == "kernel-counter"
    assert present(record.memory_kills).count == 1


@pytest.mark.scenario("container_reads_a_file_twice")
def test_page_cache_that_was_read_twice_is_not_used(results: Results) -> None:
    record = _record(results)
    assert present(record.metrics.memory_usage_peak_mb) > 300
    assert max_used_mb(record) < 60
