"""Which runs go on, from the lines of their monitors and from ECS."""

from msgspec.structs import replace

from profiler.aws_account.running_tasks.running_runs import RunningRuns
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.record_model import NO_INTERVAL, NOT_MEASURED, Interval, Report
from profiler.runs.past_runs.run_source import RunFilter
from tests.fakes import START_NS
from tests.run_sources import (
    MESSAGE,
    MINUTE_NS,
    checkpoint_at,
    ended,
    log_event,
    notice_text,
    text,
)
from tests.watched_runs import GROUP, TRUST

NOW_NS = START_NS


def take(runs: RunningRuns, message: str) -> None:
    event = log_event(message)
    runs.add_line(message, TRUST.trust_in_stream(GROUP, event["logStreamName"]), event["timestamp"])


def runs_of(*messages: str, selection: RunFilter | None = None) -> RunningRuns:
    runs = RunningRuns(selection or RunFilter())
    for message in messages:
        take(runs, message)
    return runs


def test_a_run_goes_on_if_its_newest_line_is_a_young_checkpoint() -> None:
    newest = checkpoint_at(NOW_NS)
    lines = [
        text(checkpoint_at(NOW_NS, age_seconds=80)),
        text(newest),
        text(checkpoint_at(NOW_NS, age_seconds=140)),
    ]
    (run,) = runs_of(*lines).current_runs(NOW_NS)
    assert run.report.time == newest.time
    assert run.elapsed_ms(NOW_NS) == 600_000
    assert run.elapsed_ms(NOW_NS + 5 * NS_PER_SECOND) == 605_000
    assert run.is_running is True
    assert run.silent_ms is None
    assert (
        run.elapsed_ms(NOW_NS - 20 * MINUTE_NS) == newest.record.metrics.duration_ms
    )  # a clock that is behind
    # Other lines are ignored.
    others = (
        '{"type":"task.checkpoint"',
        '{"type":"task.notice"}',
        '{"message":"\\"task.report\\""}',
        "[" * 9,
    )
    assert runs_of(*others).current_runs(NOW_NS) == ()


def test_a_run_without_a_line_for_ten_minutes_is_not_shown() -> None:
    """A run without a line for ten minutes is not shown and before that its age is."""
    runs = runs_of(text(checkpoint_at(NOW_NS)))
    (late,) = runs.current_runs(NOW_NS + 4 * MINUTE_NS)
    assert late.silent_ms == 260_000
    assert runs.current_runs(NOW_NS + 10 * MINUTE_NS) == ()
    # Rare checkpoints are no silence.
    (run,) = runs_of(
        text(checkpoint_at(NOW_NS, 60, period_minutes=15, age_seconds=14 * 60))
    ).current_runs(NOW_NS)
    assert run.silent_ms is None


def test_an_ended_run_is_shown_for_five_minutes_if_it_was_seen_running() -> None:
    """It was shown for one reading, which nobody sees who does not look at that moment."""
    line = checkpoint_at(NOW_NS)
    runs = runs_of(text(line))
    assert len(runs.current_runs(NOW_NS)) == 1
    take(runs, text(ended(line, "failure", 3)))
    (run,) = runs.current_runs(NOW_NS + NS_PER_SECOND)
    assert run.is_running is False
    assert run.report.record.exit_code == 3
    assert run.elapsed_ms(NOW_NS + 9 * MINUTE_NS) == line.record.metrics.duration_ms
    take(runs, text(line))  # read again
    (run,) = runs.current_runs(NOW_NS + 5 * MINUTE_NS)
    assert run.report.record.exit_code == 3
    assert runs.current_runs(NOW_NS + 5 * MINUTE_NS + NS_PER_SECOND) == ()
    assert runs_of(text(line), text(ended(line))).current_runs(NOW_NS) == ()


def test_notices_have_the_text_of_their_line() -> None:
    """Notices have the text of their line and a checkpoint counts more than their record."""
    line = checkpoint_at(NOW_NS)
    messages = [notice_text(line), text(line), notice_text(line, "memory")]
    for order in (messages, messages[::-1]):
        (run,) = runs_of(*order).current_runs(NOW_NS)
        assert {(one.kind, one.message) for one in run.notices} == {
            ("stuck", MESSAGE),
            ("memory", MESSAGE),
        }
        assert run.newest_interval.vcpu_used != NOT_MEASURED
    (only_notice,) = runs_of(notice_text(line)).current_runs(NOW_NS)
    assert only_notice.newest_interval == Interval()
    assert only_notice.silent_ms is None


def task(line: Report, status: str = "running", container: str = "batch") -> Report:
    named = replace(line.record.container, name=container)
    return replace(
        line, record=replace(line.record, status=status, interval=NO_INTERVAL, container=named)
    )


def test_ecs_says_which_tasks_run_and_the_lines_what_they_use() -> None:
    line = checkpoint_at(NOW_NS, age_seconds=3000, minutes=80)
    other = task(checkpoint_at(NOW_NS, task_id="plain"))
    runs = runs_of(text(line), text(checkpoint_at(NOW_NS, task_id="elsewhere")))
    found = runs.current_runs(NOW_NS, (task(line), other))
    assert [run.report for run in found] == [line, other]
    assert found[0].silent_ms == 3_000_000
    gone, left = runs.current_runs(NOW_NS, (task(line, "stopped"), other))[::-1]
    assert gone.is_running is False
    assert gone.report.record.status == "stopped"
    assert left.report == other
    assert gone.newest_interval == line.record.interval
    left, gone = runs.current_runs(NOW_NS + 4 * MINUTE_NS, (other,))
    assert (left.report, gone.report.record.status) == (other, "stopped")
    take(runs, text(ended(line, "failure", 9)))  # its monitor's report came late
    _, gone = runs.current_runs(NOW_NS + 4 * MINUTE_NS, (other,))
    assert gone.report.record.exit_code == 9
    assert len(runs.current_runs(NOW_NS + 5 * MINUTE_NS, (other,))) == 1


def test_a_batch_that_is_restarted_runs_again() -> None:
    line = checkpoint_at(NOW_NS)
    runs = RunningRuns()
    for status, is_running in (("running", True), ("stopped", False), ("running", True)):
        (run,) = runs.current_runs(NOW_NS, (task(line, status),))
        assert run.is_running is is_running


def test_the_newest_end_is_first() -> None:
    lines = [checkpoint_at(NOW_NS, task_id=name) for name in ("first", "second")]
    runs = runs_of(*map(text, lines))
    runs.current_runs(NOW_NS)
    for line in lines:
        take(runs, text(ended(line)))
        shown = runs.current_runs(NOW_NS)
    assert [run.report.record.task_id for run in shown] == ["second", "first"]


def test_the_report_of_a_task_that_ecs_has_not_stopped_yet_is_its_end() -> None:
    line = checkpoint_at(NOW_NS)
    runs = runs_of(text(line))
    runs.current_runs(NOW_NS, (task(line),))
    take(runs, text(ended(line)))
    (run,) = runs.current_runs(NOW_NS, (task(line),))
    assert run.report.record.status == "success"
    (run,) = runs.current_runs(NOW_NS, (task(line, "stopped"),))
    assert run.report.record.status == "success"
