"""A simulated year of 100 schedules in three time zones: what the watcher of schedules reports,
and what it should.

The tasks are those of a simulated AWS that uses the tests' oracle for its due times. Every five
minutes the due times of the last 55 minutes are judged by the tasks that ECS shows then. One call
in 100 does not take place, and now and then the tasks of a cluster cannot be read for a quarter of
an hour.
"""

import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import heappop, heappush
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from profiler.schedules.due_outcomes import judge_schedules
from profiler.schedules.due_times import due_times, has_known_anchor
from profiler.schedules.remembered_tasks import TaskMemory
from profiler.schedules.schedule_model import ReadTasks, Schedule, StartedTask
from tests.schedule_oracle import DAY, in_ns, utc
from tests.simulation.simulated_schedules import (
    GRACE_NS,
    HOUR_NS,
    MINUTE_NS,
    Simulated,
    look,
    simulate,
)

_EVERY_NS = 5 * MINUTE_NS
_LOOK_BACK_NS = 55 * MINUTE_NS
_LONG_LOOK_BACK_NS = 25 * HOUR_NS
_COLD_STARTS = 0.01
_KEPT_NS = HOUR_NS
_SKIPPED_CALLS = 0.01
_OUTAGES = 0.001
_OUTAGE_NS = 15 * MINUTE_NS
_ALERTED = ("missed", "late", "overlapped", "refused")
_NOT_OVERLAPPED = {"late", "refused", "partly missed"}  # these win

Notification = tuple[int, int, str]
"""The number of a schedule, a due time and its outcome."""


class VisibleTasks:
    """The tasks that ECS shows of a cluster: those that run, and those that stopped within the
    last hour.
    """

    def __init__(self, tasks: Sequence[StartedTask]) -> None:
        self._coming = sorted(tasks, key=lambda task: task.created_ns, reverse=True)
        self._stops: list[tuple[int, str, StartedTask]] = []
        self._ends: list[tuple[int, str]] = []
        self._shown: dict[str, StartedTask] = {}

    def at(self, now_ns: int) -> tuple[StartedTask, ...]:
        """The tasks at a moment that is later than that of the last call."""
        while self._coming and self._coming[-1].created_ns <= now_ns:
            task = self._coming.pop()
            self._shown[task.arn] = replace(
                task, stopped_ns=None, stop_code=None, stopped_reason=None
            )
            heappush(self._stops, (task.stopped_ns or 0, task.arn, task))
        while self._stops and self._stops[0][0] <= now_ns:
            stopped_ns, arn, task = heappop(self._stops)
            self._shown[arn] = task
            heappush(self._ends, (stopped_ns + _KEPT_NS, arn))
        while self._ends and self._ends[0][0] <= now_ns:
            del self._shown[heappop(self._ends)[1]]
        return tuple(self._shown.values())


class _Group:
    """Schedules whose tasks cannot be distinguished: their numbers, and all their due times."""

    def __init__(
        self,
        simulated: Sequence[Simulated],
        due_ns: Sequence[Sequence[int]],
        numbers: Sequence[int],
    ) -> None:
        self.numbers = numbers
        self._due_ns = sorted(one for number in numbers for one in due_ns[number])
        self._are_known = all(has_known_anchor(simulated[number].schedule) for number in numbers)

    def may_be_due(self, since_ns: int, until_ns: int) -> bool:
        place = bisect_left(self._due_ns, since_ns)
        is_due = place < len(self._due_ns) and self._due_ns[place] < until_ns
        return is_due or not self._are_known


class Watcher:
    """Judges the schedules every five minutes, and collects what it would report."""

    def __init__(
        self, simulated: Sequence[Simulated], due_ns: Sequence[Sequence[int]], *, has_memory: bool
    ) -> None:
        self.reported: set[Notification] = set()
        self._simulated = simulated
        self._due_ns = due_ns
        self._look_back_ns = _LONG_LOOK_BACK_NS if has_memory else _LOOK_BACK_NS
        self._memory = TaskMemory() if has_memory else None
        self._numbers = {one.schedule.name: number for number, one in enumerate(simulated)}
        groups: dict[tuple[str, ...], list[int]] = {}
        for number, one in enumerate(simulated):
            groups.setdefault(look(one.schedule), []).append(number)
        self._groups = [_Group(simulated, due_ns, numbers) for numbers in groups.values()]

    def watch(self, since_ns: int, until_ns: int, randomness: random.Random) -> None:
        tasks: dict[str, list[StartedTask]] = {}
        for one in self._simulated:
            tasks.setdefault(one.schedule.cluster_arn, []).extend(one.tasks)
        visible = {arn: VisibleTasks(started) for arn, started in tasks.items()}
        unread_until = dict.fromkeys(visible, 0)
        for now_ns in range(since_ns, until_ns, _EVERY_NS):
            if randomness.random() < _SKIPPED_CALLS:
                continue
            clusters: dict[str, ReadTasks] = {}
            for arn, shown in visible.items():
                if randomness.random() < _OUTAGES:
                    unread_until[arn] = now_ns + _OUTAGE_NS
                seen = shown.at(now_ns)
                tasks_read = seen if now_ns >= unread_until[arn] else None
                clusters[arn] = ReadTasks(
                    tasks=tasks_read, read_ns=now_ns, known_since_ns=now_ns - _KEPT_NS
                )
            if self._memory is not None:
                if randomness.random() < _COLD_STARTS:
                    self._memory = TaskMemory()
                clusters = self._memory.remember_tasks(clusters)
            self._judge(now_ns, clusters)

    def _judge(self, now_ns: int, clusters: dict[str, ReadTasks]) -> None:
        since_ns = now_ns - self._look_back_ns
        schedules = self._to_judge(since_ns, now_ns)
        judged = judge_schedules(
            schedules, clusters, now_ns=now_ns, since_ns=since_ns, grace_ns=GRACE_NS
        )
        for one in judged:
            for due in one.due_times:
                if due.outcome in _ALERTED:
                    self.reported.add((self._numbers[one.schedule.name], due.due_ns, due.outcome))

    def _to_judge(self, since_ns: int, now_ns: int) -> list[Schedule]:
        """The schedules of which one has a due time now, or no known one.

        Of the others, nothing can be said.
        """
        until_ns = now_ns + MINUTE_NS
        found = [
            self._simulated[number].at(now_ns)
            for group in self._groups
            if group.may_be_due(since_ns, until_ns)
            for number in group.numbers
        ]
        return [schedule for schedule in found if schedule is not None]

    def found_due_times(self, schedule: Schedule, since_ns: int, until_ns: int) -> Iterable[int]:
        """The due times of the measured code, found once for the whole year; not those that a
        rule's tasks show.
        """
        if schedule.kind == "rule" and schedule.starts_ns is not None:
            return due_times(schedule, since_ns, until_ns)
        due_ns = self._due_ns[self._numbers[schedule.name]]
        return due_ns[bisect_left(due_ns, since_ns) : bisect_left(due_ns, until_ns)]


def true_notifications(simulated: Sequence[Simulated]) -> set[Notification]:
    truth = {
        (number, due_ns, {"partly missed": "missed"}.get(fate, fate))
        for number, one in enumerate(simulated)
        for due_ns, fate in one.fates.items()
        if fate in {"missed", "partly missed", "late", "refused"}
    }
    for number, one in enumerate(simulated):
        truth.update(
            due for due in _overlapped([(number, one)]) if one.fates[due[1]] not in _NOT_OVERLAPPED
        )
    return truth


def _overlapped(members: Iterable[tuple[int, Simulated]]) -> Iterator[Notification]:
    """The due times of whose tasks the first starts while another one of these schedules still
    runs.
    """
    tasks = [(task, number) for number, one in members for task in one.tasks]
    end_ns = 0
    seen: set[tuple[int, int]] = set()
    for task, number in sorted(tasks, key=lambda started: started[0].created_ns):
        due = (number, int(task.arn.rpartition("/")[2].partition("-")[0]))
        if due not in seen and task.created_ns < end_ns:
            yield (*due, "overlapped")
        seen.add(due)
        end_ns = max(end_ns, task.stopped_ns or 0)


def compare(
    simulated: Sequence[Simulated], truth: set[Notification], reported: set[Notification]
) -> tuple[set[Notification], set[Notification]]:
    """What was sent wrongly, and what was overlooked.

    Nobody can distinguish the tasks of schedules that look the same: one of them may stand for the
    other. A late run was missed at first, and a task that does not start overlaps the previous run
    until it stops. The previous run may be one of the other schedule.
    """
    before = {"late": "missed", "refused": "overlapped"}
    allowed = {
        (number, due_ns, before[outcome]) for number, due_ns, outcome in truth if outcome in before
    }
    looks: dict[tuple[str, ...], list[tuple[int, Simulated]]] = {}
    for number, simulated_one in enumerate(simulated):
        looks.setdefault(look(simulated_one.schedule), []).append((number, simulated_one))
    for members in looks.values():
        allowed.update(_overlapped(members))
    false, overlooked = reported - truth - allowed, truth - reported
    # AWS does not return from when the rate of a rule counts: its due times are about those of its
    # tasks, or unknown.
    rates = {
        n
        for n, one in enumerate(simulated)
        if one.schedule.kind == "rule" and "rate" in one.schedule.expression
    }
    faults = [(number, due_ns) for number, due_ns, _ in truth if number in rates]
    false = {
        one
        for one in false
        if all(one[0] != number or abs(one[1] - due_ns) > HOUR_NS for number, due_ns in faults)
    }
    overlooked = {one for one in overlooked if one[0] not in rates}
    for one in sorted(false):
        number, due_ns, outcome = one
        for other in sorted(overlooked):
            is_near = abs(due_ns - other[1]) < HOUR_NS and outcome == other[2]
            if is_near and look(simulated[number].schedule) == look(simulated[other[0]].schedule):
                false.remove(one)
                overlooked.remove(other)
                break
    return false, overlooked


def watched(
    count: int, days: int, since: datetime, *, has_memory: bool = False
) -> set[Notification]:
    """What happened in a simulated time, of which the watcher reported everything and nothing
    else.
    """
    randomness = random.Random(1)
    until = since + days * DAY
    simulated = simulate(count, since, until, randomness)
    found = [[*due_times(one.schedule, in_ns(since), in_ns(until))] for one in simulated]
    for one, due_ns in zip(simulated, found, strict=True):
        assert {*one.due_ns * has_known_anchor(one.schedule)} == {*filter(one.runs_at, due_ns)}
    watcher = Watcher(simulated, found, has_memory=has_memory)
    with patch("profiler.schedules.due_outcomes.due_times", watcher.found_due_times):
        watcher.watch(in_ns(since), in_ns(until), randomness)
    truth = true_notifications(simulated)
    false, overlooked = compare(simulated, truth, watcher.reported)
    assert false == set()
    assert overlooked == set()
    return truth


@pytest.mark.parametrize("since", ["2026-03-28T00:00", "2026-10-24T00:00"])
def test_the_watcher_reports_what_happened_and_nothing_else(since: str) -> None:
    assert "missed" in {outcome for _, _, outcome in watched(100, 2, utc(since))}


@pytest.mark.slow
@pytest.mark.parametrize(("has_memory", "days", "faults"), [(False, 365, 2000), (True, 20, 100)])
def test_no_false_notification_in_a_simulated_time_and_none_overlooked(
    *, has_memory: bool, days: int, faults: int
) -> None:
    """Of 2,000 faults none is overlooked: with 95 % confidence, fewer than 3 / 2,000 are (the
    rule of three).
    """
    found = watched(100, days, utc("2026-01-01T00:00"), has_memory=has_memory)
    assert len(found) >= faults
    assert {outcome for _, _, outcome in found} == {"missed", "late", "overlapped", "refused"}
