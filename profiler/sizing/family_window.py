"""What a time of a family's runs shows, in memory that hardly grows with their number.

The order in which runs are added does not matter, and windows of parts of the runs can be merged.
A run takes 64 bits, by which its repeated line is known; what else is kept is bounded.
"""

import heapq
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from profiler.core.ecs_terms import FARGATE, revision_number
from profiler.core.kept_items import HighestRanked
from profiler.core.timestamps import NS_PER_DAY
from profiler.record.family_owner import FamilyOwner, owner_of_run
from profiler.record.family_statistics import WINDOW_DAYS
from profiler.record.record_model import TaskSize
from profiler.record.task_needs import task_size_of
from profiler.sizing.fargate_sizes import LEGAL_SIZES, whole_size
from profiler.sizing.run_counts import RunCounts, limits_of_containers
from profiler.sizing.run_facts import RunFacts
from profiler.sizing.runs_at_size import RunsAtSize
from profiler.sizing.slowdown_factors import Factors

MIN_RUNS: Final = 20
# Older revisions are counted together.
REVISIONS: Final = 100
OLDER_REVISIONS: Final = ""
_SIZES: Final = 100
_LEGAL_SIZES: Final = frozenset(LEGAL_SIZES)


class WindowSpan(Struct, frozen=True, kw_only=True):
    """The runs that count: those of the last ``days``, and the newest ``min_runs`` of a family
    that has fewer.
    """

    now_ns: int
    days: int = WINDOW_DAYS
    min_runs: int = MIN_RUNS

    @property
    def since_ns(self) -> int:
        return self.now_ns - self.days * NS_PER_DAY


class FamilyWindow:
    """The runs of one family within a span of time.

    A repeated run is ignored. A run that nobody vouches for is counted in ``unconfirmed``, and
    changes nothing else. ``sizes`` has the runs of one launch type, which judge a size: on Fargate,
    which has prices, or for jobs of AWS Batch on EC2, whose memory is limited there, too.
    ``elsewhere`` has the others, of which only the needs and the kills count. ``is_counted``: only
    the runs that decide on the task's need were added one by one, so that the largest memory of a
    container without a report may be missing. ``add_newest_before_span`` comes after the last run.

    The runs of Container Insights are never mixed with those of reports: ``by_minute`` counts those
    that are left out. They can only forbid a size: by ``used_by_minute_mb``, the largest mean of a
    minute, and ``killed_by_minute_mb``, the largest size at which ECS says that one was killed; 0
    without. ``is_by_minute``: there are no others. Until the end, they are in ``minutes``.
    """

    def __init__(self, span: WindowSpan, launch_type: str = FARGATE) -> None:
        self.span = span
        self.launch_type = launch_type
        # Unconfirmed runs whose peak is below the one that task_stopped has read.
        self.contradicted = 0
        self.sizes: dict[TaskSize, RunsAtSize] = {}
        self.elsewhere: dict[TaskSize, RunsAtSize] = {}
        self.by_minute = 0
        self.used_by_minute_mb = 0.0
        self.killed_by_minute_mb = 0.0
        self.is_by_minute = False
        self.minutes: FamilyWindow | None = None
        self.older: HighestRanked[RunFacts] = HighestRanked(span.min_runs)
        self.identities: set[int] = set()
        self.unconfirmed = 0
        self.is_counted = False
        # The service that starts its runs.
        self.owner: FamilyOwner | None = None
        # A heap: the lowest of the newest revisions is first.
        self._revisions: list[int] = []

    @property
    def deciding_counts(self) -> RunCounts:
        """The counts of the runs on Fargate; of the others if there is none."""
        total = RunCounts()
        for runs in (self.sizes or self.elsewhere).values():
            total.merge(runs.counts)
        return total

    @property
    def task_count_elsewhere(self) -> int:
        """The tasks outside Fargate, beside those on Fargate."""
        if not self.sizes:
            return 0
        return sum(runs.counts.task_count for runs in self.elsewhere.values())

    def runs_at_all_sizes(self) -> Iterator[tuple[TaskSize, RunsAtSize]]:
        """The runs at each size, on Fargate and elsewhere."""
        yield from self.sizes.items()
        yield from self.elsewhere.items()

    def add_run(self, run: RunFacts) -> None:
        """Add a run, in any order."""
        if not run.is_confirmed:
            self.unconfirmed += run.began_ns >= self.span.since_ns
            return
        self.owner = self.owner or owner_of_run(run.record)
        if run.record.is_sampled_each_minute and not self.is_by_minute:
            self._insights_window().add_run(run)
            return
        identity = _run_digest(run)
        if run.began_ns < self.span.since_ns:
            self.older.add(run.began_ns, identity, run)
            return
        if identity in self.identities:
            return
        self.identities.add(identity)
        self._count_run(identity, run)

    def add_counted_run(self, run: RunFacts, *, is_sampled: bool = True) -> None:
        """Add a run that :meth:`add_counts` counts, because it may decide.

        ``is_sampled``: it was not chosen for its values.
        """
        self.owner = self.owner or owner_of_run(run.record)
        at_size = self._runs_at_size_of(run)
        at_size.keep_if_deciding(_run_digest(run), run, is_sampled=is_sampled)
        of_revision = at_size.runs_of_revision(self._known_revision(run.record.revision or ""))
        for container, limit_mb in limits_of_containers(run.record):
            if container != run.record.container.name:
                of_revision.add_limit(container, limit_mb)

    def add_slowdowns(
        self, size: TaskSize, bounds: Factors, *, launch_type: str | None = FARGATE
    ) -> None:
        """Add the largest slowdowns of the runs at a size that :meth:`add_counts` counts."""
        if size.vcpu is not None:
            self._runs_at_size(size, launch_type).add_largest_slowdowns(size.vcpu, bounds)

    def add_longest_success(
        self, size: TaskSize, began_ns: int, duration_ms: float, *, launch_type: str | None
    ) -> None:
        """Add the longest success of an hour, of the runs that :meth:`add_counts` counts."""
        self._runs_at_size(size, launch_type).add_longest_success(began_ns, duration_ms)

    def add_container_limit(
        self,
        revision: str,
        size: TaskSize,
        container: str,
        limit_mb: float | None,
        *,
        launch_type: str | None,
    ) -> None:
        """Add the limit of a container's runs that :meth:`add_counts` counts."""
        runs = self._runs_at_size(size, launch_type).runs_of_revision(
            self._known_revision(revision)
        )
        runs.add_limit(container, limit_mb)

    def add_counts(
        self,
        revision: str,
        size: TaskSize,
        counts: RunCounts,
        durations_ms: Iterable[float] = (),
        *,
        launch_type: str | None = FARGATE,
    ) -> None:
        """Add counts of runs that are not added one by one.

        ``durations_ms`` is a sample of the successes' durations, or their percentiles.
        """
        self.is_counted = True
        runs = self._runs_at_size(size, launch_type).runs_of_revision(
            self._known_revision(revision)
        )
        runs.counts.merge(counts)
        for number, duration_ms in enumerate(durations_ms):
            runs.durations_ms.add(number, number, duration_ms)

    def merge(self, other: "FamilyWindow") -> None:
        """Add the runs of another window of the same span, which has other runs."""
        self.owner = self.owner or other.owner
        if other.is_by_minute is not self.is_by_minute and not other.is_empty:
            if not self.is_empty and other.is_by_minute:
                self._leave_out_insights_runs(other)
                return
            if not self.is_empty:
                self._leave_out_insights_runs(self)
                self.sizes = {}
                self.elsewhere = {}
            self.is_by_minute = other.is_by_minute
        for mine, others in ((self.sizes, other.sizes), (self.elsewhere, other.elsewhere)):
            for size, runs in others.items():
                for revision in runs.revisions:
                    self._known_revision(revision)
                mine.setdefault(size, RunsAtSize()).merge(runs)
        self._fold_revisions()
        self.older.merge(other.older)
        self.identities |= other.identities
        self.unconfirmed += other.unconfirmed
        self.contradicted += other.contradicted
        self.by_minute += other.by_minute
        self._keep_memory_needs(other.used_by_minute_mb, other.killed_by_minute_mb)
        self.is_counted = self.is_counted or other.is_counted
        if other.minutes is not None:
            self._insights_window().merge(other.minutes)

    def _leave_out_insights_runs(self, minutes: "FamilyWindow") -> None:
        """Leave the runs of a window of Container Insights out, but for what they forbid."""
        self.by_minute += minutes.deciding_counts.task_count
        for size, runs in minutes.runs_at_all_sizes():
            used_mb = max((run.needed_memory_mb or 0 for run in runs.deciding_runs()), default=0)
            killed_mb = size.memory_mb if runs.counts.counts_by_outcome["killed"] else 0
            self._keep_memory_needs(used_mb, killed_mb or 0)

    def _keep_memory_needs(self, used_mb: float, killed_mb: float) -> None:
        self.used_by_minute_mb = max(self.used_by_minute_mb, used_mb)
        self.killed_by_minute_mb = max(self.killed_by_minute_mb, killed_mb)

    def runs_at(self, size: TaskSize) -> RunsAtSize:
        """The runs at a size, of the launch type that judges it; none at another one."""
        return self.sizes.get(size) or RunsAtSize()

    @property
    def is_empty(self) -> bool:
        return not (self.sizes or self.elsewhere)

    def add_newest_before_span(self) -> None:
        """Add the newest runs from before the span, if it has fewer than ``min_runs``. Without a
        run of a report, those of Container Insights are the window.
        """
        missing = self.span.min_runs - self.deciding_counts.task_count
        older = sorted(self.older, key=lambda item: (item[1].began_ns, item[0]))
        if missing > 0:
            for identity, run in older[-missing:]:
                self._count_run(identity, run)
        self.older = HighestRanked(self.span.min_runs)
        minutes = self.minutes
        self.minutes = None
        if minutes is not None:
            minutes.add_newest_before_span()
            self.merge(minutes)

    def _insights_window(self) -> "FamilyWindow":
        if self.minutes is None:
            self.minutes = FamilyWindow(self.span, self.launch_type)
            self.minutes.is_by_minute = True
        return self.minutes

    def _count_run(self, identity: int, run: RunFacts) -> None:
        record = run.record
        at_size = self._runs_at_size_of(run)
        of_revision = at_size.runs_of_revision(self._known_revision(record.revision or ""))
        of_revision.counts.count_run(run)
        of_revision.add_duration(identity, run)
        for container, limit_mb in limits_of_containers(record):
            of_revision.add_limit(container, limit_mb)
        at_size.keep_if_deciding(identity, run)

    def _runs_at_size_of(self, run: RunFacts) -> RunsAtSize:
        return self._runs_at_size(task_size_of(run.record), run.record.launch_type)

    def _runs_at_size(self, size: TaskSize, launch_type: str | None) -> RunsAtSize:
        """The runs at a size; those at sizes that Fargate does not have are together, and on EC2,
        where any size is possible, those at further sizes than a family has.
        """
        sizes = self.sizes if launch_type == self.launch_type else self.elsewhere
        whole = whole_size(size)
        if FARGATE in (self.launch_type, launch_type):
            is_own = whole in _LEGAL_SIZES
        else:
            is_own = whole is not None and (size in sizes or len(sizes) < _SIZES)
        return sizes.setdefault(size if is_own else TaskSize(), RunsAtSize())

    def _known_revision(self, revision: str) -> str:
        """The revision, if it is one of the newest."""
        number = revision_number(revision)
        if number is None:
            return OLDER_REVISIONS
        if number in self._revisions:
            return revision
        if len(self._revisions) < REVISIONS:
            heapq.heappush(self._revisions, number)
            return revision
        if number < self._revisions[0]:
            return OLDER_REVISIONS
        heapq.heapreplace(self._revisions, number)
        self._fold_revisions()
        return revision

    def _fold_revisions(self) -> None:
        """Count the revisions that are no longer among the newest together."""
        kept = {str(number) for number in self._revisions}
        for _, runs in self.runs_at_all_sizes():
            for revision in list(runs.revisions):
                if revision not in kept and revision != OLDER_REVISIONS:
                    runs.runs_of_revision(OLDER_REVISIONS).merge(runs.revisions.pop(revision))


def _run_digest(run: RunFacts) -> int:
    """64 bits of a digest, which is the same in every process: samples do not change."""
    digest = blake2b("\0".join(run.container_key).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")
