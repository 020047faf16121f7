"""A schedule that starts ECS tasks, the tasks that it has started, and what became of a due time."""

from typing import Literal

from msgspec import Struct

ScheduleKind = Literal["schedule", "rule"]
# ``refused``: AWS did not start the task. ``due``: within the grace period or the window. ``none``: nothing was due.
DueOutcome = Literal["ran", "missed", "late", "refused", "overlapped", "running", "disabled", "due", "none", "unknown"]


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule of EventBridge Scheduler in its group, or a rule of EventBridge on its event bus.

    ``expression`` is ``cron(…)``, ``rate(…)`` or ``at(…)``, ``time_zone`` an IANA name (UTC for rules).
    ``window_minutes`` is the flexible time window, which begins at each due time. The other values are
    known from ``modified_ns``, the last change, on. It and ``created_ns`` are None for a rule: AWS does not return
    them. ``definition_arn`` is a family or a revision, ``task_count`` how many tasks each due time starts, and
    ``dead_letter_arn`` the queue of the invocations that failed.
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

    ``tasks`` None: they could not be read, and ``problem`` is why. Every task that stopped after ``known_since_ns``, or
    still runs, is among them.
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
