"""The sizes that a measured family may get: the larger and the smaller ones that would do, and the
best of them that may be taken (:mod:`profiler.sizing.resize_refusals`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter

from msgspec import Struct

from profiler.core.ecs_terms import FARGATE
from profiler.core.optional_math import first_known, known, known_values
from profiler.record.record_model import TaskSize
from profiler.record.units import format_vcpu, rounded_number
from profiler.sizing.advice import Advice
from profiler.sizing.evidence import Evidence
from profiler.sizing.fargate_sizes import Size
from profiler.sizing.instance_memory import room_for_jobs_mb
from profiler.sizing.resize_case import ResizeCase
from profiler.sizing.resize_refusals import why_size_is_refused
from profiler.sizing.size_options import SizeOption, reserved_size_option
from profiler.sizing.sized_revision import FamilyCircumstances, SizedRevision
from profiler.sizing.window_advice import SizeAdvice, WindowAdvice


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
        return why_size_is_refused(
            self,
            option,
            job_memory_on_instance_mb=self.job_memory_on_instance_mb,
            needed_mb=first_known(self.advice_of_all.evidence.needs.required_memory_mb, 0),
        )


def resize_case(
    advised: WindowAdvice, revision: SizedRevision, circumstances: FamilyCircumstances
) -> ResizeCase:
    """The case of a family; a :class:`MeasuredCase` if a run at its size was measured."""
    case = ResizeCase(advised, revision, circumstances)
    at_size = advised.advice_at_size(case.definition_size)
    return case if at_size is None else MeasuredCase(case, at_size)
