"""A family whose size is decided on: what its runs, its definition and its account show together.

Each property answers one question, and the rules of :mod:`profiler.sizing.sizing_rules` ask them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter

from msgspec import Struct

from profiler.core.ecs_terms import FARGATE, revision_number
from profiler.core.optional_math import first_known, known, known_members, known_values
from profiler.core.timestamps import NS_PER_DAY
from profiler.record.record_model import Record, TaskSize
from profiler.record.units import (
    format_duration,
    format_memory,
    format_vcpu,
    rounded_number,
)
from profiler.sizing.advice import Advice
from profiler.sizing.evidence import LAST_RUNS, Evidence, evidence_of_runs
from profiler.sizing.fargate_sizes import Size
from profiler.sizing.instance_memory import room_for_jobs_mb
from profiler.sizing.memory_margin import MINUTE_FACTOR
from profiler.sizing.resize_effect import (
    MIN_FAILURES,
    ChangeEffect,
    killed_elsewhere_since,
    runs_since,
    runs_until,
)
from profiler.sizing.run_counts import RevisionRuns, RunCounts
from profiler.sizing.run_facts import RunFacts, runs_in_time_order
from profiler.sizing.runs_at_size import NEWEST_RUNS, RunsAtSize
from profiler.sizing.size_options import SizeOption, reserved_size_option
from profiler.sizing.sized_revision import FamilyCircumstances, SizeBefore, SizedRevision
from profiler.sizing.window_advice import SizeAdvice, WindowAdvice

# Without one of them, no size goes down: a week's and a month's largest runs come again.
MIN_DAYS = 14
_MIN_DAYS_BETWEEN = 13
# A reverted family is left alone for this number of runs, or for this time.
RUNS_AFTER_REVERT = 60
DAYS_AFTER_REVERT = 90
# A run may take this share of the time between two starts, and of its job's timeout.
_MAX_SHARE_OF_INTERVAL = 0.9
# Without a run on Fargate, of a family with many runs elsewhere.
_LONG_AGO_NS = 7 * NS_PER_DAY


class ChosenSize(Struct, frozen=True, kw_only=True):
    """A size, and why a better one may not be taken."""

    option: SizeOption
    refused: str | None = None

    @property
    def size(self) -> TaskSize:
        return TaskSize(
            vcpu=rounded_number(self.option.size.vcpu),
            memory_mb=rounded_number(self.option.size.memory_mb),
        )

    @property
    def usd_saved(self) -> float | None:
        """The saving of a run at the upper bound of its duration."""
        return self.option.usd_saved_at(self.option.likely_factor.max)


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
        if self.revision.revision or None not in (defined.vcpu, defined.memory_mb):
            return defined
        seen: list[tuple[int, int, TaskSize]] = []
        for size, runs in self.window.sizes.items():
            is_possible = defined.vcpu in (None, size.vcpu)
            if is_possible and defined.memory_mb in (None, size.memory_mb):
                for revision, of_revision in runs.revisions.items():
                    seen.append(
                        (revision_number(revision) or 0, of_revision.counts.task_count, size)
                    )
        return max(seen, key=lambda known: known[:2], default=(0, 0, defined))[2]

    @cached_property
    def runs_at_definition_size(self) -> RunsAtSize:
        """The runs at the definition's size on Fargate, which alone judge it."""
        return self.window.runs_at(self.definition_size)

    @cached_property
    def judging_revision_runs(self) -> RevisionRuns:
        """The runs at the definition's size since its change, else of the newest revision; for a
        file, all.
        """
        change = self.revision.resized_from or self.revision.reverted_from
        if change is not None:
            return runs_since(self.window, self.definition_size, change)
        total = RevisionRuns()
        for revision, runs in self.runs_at_definition_size.revisions.items():
            if self.revision.revision in (None, revision):
                total.merge(runs)
        return total

    @cached_property
    def judging_run_count(self) -> int:
        """The number of runs that may call for a change: those since the last change.

        A task of several containers with reports is one run here.
        """
        if self.revision.resized_from:
            return self.judging_revision_runs.counts.task_count
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
        last = self.newest_runs_of_sizes[-1]
        outside: list[RunFacts] = []
        are_all_known = True
        for runs in self.window.elsewhere.values():
            newest = runs.newest.items()
            outside += newest
            are_all_known &= runs.counts.task_count <= len(newest) < NEWEST_RUNS
        outside = runs_in_time_order(outside)
        if not outside or outside[0].began_ns <= last.began_ns:
            return None
        is_long_ago = outside[-1].began_ns - last.began_ns > _LONG_AGO_NS
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
            own=self.judging_revision_runs,
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
        counts = self.judging_revision_runs.counts
        now_ns = self.window.span.now_ns
        since_ns = first_known(self.revision.registered_ns, counts.first_ns)
        days = (now_ns - first_known(since_ns, now_ns)) / NS_PER_DAY
        return counts.task_count < RUNS_AFTER_REVERT and days < DAYS_AFTER_REVERT

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
        of_failed = runs_until(self.window, failed).counts
        present = self.definition_size
        least_memory_mb = min(failed.size.memory_mb or 0, (present.memory_mb or 0) - 1)
        has_its_memory = (size.memory_mb or 0) <= least_memory_mb
        has_fewer_vcpus = (size.vcpu or 0) < (present.vcpu or 0)
        has_its_vcpu = has_fewer_vcpus and (size.vcpu or 0) <= (failed.size.vcpu or 0)
        if of_failed.counts_by_outcome["killed"]:
            return has_its_memory
        had_fewer_vcpus = (failed.size.vcpu or 0) < (present.vcpu or 0)
        if (
            of_failed.run_count
            and of_failed.task_count_with("failed") < MIN_FAILURES
            and had_fewer_vcpus
        ):
            return has_its_vcpu  # its runs were slow
        return has_its_memory or has_its_vcpu  # such as a heap that follows the limit

    @property
    def _due_times_and_durations_ms(self) -> Iterator[tuple[float, float]]:
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
        for longest_ms, interval_ms in self._due_times_and_durations_ms:
            if longest_before_ms <= interval_ms < longest_ms:
                return (
                    f"a run took {format_duration(longest_ms)}, and the next one is due "
                    f"{format_duration(interval_ms)} after its start"
                )
        return None


class MeasuredCase(ResizeCase):
    """A family with ``evidence``: what the measured runs at the definition's size show."""

    def __init__(self, case: ResizeCase, at_size: SizeAdvice) -> None:
        super().__init__(case.advised, case.revision, case.circumstances)
        self._at_size = at_size

    @property
    def evidence(self) -> Evidence:
        return self._at_size.evidence

    @property
    def advice(self) -> Advice:
        """The advice by the runs at the definition's size."""
        return self._at_size.advice

    @property
    def advice_of_all(self) -> Advice:
        """The advice with what runs at any size needed."""
        return self._at_size.advice_of_all

    @property
    def is_fargate(self) -> bool:
        return self.advice.choice.is_fargate

    def usd_per_run_at(self, size: TaskSize) -> float | None:
        """What a run cost at a size."""
        return known(attrgetter("advice.usd_per_run"), self.advised.advice_at_size(size))

    @cached_property
    def was_run_killed_at_size(self) -> bool:
        """Whether a run was killed at the definition's size, or at a container's limit."""
        if self.revision.killed_limit:
            return True
        if not self.evidence.outcomes.out_of_memory:
            return False
        killed_at_mb = first_known(self.evidence.needs.oom_size_mb, math.inf)
        return killed_at_mb >= (self.definition_size.memory_mb or 0)

    # The sizes.

    @property
    def job_memory_on_instance_mb(self) -> float:
        """The memory that a job on EC2 may ask for: what it has, or what an instance on which it
        ran has room for.
        """
        if self.window.launch_type == FARGATE:
            return math.inf
        seen_mb = [run.record.visible.memory_mb for run in self.newest_runs_of_sizes]
        room_mb = [room_for_jobs_mb(mb) for mb in known_values(seen_mb)]
        return max([*room_mb, self.definition_size.memory_mb or 0])

    @property
    def runs_need_more(self) -> bool:
        """Whether the runs at the definition's size need more than it has."""
        choice = self.advice.choice
        return choice.has_more_memory or choice.has_more_vcpu

    @cached_property
    def larger_size(self) -> ChosenSize | None:
        """The best larger size. It has no fewer vCPUs than now if little is known of those."""
        return next(self._options_with_refusals(self._larger_options, self._why_not_enlarge), None)

    @property
    def why_larger_is_refused(self) -> str | None:
        """Why the best larger size with no fewer vCPUs than it may have may not be taken."""
        for option in self._larger_options:
            if not self._why_not_fewer_vcpus(option):
                return self.why_refused(option)
        return None

    @cached_property
    def _larger_options(self) -> list[SizeOption]:
        if not self.runs_need_more:
            return []
        present_mb = self.definition_size.memory_mb or 0
        ranked = self._ranked_options(self.advice)
        return [option for option in ranked if option.size.memory_mb > present_mb]

    def _why_not_enlarge(self, option: SizeOption) -> str | None:
        return self._why_not_fewer_vcpus(option) or self.why_refused(option)

    def _why_not_fewer_vcpus(self, option: SizeOption) -> str | None:
        """Why more memory may not come with fewer vCPUs."""
        vcpu = option.size.vcpu
        if vcpu >= (self.definition_size.vcpu or 0):
            return None
        failed = "a smaller size has failed" if self.revision.reverted_from else None
        why = self.why_too_few_runs or self.why_too_few_days or failed
        if why is None and not self._is_fast_enough(vcpu):
            why = f"runs at other sizes need more than {format_vcpu(vcpu)} allows"
        return known("the vCPU size stays as it is: {}".format, why)

    @cached_property
    def smaller_size(self) -> ChosenSize | None:
        """The best smaller size that may be taken."""
        return next(self._options_with_refusals(self._smaller_options, self.why_refused), None)

    @cached_property
    def best_smaller_even_if_refused(self) -> ChosenSize | None:
        """The best smaller size, whether or not it may be taken."""
        options = self._smaller_options
        return ChosenSize(option=options[0]) if options else None

    @property
    def has_better_smaller_size(self) -> bool:
        """Whether a smaller size would be better, whether or not it may be taken."""
        return bool(self._smaller_options)

    @cached_property
    def _smaller_options(self) -> list[SizeOption]:
        advice = self.advice_of_all
        if self.runs_need_more or not advice.evidence.outcomes.has_success:
            return []
        options = []
        for option in self._ranked_options(advice):
            pair = TaskSize(vcpu=option.size.vcpu, memory_mb=option.size.memory_mb)
            if pair == self.definition_size:
                break  # the others cost more
            has_room = option.size.memory_mb <= (self.definition_size.memory_mb or 0)
            if has_room and option.size.vcpu <= (self.definition_size.vcpu or 0):
                options.append(option)
        return options

    def _ranked_options(self, advice: Advice) -> Sequence[SizeOption]:
        """The sizes that are enough; for a job on EC2, the one that is, in whole vCPUs."""
        choice = advice.choice
        if choice.is_fargate or choice.size.memory_mb is None:
            return choice.ranked
        present = self.definition_size.vcpu or 1
        least_vcpu = max(math.ceil(self.circumstances.least_vcpu), 1)
        wanted = math.ceil(first_known(choice.size.vcpu, present))
        vcpu = min(max(wanted, least_vcpu), present)
        return [reserved_size_option(Size(vcpu, math.ceil(choice.size.memory_mb)))]

    def _is_fast_enough(self, vcpu: float) -> bool:
        """Whether runs at any size allow this vCPU size."""
        return any(
            option.size.vcpu == vcpu and option.is_fast_enough
            for option in self._ranked_options(self.advice_of_all)
        )

    def _options_with_refusals(
        self, options: list[SizeOption], refusal: Callable[[SizeOption], str | None]
    ) -> Iterator[ChosenSize]:
        first_refusal = None
        for option in options:
            refused = refusal(option)
            if not refused:
                yield ChosenSize(option=option, refused=first_refusal)
            first_refusal = first_refusal or refused

    def why_refused(self, option: SizeOption) -> str | None:
        """Why a size may not be taken."""
        return (
            self._why_target_forbids(option)
            or self._why_insights_run_forbids(option)
            or self._why_overlap_forbids(option)
            or self._why_timeout_forbids(option)
        )

    def _why_target_forbids(self, option: SizeOption) -> str | None:
        least_vcpu = self.circumstances.least_vcpu
        if option.size.vcpu < least_vcpu:
            return f"its containers need {format_vcpu(least_vcpu)} together"
        most_vcpu = self.circumstances.most_vcpu
        if option.size.vcpu > most_vcpu:
            return (
                f"{option.size.text} could never start: "
                f"the environments of a queue of its jobs allow {format_vcpu(most_vcpu)}"
            )
        if option.size.memory_mb > self.job_memory_on_instance_mb:
            return (
                f"no instance that its jobs have seen has room for "
                f"{format_memory(option.size.memory_mb)}"
            )
        for override in self.circumstances.overrides:
            if not override.allows_definition_size(option.size):
                size = option.size.text
                return f"{override.target} overrides sizes, so ECS would refuse it with {size}"
        return None

    def _why_insights_run_forbids(self, option: SizeOption) -> str | None:
        """A run that only Container Insights saw, and that used more than any report says, forbids
        less memory than it may have needed. It calls for none.
        """
        memory_mb = option.size.memory_mb
        if memory_mb >= (self.definition_size.memory_mb or 0):
            return None
        killed_mb = self.window.killed_by_minute_mb
        if memory_mb <= killed_mb:
            return (
                "a run that only Container Insights saw was killed with "
                f"{format_memory(killed_mb)} of memory"
            )
        used_mb = self.window.used_by_minute_mb
        known_mb = first_known(self.advice_of_all.evidence.needs.required_memory_mb, 0)
        if used_mb <= known_mb or memory_mb >= MINUTE_FACTOR * used_mb:
            return None
        return (
            f"a run that only Container Insights saw used {format_memory(used_mb)} in the mean of "
            f"a minute, so its peak may have been above {format_memory(memory_mb)}"
        )

    def _why_overlap_forbids(self, option: SizeOption) -> str | None:
        """The longest run at a due time decides. A size at which no run is slower changes
        nothing.
        """
        factor = option.likely_factor.max
        if factor <= 1:
            return None
        excess_ms = 0.0
        refusal = None
        for longest_ms, interval_ms in self._due_times_and_durations_ms:
            slower_ms = longest_ms * factor
            excess_of_run_ms = slower_ms - _MAX_SHARE_OF_INTERVAL * interval_ms
            if excess_of_run_ms > excess_ms:
                excess_ms = excess_of_run_ms
                size = option.size.text
                refusal = (
                    f"with {size}, a run would take up to {format_duration(slower_ms)}, and the "
                    f"next one is due {format_duration(interval_ms)} after its start"
                )
        return refusal

    def _why_timeout_forbids(self, option: SizeOption) -> str | None:
        """The longest run decides, as for an overlap."""
        factor = option.likely_factor.max
        if factor <= 1:
            return None
        slower_ms = max(self.runs_at_definition_size.longest_ms.values(), default=0) * factor
        for stops, limit_ms in self._time_limits_by_words_ms.items():
            if slower_ms > _MAX_SHARE_OF_INTERVAL * limit_ms:
                return (
                    f"with {option.size.text}, a run would take up to "
                    f"{format_duration(slower_ms)}, and {stops} after {format_duration(limit_ms)}"
                )
        return None

    @property
    def _time_limits_by_words_ms(self) -> Mapping[str, float]:
        """The times after which a run is ended, by what ends it, in words."""
        limits_ms = {
            f"the {title} ends it": limit_ms
            for title, limit_ms in self.circumstances.time_limits_ms.items()
        }
        of_batch = {"AWS Batch stops an attempt": self.circumstances.timeout_ms}
        return limits_ms | known_members(of_batch)


def resize_case(
    advised: WindowAdvice, revision: SizedRevision, circumstances: FamilyCircumstances
) -> ResizeCase:
    """The case of a family; a :class:`MeasuredCase` if a run at its size was measured."""
    case = ResizeCase(advised, revision, circumstances)
    at_size = advised.advice_at_size(case.definition_size)
    return case if at_size is None else MeasuredCase(case, at_size)
