"""A family whose size is decided on: what its runs, its definition and its account show together.

Each property answers one question, and the rules of :mod:`profiler.sizing.sizing_rules` ask them.
"""

import math
from collections.abc import Iterator
from functools import cached_property

from profiler.core.ecs_terms import revision_number
from profiler.core.optional_math import first_known, known
from profiler.core.timestamps import NS_PER_DAY
from profiler.record.record_model import Record, TaskSize
from profiler.record.units import format_duration
from profiler.sizing.advice import Advice
from profiler.sizing.evidence import evidence_of_runs
from profiler.sizing.resize_effect import (
    MIN_FAILURES,
    ChangeEffect,
    killed_elsewhere_since,
    runs_since,
    runs_until,
)
from profiler.sizing.run_collector import LAST_RUNS
from profiler.sizing.run_counts import RevisionRuns, RunCounts
from profiler.sizing.run_facts import RunFacts, runs_in_time_order
from profiler.sizing.runs_at_size import NEWEST_RUNS, RunsAtSize
from profiler.sizing.sized_revision import FamilyCircumstances, SizeBefore, SizedRevision
from profiler.sizing.window_advice import WindowAdvice

# Without one of them, no size goes down: a week's and a month's largest runs come again.
MIN_DAYS = 14
_MIN_DAYS_BETWEEN = 13
# A reverted family is left alone for this number of runs, or for this time.
RUNS_AFTER_REVERT = 60
DAYS_AFTER_REVERT = 90
# Without a run on Fargate, of a family with many runs elsewhere.
_LONG_AGO_NS = 7 * NS_PER_DAY


class ResizeCase:
    """A family whose size is decided on: what is known of it whether or not a run at the
    definition's size was measured.
    """

    def __init__(
        self, advised: WindowAdvice, revision: SizedRevision, circumstances: FamilyCircumstances
    ) -> None:
        self.window = advised.window
        self.revision = revision
        self.circumstances = circumstances
        self.policy = advised.policy
        self.advised = advised

    # What the runs are.

    @cached_property
    def newest_runs_of_sizes(self) -> list[RunFacts]:
        """The newest runs of each size on Fargate, in the order of time; without any, those
        elsewhere.
        """
        newest: list[RunFacts] = []
        for runs in (self.window.sizes or self.window.elsewhere).values():
            newest += runs.newest.items()
        return runs_in_time_order(newest)

    @cached_property
    def definition_size(self) -> TaskSize:
        """The definition's size. A file may have a parameter in its place: then, the size of most
        runs of the newest revision that has such a size. One with overrides does not decide.
        """
        defined = self.revision.size
        is_whole = None not in (defined.vcpu, defined.memory_mb)
        if self.revision.revision or is_whole:
            return defined
        size = defined
        newest = (-1, -1)
        for possible, runs in self.window.sizes.items():
            has_known_parts = defined.vcpu in (None, possible.vcpu) and defined.memory_mb in (
                None,
                possible.memory_mb,
            )
            if not has_known_parts:
                continue
            for revision, of_revision in runs.revisions.items():
                place = (revision_number(revision) or 0, of_revision.counts.task_count)
                if place > newest:
                    newest = place
                    size = possible
        return size

    @cached_property
    def runs_at_definition_size(self) -> RunsAtSize:
        """The runs at the definition's size on Fargate, which alone judge it."""
        return self.window.runs_at(self.definition_size)

    @cached_property
    def judging_run_count(self) -> int:
        """The number of runs that may call for a change: those since the last change.

        A task of several containers with reports is one run here.
        """
        if self.verdict_on_last_change:
            return self.verdict_on_last_change.own.counts.task_count
        return self.runs_at_definition_size.counts.task_count

    @property
    def newest_record(self) -> Record | None:
        return self.newest_runs_of_sizes[-1].record if self.newest_runs_of_sizes else None

    @cached_property
    def newest_record_since_fargate(self) -> Record | None:
        """The newest run's, of a family all of whose known runs outside Fargate began after its
        last one there; None if it still runs there. Of more runs outside than are known, that takes
        a week without one there.
        """
        if not self.window.sizes:
            return None
        last_there_ns = self.newest_runs_of_sizes[-1].began_ns
        at_sizes = self.window.elsewhere.values()
        outside = runs_in_time_order(run for runs in at_sizes for run in runs.newest.items())
        if not outside or outside[0].began_ns <= last_there_ns:
            return None
        are_all_known = all(
            runs.counts.task_count <= len(runs.newest.items()) < NEWEST_RUNS for runs in at_sizes
        )
        is_long_ago = outside[-1].began_ns - last_there_ns > _LONG_AGO_NS
        return outside[-1].record if are_all_known or is_long_ago else None

    @property
    def has_runs_outside_fargate(self) -> bool:
        """Whether the newest revision, of a file any, has runs outside Fargate."""
        revision = self.revision.revision
        return any(runs.has_run_of(revision) for runs in self.window.elsewhere.values())

    @cached_property
    def sizes_of_revision(self) -> list[TaskSize]:
        """The sizes of the newest revision's runs on Fargate, of a file's all."""
        revision = self.revision.revision
        return [size for size, runs in self.window.sizes.items() if runs.has_run_of(revision)]

    @property
    def older_revision_run_count(self) -> int:
        """The runs since the registration of the newest revision that had another one."""
        registered_ns = first_known(self.revision.registered_ns, math.inf)
        later = [run for run in self.newest_runs_of_sizes if run.began_ns > registered_ns]
        return sum(run.record.revision != self.revision.revision for run in later)

    # What they show.

    @cached_property
    def advice_on_reservation(self) -> Advice | None:
        """``recommend``'s, for runs outside Fargate, which have any size.

        Nothing acts on it.
        """
        newest = self.newest_runs_of_sizes[-LAST_RUNS:]
        evidence = evidence_of_runs(newest[-1].family, newest) if newest else None
        return known(self.advised.advice_on_evidence, evidence)

    @property
    def why_too_few_runs(self) -> str | None:
        """How many runs may call for a change, if they are too few for most."""
        if self.judging_run_count >= self.policy.min_runs:
            return None
        return f"{self.judging_run_count} of {self.policy.min_runs} runs seen"

    @cached_property
    def _counts_at_newest_limits(self) -> RunCounts:
        """The counts of the runs at the definition's size that had the limits of its containers,
        where somebody has raised one after a kill: that a few small runs fit proves nothing.
        """
        revisions = self.revision.under_raised_limits
        if revisions is None:
            return self.runs_at_definition_size.counts
        total = RunCounts()
        for revision, runs in self.runs_at_definition_size.revisions.items():
            if revision in revisions:
                total.merge(runs.counts)
        return total

    @property
    def days_seen(self) -> int:
        """The days between the first success at the definition's size and now."""
        now_ns = self.window.span.now_ns
        first_ns = first_known(self._counts_at_newest_limits.first_success_ns, now_ns)
        return max((now_ns - first_ns) // NS_PER_DAY, 0)

    @property
    def why_too_few_days(self) -> str | None:
        """How many days were seen, if they are too few for a smaller size."""
        counts = self._counts_at_newest_limits
        between_ns = (counts.last_success_ns or 0) - (counts.first_success_ns or 0)
        if self.days_seen >= MIN_DAYS or between_ns >= _MIN_DAYS_BETWEEN * NS_PER_DAY:
            return None
        at_size = " at this size" if len(self.window.sizes) > 1 else ""
        if self.revision.under_raised_limits is not None:
            at_size = " since a container's limit was raised"
        return f"{self.days_seen} of {MIN_DAYS} days seen{at_size}"

    # The last change.

    @cached_property
    def verdict_on_last_change(self) -> ChangeEffect | None:
        """The verdict on the last change; None without one."""
        before = self.revision.resized_from
        if before is None:
            return None
        return ChangeEffect(
            size=self.definition_size,
            change=before,
            own=runs_since(self.window, self.definition_size, before),
            before=runs_until(self.window, before),
            killed_elsewhere=killed_elsewhere_since(self.window, self.definition_size, before),
            overlap=self._why_overlaps_since(before),
            max_slowdown_percent=self.policy.size.max_slowdown_percent,
        )

    @property
    def was_reverted_recently(self) -> bool:
        reverted = self.revision.reverted_from
        if reverted is None or self.revision.resized_from is not None:
            return False
        number = revision_number(self.revision.revision or "")
        if first_known(number, math.inf) < int(reverted.revision):
            # The failed revision was deregistered: this one has runs from before it, too.
            return bool(self.run_count_of(reverted.revision))
        since = runs_since(self.window, self.definition_size, reverted).counts
        now_ns = self.window.span.now_ns
        reverted_ns = first_known(self.revision.registered_ns, since.first_ns)
        days = (now_ns - first_known(reverted_ns, now_ns)) / NS_PER_DAY
        return since.task_count < RUNS_AFTER_REVERT and days < DAYS_AFTER_REVERT

    def run_count_of(self, revision: str) -> int:
        """The number of the runs of a revision."""
        return sum(
            runs.revisions[revision].counts.task_count
            for _, runs in self.window.runs_at_all_sizes()
            if revision in runs.revisions
        )

    @property
    def overriding_run_count(self) -> int:
        """The number of the newest revision's runs that had another size than the definition's."""
        revision = self.revision.revision or ""
        at_size = self.runs_at_definition_size.revisions.get(revision) or RevisionRuns()
        return self.run_count_of(revision) - at_size.counts.task_count

    def has_failed_before(self, size: TaskSize) -> bool:
        """Whether a size is the reverted one, or smaller, in the dimension that failed."""
        failed = self.revision.reverted_from
        if failed is None:
            return False
        present = self.definition_size
        # Only what is less than now can have been too little.
        too_little_mb = min(failed.size.memory_mb or 0, (present.memory_mb or 0) - 1)
        lacks_memory = (size.memory_mb or 0) <= too_little_mb
        has_fewer_vcpus = (size.vcpu or 0) < (present.vcpu or 0)
        lacks_vcpu = has_fewer_vcpus and (size.vcpu or 0) <= (failed.size.vcpu or 0)
        of_failed = runs_until(self.window, failed).counts
        if of_failed.counts_by_outcome["killed"]:
            return lacks_memory
        has_few_failures = (
            of_failed.run_count > 0 and of_failed.task_count_with("failed") < MIN_FAILURES
        )
        if has_few_failures and (failed.size.vcpu or 0) < (present.vcpu or 0):
            return lacks_vcpu  # its runs were slow
        return lacks_memory or lacks_vcpu  # such as a heap that follows the limit

    @property
    def longest_runs_and_intervals_ms(self) -> Iterator[tuple[float, float]]:
        """The longest successes at the definition's size that began when the family may be due,
        each with the shortest time to the next due time.
        """
        for hour, longest_ms in self.runs_at_definition_size.longest_ms.items():
            if hour in self.circumstances.intervals_ms:
                yield longest_ms, self.circumstances.intervals_ms[hour]

    def _why_overlaps_since(self, before: SizeBefore) -> str | None:
        """Why runs with fewer vCPUs now overlap the next one, if none did so before."""
        runs_before = self.window.sizes.get(before.size)
        if runs_before is None or (self.definition_size.vcpu or 0) >= (before.size.vcpu or 0):
            return None
        longest_before_ms = max(runs_before.longest_ms.values(), default=0)
        for longest_ms, interval_ms in self.longest_runs_and_intervals_ms:
            if longest_before_ms <= interval_ms < longest_ms:
                return (
                    f"a run took {format_duration(longest_ms)}, and the next one is due "
                    f"{format_duration(interval_ms)} after its start"
                )
        return None
