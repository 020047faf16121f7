"""What became of due times: fake tasks, and times in minutes after an arbitrary midnight."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.schedules.due_outcomes import KEPT_NS, JudgedSchedule, judge_schedules
from profiler.schedules.remembered_tasks import TaskMemory
from profiler.schedules.schedule_model import (
    DueTime,
    ReadTasks,
    Schedule,
    StartedTask,
    may_have_started,
)
from tests.due_times import CLUSTER, MINUTE, at, schedule, task

SECOND = 1_000_000_000
GRACE = 15


def judge(
    schedules: Schedule | list[Schedule],
    *tasks: StartedTask,
    now: float,
    since: float | None = 0,
    known_since: float | None = None,
) -> list[JudgedSchedule]:
    known_since_ns = at(now) - KEPT_NS if known_since is None else at(known_since)
    return judge_schedules(
        schedules if isinstance(schedules, list) else [schedules],
        {CLUSTER: ReadTasks(tasks=tasks, read_ns=at(now), known_since_ns=known_since_ns)},
        now_ns=at(now),
        since_ns=None if since is None else at(since),
        grace_ns=GRACE * MINUTE,
    )


def outcomes(*arguments: Any, **values: Any) -> list[str]:
    (judged,) = judge(*arguments, **values)
    return [due.outcome for due in judged.due_times]


def the_one(*arguments: Any, **values: Any) -> DueTime:
    (judged,) = judge(*arguments, **values)
    (due,) = judged.due_times
    return due


def test_a_due_time_with_a_task_ran_and_one_without_is_missed() -> None:
    assert outcomes(schedule(), task(60.2, 70), since=60, now=80) == ["ran"]
    assert outcomes(schedule(), task(60.2), since=60, now=80) == ["running"]
    assert outcomes(schedule(), since=60, now=74.9) == ["due"]
    assert outcomes(schedule(), since=60, now=75) == ["missed"]
    assert outcomes(schedule(), since=60, now=59) == []


def test_a_task_after_the_grace_is_late() -> None:
    """A task after the grace is late and the window delays due missed and late."""
    for created, outcome in ((60.2, "running"), (74.9, "running"), (75, "late"), (110, "late")):
        assert outcomes(schedule(), task(created), since=60, now=115) == [outcome]
    assert (
        the_one(schedule(), task(83, 84), since=60, now=85).reason
        == "The task started 23m 00s after the due time."
    )
    flexible = schedule(window_minutes=20)
    assert outcomes(flexible, since=60, now=94) == ["due"]
    assert outcomes(flexible, since=60, now=95) == ["missed"]
    assert outcomes(flexible, task(90), since=60, now=95) == ["running"]
    assert outcomes(flexible, task(96), since=60, now=97) == ["late"]


def test_two_tasks_at_one_due_time_leave_the_earlier_one_missed() -> None:
    """EventBridge may start a target twice; the second task is none of an earlier due time."""
    twice = (task(120.1, 121), task(120.3, 122))
    known: Any = {"since": 60, "now": 130, "known_since": 0}
    assert outcomes(schedule(), *twice, **known) == ["missed", "started twice"]
    assert outcomes(schedule(), *twice[:1], **known) == ["missed", "ran"]
    (due,) = judge(schedule(), *twice, since=120, now=130)[0].due_times
    assert due.task == twice[0]
    assert due.reason is not None
    assert due.reason.endswith("were started for the same time.")
    two = schedule(task_count=2)
    assert outcomes(two, *twice, since=120, now=130) == ["ran"]
    assert outcomes(two, *twice, task(120.5, 123), since=120, now=130) == ["started twice"]


def test_a_late_task_and_one_that_failed_to_start_are_no_second_start() -> None:
    late = task(114, 115)
    assert outcomes(schedule(), late, task(120.1, 121), since=60, now=130) == ["late", "ran"]
    failed = task(120.1, 120.2, stop_code="TaskFailedToStart", stopped_reason="No capacity")
    assert outcomes(schedule(), failed, task(120.3, 122), since=120, now=130) == ["ran"]
    window = schedule(window_minutes=20)
    within = (task(61, 62), task(75, 76))
    assert outcomes(window, *within, since=60, now=90) == ["started twice"]


def test_a_task_belongs_to_the_last_due_time_before_it() -> None:
    assert outcomes(schedule(), task(60.1, 61), task(120.1, 121), since=60, now=122) == [
        "ran",
        "ran",
    ]
    assert outcomes(schedule(), task(120.1, 121), since=60, now=122, known_since=0) == [
        "missed",
        "ran",
    ]
    assert outcomes(schedule(), task(118, 119.5), since=60, now=140, known_since=0) == [
        "late",
        "missed",
    ]
    # It may be created seconds before its due time.
    assert outcomes(schedule(), task(119.2, 121), since=60, now=140, known_since=0) == [
        "missed",
        "ran",
    ]
    # A second one after the next due time is the retry of the one before.
    tasks = (task(120.1, 121), task(130, 131))
    assert outcomes(schedule(), *tasks, since=60, now=140, known_since=0) == ["late", "ran"]
    assert outcomes(schedule(), *tasks, since=60, now=140, known_since=100) == ["unknown", "ran"]


def test_a_previous_run_that_still_ran_is_an_overlap() -> None:
    due = judge(schedule(), task(60.1, 125), task(120.1, 121), since=60, now=126)[0].due_times[1]
    assert due.outcome == "overlapped"
    assert due.reason == "The previous run was still running: nightly of 2026-11-20T01:00:06.000Z."
    assert outcomes(schedule(), task(-300), task(60.1), since=60, now=62) == ["overlapped"]
    assert outcomes(schedule(), task(10, 60.05), task(60.1), since=60, now=62) == ["running"]


@pytest.mark.parametrize(
    ("stopped_reason", "told"),
    [
        ("CannotPullContainerError: no image.", "CannotPullContainerError: no image."),
        ("Task failed to start", "AWS gives no reason"),
        (None, "AWS gives no reason"),
    ],
)
def test_a_task_that_failed_to_start_is_refused(stopped_reason: str | None, told: str) -> None:
    failed = task(60.1, 63, stop_code="TaskFailedToStart", stopped_reason=stopped_reason)
    due = the_one(schedule(), failed, since=60, now=64)
    assert due.outcome == "refused"
    assert due.reason == f"The task failed to start: {told}"


def test_a_task_that_ecs_has_forgotten_is_unknown_and_other_tasks_do_not_count() -> None:
    assert outcomes(schedule(), since=0, now=125) == ["unknown", "unknown", "due"]
    assert outcomes(schedule(), task(0.1), since=0, now=125) == ["running", "unknown", "due"]
    others = (
        task(60.1, by="me"),
        task(60.1, by=None),
        task(60.1, by="events-rule/nightly"),
        task(60.1, by="chronos-schedule/nightly-2"),
        task(60.1, family="other"),
    )
    assert outcomes(schedule(), *others, since=60, now=80) == ["missed"]


def test_a_disabled_schedule_missed_nothing_but_its_tasks_count() -> None:
    disabled = schedule(is_enabled=False)
    assert outcomes(disabled, since=60, now=80) == ["disabled"]
    assert outcomes(disabled, task(60.1, 61), since=60, now=80) == ["ran"]


def test_a_change_makes_earlier_due_times_unknown() -> None:
    changed = schedule(modified_ns=at(62))
    assert outcomes(changed, since=60, now=80) == ["unknown"]
    assert outcomes(changed, task(60.1, 61), since=60, now=80) == ["ran"]
    assert outcomes(changed, task(79, 79.5), since=60, now=80) == ["unknown"]
    assert outcomes(schedule(modified_ns=at(59)), since=60, now=80) == ["missed"]


def test_the_creation_of_a_rate_is_no_proven_due_time() -> None:
    new = schedule(expression="rate(30 minutes)", created_ns=at(61), modified_ns=at(61))
    assert outcomes(new, since=60, now=80) == ["unknown"]
    assert outcomes(new, task(61.2, 62), since=60, now=80) == ["ran"]
    assert outcomes(new, since=60, now=107) == ["unknown", "missed"]
    assert outcomes(schedule(created_ns=at(59.5)), since=60, now=80) == ["unknown"]


def test_a_change_of_a_rate_may_have_moved_its_due_times() -> None:
    changed = schedule(expression="rate(30 minutes)", created_ns=at(0), modified_ns=at(50))
    assert outcomes(changed, since=60, now=105) == ["unknown", "unknown"]
    # The rate was started again: each task would be late for the due times since the creation.
    assert outcomes(changed, task(80.1, 81), task(110.1, 111), since=60, now=115) == [
        "unknown",
        "unknown",
    ]
    assert outcomes(changed, task(60.1, 61), since=60, now=106) == ["ran", "missed"]
    assert outcomes(replace(changed, starts_ns=at(0)), since=60, now=106) == ["missed", "missed"]


@pytest.mark.parametrize("change", [{"is_enabled": False}, {"modified_ns": at(70)}])
@pytest.mark.parametrize("first", [True, False])
def test_a_schedule_that_was_perhaps_off_takes_no_task_of_another(
    change: dict[str, Any], *, first: bool
) -> None:
    rows = [
        schedule(f"{LONG}-a", **(change if first else {})),
        schedule(f"{LONG}-b", **({} if first else change)),
    ]
    by = rows[0].started_by
    for started, outcome in ((task(60.1, 61, by=by), "ran"), (task(77, 78, by=by), "late")):
        assert judge(rows, started, since=60, now=80)[first].due_times[0].outcome == outcome


def test_each_of_several_tasks_is_needed() -> None:
    three = schedule(task_count=3)
    tasks = [task(60.1 + number / 100, 62) for number in range(3)]
    assert outcomes(three, *tasks, since=60, now=80) == ["ran"]
    assert the_one(three, *tasks[1:], since=60, now=70).reason == "2 of 3 tasks were started."
    missed = the_one(three, *tasks[1:], since=60, now=80)
    assert missed.outcome == "missed"
    assert missed.reason == "2 of 3 tasks were started."
    assert outcomes(three, *tasks[1:], task(80, 81), since=60, now=82) == ["late"]
    assert outcomes(three, task(60.1), since=60, now=200)[0] == "running"


RATE_RULE: dict[str, Any] = {"kind": "rule", "expression": "rate(20 minutes)", "created_ns": None}


def test_the_rate_of_a_rule_counts_from_its_tasks() -> None:
    rule, by = schedule(**RATE_RULE), "events-rule/nightly"
    first, second, third = (task(minute, minute + 1, by=by) for minute in (3.3, 23.5, 43.1))
    assert outcomes(rule, first, second, third, now=50) == ["ran", "ran", "ran"]
    assert outcomes(rule, first, second, now=50) == ["ran", "ran", "due"]
    assert outcomes(rule, first, second, now=59) == ["ran", "ran", "missed"]
    assert outcomes(rule, first, third, now=50) == ["ran", "missed", "ran"]
    assert outcomes(rule, first, task(30, 31, by=by), now=45) == ["ran", "ran"]
    assert outcomes(rule, task(3.3, by=by), second, now=30) == ["running", "overlapped"]
    assert judge(rule, now=50)[0].problem is not None


LONG = "prod-batch-runner-customers"


def test_started_by_is_cut() -> None:
    assert schedule(LONG).started_by == "chronos-schedule/prod-batch-runner-c"
    assert schedule("n", kind="rule").started_by == "events-rule/n"
    for length in (36, 40):
        assert may_have_started(schedule(LONG), task(1, by=f"chronos-schedule/{LONG}"[:length]))
    assert not may_have_started(schedule(LONG), task(1, by=f"chronos-schedule/{LONG}"[:35]))
    assert not may_have_started(schedule(LONG), task(1, by=f"chronos-schedule/{LONG}-b"))


def test_schedules_that_ecs_does_not_distinguish_are_judged_together() -> None:
    pair = [schedule(f"{LONG}-eu"), schedule(f"{LONG}-us")]
    one, two = (task(60.1 + number / 100, 62, by=pair[0].started_by) for number in range(2))
    both = judge(pair, one, two, since=60, now=80)
    assert [row.due_times[0].outcome for row in both] == ["ran", "ran"]
    short = judge(pair, one, since=60, now=80)
    assert sorted(row.due_times[0].outcome for row in short) == ["missed", "ran"]
    assert "does not distinguish" in (short[1].due_times[0].reason or "")


def test_schedules_of_one_name_in_two_groups_are_told_apart() -> None:
    pair = [schedule(), schedule(group="night")]
    told = [row.due_times[0].reason for row in judge(pair, since=60, now=80)]
    said = "AWS does not distinguish its tasks from the tasks of {}, which may be concerned."
    assert told == [said.format("night/nightly"), said.format("nightly")]


HOURLY, DAILY = schedule(f"{LONG}-h"), schedule(f"{LONG}-d", "cron(30 0 * * ? *)")
SIX_HOURS = schedule(f"{LONG}-a", "rate(6 hours)", created_ns=at(0))
ONCE = schedule(f"{LONG}-b", "at(2030-01-01T00:00:00)")


@pytest.mark.parametrize(
    ("rows", "times", "period", "expected"),
    [
        (
            [HOURLY, DAILY],
            [(0.1, 1), (60.1, 61)],
            {"now": 80, "known_since": 0},
            [["ran", "ran"], ["missed"]],
        ),
        (
            [DAILY, HOURLY],
            [(60.1, None), (120.1, 121)],
            {"since": None, "now": 122},
            [["unknown"], ["overlapped"]],
        ),
        # The previous run is from before the first due time.
        (
            [SIX_HOURS, ONCE],
            [(0.1, 400), (360.1, None)],
            {"since": 350, "now": 420},
            [["overlapped"], []],
        ),
    ],
)
def test_a_task_belongs_to_the_similar_schedule_that_was_due(
    rows: list[Schedule],
    times: list[tuple[float, float | None]],
    period: dict[str, Any],
    expected: list[list[str]],
) -> None:
    judged = judge(
        rows,
        *(task(created, stopped, by=HOURLY.started_by) for created, stopped in times),
        **period,
    )
    assert [[due.outcome for due in row.due_times] for row in judged] == expected


def test_the_last_due_time_of_each() -> None:
    daily = schedule("daily", "cron(30 0 * * ? *)")
    rows = [
        schedule(),
        daily,
        schedule("later", "at(2027-01-01T00:00:00)"),
        schedule("bad", "cron()"),
    ]
    judged = judge(rows, task(60.1, 61), now=80, since=None)
    assert [[due.outcome for due in row.due_times] for row in judged] == [
        ["ran"],
        ["missed"],
        [],
        [],
    ]
    assert judged[3].problem is not None


@settings(max_examples=60)
@given(st.data())
def test_whatever_the_tasks_nothing_is_missed_by_guess(data: st.DataObject) -> None:
    minutes = st.floats(0, 400)
    rows = [
        schedule(
            name,
            data.draw(
                st.sampled_from(["rate(7 minutes)", "cron(0 * * * ? *)", "cron(0/30 * * * ? *)"])
            ),
            window_minutes=data.draw(st.sampled_from([0, 10, 45])),
            task_count=data.draw(st.integers(1, 2)),
            is_enabled=data.draw(st.booleans()),
            modified_ns=data.draw(st.one_of(st.none(), minutes.map(at))),
        )
        for name in data.draw(st.sampled_from([["nightly"], [f"{LONG}-a", f"{LONG}-b"]]))
    ]
    starts = data.draw(st.lists(st.tuples(minutes, st.floats(0, 90)), max_size=12))
    tasks = [
        task(created, created + length, by=rows[0].started_by, arn=f"t/{number}")
        for number, (created, length) in enumerate(starts)
    ]
    now, known_since = 400, data.draw(minutes)
    judged = judge(rows, *tasks, now=now, known_since=known_since)
    used = [due.task.arn for row in judged for due in row.due_times if due.task is not None]
    assert len(used) == len(set(used)) <= len(tasks)
    for row in judged:
        for due in row.due_times:
            window = row.schedule.window_minutes
            assert due.due_ns <= at(now)
            assert (due.task is None) <= (due.outcome in ("missed", "due", "unknown", "disabled"))
            if due.outcome == "missed":
                assert at(known_since) <= due.due_ns <= at(now - window - GRACE)
                assert row.schedule.is_enabled
                assert row.schedule.modified_ns is None or row.schedule.modified_ns <= due.due_ns
            if due.outcome == "late":
                assert due.task is not None
                assert due.task.created_ns >= due.due_ns - MINUTE
    assert judge(rows, *tasks[::-1], now=now, known_since=known_since) == judged


def test_a_forgotten_task_of_overlapping_windows_makes_no_later_due_time_missed() -> None:
    """The task of 01:40 is forgotten; its window contains that of 02:00."""
    often = schedule(expression="cron(*/20 * * * ? *)", window_minutes=25)
    tasks = [task(125.3, 137.3), task(141.1, 153.1), task(169.2, 172.2)]
    assert "missed" not in outcomes(often, *tasks, since=100, now=180.5, known_since=125.5)


# What a process remembers of tasks that ECS has forgotten


def reading(now: int, *names: str, stopped: int | None = None) -> dict[str, ReadTasks]:
    stopped_ns = None if stopped is None else stopped * MINUTE
    tasks = tuple(
        StartedTask(arn=name, family="etl", created_ns=0, stopped_ns=stopped_ns) for name in names
    )
    return {
        "jobs": ReadTasks(tasks=tasks, read_ns=now * MINUTE, known_since_ns=(now - 60) * MINUTE)
    }


def names(clusters: dict[str, ReadTasks]) -> set[str]:
    return {task.arn for task in clusters["jobs"].tasks or ()}


@pytest.mark.parametrize(("now", "remembered", "since"), [(158, {"a", "b"}, 40), (161, {"b"}, 101)])
def test_a_stopped_task_is_remembered_until_a_gap_of_an_hour(
    now: int, remembered: set[str], since: int
) -> None:
    memory = TaskMemory()
    memory.remember_tasks(reading(100, "a", stopped=99))
    seen = memory.remember_tasks(reading(now, "b"))
    assert names(seen) == remembered
    assert seen["jobs"].known_since_ns == since * MINUTE


def test_a_task_is_known_as_it_was_read_last() -> None:
    """A task is known as it was read last and a reading that failed does not empty the memory."""
    memory = TaskMemory()
    memory.remember_tasks(reading(90, "a"))
    (seen,) = memory.remember_tasks(reading(100, "a", stopped=99))["jobs"].tasks or ()
    assert seen.stopped_ns == 99 * MINUTE
    failed = {"jobs": ReadTasks(problem="Throttled.")}
    assert memory.remember_tasks(failed) == failed
    assert names(memory.remember_tasks(reading(110, "b"))) == {"a", "b"}
    for now in range(150, 4000, 50):
        known = memory.remember_tasks(reading(now, f"{now}", stopped=now))
    assert known["jobs"].known_since_ns == (now - 2880) * MINUTE  # the memory ends after two days
    assert len(names(known)) == 2880 // 50 + 1


MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:nightly"


def of_machine(name: str = "nightly", **values: Any) -> Schedule:
    return schedule(name, cluster_arn=CLUSTER, machine_arn=MACHINE, definition_arn="etl", **values)


def execution(created: float, stopped: float | None = None) -> StartedTask:
    return task(created, stopped, by="execution", family="")


def test_an_execution_of_somebody_overlaps_no_run_of_a_schedule() -> None:
    """Only one that began at a due time may be the schedule's, as of tasks the starter says."""
    by_hand, hourly = execution(30), execution(60.2, 70)
    found = outcomes(of_machine(), execution(0.2, 10), by_hand, hourly, since=60, now=80)
    assert found == ["ran"]
    own = outcomes(of_machine(), execution(0.2), hourly, since=60, now=80)
    assert own == ["overlapped"]
    assert outcomes(schedule(), task(30), task(60.2, 70), since=60, now=80) == ["overlapped"]


def test_one_execution_is_of_one_schedule_whatever_versions_of_the_machine_start() -> None:
    versions = [of_machine("one"), replace(of_machine("two"), definition_arn="etl, load")]
    judged = judge(versions, execution(60.2, 70), since=60, now=80)
    (one,), (two,) = (each.due_times for each in judged)
    assert sorted((one.outcome, two.outcome)) == ["missed", "ran"]
    judged = judge(versions, execution(60.2, 70), execution(60.3, 70), since=60, now=80)
    assert [due.outcome for each in judged for due in each.due_times] == ["ran", "ran"]


def test_the_rate_of_a_rule_does_not_begin_with_an_execution_of_somebody() -> None:
    rate: Any = {"kind": "rule", "expression": "rate(1 hour)", "created_ns": None}
    (judged,) = judge(of_machine(**rate), execution(20, 30), now=200)
    assert (judged.due_times, bool(judged.problem)) == ((), True)
    tasks = task(20, 30, by="events-rule/nightly")
    assert outcomes(schedule(**rate), tasks, now=100) == ["ran", "missed"]


def test_a_cluster_that_is_gone_once_more_may_have_had_tasks_since_the_last_reading() -> None:
    """The time at which it was first gone, at 0, is older than its second life."""

    def gone(now: float, since: float) -> ReadTasks:
        return ReadTasks(tasks=(), read_ns=at(now), known_since_ns=at(since), is_gone=True)

    memory = TaskMemory()
    alive = ReadTasks(tasks=(task(60, 70),), read_ns=at(90), known_since_ns=at(60))
    readings = [gone(0, 0), gone(5, 0), alive, gone(95, 0), gone(100, 0)]
    since = [
        memory.remember_tasks({CLUSTER: reading})[CLUSTER].known_since_ns for reading in readings
    ]
    assert since == [at(minutes) for minutes in (0, 0, 60, 95, 95)]
