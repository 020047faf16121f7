"""What one monitor for an instance reports of tasks that know nothing of it."""

import pytest

from tests.real.instance import CANARY, CHILDREN, CROWD, JOBS, SPIKE_MIB, Day, Seen, run_day
from tests.real.lab import Lab

pytestmark = pytest.mark.real

_REPORTED = pytest.mark.parametrize("family", [job.family for job in JOBS if job.has_report])
# What a container's start costs its task's group, which the batch itself does not see.
_START_SECONDS, _START_MIB = 0.2, 16


@pytest.fixture(scope="module")
def day(lab: Lab) -> Day:
    return run_day(lab)


@pytest.fixture
def run(family: str, day: Day) -> Seen:
    return day.runs[family]


@_REPORTED
def test_each_task_has_one_report_in_the_stream_of_its_batch(run: Seen) -> None:
    record = run.record
    assert (record["family"], record["status"], record["exitCode"]) == (
        run.job.family,
        run.job.status,
        run.job.exit_code,
    )
    assert run.docker["ExitCode"] == run.job.exit_code


@_REPORTED
def test_the_numbers_are_those_of_the_batch_and_of_the_kernel(run: Seen) -> None:
    if run.job.family == "own-monitor":
        return  # it may have started after the batch's work, and the kernel's numbers are of both containers
    metrics = run.record["metrics"]
    assert metrics["cpuSeconds"] == pytest.approx(run.kernel.cpu_seconds, rel=0.005, abs=0.002)
    if run.figures is not None:
        held_mib, cpu_seconds = run.figures
        assert cpu_seconds <= metrics["cpuSeconds"] + 0.03 <= 1.01 * cpu_seconds + _START_SECONDS
        assert metrics["maxMemoryUsedMB"] >= 0.99 * held_mib
        if "--spike-mib" not in run.job.load:
            assert metrics["maxMemoryUsedMB"] <= held_mib + _START_MIB


@_REPORTED
def test_no_task_used_more_than_the_machine_has(run: Seen) -> None:
    record = run.record
    assert record["metrics"].get("vcpuUsed", {"max": 0})["max"] <= record["visible"]["cpus"]


@pytest.mark.parametrize("family", ["spike", "two-monitors"])
def test_a_spike_of_400_ms_is_in_the_peak_also_of_a_monitor_that_came_later(run: Seen) -> None:
    metrics = run.record["metrics"]
    assert metrics["memoryPeakSource"] == "kernel"
    assert 0.99 * SPIKE_MIB <= metrics["maxMemoryUsedMB"] <= SPIKE_MIB + _START_MIB


def test_an_end_for_lack_of_memory_is_certain(day: Day) -> None:
    record = day.runs["greedy"].record
    assert (record["likelyOutOfMemory"], record["outOfMemoryEvidence"]) == (True, "kernel-counter")
    others = [family for family, run in day.runs.items() if any(one.get("likelyOutOfMemory") for one in run.reports)]
    assert others == ["greedy"]


def test_the_report_of_a_restarted_container_covers_all_attempts(day: Day) -> None:
    record = day.runs["again"].record
    assert record["container"]["restarts"] == 1
    assert record["metrics"]["durationMs"] >= 1500


def test_a_monitor_that_came_later_says_that_the_series_has_a_hole(day: Day) -> None:
    record = day.runs["two-monitors"].record
    assert "started after the batch" in record["monitor"]["warnings"][0]
    assert record["series"]["vcpuUsed"][0] is None
    assert record["series"]["vcpuUsed"][-1] is not None


def test_sixty_tasks_at_once_have_their_own_numbers(day: Day, capsys: pytest.CaptureFixture[str]) -> None:
    for run in [day.runs[job.family] for job in CROWD]:
        test_each_task_has_one_report_in_the_stream_of_its_batch(run)
        test_the_numbers_are_those_of_the_batch_and_of_the_kernel(run)
    with capsys.disabled():
        print(  # noqa: T201
            f"\n60 tasks cost {day.cost_percent:.3f} % of a core, "
            f"with their processes {day.cost_with_processes_percent:.3f} %"
        )


def test_the_processes_of_a_batch_are_seen_from_the_hosts_namespace(day: Day) -> None:
    record = day.runs[CHILDREN.family].record
    names = {process["name"] for process in record["processes"]}
    assert {"sh", "python3", "sleep"} <= names
    parts = record["timeBreakdown"]
    assert {"onCpuPercent", "waitingForCpuPercent"} <= parts.keys()


def test_the_tasks_of_services_have_no_report(day: Day) -> None:
    assert day.runs["service"].reports == ()


def test_no_value_of_an_environment_variable_is_written(day: Day) -> None:
    assert "two-dockerds" in day.written
    assert CANARY not in day.written
