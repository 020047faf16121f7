"""The watching of schedules: fakes of AWS, of the channels and of the table; times in minutes
after a midnight.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError
from msgspec.structs import replace

from profiler.aws_account.eventbridge_calls import FoundSchedules
from profiler.aws_account.missed_reasons import MissedReasonFinder
from profiler.core.timestamps import format_ms
from profiler.forwarder.family_runs import FamilyDurations
from profiler.forwarder.function_settings import ALL_SUBJECTS, NoticeSettings, Subject
from profiler.forwarder.invocation import DeliveryError, ForwarderError, NoticeError, ReadError
from profiler.forwarder.schedule_watch import ScheduleNotifier, ScheduleWatch
from profiler.record.family_statistics import UsualDuration
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.schedules.due_outcomes import KEPT_NS
from profiler.schedules.remembered_tasks import EndedScheduleMemory, RuleMemory, TaskMemory
from profiler.schedules.schedule_model import ReadTasks, Schedule, StartedTask
from tests.cases import each_case
from tests.due_times import CLUSTER, at, schedule, task
from tests.notices import KeyTable, fake_channel
from tests.scheduled_account import FakeCloudTrail, event, run_task

OTHER = CLUSTER.replace("jobs", "other")
QUEUE = "arn:aws:batch:eu-west-1:123456789012:job-queue/nights"


class UnreadableTrail(FakeCloudTrail):
    """CloudTrail that throttles."""

    asked = 0

    def lookup_events(self, **given: Any) -> dict[str, Any]:
        self.asked += 1
        raise ClientError(
            {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, "LookupEvents"
        )


class WatchedSchedules:
    """Everything that ScheduleWatch uses."""

    def __init__(self, *schedules: Schedule) -> None:
        self.schedules = list(schedules)
        self.tasks: list[StartedTask] = []
        self.problems: tuple[str, ...] = ()
        self.unread = 0
        self.broken: dict[str, str] = {}
        self.gone: set[str] = set()
        self.trail = FakeCloudTrail()
        self.channels = [fake_channel("slack", "failure"), fake_channel("event-bus", "failure")]
        self.stored: list[ScheduleNoticeLine] = []
        self.table = KeyTable()
        self.finished: set[str] = set()
        self.memory = TaskMemory()
        self.rules = RuleMemory()
        self.ended = EndedScheduleMemory()
        self.durations: FamilyDurations | None = None
        self.searches: list[Collection[str]] = []
        self.search_error: ForwarderError | None = None
        self.settings = NoticeSettings()
        self.clusters_left = self.notices_left = 1000
        self.place = CLUSTER
        self.read: list[str] = []  # the clusters and queues

    def look(self, now: float) -> dict[str, int]:
        """One invocation. Returns the counts that are not 0."""
        watch = ScheduleWatch(
            schedules=lambda: FoundSchedules(
                schedules=tuple(self.schedules), problems=self.problems, unread=self.unread
            ),
            tasks=self._read,
            remember=self.memory.remember_tasks,
            rules=self.rules,
            ended=self.ended,
            reasons=MissedReasonFinder(lambda _service: self.trail, pause=lambda _seconds: None),
            usual=None if self.durations is None else self._usual,
            notifier=ScheduleNotifier(
                self.settings, self.channels, self.table.once, self.stored.append, self.finished
            ),
            grace_minutes=15,
            now_ns=at(now),
            may_read=lambda: self._count("clusters_left"),
            may_notify=lambda: self._count("notices_left"),
        )
        return {
            name: count
            for name, count in watch.judge_and_notify().items()
            if count and name != "schedules"
        }

    @property
    def slack(self) -> list[str]:
        return [line.notice.kind for line in self.channels[0].posted]

    def _read(self, arn: str, schedules: Sequence[Schedule], now_ns: int) -> ReadTasks:
        assert {one.cluster_arn for one in schedules} == {arn}
        self.read.append(arn)
        if arn in self.broken:
            return ReadTasks(problem=self.broken[arn])
        if arn in self.gone:
            return ReadTasks(problem="There is no such cluster.", is_gone=True)
        since_ns = now_ns - KEPT_NS
        known = [
            one
            for one in self.tasks
            if one.created_ns <= now_ns and (one.stopped_ns or now_ns) > since_ns
        ]
        shown = [
            replace(one, stopped_ns=None) if (one.stopped_ns or 0) > now_ns else one
            for one in known
        ]
        return ReadTasks(tasks=tuple(shown), read_ns=now_ns, known_since_ns=since_ns)

    def _usual(self, families: Collection[str], place: str) -> FamilyDurations:
        assert place == self.place
        self.searches.append(families)
        if self.search_error is not None:
            raise self.search_error
        return self.durations or {}

    def _count(self, name: str) -> bool:
        left = getattr(self, name)
        setattr(self, name, left - 1)
        return bool(left > 0)


def test_a_due_time_is_missed_after_the_grace_and_sent_once() -> None:
    fakes = WatchedSchedules(schedule())
    fakes.tasks = [task(-60, -50), task(0.2, 10)]
    assert [fakes.look(now) for now in (55, 62, 74.9)] == [{}] * 3
    assert fakes.look(75.2) == {"missed": 1}
    assert [fakes.look(now) for now in (80, 85, 90, 119, 134)] == [{}] * 5
    (line,) = fakes.channels[1].posted
    assert (
        line.notice.message
        == "nightly was due on 2026-11-20 at 01:00 UTC, and no task had started by 01:15 UTC."
    )
    assert line.notice.due_at == "2026-11-20T01:00:00.000Z"
    assert line.notice.reason is None
    assert line.notice.task_id is None
    assert line.schedule.kind == "schedule"
    assert line.schedule.group == "default"
    assert line.schedule.name == "nightly"
    assert line.cluster == "jobs"
    assert line.family == "etl"
    assert line.region == "eu-west-1"
    assert line.account_id == "123456789012"
    assert fakes.stored == fakes.channels[0].posted == [line]
    assert fakes.look(135.1) == {"missed": 1}


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_due_time_of_a_deleted_cluster_is_missed_and_no_error(*, is_cold: bool) -> None:
    """Also if another process of the function missed the cluster first. A due time before that is
    unknown: its task may have run.
    """
    fakes = WatchedSchedules(schedule())
    fakes.gone = {CLUSTER}
    assert [fakes.look(now) for now in (30, 55)] == [{}, {}]
    if is_cold:
        fakes.memory = TaskMemory()
    assert fakes.look(76) == {"missed": 1}
    (line,) = fakes.stored
    assert line.notice.message == (
        "nightly was due on 2026-11-20 at 01:00 UTC, and no task had started by 01:15 UTC. "
        "The cluster jobs does not exist."
    )
    assert fakes.look(80) == {}


def test_a_cluster_that_is_missed_at_midnight_stays_missed() -> None:
    """Due at midnight, missed a quarter of an hour later."""
    fakes = WatchedSchedules(schedule())
    fakes.gone = {CLUSTER}
    assert [fakes.look(now) for now in (-10, -5, 0.5, 5)] == [{}] * 4
    assert fakes.look(16) == {"missed": 1}


def test_a_cluster_that_is_back_has_missed_what_was_due_meanwhile() -> None:
    fakes = WatchedSchedules(schedule())
    fakes.gone = {CLUSTER}
    assert [fakes.look(now) for now in (55, 60.5, 65)] == [{}] * 3
    fakes.gone = set()
    fakes.tasks = [task(120.2, 125)]
    assert fakes.look(70) == {}
    assert fakes.look(76) == {"missed": 1}
    assert fakes.look(140) == {}


def test_each_target_of_a_rule_is_in_the_notice_of_its_due_time() -> None:
    """A rule has up to five targets; one that ran, or is late, is not among those that did not."""
    targets = [schedule(kind="rule", family=family) for family in ("b", "a", "ran", "late")]
    fakes = WatchedSchedules(*targets)
    starter = "events-rule/nightly"
    fakes.tasks = [
        *(task(n / 10, 1, by=starter, family=one.family) for n, one in enumerate(targets)),
        task(60, 61, by=starter, family="ran"),
        task(77, 90, by=starter, family="late"),
    ]
    failures = [
        run_task(format_ms(at(60)), family=one, failure=f"NO_{one}", started_by=starter)
        for one in ("a", "b", "late")
    ]
    fakes.trail.events = failures
    fakes.look(40)
    assert fakes.look(80) == {"missed": 1, "late": 1}
    missed, late = fakes.channels[0].posted
    assert (missed.family, late.family) == ("a, b", "late")
    assert "RunTask started no task: NO_b. RunTask started no task: NO_a." in missed.notice.message
    assert fakes.stored == [missed, late]
    fakes.settings = NoticeSettings(families=("a",))
    assert fakes.look(85) == {}


def once(minutes: int, **values: Any) -> Schedule:
    """A schedule that is due once, and that AWS deletes then."""
    expression = f"at({format_ms(at(minutes)).partition('.')[0]})"
    return schedule(expression=expression, is_deleted_at_end=True, **values)


def deletion(minutes: float, name: str = "DeleteSchedule", **fields: Any) -> dict[str, Any]:
    request = {"name": "nightly"} | fields.pop("request", {})
    address = {"sourceIPAddress": "198.51.100.7"}
    return event(name, format_ms(at(minutes)), request, **address | fields)


def test_a_schedule_that_aws_deletes_after_its_due_time_is_missed() -> None:
    """AWS deletes it at once if its role may not start the task."""
    fakes = WatchedSchedules(once(60), schedule("other", family="other"))
    fakes.tasks = [task(60, 61, by="chronos-schedule/other", family="other")]
    assert fakes.look(58) == {}
    del fakes.schedules[0]
    call = run_task(format_ms(at(60)), family="etl", failure="AGENT")
    fakes.trail.events = [call]
    assert [fakes.look(minute) for minute in (63, 74)] == [{}, {}]
    assert [fakes.look(minute) for minute in (76, 81)] == [{"missed": 1}, {}]
    (line,) = fakes.channels[0].posted
    assert line.notice.next_due_at is None
    assert "RunTask started no task: AGENT" in line.notice.message


def test_a_schedule_that_aws_deletes_after_its_run_has_run() -> None:
    fakes = WatchedSchedules(once(60))
    fakes.look(58)
    fakes.schedules.clear()
    fakes.tasks = [task(60.5, 100)]
    assert [fakes.look(minute) for minute in (63, 76, 90)] == [{}] * 3
    assert fakes.trail.requests == []


@each_case(
    ("call", "is_missed"),
    [
        (deletion(59), False),
        (deletion(59, request={"groupName": "default"}), False),
        (deletion(59, "DeleteScheduleGroup", request={"name": "default"}), False),
        (deletion(59, "DeleteScheduleGroup", request={"name": "other"}), True),
        (deletion(59, request={"groupName": "other"}), True),
        (deletion(59, request={"name": "weekly"}), True),
        (deletion(59, errorCode="AccessDenied"), True),
        (deletion(60, sourceIPAddress="scheduler.amazonaws.com"), True),
        (deletion(50), True),  # of an earlier one with its name
    ],
)
def test_a_schedule_that_somebody_deleted_before_it_was_due_is_not_missed(
    call: dict[str, Any],
    is_missed: bool,  # noqa: FBT001
) -> None:
    fakes = WatchedSchedules(once(60))
    fakes.look(58)
    fakes.schedules.clear()
    fakes.trail.events = [call]
    assert fakes.look(80) == ({"missed": 1} if is_missed else {})


def test_a_schedule_that_is_missing_before_it_is_due_was_deleted() -> None:
    """Nothing is asked. If the schedules could not be listed, it may be there."""
    for problems, is_missed in (((), False), (("They could not be listed.",), True)):
        fakes = WatchedSchedules(once(60))
        fakes.look(50)
        fakes.schedules.clear()
        fakes.problems = problems
        with suppress(ReadError):
            fakes.look(55)
        fakes.problems = ()
        assert fakes.look(80) == ({"missed": 1} if is_missed else {})
        assert bool(fakes.trail.requests) == is_missed


def test_without_cloudtrail_it_is_unknown_whether_a_deleted_schedule_was_missed() -> None:
    fakes = WatchedSchedules(once(60))
    fakes.look(58)
    fakes.schedules.clear()
    fakes.trail = UnreadableTrail()
    with pytest.raises(ReadError, match="unknown whether nightly was missed"):
        fakes.look(80)
    assert fakes.slack == []


def test_a_schedule_that_aws_keeps_and_somebody_deletes_is_not_remembered() -> None:
    fakes = WatchedSchedules(replace(once(60), is_deleted_at_end=False))
    fakes.look(62)
    fakes.schedules.clear()
    assert fakes.look(80) == {}


def test_the_reason_is_asked_for_once() -> None:
    fakes = WatchedSchedules(schedule())
    full = {"failure": "RESOURCE:MEMORY", "family": "etl", "started_by": "chronos-schedule/nightly"}
    fakes.trail.events.append(run_task("2026-11-20T01:00:30Z", **full))
    assert [fakes.look(now) for now in (76, 81, 86)] == [{"missed": 1}, {}, {}]
    (line,) = fakes.channels[0].posted
    assert line.notice.reason == "RunTask started no task: RESOURCE:MEMORY."
    assert line.notice.message.endswith(
        "had started by 01:15 UTC. RunTask started no task: RESOURCE:MEMORY."
    )
    assert len(fakes.trail.requests) == 1


def test_a_rule_is_missed_only_after_cloudtrail_must_show_its_changes() -> None:
    fakes = WatchedSchedules()
    fakes.look(75)
    fakes.schedules.append(schedule(kind="rule", created_ns=None))
    assert [fakes.look(now) for now in (81, 86, 91, 95)] == [{}] * 4
    fakes.trail.events.append(event("PutRule", "2026-11-20T01:19:00Z", {"name": "nightly"}))
    assert [fakes.look(now) for now in (96, 101, 136)] == [{}, {}, {"missed": 1}]
    fakes.schedules[0] = schedule("nightly", "cron(10 * * * ? *)", kind="rule", created_ns=None)
    fakes.trail.events.append(event("PutRule", "2026-11-20T02:30:00Z", {"name": "nightly"}))
    assert [fakes.look(now) for now in (151, 156, 166, 171)] == [{}] * 4


def test_a_rule_is_not_missed_while_cloudtrail_cannot_be_read() -> None:
    fakes = WatchedSchedules(schedule(kind="rule", created_ns=None), schedule("hourly"))
    readable, fakes.trail = fakes.trail, UnreadableTrail()
    fakes.look(60)
    with pytest.raises(ReadError, match="unknown whether nightly was missed"):
        fakes.look(76)
    assert [line.schedule.name for line in fakes.stored] == ["hourly"]
    fakes.trail = readable
    assert [fakes.look(now) for now in (81, 86)] == [{"missed": 1}, {}]


def test_a_rule_that_was_seen_unchanged_since_before_the_due_time_needs_no_cloudtrail() -> None:
    fakes = WatchedSchedules(
        *(schedule(name, kind="rule", created_ns=None) for name in ("nightly", "weekly"))
    )
    trail = fakes.trail = UnreadableTrail()
    fakes.tasks = [task(0.2, 10, by=f"events-rule/{name}") for name in ("nightly", "weekly")]
    fakes.tasks.append(task(100, 110, by="events-rule/nightly"))
    assert [fakes.look(now) for now in (55, 76, 101)] == [{}, {"missed": 2}, {"late": 1}]
    assert trail.asked == 1  # for the reasons, and after the first error no more


def test_a_late_task_is_sent_also_after_the_missed_run() -> None:
    fakes = WatchedSchedules(schedule())
    fakes.tasks = [task(0.2, 10)]
    assert fakes.look(76) == {"missed": 1}
    fakes.tasks.append(task(100, 110))
    assert [fakes.look(now) for now in (101, 106)] == [{"late": 1}, {}]
    late = (
        "nightly was due on 2026-11-20 at 01:00 UTC. The task started 40m 00s after the due time."
    )
    assert fakes.channels[0].posted[1].notice.message == late


def test_a_task_beside_the_previous_one_is_reported() -> None:
    fakes = WatchedSchedules(schedule())
    fakes.tasks = [task(0.2, arn="arn:task/first"), task(60.2)]
    assert [fakes.look(now) for now in (61, 66)] == [{"overlapped": 1}, {}]
    (line,) = fakes.channels[0].posted
    previous = "The previous run was still running: first of 2026-11-20T00:00:12.000Z."
    assert line.notice.message == f"nightly was due on 2026-11-20 at 01:00 UTC. {previous}"


def test_a_channel_that_fails_gets_the_notice_later_and_alone() -> None:
    fakes = WatchedSchedules(schedule())
    fakes.channels[0].error = NoticeError("slack is broken.")
    for now in (76, 81):
        with pytest.raises(DeliveryError, match=r"^slack is broken\.$"):
            fakes.look(now)
    fakes.channels[0].error = None
    assert [fakes.look(now) for now in (86, 91)] == [{"missed": 1}, {}]
    assert [len(channel.posted) for channel in fakes.channels] == [1, 1]
    assert len(fakes.stored) == 1


def test_a_cluster_that_cannot_be_read_hides_only_its_own_schedules() -> None:
    fakes = WatchedSchedules(schedule("a", cluster_arn=OTHER), schedule("b", cluster_arn=CLUSTER))
    fakes.broken[OTHER] = "The tasks of the cluster other could not be read: AWS refused."
    with pytest.raises(ReadError, match=r"cluster other"):
        fakes.look(76)
    assert [line.schedule.name for line in fakes.stored] == ["b"]
    fakes.broken.clear()
    assert fakes.look(81) == {"missed": 1}


def test_nothing_is_judged_before_all_schedules_are_read_and_nothing_is_lost() -> None:
    fakes = WatchedSchedules(schedule())
    fakes.unread = 2000
    assert fakes.look(76) == {"unknown": 2000}
    fakes.problems = ("The schedule other could not be read.",)
    with pytest.raises(ReadError, match="other"):
        fakes.look(81)
    assert fakes.slack == []
    fakes.unread = 0
    with pytest.raises(ReadError, match="other"):  # a schedule that cannot be read hides no other
        fakes.look(86)
    assert fakes.slack == ["missed"]


def test_an_expression_that_cannot_be_read_is_counted() -> None:
    rule = schedule("c", "rate(1 hour)", kind="rule", created_ns=None)
    fakes = WatchedSchedules(schedule("a", "cron(oops)"), schedule("b"), rule)
    assert fakes.look(76) == {"unknown": 2, "missed": 1}


def test_what_the_time_does_not_suffice_for_is_done_later() -> None:
    fakes = WatchedSchedules(
        *(
            schedule(name, cluster_arn=arn)
            for name, arn in (("a", CLUSTER), ("b", OTHER), ("c", CLUSTER))
        )
    )
    fakes.clusters_left = 1
    with pytest.raises(ReadError, match="increase the function's timeout"):
        fakes.look(76)
    assert fakes.slack == ["missed"] * 2
    fakes.clusters_left, fakes.notices_left = 1000, 1
    with pytest.raises(DeliveryError, match="the next one continues"):
        fakes.look(81)
    fakes.notices_left = 1000
    assert fakes.look(86) == {"missed": 1}
    assert [line.schedule.name for line in fakes.stored] == ["a", "c", "b"]


@pytest.mark.parametrize(
    ("subjects", "families", "sent"),
    [
        (ALL_SUBJECTS, (), ["overlapped", "missed", "slow"]),
        (frozenset({"failure"}), (), ["overlapped", "missed"]),
        (frozenset({"running"}), (), ["slow"]),
        (ALL_SUBJECTS, ("other-*",), []),
    ],
)
def test_notify_selects_what_is_sent_but_all_is_stored(
    subjects: frozenset[Subject], families: tuple[str, ...], sent: list[str]
) -> None:
    fakes = slow_world(60_000)
    fakes.tasks.append(task(60.2))
    fakes.settings = NoticeSettings(subjects=subjects, families=families)
    fakes.look(136)
    assert fakes.slack == sent
    assert [line.notice.kind for line in fakes.stored] == ["overlapped", "missed", "slow"]


def test_a_search_that_fails_hides_no_missed_run() -> None:
    fakes = slow_world(60_000)
    fakes.schedules.append(schedule("other"))
    fakes.search_error = DeliveryError("Elasticsearch answered HTTP 503.")
    with pytest.raises(DeliveryError, match="503"):
        fakes.look(40)
    assert fakes.slack == ["missed"]


def slow_world(p95_ms: float) -> WatchedSchedules:
    fakes = WatchedSchedules(schedule())
    fakes.durations = {("etl", "jobs"): UsualDuration(median_ms=p95_ms, p95_ms=p95_ms, runs=40)}
    fakes.tasks = [task(0.2, started_ns=at(1))]
    return fakes


def test_a_task_half_as_long_again_as_others_is_slow_once() -> None:
    """A task that takes half as long again as nearly all others is slow once."""
    fakes = slow_world(20 * 60_000)
    assert [fakes.look(now) for now in (30.9, 31.1, 36)] == [{}, {"slow": 1}, {}]
    (line,) = fakes.channels[0].posted
    usual = "95 % of its family's last 40 successes took at most 20m 00s."
    assert line.notice.message == f"nightly has been running for 30m 06s. {usual}"
    assert line.notice.due_at == "2026-11-20T00:00:00.000Z"
    assert line.notice.task_id == "nightly"


def test_a_long_window_is_judged_while_the_function_is_warm() -> None:
    """ECS has forgotten the task of the window's begin at its end."""
    for tasks, found in (([task(60.5, 61)], []), ([], [60 + 90 + 15])):
        fakes = WatchedSchedules(schedule(window_minutes=90, expression="cron(0 1 * * ? *)"))
        fakes.tasks = tasks
        assert [now for now in range(55, 240, 5) if fakes.look(now)] == found


def of_jobs(name: str = "nightly", **values: Any) -> Schedule:
    """A schedule that submits the job ``load``."""
    return schedule(name, **{"cluster_arn": QUEUE, "job_name": "load"} | values)


def job(created: float, stopped: float | None = None, **values: Any) -> StartedTask:
    of_job = {"by": "", "arn": f"job/{created}", "job_name": "load"}
    return task(created, stopped, **of_job | values)


def test_a_due_time_without_a_job_is_missed() -> None:
    fakes = WatchedSchedules(of_jobs(), schedule())
    fakes.tasks = [job(0.2, 10), task(0.2, 10), task(60.2, 70)]
    assert [fakes.look(now) for now in (62, 74.9)] == [{}] * 2
    assert fakes.look(75.2) == {"missed": 1}
    (line,) = fakes.stored
    assert (
        line.notice.message
        == "nightly was due on 2026-11-20 at 01:00 UTC, and no job was submitted by 01:15 UTC."
    )
    assert (line.cluster, line.queue, line.family) == (None, "nights", "etl")
    assert (line.region, line.account_id) == ("eu-west-1", "123456789012")


def test_jobs_are_late_overlap_and_are_refused_as_tasks_are() -> None:
    fakes = WatchedSchedules(of_jobs())
    fakes.tasks = [job(0.2), job(100)]
    assert fakes.look(101) == {"late": 1}
    late = "The job was submitted 40m 00s after the due time."
    assert fakes.stored[0].notice.message.endswith(late)
    assert fakes.stored[0].notice.task_id == "100"
    fakes.tasks.append(job(120.2))
    assert fakes.look(121) == {"overlapped": 1}


def test_jobs_of_another_name_or_definition_are_others() -> None:
    fakes = WatchedSchedules(of_jobs())
    fakes.tasks = [job(60.2, job_name="another"), job(60.2, family="other")]
    assert fakes.look(76) == {"missed": 1}


def test_jobs_whose_names_change_are_not_looked_for() -> None:
    fakes = WatchedSchedules(of_jobs(job_name="load-<aws.scheduler.execution-id>"))
    assert fakes.look(76) == {"unknown": 1}
    assert fakes.read == []


def test_jobs_that_may_not_be_listed_hide_no_tasks() -> None:
    fakes = WatchedSchedules(of_jobs("a"), schedule("b"))
    fakes.broken[QUEUE] = "The jobs of the queue nights could not be listed: AWS refused."
    with pytest.raises(ReadError, match="queue nights"):
        fakes.look(76)
    assert [line.schedule.name for line in fakes.stored] == ["b"]


def test_a_job_is_slow_against_its_definitions_runs_in_clusters_of_batch() -> None:
    minutes = 60_000
    fakes = WatchedSchedules(of_jobs())
    usual = {"AWSBatch-spot-0a1b2c3d-1111-2222-3333-444455556666": 20, "jobs": 5}
    fakes.durations = {
        ("etl", cluster): UsualDuration(median_ms=p95 * minutes, p95_ms=p95 * minutes, runs=40)
        for cluster, p95 in usual.items()
    }
    fakes.place = QUEUE
    fakes.tasks = [job(0.2, started_ns=at(1))]
    assert [fakes.look(now) for now in (10, 30.9, 31.1)] == [{}, {}, {"slow": 1}]
    assert fakes.stored[0].queue == "nights"
