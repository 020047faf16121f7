"""`task-profiler run` on cgroup v2: the assertions on the results of the scenarios in the virtual machine."""

import json
from typing import Any

import pytest

from profiler.record.record_model import Record, decode
from tests.cgroup2.conftest import Results


def _record(result: Any, *, exit_code: int = 0, warnings: tuple[str, ...] = ()) -> Record:
    assert result["exitCode"] == exit_code, result["errors"]
    assert result["report"] is not None, result["errors"]
    record = decode(json.dumps(result["report"])).record
    assert record.monitor is not None
    assert record.monitor.warnings == warnings
    return record


def _sources(record: Record) -> tuple[str, ...]:
    assert record.sampling is not None
    return record.sampling.sources


def _max_used_mb(record: Record) -> float:
    assert record.metrics.max_memory_used_mb is not None
    return record.metrics.max_memory_used_mb


def _sampled_max_mb(record: Record) -> float:
    assert record.metrics.memory_used_mb is not None
    assert record.metrics.memory_used_mb.max is not None
    return record.metrics.memory_used_mb.max


@pytest.mark.scenario("machine")
def test_the_machine_has_cgroup_v2(results: Results) -> None:
    assert {"cpu", "memory", "pids"} <= set(results["controllers"])
    assert results["hasMemoryPeak"]


# --- CPU time ------------------------------------------------------------------------------------


@pytest.mark.scenario("cpu_seconds")
@pytest.mark.parametrize("program", ["burner", "8 children", "200 short-lived", "threads", "unclaimed children"])
def test_cpu_seconds_are_those_of_the_control_group(results: Results, program: str) -> None:
    result = results[program]
    record = _record(result)
    least, most = map(float, result["output"].split())
    assert record.metrics.cpu_seconds is not None
    # The group's total lacks the end of the program that printed it.
    assert 0.999 * least <= record.metrics.cpu_seconds <= most + 0.2
    assert _sources(record) == ("processes", "cgroup")


@pytest.mark.scenario("unclaimed_children_without_a_sample")
def test_children_that_nobody_waits_for_are_counted_without_a_sample(results: Results) -> None:
    record = _record(results)
    assert record.metrics.cpu_seconds is not None
    assert record.metrics.cpu_seconds >= 8 * 0.4


@pytest.mark.scenario("script_without_interpreter")
def test_a_command_that_is_found_at_the_second_attempt_runs_in_its_group(results: Results) -> None:
    record = _record(results)
    assert record.metrics.cpu_seconds is not None
    assert record.metrics.cpu_seconds > 0
    assert _sources(record) == ("processes", "cgroup")


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.scenario("memory_limit")
def test_a_memory_limit_is_where_the_command_looks_for_it(results: Results) -> None:
    record = _record(results)
    name, limit = results["output"].split()
    assert name.startswith("task-profiler-")
    assert int(limit) == 512 * 2**20
    assert record.metrics.memory_size_mb == 512


@pytest.mark.scenario("cpu_quota")
def test_where_a_quota_is_the_command_stays_in_its_group(results: Results) -> None:
    record = _record(results)
    assert not results["output"].startswith("task-profiler-")
    assert record.metrics.vcpu_size == 0.5
    assert record.metrics.cpu_seconds is not None
    assert record.metrics.cpu_seconds >= 1
    assert _sources(record) == ("processes",)


# --- memory --------------------------------------------------------------------------------------


@pytest.mark.scenario("spike")
@pytest.mark.parametrize("phase_seconds", ["0", "0.3", "0.6", "0.9"])
def test_a_spike_of_one_of_several_processes_is_the_kernels_at_any_phase(results: Results, phase_seconds: str) -> None:
    record = _record(results[phase_seconds])
    assert record.metrics.memory_peak_source == "kernel"
    assert 800 <= _max_used_mb(record) < 830
    assert record.metrics.memory_usage_peak_mb == _max_used_mb(record)
    assert _sampled_max_mb(record) == _max_used_mb(record)


@pytest.mark.scenario("memory_shared_by_forks")
def test_pages_shared_by_several_processes_count_once(results: Results) -> None:
    record = _record(results)
    assert record.metrics.memory_peak_source == "kernel"
    assert 200 <= _max_used_mb(record) < 230


@pytest.mark.scenario("shared_memory")
def test_shared_memory_is_used(results: Results) -> None:
    record = _record(results)
    assert 200 <= _max_used_mb(record) < 230


@pytest.mark.scenario("mapped_file")
def test_a_mapped_file_is_used(results: Results) -> None:
    record = _record(results)
    assert 300 <= _max_used_mb(record) < 330


@pytest.mark.scenario("file_read_twice")
def test_page_cache_that_was_read_twice_is_not_used(results: Results) -> None:
    record = _record(results)
    assert record.metrics.memory_usage_peak_mb is not None
    assert record.metrics.memory_usage_peak_mb > 300
    assert _max_used_mb(record) < 60


@pytest.mark.scenario("file_written")
def test_page_cache_is_no_memory_peak(results: Results) -> None:
    record = _record(results)
    assert record.metrics.memory_usage_peak_mb is not None
    assert record.metrics.memory_usage_peak_mb > 300
    assert record.metrics.memory_peak_source != "kernel"
    assert _max_used_mb(record) < 60


@pytest.mark.scenario("no_operation")
def test_the_forked_interpreter_is_not_the_commands_memory(results: Results) -> None:
    """The remainder is below one charge batch of the kernel (256 KiB) for each of the two CPUs."""
    record = _record(results)
    assert record.metrics.max_memory_used_mb is None or record.metrics.max_memory_used_mb < 2.5
    assert record.metrics.cpu_seconds is not None
    assert record.metrics.cpu_seconds > 0


# --- out of memory -------------------------------------------------------------------------------


@pytest.mark.scenario("child_killed_then_failure")
def test_a_child_killed_for_memory_is_known(results: Results) -> None:
    record = _record(results, exit_code=3)
    assert (record.exit_code, record.status, record.likely_out_of_memory) == (3, "failure", True)
    assert record.out_of_memory_evidence == "kernel-counter"
    assert record.memory_kills is not None
    assert record.memory_kills.count == 1
    assert record.metrics.memory_size_mb == 128


@pytest.mark.scenario("child_killed_then_success")
def test_a_child_killed_for_memory_is_known_though_the_command_succeeds(results: Results) -> None:
    record = _record(results)
    assert (record.exit_code, record.status, record.likely_out_of_memory) == (0, "success", True)


@pytest.mark.scenario("command_killed")
def test_a_command_killed_for_memory_is_known(results: Results) -> None:
    record = _record(results, exit_code=137)
    assert (record.exit_code, record.status, record.likely_out_of_memory) == (137, "failure", True)


@pytest.mark.scenario("child_killed_in_a_plain_scope")
def test_a_child_killed_in_a_plain_scope_is_known(results: Results) -> None:
    record = decode(json.dumps(results["report"])).record
    assert record.likely_out_of_memory is True


@pytest.mark.scenario("child_killed_in_a_plain_service_then_success")
def test_a_kill_in_a_shared_group_is_never_denied(results: Results) -> None:
    """The killed process may have been another's."""
    record = _record(results)
    assert record.likely_out_of_memory is None


# --- users ---------------------------------------------------------------------------------------


@pytest.mark.scenario("unprivileged")
def test_an_unprivileged_user_falls_back(results: Results) -> None:
    record = _record(results)
    assert _sources(record) == ("processes",)
    assert record.metrics.memory_usage_peak_mb is None
    assert 100 <= _max_used_mb(record) < 130


@pytest.mark.scenario("unprivileged_with_a_delegated_group")
def test_an_unprivileged_user_has_a_group_where_one_is_delegated(results: Results) -> None:
    record = _record(results)
    assert _sources(record) == ("processes", "cgroup")
    assert record.metrics.memory_peak_source == "kernel"
    assert 100 <= _max_used_mb(record) < 130


# --- what remains after a run ---------------------------------------------------------------------------


@pytest.mark.scenario("command_not_found")
def test_a_command_that_does_not_start_leaves_no_group(results: Results) -> None:
    assert results["exitCode"] == 127
    assert results["groupsBefore"] == results["groupsAfter"] == []


@pytest.mark.scenario("orphan")
def test_what_the_command_leaves_goes_on_where_the_profiler_was_started(results: Results) -> None:
    process = "1 process was still running when the command ended (sleep)"
    _record(results, warnings=(f"{process}: the record does not cover what happened then.",))
    assert results["group"].endswith(".scope")
    assert results["groupsBelow"] == []
    assert results["subtreeControl"] == []


@pytest.mark.scenario("run_killed")
def test_a_killed_run_leaves_a_group_that_processes_can_enter(results: Results) -> None:
    assert any(name.startswith("task-profiler-") for name in results["groupsWhileRunning"])
    assert results["enteringError"] is None
    assert results["subtreeControl"] == []
    assert results["stateAfterStart"] == "active"
