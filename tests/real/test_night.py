"""What the night left: one document and one notification of each run, with the batch's own
figures.
"""

import json
import os

import pytest

from tests.real.lab import Lab
from tests.real.night import JOBS, BeginNight, Night, Run, end_night
from tests.recorded_agent import RECORDING, recorded_answers, shape_of_answers

pytestmark = pytest.mark.real

_FAMILIES = pytest.mark.parametrize("family", [job.family for job in JOBS])


@pytest.fixture(scope="module")
def night(lab: Lab, begin_night: BeginNight) -> Night:
    return end_night(lab, begin_night().result())


@pytest.fixture
def run(family: str, night: Night) -> Run:
    return night.runs[family]


@_FAMILIES
def test_each_run_has_one_document_and_one_notification(run: Run) -> None:
    (document,) = run.documents
    assert len(run.notices) == 1
    assert document["task"]["status"] == run.job.status
    assert document["task"]["exit_code"] == run.job.exit_code
    assert document["task"].get("out_of_memory", False) == (run.job.family == "greedy")
    if run.job.has_report is not None:
        assert (run.record is not None) == run.job.has_report


@_FAMILIES
def test_the_batch_ends_as_it_does_without_a_monitor(run: Run) -> None:
    assert run.docker["ExitCode"] == run.job.exit_code
    assert run.task.containers["batch"]["exitCode"] == run.job.exit_code
    assert run.record is None or run.task.containers["task-monitor"]["exitCode"] == 0


@_FAMILIES
def test_the_times_are_those_of_docker(run: Run) -> None:
    record = run.record or {}
    if "startedAt" in record:
        assert record["startedAt"] == in_ms(run.docker["StartedAt"])
    if "exitCode" in record:  # else the monitor was stopped before the batch
        assert record["exitCode"] == run.job.exit_code
        assert record["finishedAt"] == in_ms(run.docker["FinishedAt"])


def in_ms(docker_time: str) -> str:
    whole, _, fraction = docker_time.rstrip("Z").partition(".")
    return f"{whole}.{fraction:0<3.3}Z"


@_FAMILIES
def test_the_figures_are_those_of_the_batch(run: Run) -> None:
    """CPU time that was used after the last sample is missing: the record says how much of the
    run it covers.
    """
    assert run.figures or not run.job.load or {"--oom", "--until-term"} & set(run.job.load)
    if run.record is None or run.figures is None or "cpuSeconds" not in run.record["metrics"]:
        return
    metrics, (held_mib, cpu_seconds) = run.record["metrics"], run.figures
    tolerance = 0.01 * cpu_seconds + 0.03
    assert metrics["cpuSeconds"] <= cpu_seconds + tolerance
    uncovered_ms = metrics["durationMs"] * (
        1 - run.record["sampling"].get("cpuCoveredPercent", 100) / 100
    )
    covers_all_work = uncovered_ms < run.idle_ms
    if covers_all_work:
        assert metrics["cpuSeconds"] >= cpu_seconds - tolerance
    if covers_all_work or metrics["memoryPeakSource"] == "kernel":
        assert metrics["maxMemoryUsedMB"] >= 0.99 * held_mib


@pytest.mark.usefixtures("night")
def test_no_event_is_in_a_failure_queue(lab: Lab) -> None:
    assert lab.forward_logs.failed == lab.task_stopped.failed == []


def test_the_agent_answers_as_it_was_recorded(night: Night) -> None:
    if os.environ.get("RECORD"):
        RECORDING.write_text(json.dumps(night.answers, indent=1) + "\n")
    for moment in ("running", "ended"):
        assert shape_of_answers(night.answers[moment]) == shape_of_answers(
            recorded_answers()[moment]
        )
