"""Schedules of all kinds for a year, and an AWS that starts their tasks: in time, late, more
than once, or never.

The due times come from the oracle of the tests, so that they owe nothing to the code that is
measured. What nobody could distinguish does not occur: two faults of schedules whose tasks look the
same lie hours apart, and a task that is late does not start in the minute, or in the window, of
another run.
"""

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.schedules.schedule_model import Schedule, ScheduleKind, StartedTask
from tests.schedule_oracle import (
    DAY,
    at_times,
    in_ns,
    names_date,
    rate_times,
    shown_minutes,
    times_of_day,
)

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
GRACE_NS = 15 * MINUTE_NS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ARN = "arn:aws:ecs:eu-central-1:123456789012:"
_QUIET_NS = 4 * HOUR_NS
# What runs more often than each half an hour ends after so long: each look judges it.
_FREQUENT_NS = 30 * 24 * HOUR_NS
# Time is left for a quarter of an hour in which ECS does not answer, before the due time is too old
# to be judged.
_LATEST_NS = 35 * MINUTE_NS
# How often each fate befalls a run of a schedule with at most a run an hour; the others are started
# in time.
_FATES = {
    "missed": 0.012,
    "late": 0.008,
    "retried": 0.02,
    "overlapped": 0.02,
    "refused": 0.006,
    "partly missed": 0.02,
}
_EXPRESSIONS = (
    (
        2,
        (
            "cron(0/15 * * * ? *)",
            "cron({m} 0/1 ? * MON-FRI *)",
            "rate(20 minutes)",
            "cron(0/5 8-9 * * ? *)",
        ),
    ),
    (
        6,
        (
            "cron({m} * * * ? *)",
            "rate(1 hour)",
            "rate(90 minutes)",
            "cron({m} 20-4 * * ? *)",
            "cron({m} */2 * * ? *)",
        ),
    ),
    (
        10,
        (
            "cron({m} 0/4 * * ? *)",
            "rate(6 hours)",
            "rate(1 day)",
            "rate(3 days)",
            "cron({m} 1,13 * * ? *)",
        ),
    ),
    (45, ("cron({m} {h} * * ? *)", "cron({m} {night} * * ? *)", "cron({m} {night} ? * MON-FRI *)")),
    (
        12,
        (
            "cron({m} {night} ? * {w} *)",
            "cron({m} {h} ? * FRI-MON *)",
            "cron({m} {night} 1/5 * ? *)",
        ),
    ),
    (
        15,
        (
            "cron({m} {h} L * ? *)",
            "cron({m} {h} LW * ? *)",
            "cron({m} {h} {d}W * ? *)",
            "cron({m} {h} L-{w} * ? *)",
        ),
    ),
    (
        10,
        (
            "cron({m} {h} ? * {w}#2 *)",
            "cron({m} {h} ? * {w}L *)",
            "cron({m} {h} 29 FEB ? *)",
            "cron({m} {h} 31 * ? *)",
        ),
    ),
    (
        5,
        (
            "cron({m} {h} 1,15,L * ? {year}-2030)",
            "cron({m} {h} 1 1/3 ? {year}/2)",
            "cron({m} {h} 31 4 ? *)",
        ),
    ),
    (5, ("at({year}-{month:02}-{d:02}T{night:02}:{m:02}:30)",)),
)


class Simulated(Struct):
    """A schedule, when it was switched on and off, its true due times, and what became of them."""

    schedule: Schedule
    switched_off_ns: tuple[int, int] | None = None
    due_ns: list[int] = field(default_factory=list)
    fates: dict[int, str] = field(default_factory=dict)
    tasks: list[StartedTask] = field(default_factory=list)

    def at(self, now_ns: int) -> Schedule | None:
        """The schedule as AWS returns it at a moment, if it exists."""
        if now_ns < (self.schedule.created_ns or 0):
            return None
        if self.switched_off_ns is None or now_ns < self.switched_off_ns[0]:
            return self.schedule
        is_off = now_ns < self.switched_off_ns[1]
        return replace(
            self.schedule,
            is_enabled=not is_off,
            modified_ns=self.switched_off_ns[0 if is_off else 1],
        )

    def runs_at(self, moment_ns: int) -> bool:
        """Whether AWS starts what is due at a moment."""
        schedule = self.schedule
        if moment_ns < (schedule.created_ns or 0):
            return False
        if (
            self.switched_off_ns is not None
            and self.switched_off_ns[0] <= moment_ns < self.switched_off_ns[1]
        ):
            return False
        if schedule.expression.startswith("at"):
            return True
        return (schedule.starts_ns or 0) <= moment_ns <= (schedule.ends_ns or 2**63)


def simulate(
    count: int, since: datetime, until: datetime, randomness: random.Random
) -> list[Simulated]:
    """Schedules with their true due times, fates and tasks."""
    simulated = [_simulated(number, since, until, randomness) for number in range(count)]
    _set_due_times(simulated, since, until)
    windows: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for one in simulated:
        length_ns = one.schedule.window_minutes * MINUTE_NS + MINUTE_NS
        windows.setdefault(look(one.schedule), []).extend(
            (due_ns, due_ns + length_ns) for due_ns in one.due_ns
        )
    for own in windows.values():
        own.sort()
    quiet_until: dict[tuple[str, ...], int] = {}
    everything = sorted(
        (due_ns, number) for number, one in enumerate(simulated) for due_ns in one.due_ns
    )
    following = [dict(pairwise(one.due_ns)) for one in simulated]
    for due_ns, number in everything:
        one = simulated[number]
        same = look(one.schedule)
        gap_ns = following[number].get(due_ns, due_ns + 24 * HOUR_NS) - due_ns
        fate = "in time"
        is_quiet = (
            quiet_until.get(same, in_ns(since) + _QUIET_NS) < due_ns < in_ns(until) - _QUIET_NS
        )
        if is_quiet and _is_calm(one, due_ns):
            fate = _fate(one, gap_ns, randomness)
        tasks = [*_tasks(one.schedule, due_ns, gap_ns, fate, randomness)]
        if fate in {"late", "retried"} and _is_mistakable(tasks, due_ns, windows[same]):
            fate = "in time"
            tasks = [*_tasks(one.schedule, due_ns, gap_ns, fate, randomness)]
        if fate != "in time":
            quiet_until[same] = due_ns + _QUIET_NS
        one.fates[due_ns] = fate
        one.tasks.extend(tasks)
    return simulated


def _simulated(
    number: int, since: datetime, until: datetime, randomness: random.Random
) -> Simulated:
    weights = [weight for weight, _ in _EXPRESSIONS]
    kind: ScheduleKind = "rule" if number % 7 == 3 else "schedule"
    (expressions,) = randomness.choices([texts for _, texts in _EXPRESSIONS], weights)
    expression = randomness.choice(expressions).format(
        m=randomness.randrange(60),
        h=randomness.randrange(24),
        night=randomness.randrange(4),
        w=randomness.randint(1, 7),
        d=randomness.randint(1, 28),
        month=randomness.randint(1, 12),
        year=since.year,
    )
    if kind == "rule" and expression.startswith("at"):
        expression = f"cron({randomness.randrange(60)} 2 * * ? *)"
    # ECS stores the first 19 characters of a schedule's name: these look the same, by pairs in
    # their family, too.
    twins = {
        8: ("nightly-report-customer-", "report"),
        9: ("nightly-report-customer-", f"report-{number}"),
    }
    name, family = twins.get(number % 20, ("job-", f"job-{number}"))
    second_ns = randomness.randrange(60) * SECOND_NS
    begin_ns, end_ns = in_ns(since), in_ns(until)
    created_ns = begin_ns - randomness.randint(1, 900) * HOUR_NS + second_ns
    middle_ns = randomness.randint(begin_ns, end_ns) // MINUTE_NS * MINUTE_NS
    starts_ns = ends_ns = None
    change = randomness.randrange(10) if kind == "schedule" else -1
    if change == 0:
        created_ns = middle_ns + second_ns
    elif change == 1:
        starts_ns, ends_ns = min(middle_ns, end_ns - 90 * 24 * HOUR_NS), end_ns - 20 * 24 * HOUR_NS
    is_frequent = "0/15" in expression or "0/5" in expression or "20 minutes" in expression
    if is_frequent and kind == "schedule":
        ends_ns = begin_ns + _FREQUENT_NS
    schedule = Schedule(
        kind=kind,
        name=f"{name}{number}",
        expression=expression,
        time_zone="UTC" if kind == "rule" else ZONES[number % len(ZONES)],
        window_minutes=0
        if kind == "rule" or is_frequent
        else randomness.choice((0, 0, 0, 5, 10, 20)),
        cluster_arn=f"{_ARN}cluster/{'ab'[number // 20 % 2]}",
        definition_arn=f"{_ARN}task-definition/{family}:{number + 1}",
        task_count=2 if number % 25 == 4 else 1,
        created_ns=None if kind == "rule" else created_ns,
        starts_ns=starts_ns,
        ends_ns=ends_ns,
    )
    off = (middle_ns + 31 * SECOND_NS, middle_ns + 40 * 24 * HOUR_NS) if change == 2 else None
    return Simulated(schedule, off)


def _set_due_times(simulated: Sequence[Simulated], since: datetime, until: datetime) -> None:
    for zone in {one.schedule.time_zone for one in simulated}:
        crons: dict[tuple[int, int], list[Simulated]] = {}
        for one in simulated:
            if one.schedule.time_zone == zone and one.schedule.expression.startswith("cron"):
                for time in times_of_day(one.schedule.expression):
                    crons.setdefault(time, []).append(one)
        for moment, local in shown_minutes(zone, since, until):
            for one in crons.get((local.hour, local.minute), ()):
                if names_date(one.schedule.expression, local.date()):
                    one.due_ns.append(in_ns(moment))
    for one in simulated:
        if not one.schedule.expression.startswith("cron"):
            one.due_ns = [in_ns(moment) for moment in _uncommon_times(one.schedule, since, until)]
        one.due_ns = [due_ns for due_ns in one.due_ns if one.runs_at(due_ns)]


def _uncommon_times(schedule: Schedule, since: datetime, until: datetime) -> list[datetime]:
    inner = schedule.expression.partition("(")[2].removesuffix(")")
    if schedule.expression.startswith("at"):
        local = datetime.fromisoformat(inner)
        around = local.replace(tzinfo=UTC, second=0)
        return at_times(
            local, schedule.time_zone, max(since, around - 2 * DAY), min(until, around + 2 * DAY)
        )
    value, unit = inner.split()
    period = int(value) * timedelta(minutes={"m": 1, "h": 60, "d": 1440}[unit[0]])
    anchor_ns = schedule.starts_ns or schedule.created_ns or 0
    return rate_times(_EPOCH + timedelta(microseconds=anchor_ns // 1000), period, since, until)


def _is_calm(one: Simulated, due_ns: int) -> bool:
    """Whether the schedule is not changed about this time."""
    return all(abs(due_ns - moment_ns) > _QUIET_NS for moment_ns in one.switched_off_ns or ())


def _fate(one: Simulated, gap_ns: int, randomness: random.Random) -> str:
    fates = dict(_FATES)
    if one.schedule.task_count == 1:
        del fates["partly missed"]
    if one.schedule.window_minutes * MINUTE_NS + GRACE_NS >= _LATEST_NS:
        del fates["late"]
    if gap_ns > 26 * HOUR_NS:
        del fates["overlapped"]
        fates = {
            name: 10 * share for name, share in fates.items()
        }  # rare runs must fail now and then, too
    place = bisect_right(
        [sum([*fates.values()][: end + 1]) for end in range(len(fates))], randomness.random()
    )
    return [*fates, "in time"][place]


def _is_mistakable(
    tasks: Sequence[StartedTask], due_ns: int, windows: Sequence[tuple[int, int]]
) -> bool:
    """Whether a task was created when another due time starts its own."""
    near = windows[
        bisect_left(windows, (due_ns - HOUR_NS, 0)) : bisect_left(windows, (due_ns + HOUR_NS, 0))
    ]
    return any(
        begin_ns - MINUTE_NS <= task.created_ns <= end_ns
        for task in tasks
        for begin_ns, end_ns in near
        if begin_ns != due_ns
    )


def _tasks(
    schedule: Schedule, due_ns: int, gap_ns: int, fate: str, randomness: random.Random
) -> Iterator[StartedTask]:
    if fate == "missed":
        return
    window_end_ns = due_ns + schedule.window_minutes * MINUTE_NS
    if fate == "late":
        created_ns = (
            window_end_ns
            + GRACE_NS
            + randomness.randint(0, _LATEST_NS - GRACE_NS - window_end_ns + due_ns)
        )
    elif fate == "retried":
        created_ns = window_end_ns + randomness.randint(MINUTE_NS, GRACE_NS - 5 * SECOND_NS)
    else:
        created_ns = randomness.randint(due_ns, window_end_ns) + randomness.randrange(MINUTE_NS)
    length_ns = int(min(40 * MINUTE_NS, gap_ns * 0.3) * randomness.uniform(0.02, 1))
    if fate == "overlapped":
        length_ns = int(gap_ns * 1.2) + schedule.window_minutes * MINUTE_NS + 2 * MINUTE_NS
    elif fate == "refused":
        length_ns = randomness.randint(10, 300) * SECOND_NS
    for number in range(1 if fate == "partly missed" else schedule.task_count):
        yield StartedTask(
            arn=f"{_ARN}task/{schedule.name}/{due_ns}-{number}",
            family=_family(schedule),
            started_by=_started_by(schedule),
            created_ns=created_ns + number * SECOND_NS,
            stopped_ns=created_ns + length_ns + number * SECOND_NS,
            stop_code="TaskFailedToStart" if fate == "refused" else "EssentialContainerExited",
            stopped_reason="CannotPullContainerError" if fate == "refused" else None,
        )


def look(schedule: Schedule) -> tuple[str, str, str]:
    """What is the same for schedules whose tasks cannot be distinguished."""
    return schedule.cluster_arn, _family(schedule), _started_by(schedule)


def _family(schedule: Schedule) -> str:
    return schedule.definition_arn.split("/")[1].split(":")[0]


def _started_by(schedule: Schedule) -> str:
    return (
        f"{'chronos-schedule' if schedule.kind == 'schedule' else 'events-rule'}/{schedule.name}"[
            :36
        ]
    )
