"""The runs of one revision of a task definition at one size: how many ended how (``RunCounts``),
with a sample of their durations and their containers' memory limits (``RevisionRuns``).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, get_args

from msgspec import Struct, field

from profiler.core.kept_items import HighestRanked
from profiler.core.optional_math import known_values, max_known, min_known
from profiler.record.record_model import Metrics, Record
from profiler.record.task_needs import task_size_of
from profiler.sizing.run_facts import RunFacts

SAMPLED_DURATIONS: Final = 200
_KEPT_LIMITS: Final = 50

Outcome = Literal["success", "killed", "failed", "stopped", "not known"]


def outcome_counted_as(run: RunFacts) -> Outcome:
    """How a run counts.

    Without a known end, it failed. Container Insights never knows the end. One that was stopped by
    a person or Spot is neither a success nor a failure.
    """
    if run.outcome.ran_out_of_memory:
        return "killed"
    if run.outcome.status == "success":
        return "success"
    if run.outcome.status == "stopped":
        return "stopped"
    if run.outcome.status == "unknown" and run.record.is_sampled_each_minute:
        return "not known"
    return "failed"


class RunCounts(Struct, kw_only=True):
    """Counts of runs of one revision at one size, such as a search cluster computes.

    ``ends`` has the number of runs by the container's name and how they ended: each container of a
    task may have a report. ``measured`` and ``killed_unmeasured`` are by the name, too.
    ``first_success_ns`` and ``last_success_ns`` are of measured runs.
    """

    ends: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    measured: Counter[str] = field(default_factory=Counter)
    killed_unmeasured: Counter[str] = field(default_factory=Counter)
    first_ns: int | None = None
    last_ns: int | None = None
    first_success_ns: int | None = None
    last_success_ns: int | None = None

    @property
    def counts_by_outcome(self) -> Counter[Outcome]:
        outcomes: Counter[Outcome] = Counter()
        for (_, outcome), count in self.ends.items():
            outcomes[outcome] += count
        return outcomes

    @property
    def container_names(self) -> frozenset[str]:
        """The names of the containers with a report."""
        return frozenset(name for name, _ in self.ends)

    @property
    def run_count(self) -> int:
        return self.ends.total()

    @property
    def task_count(self) -> int:
        return self.task_count_with(*get_args(Outcome))

    @property
    def ended_task_count(self) -> int:
        """The tasks that succeeded or failed: a stopped one is neither."""
        return self.task_count_with("success", "killed", "failed")

    @property
    def measured_to_end_count(self) -> int:
        """The measured runs that no limit of memory ended."""
        killed = self.counts_by_outcome["killed"] - self.killed_unmeasured.total()
        return max(0, self.measured.total() - killed)

    def task_count_with(self, *outcomes: Outcome) -> int:
        """The tasks that ended so, at least: the largest number of such runs of one container."""
        counts: Counter[str] = Counter()
        for (name, outcome), count in self.ends.items():
            if outcome in outcomes:
                counts[name] += count
        return least_task_count(counts)

    def count_run(self, run: RunFacts) -> None:
        record = run.record
        outcome = outcome_counted_as(run)
        self.ends[record.container.name, outcome] += 1
        self.first_ns = min_known(self.first_ns, run.began_ns)
        self.last_ns = max_known(self.last_ns, run.began_ns)
        if run.is_measured:
            self.measured[record.container.name] += 1
        elif outcome == "killed":
            self.killed_unmeasured[record.container.name] += 1
        if run.is_measured and outcome in ("success", "not known"):
            self.first_success_ns = min_known(self.first_success_ns, run.began_ns)
            self.last_success_ns = max_known(self.last_success_ns, run.began_ns)

    def merge(self, other: "RunCounts") -> None:
        self.ends.update(other.ends)
        self.measured.update(other.measured)
        self.killed_unmeasured.update(other.killed_unmeasured)
        self.first_ns = min_known(self.first_ns, other.first_ns)
        self.last_ns = max_known(self.last_ns, other.last_ns)
        self.first_success_ns = min_known(self.first_success_ns, other.first_success_ns)
        self.last_success_ns = max_known(self.last_success_ns, other.last_success_ns)


def least_task_count(runs: Counter[str]) -> int:
    """The least number of tasks of runs, which are counted by their container's name."""
    return max(runs.values(), default=0)


class RevisionRuns:
    """The runs of one revision at one size: counts, a sample of the successes' durations, and the
    memory limits of each container (None: the task's), by its name.
    """

    def __init__(self) -> None:
        self.counts = RunCounts()
        self.durations_ms: HighestRanked[float] = HighestRanked(SAMPLED_DURATIONS)
        self.limits_mb: dict[str, set[float | None]] = {}

    @property
    def known_durations_ms(self) -> list[float]:
        """The sample, in order."""
        return sorted(self.durations_ms.items())

    def add_duration(self, identity: int, run: RunFacts) -> None:
        """Nothing can be compared with a duration of 0."""
        duration_ms = run.record.metrics.duration_ms
        if duration_ms and outcome_counted_as(run) == "success":
            self.durations_ms.add(identity, identity, duration_ms)

    def add_limit(self, container: str, limit_mb: float | None) -> None:
        """Add a container's limit in a run. Of very many, the largest are kept."""
        limits_mb = self.limits_mb.setdefault(container, set())
        if limit_mb not in limits_mb:
            limits_mb.add(limit_mb)
            if len(limits_mb) > _KEPT_LIMITS:
                limits_mb.remove(min(known_values(limits_mb)))

    def merge(self, other: "RevisionRuns") -> None:
        self.counts.merge(other.counts)
        self.durations_ms.merge(other.durations_ms)
        for container, limits_mb in other.limits_mb.items():
            for limit_mb in limits_mb:
                self.add_limit(container, limit_mb)


def limits_of_containers(record: Record) -> Iterator[tuple[str, float | None]]:
    """The known memory limits of the record's container and of those beside it, by their names;
    None: the task's memory is its limit.
    """
    limits_mb = [(record.container.name, record.metrics.memory_size_mb)]
    for container in record.containers:
        limits_mb.append((container.name, (container.metrics or Metrics()).memory_size_mb))
    task_mb = task_size_of(record).memory_mb
    for name, limit_mb in limits_mb:
        if limit_mb is not None and task_mb is not None and is_container_limit(limit_mb):
            yield name, container_limit_mb(limit_mb, task_mb)


def is_container_limit(limit_mb: float) -> bool:
    """Limits are whole MiB, unlike a machine's memory."""
    return float(limit_mb).is_integer()


def container_limit_mb(limit_mb: float, task_mb: float) -> float | None:
    """A container's limit, if it is below the task's memory, which bounds the others."""
    return limit_mb if limit_mb < task_mb else None
