"""Several sources as one: each run once, newest first; a source that fails is left out."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import format_ms
from profiler.record.record_model import Report, Sampling, encode
from profiler.runs.past_runs.joined_runs import JoinedRuns
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import RunFilter
from tests.run_sources import HOUR_NS, NOW_NS, RUNS, ListedRuns, check_source, run
from tests.runs import checkpoint


class BrokenRuns(ListedRuns):
    """A source that fails after its runs."""

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        yield from super().runs(selection)
        raise TaskProfilerError("The cluster cannot be reached.")

    def checkpoints(self, run: PastRun) -> tuple[Report, ...]:
        raise TaskProfilerError("The checkpoints cannot be read.")


def listed(*reports: Report, kind: type[ListedRuns] = ListedRuns) -> ListedRuns:
    return kind(PastRun(report=one, line=encode(one)) for one in reports)


def joined(*sources: ListedRuns) -> tuple[JoinedRuns, list[str]]:
    failures: list[str] = []
    return JoinedRuns(sources, lambda error: failures.append(str(error))), failures


def test_every_filter_finds_the_runs_of_all_sources_newest_first() -> None:
    source, failures = joined(listed(*RUNS[::2]), listed(*RUNS[1::2]), listed(*RUNS[:3]))
    check_source(source)
    assert sorted(one.report.record.task_id for one in source.last_runs(RunFilter(), 50)) == [
        one.record.task_id for one in RUNS
    ]
    assert failures == []


def test_the_newest_runs_are_found_without_reading_the_rest() -> None:
    one, other = listed(*(run(f"a{hours}", hours) for hours in range(100))), listed(run("b", 99))
    source, _ = joined(one, other)
    assert next(source.runs(RunFilter())).report.record.task_id == "a0"
    assert one.read < 5


def test_a_report_counts_before_a_checkpoint_and_before_the_minutes_of_container_insights() -> None:
    """Container Insights has the start of the task, which is not that of the container."""
    report = run("seen", 1)
    insights = replace(
        report.record,
        started_at=format_ms(NOW_NS - HOUR_NS + 5_000_000_000),
        sampling=Sampling(interval_ms=60_000, sources=("container-insights",)),
    )
    by_minute = replace(report, record=insights)
    alone = replace(by_minute, record=replace(insights, task_id="alone"))
    for order in (1, -1):
        sources = [listed(checkpoint(report)), listed(by_minute, alone), listed(report)][::order]
        source, _ = joined(*sources)
        found = [one.report for one in source.runs(RunFilter())]
        assert sorted(found, key=lambda one: one.record.task_id) == [alone, report]


def test_two_containers_of_a_task_are_two_runs() -> None:
    batch = run("task", 1)
    side = replace(
        batch, record=replace(batch.record, container=replace(batch.record.container, name="side"))
    )
    source, _ = joined(listed(batch), listed(side))
    assert len([*source.runs(RunFilter())]) == 2


def test_a_source_that_fails_is_reported_once_and_the_last_one_raises() -> None:
    source, failures = joined(listed(RUNS[1], kind=BrokenRuns), listed(RUNS[0], RUNS[2]))
    assert [one.report for one in source.runs(RunFilter())] == [*RUNS[:3]]
    assert [one.report for one in source.runs(RunFilter())] == [RUNS[0], RUNS[2]]
    assert failures == ["The cluster cannot be reached."]
    source, failures = joined(listed(kind=BrokenRuns), listed(), listed(kind=BrokenRuns))
    past = PastRun(report=RUNS[0], checkpoints=(checkpoint(RUNS[0]),))
    assert source.checkpoints(past) == past.checkpoints
    assert failures == ["The checkpoints cannot be read."], "the third source is not read"
    source, failures = joined(listed(kind=BrokenRuns), listed(kind=BrokenRuns))
    with pytest.raises(TaskProfilerError, match="cannot be reached"):
        list(source.runs(RunFilter()))
    assert len(failures) == 1


@pytest.mark.parametrize("confirmed_first", [True, False])
def test_a_copy_for_which_nobody_vouches_replaces_no_confirmed_run(
    *, confirmed_first: bool
) -> None:
    report = run("killed", 1)
    success = replace(report, record=replace(report.record, status="success", exit_code=0))
    killed = replace(report, record=replace(report.record, status="failure", exit_code=137))
    confirmed = listed(killed)
    unconfirmed = ListedRuns([PastRun(report=success, line=encode(success), is_confirmed=False)])
    sources = (confirmed, unconfirmed) if confirmed_first else (unconfirmed, confirmed)
    source, _ = joined(*sources)
    for runs in (source.runs(RunFilter()), source.last_runs(RunFilter(), 5)):
        assert [(one.report.record.exit_code, one.is_confirmed) for one in runs] == [(137, True)]
