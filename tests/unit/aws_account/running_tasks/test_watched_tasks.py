"""Log groups that are read again and again, and what is shown of them."""

import pytest

from profiler.aws_account.running_tasks.running_runs import PATTERN
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.runs.past_runs.run_source import PastRun
from tests.fakes import START_NS, FakeClock
from tests.run_sources import ListedRuns, checkpoint_at, ended, text
from tests.runs import report
from tests.watched_runs import GROUP, MISSING, FakeLogs, watched_tasks


@pytest.fixture
def logs() -> FakeLogs:
    return FakeLogs()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_the_first_read_is_ten_minutes_and_later_ones_are_what_is_new(logs: FakeLogs, clock: FakeClock) -> None:
    watched = watched_tasks(logs, clock)
    start_ms = START_NS // NS_PER_MS
    logs.put(START_NS - 20 * NS_PER_SECOND, text(checkpoint_at(START_NS)))
    for _ in range(3):
        assert watched.refresh() == ()
        clock.advance(15)
    assert [one["startTime"] - start_ms for one in logs.requests] == [-600_000, -140_000, -140_000]
    assert {one["filterPattern"] for one in logs.requests} == {PATTERN}
    assert len(watched.runs()) == 1
    clock.advance(3600)
    watched.refresh()
    assert logs.requests[-1]["startTime"] == clock.wall_ns() // NS_PER_MS - 600_000
    assert watched.runs() == ()


def test_a_group_that_cannot_be_read_is_a_sentence_and_the_time_goes_on(logs: FakeLogs, clock: FakeClock) -> None:
    watched = watched_tasks(logs, clock, MISSING, GROUP)
    logs.put(START_NS, text(checkpoint_at(START_NS)))
    (problem,) = watched.refresh()
    assert problem.startswith(f"{MISSING} cannot be read")
    clock.advance(7)
    assert [one.elapsed_ms for one in watched.runs()] == [607_000]
    assert len(logs.requests) == 2


def test_the_largest_share_of_the_usual_duration_is_first_and_what_has_ended_before_it(
    logs: FakeLogs, clock: FakeClock
) -> None:
    past = [report(n, metrics={"duration_ms": 600_000}) for n in range(3)]
    past += [report(n, family="long", metrics={"duration_ms": 6_000_000}) for n in range(3)]
    watched = watched_tasks(logs, clock, past=lambda: ListedRuns(PastRun(report=one) for one in past))
    lines = [
        checkpoint_at(START_NS, 5, task_id="half"),
        checkpoint_at(START_NS, 60, task_id="new", family="new"),
        checkpoint_at(START_NS, 20, task_id="fifth", family="long"),
        checkpoint_at(START_NS, 20, task_id="double"),
    ]
    for line in lines:
        logs.put(START_NS, text(line))
    watched.refresh()
    assert watched.lacks_usual
    assert watched.read_usual() == ()
    assert not watched.lacks_usual
    shown = [(one.run.report.record.task_id, one.share) for one in watched.runs()]
    assert shown == [("double", 2.0), ("half", 0.5), ("fifth", 0.2), ("new", None)]
    logs.put(START_NS, text(ended(lines[0])))
    watched.refresh()
    assert [one.run.report.record.task_id for one in watched.runs()] == ["half", "double", "fifth", "new"]


def test_a_clock_that_is_ahead_misses_nothing(logs: FakeLogs, clock: FakeClock) -> None:
    aws_ns = START_NS
    clock.advance(300)
    watched = watched_tasks(logs, clock)
    for minute in range(20):
        at_ns = aws_ns + minute * 60 * NS_PER_SECOND
        line = checkpoint_at(at_ns, minute + 1, age_seconds=0)
        logs.put(at_ns, text(line))
        watched.refresh()
        assert watched.runs()[0].run.report.time == line.time
        clock.advance(60)
