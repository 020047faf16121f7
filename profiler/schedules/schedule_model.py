"""A schedule that starts ECS tasks, the tasks that it has started, and what became of a due time."""

from typing import Literal

from msgspec import Struct

ScheduleKind = Literal["schedule", "rule"]
# ``refused``: AWS did not start the task. ``due``: within the grace period or the window. ``none``: nothing was due.
DueOutcome = Literal["ran", "missed", "late", "refused", "overlapped", "running", "disabled", "due", "none", "unknown"]


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule of EventBridge Scheduler in its group, or a rule of EventBridge on its event bus.

    Attributes:
        kind: Which of the two.
        name: Its name.
        group: The schedule group, or the event bus.
        expression: ``cron(…)``, ``rate(…)`` or ``at(…)``.
        time_zone: The IANA name of the time zone; rules are in UTC.
        is_enabled: False for a disabled one.
        window_minutes: The flexible time window, which begins at each due time.
        created_ns: Its creation; None for a rule, whose creation AWS does not return.
        modified_ns: Its last change, from which on the other values are known; None for a rule.
        starts_ns: The start date, if it has one.
        ends_ns: The end date, if it has one.
        cluster_arn: The ECS cluster in which it starts tasks.
        definition_arn: The task definition that it starts: a family, or a revision.
        task_count: How many tasks each due time starts.
        dead_letter_arn: The queue of the invocations that failed, if it has one.
    """

    kind: ScheduleKind
    name: str
    group: str = "default"
    expression: str
    time_zone: str = "UTC"
    is_enabled: bool = True
    window_minutes: int = 0
    created_ns: int | None = None
    modified_ns: int | None = None
    starts_ns: int | None = None
    ends_ns: int | None = None
    cluster_arn: str
    definition_arn: str
    task_count: int = 1
    dead_letter_arn: str | None = None


class StartedTask(Struct, frozen=True, kw_only=True):
    """A task as ECS shows it. Times are in nanoseconds since 1970; ECS shows a stopped task for an hour."""

    arn: str
    family: str
    started_by: str | None = None
    created_ns: int
    started_ns: int | None = None
    stopped_ns: int | None = None
    exit_code: int | None = None
    stop_code: str | None = None
    stopped_reason: str | None = None


class ClusterTasks(Struct, frozen=True, kw_only=True):
    """The tasks of a cluster.

    Attributes:
        tasks: The tasks; None if they could not be read.
        read_ns: When they were read.
        known_since_ns: Every task that stopped later, or still runs, is among them.
        problem: Why they could not be read, as a sentence.
    """

    tasks: tuple[StartedTask, ...] | None = None
    read_ns: int = 0
    known_since_ns: int = 0
    problem: str | None = None


class DueTime(Struct, frozen=True, kw_only=True):
    """The outcome of one due time of a schedule. ``reason`` is a sentence; ``task`` is the task that it started."""

    due_ns: int
    outcome: DueOutcome
    reason: str | None = None
    task: StartedTask | None = None
