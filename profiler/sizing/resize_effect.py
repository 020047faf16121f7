"""What became of the last change of a size: the runs since then, compared with those before."""

from statistics import median, quantiles

from msgspec import Struct

from profiler.core.ecs_terms import revision_number
from profiler.core.optional_math import first_known
from profiler.record.record_model import TaskSize
from profiler.record.units import format_count, format_percent
from profiler.sizing.family_window import FamilyWindow
from profiler.sizing.run_counts import RevisionRuns
from profiler.sizing.runs_at_size import RunsAtSize
from profiler.sizing.sized_revision import SizeBefore

MIN_RUNS_OF_DURATION = 5
MIN_SUCCESSES_TO_KEEP = 10
MIN_FAILURES = 2
_MIN_RUNS_BEFORE = 10


class ChangeEffect(Struct, frozen=True, kw_only=True):
    """The runs of a revision at its size, and those before the change at the old size. A task of
    several containers with reports is one run.

    ``size`` is the new one, ``change`` the old one. ``max_slowdown_percent`` is how much longer
    runs may take. ``killed_elsewhere``: runs outside Fargate that were killed at the new size.
    ``overlap``: why a slower run overlaps the next one, in words.
    """

    size: TaskSize
    change: SizeBefore
    own: RevisionRuns
    before: RevisionRuns
    max_slowdown_percent: float
    killed_elsewhere: int = 0
    overlap: str | None = None

    @property
    def gave_more(self) -> bool:
        """Whether the change gave more. At the old size, a limit of a container was raised."""
        has_more = (self.size.memory_mb or 0) > (self.change.size.memory_mb or 0)
        return self.size == self.change.size or has_more

    @property
    def killed_runs(self) -> int:
        return self.own.counts.task_count_with("killed") + self.killed_elsewhere

    @property
    def failed_runs(self) -> int:
        """The runs that failed otherwise: a heap that follows the limit ends with an exit code,
        not with a kill.
        """
        return self.own.counts.task_count_with("failed")

    @property
    def successful_runs(self) -> int:
        return self.own.counts.task_count_with("success")

    @property
    def duration_change_percent(self) -> float | None:
        """The change of the median duration of the successes."""
        then_ms = self.before.known_durations_ms
        now_ms = self.own.known_durations_ms
        if not then_ms or not now_ms:
            return None
        return 100 * (median(now_ms) / median(then_ms) - 1)

    @property
    def why_too_small(self) -> str | None:
        """Why the new size is too small; None if nothing shows it."""
        if self.killed_runs:
            return f"{format_count(self.killed_runs, 'run')} ran out of memory"
        if self._is_slower:
            longer = format_percent(round(self.duration_change_percent or 0))
            return f"runs take {longer} longer"
        return self.overlap or self._why_more_failures()

    @property
    def _is_slower(self) -> bool:
        then_ms = self.before.known_durations_ms
        now_ms = self.own.known_durations_ms
        if self.own.counts.task_count < MIN_RUNS_OF_DURATION or len(then_ms) <= 1 or not now_ms:
            return False
        usual_ms = quantiles(then_ms, n=10, method="inclusive")[-1]
        return median(now_ms) > usual_ms * (1 + self.max_slowdown_percent / 100)

    def _why_more_failures(self) -> str | None:
        ended = self.own.counts.ended_task_count
        ended_before = self.before.counts.ended_task_count
        # Without enough runs before, it is not known what is usual: most runs have to fail.
        is_known = ended_before >= _MIN_RUNS_BEFORE
        least_share = 0.5
        if is_known:
            least_share = 2 * self.before.counts.task_count_with("failed") / ended_before + 0.1
        if self.failed_runs < MIN_FAILURES or self.failed_runs / ended < least_share:
            return None
        failed = f"{self.failed_runs} of {format_count(ended, 'run')} failed"
        if is_known:
            return f"{failed}, which was rarer before"
        return failed


def runs_since(window: FamilyWindow, size: TaskSize, change: SizeBefore) -> RevisionRuns:
    """The runs at a size, of revisions later than the one before a change."""
    return _merged_runs_of_revisions(window.runs_at(size), change, is_after=True)


def killed_elsewhere_since(window: FamilyWindow, size: TaskSize, change: SizeBefore) -> int:
    """The runs outside Fargate that were killed at a size since a change."""
    since = _merged_runs_of_revisions(
        window.elsewhere.get(size) or RunsAtSize(), change, is_after=True
    )
    return since.counts.task_count_with("killed")


def runs_until(window: FamilyWindow, change: SizeBefore) -> RevisionRuns:
    """The runs at the size before a change, of its revision and earlier ones."""
    return _merged_runs_of_revisions(window.runs_at(change.size), change, is_after=False)


def _merged_runs_of_revisions(
    runs: RunsAtSize, change: SizeBefore, *, is_after: bool
) -> RevisionRuns:
    """The runs at a size, of the revisions that came after a change, or of the others."""
    total = RevisionRuns()
    for revision, of_revision in runs.revisions.items():
        is_later = first_known(revision_number(revision), 0) > int(change.revision)
        if is_later == is_after:
            total.merge(of_revision)
    return total
