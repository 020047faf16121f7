"""What the night left: one document and one notification of each run, with the batch's own figures."""

from collections.abc import Iterator

import pytest

from tests.real.lab import Lab, running_lab
from tests.real.night import JOBS, Run, run_night
from tests.real.programs import missing

pytestmark = pytest.mark.real

_MIB = 1 << 20
_FAMILIES = pytest.mark.parametrize("family", [job.family for job in JOBS])


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if reason := missing():
        pytest.skip(f"it needs {reason}")
    with running_lab() as lab:
        yield lab


@pytest.fixture(scope="module")
def night(lab: Lab) -> dict[str, Run]:
    return run_night(lab)


@_FAMILIES
def test_each_run_has_one_document_and_one_notification(family: str, night: dict[str, Run]) -> None:
    run = night[family]
    (document,) = run.documents
    assert len(run.notices) == 1
    assert document["task"]["status"] == run.job.status
    assert document["task"]["exit_code"] == run.job.exit_code


@_FAMILIES
def test_the_batch_ends_as_it_does_without_a_monitor(family: str, night: dict[str, Run]) -> None:
    run = night[family]
    assert run.docker["ExitCode"] == run.job.exit_code
    assert run.task.containers["batch"]["exitCode"] == run.job.exit_code


@_FAMILIES
def test_the_figures_are_those_of_the_batch(family: str, night: dict[str, Run]) -> None:
    run = night[family]
    record = run.record
    if record is None:
        assert not run.job.has_report
        return
    assert run.job.has_report is not False
    metrics = record["metrics"]
    if run.cpu_seconds is not None:
        assert metrics["cpuSeconds"] == pytest.approx(run.cpu_seconds, rel=0.01, abs=0.03)
    if run.held_bytes is not None and metrics["memoryPeakSource"] == "kernel":
        assert metrics["maxMemoryUsedMB"] >= 0.99 * run.held_bytes / _MIB


def test_no_event_is_in_a_failure_queue(lab: Lab, night: dict[str, Run]) -> None:
    assert len(night) == len(JOBS)
    assert lab.forward_logs.failed == lab.task_stopped.failed == []
