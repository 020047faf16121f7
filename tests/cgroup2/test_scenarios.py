"""`task-profiler run`, and the monitor in Docker with the systemd driver, on cgroup v2.

The assertions on the results of the scenarios in the virtual machine.
"""

import json
from typing import Any

import pytest

from profiler.record.record_model import NO_RECOMMENDATION, Record, decode
from tests.cgroup2.conftest import Results, max_used_mb, of, record_of
from tests.cgroup2.scenarios import RING_MIB, SPIKE_MIB, WRAPPED_MIB
from tests.values import present

# On an emulated processor readings are so expensive that `run` takes few: processes and threads end
# between them, and the average memory is known within a range.
_OF_FEW_READINGS = (
    "The time waiting for a CPU",
    "The CPU time of each process",
    "The average memory use may be up to",
)
OWN_GROUP = ("processes", "cgroup")


def _record(result: Any, *, exit_code: int = 0, warnings: tuple[str, ...] = ()) -> Record:
    """The record of a run whose ``warnings`` are these, besides those that few readings cause."""
    record = record_of(result, exit_code=exit_code)
    others = [
        one for one in present(record.monitor).warnings if not one.startswith(_OF_FEW_READINGS)
    ]
    assert tuple(others) == warnings
    return record


def _sources(record: Record) -> tuple[str, ...]:
    return present(record.sampling).sources


@pytest.mark.scenario("cpu_seconds")
@pytest.mark.parametrize(
    "program", ["burner", "8 children", "200 short-lived", "threads", "unclaimed children"]
)
def test_cpu_seconds_are_those_of_the_control_group(results: Results, program: str) -> None:
    result = results[program]
    record = _record(result)
    least, most = map(float, result["output"].split())
    # The group's total lacks the end of the program that printed it.
    assert 0.999 * least <= present(record.metrics.cpu_seconds) <= most + 0.2
    assert _sources(record) == OWN_GROUP


@pytest.mark.scenario("unclaimed_children_without_a_sample")
def test_children_that_nobody_waits_for_are_counted_without_a_sample(results: Results) -> None:
    assert present(_record(results).metrics.cpu_seconds) >= 8 * 0.4


@pytest.mark.scenario("wait_for_memory")
def test_a_wait_for_memory_under_a_limit_is_no_disk(results: Results) -> None:
    record = record_of(results, exit_code=0)
    made = present(record.time_breakdown)
    percent_of_second = 100_000 / present(record.metrics.duration_ms)
    waited_percent, disk_percent = (
        float(word) * percent_of_second for word in results["output"].split()
    )
    said_percent = sum(row.percent for row in made.waiting_for if row.target == "memory")
    assert waited_percent > 50
    assert abs(said_percent - waited_percent) <= 10 + 100 - present(made.covered_percent)
    assert (made.disk_percent or 0) <= 3 + disk_percent


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
    assert present(record.metrics.cpu_seconds) >= 1
    assert _sources(record) == ("processes",)


@pytest.mark.scenario("spike")
@pytest.mark.parametrize("phase_seconds", ["0", "0.3", "0.6", "0.9"])
def test_a_spike_of_one_of_several_processes_is_the_kernels_at_any_phase(
    results: Results, phase_seconds: str
) -> None:
    record = _record(results[phase_seconds])
    assert record.metrics.memory_peak_source == "kernel"
    assert 800 <= max_used_mb(record) < 830
    assert record.metrics.memory_usage_peak_mb == max_used_mb(record)
    assert present(record.metrics.memory_used_mb).max == max_used_mb(record)


@pytest.mark.parametrize(
    ("least_mb", "source", "sources"),
    [
        of("memory_shared_by_forks", 200, "kernel", None),
        of("shared_memory", 200, None, None),
        of("shared_memory_beside_a_file", 200, None, None),
        of("unprivileged", 100, None, ("processes",)),
        of("unprivileged_with_a_delegated_group", 100, "kernel", OWN_GROUP),
    ],
)
def test_memory_that_is_used_counts_once(
    results: Results, least_mb: float, source: str | None, sources: tuple[str, ...] | None
) -> None:
    """Also where an unprivileged user has no group of its own, or a delegated one."""
    record = _record(results)
    assert least_mb <= max_used_mb(record) < least_mb + 30
    assert source in (None, record.metrics.memory_peak_source)
    assert sources in (None, _sources(record))
    assert sources != ("processes",) or record.metrics.memory_usage_peak_mb is None


@pytest.mark.parametrize("not_from", [of("file_read_twice", None), of("file_written", "kernel")])
def test_page_cache_is_neither_used_nor_a_peak(results: Results, not_from: str | None) -> None:
    metrics = _record(results).metrics
    assert present(metrics.memory_usage_peak_mb) > 300
    assert present(metrics.max_memory_used_mb) < 60
    assert not_from is None or metrics.memory_peak_source != not_from


@pytest.mark.scenario("mapped_file")
def test_a_mapped_file_is_said_apart(results: Results) -> None:
    metrics = _record(results).metrics
    assert present(metrics.max_memory_used_mb) < 60
    assert 290 < present(present(metrics.memory_mapped_file_mb).max) < 310


@pytest.mark.scenario("clock_is_set")
def test_a_clock_that_is_set_is_a_warning_and_changes_no_duration(results: Results) -> None:
    record = record_of(results, exit_code=0)
    (warning,) = (one for one in present(record.monitor).warnings if "wall clock" in one)
    assert warning.startswith("The wall clock was set forward by 28")
    assert 2000 <= present(record.metrics.duration_ms) < 600_000


@pytest.mark.scenario("memory_in_swap")
@pytest.mark.parametrize("place", ["own group", "no group", "file in memory"])
def test_memory_in_swap_is_a_warning_and_gives_no_advice(results: Results, place: str) -> None:
    record = record_of(results[place], exit_code=0)
    (warning,) = (one for one in present(record.monitor).warnings if "was in swap" in one)
    before_mb, after_mb = map(float, results[place]["output"].split())
    assert before_mb > 100
    assert before_mb - 2 <= float(warning.split()[2]) <= after_mb + 2
    assert record.recommendation == NO_RECOMMENDATION


@pytest.mark.scenario("memory_in_swap")
def test_a_file_in_memory_may_be_in_swap_where_no_group_tells(results: Results) -> None:
    """It has 300 MiB, in a group of 150."""
    record = record_of(results["file without a group"], exit_code=0)
    assert max_used_mb(record) < 150
    assert 280 < present(record.metrics.memory_used_bound_mb) < 500
    assert any("the machine's memory in swap" in text for text in present(record.monitor).warnings)
    assert record.recommendation == NO_RECOMMENDATION


@pytest.mark.scenario("many_files")
def test_inodes_and_directory_entries_that_can_be_dropped_are_not_needed(results: Results) -> None:
    metrics = _record(results).metrics
    usage_mb = present(metrics.memory_usage_peak_mb)
    assert usage_mb > 40  # more than a kilobyte for each file
    assert max_used_mb(_record(results)) < 25
    assert metrics.memory_peak_source == "sampled"
    cache_mb = present(present(metrics.memory_cache_mb).max)
    assert 0 < cache_mb < usage_mb


@pytest.mark.scenario("open_files")
def test_what_open_files_may_keep_is_a_warning_and_no_value(results: Results) -> None:
    """30,000 files have 6 MB that is not reclaimable, and five times that which counts as it is."""
    record = record_of(results, exit_code=0)
    assert max_used_mb(record) < 30
    assert any("open files may have kept" in text for text in present(record.monitor).warnings)
    assert record.recommendation == NO_RECOMMENDATION


@pytest.mark.scenario("huge_pages")
def test_no_control_group_counts_huge_pages(results: Results) -> None:
    record = _record(results)
    assert present(record.metrics.memory_huge_pages_mb).max == 60
    assert max_used_mb(record) < 25


@pytest.mark.scenario("no_operation")
def test_the_forked_interpreter_is_not_the_commands_memory(results: Results) -> None:
    """The remainder is below one charge batch of the kernel (256 KiB) for each of the two CPUs."""
    metrics = _record(results).metrics
    assert metrics.max_memory_used_mb is None or metrics.max_memory_used_mb < 2.5
    assert present(metrics.cpu_seconds) > 0


@pytest.mark.parametrize(
    ("exit_code", "status"),
    [
        of("child_killed_then_failure", 3, "failure"),
        of("child_killed_then_success", 0, "success"),
        of("command_killed", 137, "failure"),
    ],
)
def test_a_kill_for_memory_is_known_whatever_the_exit_code(
    results: Results, exit_code: int, status: str
) -> None:
    record = _record(results, exit_code=exit_code)
    assert record.exit_code == exit_code
    assert record.status == status
    assert record.likely_out_of_memory is True
    if exit_code == 3:
        assert record.out_of_memory_evidence == "kernel-counter"
        assert present(record.memory_kills).count == 1
        assert record.metrics.memory_size_mb == 128


@pytest.mark.scenario("child_killed_in_a_plain_scope")
def test_a_child_killed_in_a_plain_scope_is_known(results: Results) -> None:
    assert decode(json.dumps(results["report"])).record.likely_out_of_memory is True


@pytest.mark.scenario("child_killed_in_a_plain_service_then_success")
def test_a_kill_in_a_shared_group_is_never_denied(results: Results) -> None:
    """The killed process may have been another's."""
    assert record_of(results, exit_code=0).likely_out_of_memory is None


@pytest.mark.scenario("command_not_found")
def test_a_command_that_does_not_start_leaves_no_group(results: Results) -> None:
    assert results["exitCode"] == 127
    assert results["groupsBefore"] == results["groupsAfter"]  # a scenario before it may leave some


@pytest.mark.scenario("orphan")
def test_what_the_command_leaves_goes_on_where_the_profiler_was_started(results: Results) -> None:
    process = "1 process was still running when the command ended (sleep)"
    _record(results, warnings=(f"{process}: the record does not cover what happened then.",))
    assert results["group"].endswith(".scope")
    assert results["groupsBelow"] == results["subtreeControl"] == []


@pytest.mark.scenario("run_killed")
def test_a_killed_run_leaves_a_group_that_processes_can_enter(results: Results) -> None:
    assert any(name.startswith("task-profiler-") for name in results["groupsWhileRunning"])
    assert results["enteringError"] is None
    assert results["subtreeControl"] == []
    assert results["stateAfterStart"] == "active"


def _record_of_task(result: Any, *, exit_code: int = 0) -> Record:
    record = record_of(result, exit_code=exit_code)
    assert present(record.sampling).sources == ("task-metadata-v4", "processes")
    return record


@pytest.mark.scenario("early_spike_root")
def test_as_root_a_spike_is_reported(results: Results) -> None:
    record = _record_of_task(results)
    assert SPIKE_MIB <= max_used_mb(record) < SPIKE_MIB + 30
    assert max_used_mb(record) == pytest.approx(results["kernelPeakMB"], rel=0.02)


@pytest.mark.scenario("container_child_killed")
def test_a_child_killed_for_memory_is_known(results: Results) -> None:
    record = _record_of_task(results, exit_code=3)
    assert record.status == "failure"
    assert record.likely_out_of_memory is True
    assert record.out_of_memory_evidence == "kernel-counter"
    assert present(record.memory_kills).count == 1


@pytest.mark.scenario("container_ring")
def test_the_ring_of_a_packet_socket_is_a_bound_in_the_monitors_numbers(results: Results) -> None:
    record = _record_of_task(results)
    assert max_used_mb(record) < 30
    bound_mb = present(record.metrics.memory_used_bound_mb)
    assert RING_MIB <= bound_mb < RING_MIB + 30
    assert any("rings of packet sockets" in text for text in present(record.monitor).warnings)


def _wrapped_record(results: Results, *, exit_code: int, size_mb: int) -> Record:
    """The record of a wrapper in a container, with what Docker and the endpoint know of it."""
    record = record_of(results, exit_code=exit_code)
    assert record.task_id == results["taskId"]
    assert record.container.id == results["dockerId"]
    assert record.exit_code == exit_code
    assert record.metrics.memory_size_mb == size_mb
    return record


@pytest.mark.scenario("wrapped_spike")
def test_the_wrapper_in_a_container_reports_the_batchs_spike(results: Results) -> None:
    """Docker mounts the groups read-only: `run` has no group of its own."""
    record = _wrapped_record(results, exit_code=0, size_mb=512)
    assert record.status == "success"
    assert WRAPPED_MIB <= max_used_mb(record) < WRAPPED_MIB + 20
    assert max_used_mb(record) <= results["kernelPeakMB"]


@pytest.mark.scenario("wrapped_child_killed")
def test_the_wrapper_in_a_container_knows_of_a_killed_child(results: Results) -> None:
    assert len(results["kernelKills"]) == 1, results["kernelKills"]
    record = _wrapped_record(results, exit_code=3, size_mb=128)
    assert record.status == "failure"
    assert record.likely_out_of_memory is True
    assert record.out_of_memory_evidence == "kernel-counter"
