"""A simulated week of schedules with a change of the clock, and that the benchmark notices what goes wrong."""

import random

import pytest

from benchmarks.schedules import VisibleTasks, Watcher, compare, measure, true_announcements
from benchmarks.simulated_schedules import GRACE_NS, HOUR_NS, MINUTE_NS, ZONES, Simulated, in_ns, simulate
from profiler.schedules.schedule_model import Schedule, StartedTask
from tests.schedule_oracle import DAY, utc

DUE_NS = 1_000 * HOUR_NS


@pytest.mark.parametrize("since", ["2026-03-28T00:00", "2026-10-24T00:00"])
def test_the_watcher_announces_what_happened_and_nothing_else(since: str) -> None:
    result, problems = measure(100, 2, 3, utc(since))
    assert problems == []
    assert [figure.name for figure in result.figures if figure.is_met is False] == []
    true_counts = {figure.name: figure.note for figure in result.figures if figure.name.startswith("overlooked")}
    assert true_counts["overlooked missed"] != "of 0"


def test_the_simulation_has_schedules_and_faults_of_all_kinds() -> None:
    simulated = simulate(300, utc("2026-03-01T00:00"), utc("2026-03-01T00:00") + 10 * DAY, random.Random(1))
    assert {one.schedule.time_zone for one in simulated} == {*ZONES, "UTC"}
    assert {one.schedule.expression.partition("(")[0] for one in simulated} == {"cron", "rate", "at"}
    assert {fate for one in simulated for fate in one.fates.values()} >= {"missed", "late", "retried", "overlapped"}
    assert {outcome for _, _, outcome in true_announcements(simulated)} == {"missed", "late", "overlapped", "refused"}


def schedule(name: str, family: str = "f") -> Schedule:
    definition = f"arn:aws:ecs:r:1:task-definition/{family}:1"
    return Schedule(kind="schedule", name=name, expression="rate(1 day)", cluster_arn="c", definition_arn=definition)


def test_what_is_wrong_is_counted() -> None:
    simulated = [Simulated(schedule("a")), Simulated(schedule("b"))]
    truth = {(0, DUE_NS, "missed"), (1, DUE_NS, "late")}
    announced = {(1, DUE_NS, "missed"), (1, DUE_NS, "late"), (1, DUE_NS + 1, "missed")}
    assert compare(simulated, truth, announced) == ({(1, DUE_NS + 1, "missed")}, {(0, DUE_NS, "missed")}, 0)


def test_schedules_that_look_the_same_may_stand_for_each_other() -> None:
    simulated = [Simulated(schedule("nightly-report-customer-1")), Simulated(schedule("nightly-report-customer-2"))]
    truth, announced = {(0, DUE_NS, "missed")}, {(1, DUE_NS + MINUTE_NS, "missed")}
    assert compare(simulated, truth, announced) == (set(), set(), 1)


def test_ecs_shows_a_stopped_task_for_an_hour() -> None:
    task = StartedTask(
        arn="t", family="f", created_ns=DUE_NS, stopped_ns=DUE_NS + GRACE_NS, stop_code="EssentialContainerExited"
    )
    visible = VisibleTasks([task])
    assert visible.at(DUE_NS - 1) == ()
    (running,) = visible.at(DUE_NS)
    assert (running.stopped_ns, running.stop_code) == (None, None)
    assert visible.at(DUE_NS + GRACE_NS) == (task,)
    assert visible.at(DUE_NS + GRACE_NS + HOUR_NS - 1) == (task,)
    assert visible.at(DUE_NS + GRACE_NS + HOUR_NS) == ()


def test_wrong_due_times_are_noticed() -> None:
    since = utc("2026-03-28T00:00")
    simulated = simulate(60, since, since + DAY, random.Random(1))
    late_by_an_hour = [[due_ns + HOUR_NS for due_ns in one.due_ns] for one in simulated]
    watcher = Watcher(simulated, late_by_an_hour, has_memory=False)
    watcher.watch(in_ns(since), in_ns(since + DAY), random.Random(1))
    false, _, _ = compare(simulated, true_announcements(simulated), watcher.announced)
    assert {outcome for _, _, outcome in false} >= {"missed"}
