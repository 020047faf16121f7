"""What happened to a run, in words."""

import pytest
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.record_model import MemoryKills, Metrics, Report
from profiler.runs.past_runs.run_source import PastRun, TaskEvent
from profiler.runs.past_runs.verdict_sentence import verdict_of
from tests.shown_runs import NOW_NS, STARTED_NS, etl, failure, local, out_of_memory, running, stopped


def words(report: Report, event: TaskEvent | None = None, *, line: bytes | None = b"", now_ns: int = NOW_NS) -> str:
    verdict = verdict_of(PastRun(report=report, event=event, line=line), now_ns)
    return f"{verdict.tone}: {verdict.text} {verdict.evidence or ''}".strip()


def changed(report: Report, **record: object) -> Report:
    return replace(report, record=replace(report.record, **record))


KILLED = "bad: nightly-etl:26 ran out of memory after 14m 06s."
AT_PEAK = " at 4 GB of its 4 GB (99 %)"
UNKNOWN = changed(etl(), status="unknown", exit_code=None, finished_at=None, metrics=Metrics())
NOT_STARTED = changed(UNKNOWN, status="failure", started_at=None)
UNSEEN = "The monitor did not see the end of the batch."
ENDS: tuple[tuple[Report, TaskEvent | None, str, str], ...] = (
    (etl(), None, "good: nightly-etl:26 succeeded in 19m 42s.", ""),
    (out_of_memory(), None, KILLED, f"It was killed{AT_PEAK}, exit code 137 (SIGKILL). No stop was requested."),
    (
        changed(out_of_memory(), out_of_memory_evidence="kernel-counter"),
        None,
        KILLED,
        f"The kernel counted the kill{AT_PEAK}.",
    ),
    (
        out_of_memory(),
        TaskEvent(out_of_memory=True, stopped_reason="OutOfMemoryError: Container killed due to memory usage"),
        KILLED,
        "ECS reported: OutOfMemoryError: Container killed due to memory usage.",
    ),
    *(
        (
            changed(local(), memory_kills=MemoryKills(count=count)),
            None,
            "warning: nightly-etl succeeded in 19m 42s, but ran out of memory.",
            f"The kernel killed {processes} for lack of memory: the result may be incomplete.",
        )
        for count, processes in ((1, "a process"), (2, "2 processes"))
    ),
    (
        failure(),
        None,
        "bad: nightly-etl:26 failed with exit code 3 after 19m 42s.",
        "The memory limit was not reached: at most 81 % of 4 GB was used.",
    ),
    (
        changed(failure(), exit_code=139, likely_out_of_memory=None),
        None,
        "bad: nightly-etl:26 failed with exit code 139 (SIGSEGV) after 19m 42s.",
        "",
    ),
    (
        NOT_STARTED,
        TaskEvent(stop_category="image", stopped_reason="CannotPullContainerError: not found"),
        "bad: nightly-etl:26 did not start.",
        "The container's image could not be pulled: CannotPullContainerError: not found.",
    ),
    (
        stopped(),
        None,
        "warning: nightly-etl:26 was stopped after 19m 42s.",
        "The task was stopped before the batch ended, with exit code 143.",
    ),
    (
        changed(stopped(), exit_code=None),
        TaskEvent(stop_category="user", stopped_reason="Stopped by ann."),
        "warning: nightly-etl:26 was stopped after 19m 42s.",
        "A person or a program stopped the task: Stopped by ann.",
    ),
    (UNKNOWN, None, "warning: nightly-etl:26 ended with an unknown result.", UNSEEN),
    (
        changed(UNKNOWN, launch_type="LOCAL"),
        None,
        "warning: The result of nightly-etl:26 is unknown.",
        "The profiler did not see the end of the command.",
    ),
    (
        changed(running(), status="unknown"),
        None,
        "warning: nightly-etl:26 ended after 12m 00s with an unknown result.",
        "The run left no report: the numbers come from its last checkpoint.",
    ),
    (
        changed(etl(), status="vaporized"),
        None,
        "warning: nightly-etl:26 ended after 19m 42s with an unknown result.",
        UNSEEN,
    ),
)


@pytest.mark.parametrize(("report", "event", "sentence", "evidence"), ENDS)
def test_each_kind_of_end(report: Report, event: TaskEvent | None, sentence: str, evidence: str) -> None:
    assert words(report, event) == f"{sentence} {evidence}".strip()


def test_a_run_that_goes_on_and_one_that_was_lost() -> None:
    soon = STARTED_NS + 730 * NS_PER_SECOND
    assert words(running(), now_ns=soon) == (
        "neutral: nightly-etl:26 is running, for 12m 00s so far. This is its last checkpoint: the numbers are not "
        "final."
    )
    assert words(running()).startswith("warning: nightly-etl:26 was running when it was last seen, 5h 48m ago.")
