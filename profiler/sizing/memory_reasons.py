"""The reasons for the memory of a recommended size: a kill, a peak near the limit, what holds the
memory back, the margin, and growth.
"""

import math
from collections.abc import Iterator

from profiler.core.optional_math import first_known, known, known_values
from profiler.core.text import as_sentence, listed, words_if_known
from profiler.record.mapped_files import INCLUDES_FILES
from profiler.record.measured import AtLeast, measured_from
from profiler.record.mention_limits import is_near_limit
from profiler.record.record_model import TaskSize
from profiler.record.units import format_count, format_memory, format_share, format_vcpu
from profiler.sizing.choose_size import SizeDecision
from profiler.sizing.evidence import Evidence, MemoryAndCpuNeeds
from profiler.sizing.fargate_sizes import LARGEST, LEGAL_SIZES
from profiler.sizing.reservation_size import MEMORY_STEP_MB
from profiler.sizing.trend import Growth


def memory_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """Why the task needs more memory, or why its runs do not show how much."""
    yield from _no_success_sentences(evidence, choice)
    yield from _too_little_sentences(evidence, choice)
    yield from _own_limit_sentences(evidence, choice)


def _no_success_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    outcomes = evidence.outcomes
    if outcomes.has_success or outcomes.out_of_memory or choice.is_other_size_better:
        return
    if outcomes.failed + outcomes.stopped == outcomes.runs:
        succeeded = "succeeded"
    else:
        succeeded = "is known to have succeeded"
    yield (
        f"No run {succeeded}, so no smaller size is recommended: failures do not show how "
        "much a run needs."
    )


def _too_little_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """That a run was killed, or perhaps, or needed nearly all of the memory."""
    needs = evidence.needs
    size_mb = choice.current.memory_mb or 0
    required_mb = needs.required_memory_mb or 0
    if needs.oom_size_mb:
        yield (
            f"With {format_memory(needs.oom_size_mb)} a run ran out of memory: the task needs more."
        )
        if choice.exceeds_fargate:
            yield (
                f"No size of Fargate has more than {format_memory(LARGEST.memory_mb)}: split the "
                "work into smaller runs, or run the task on EC2, whose instances have more memory."
            )
    elif needs.reached_size_mb:
        yield (
            "The memory usage reached the limit between two samples, and a child process may "
            "have been killed there: less than "
            f"{format_memory(needs.reached_size_mb)} is not recommended."
        )
    # A size below 1 MB is an invalid record, and its share could be infinite.
    elif (
        size_mb >= 1 and is_near_limit(required_mb, size_mb) and not choice.need.holds_need(size_mb)
    ):
        yield _near_limit_sentence(evidence, required_mb, size_mb)


def _own_limit_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """That the batch's container has its own limit, which another size does not change."""
    own_mb = first_known(evidence.latest.metrics.memory_size_mb, math.inf)
    if own_mb >= (choice.current.memory_mb or 0) or own_mb == choice.size.memory_mb:
        return
    if evidence.needs.oom_size_mb or choice.is_other_size_better:
        yield (
            f"The container {evidence.latest.container.name!r} has its own memory limit of "
            f"{format_memory(own_mb)}: check that it fits the new size."
        )


def _near_limit_sentence(evidence: Evidence, required_mb: float, size_mb: float) -> str:
    """What a task needs that has too little. A run whose batch alone used more had a larger size;
    the peaks of several containers can be at different times.
    """
    size = format_memory(size_mb)
    batch_mb = evidence.needs.batch_peak_mb or 0
    if batch_mb > size_mb and format_memory(batch_mb) != size:
        needed = evidence.needed_memory.sentence_words(format_memory)
        return f"A run used {needed} of memory, more than the task's {size}: it would be killed."
    share = format_share(required_mb, size_mb)
    # Of several runs it need not be the one that stands beside this sentence.
    peak = "memory peak" if evidence.outcomes.runs == 1 else "largest memory peak"
    return f"The {peak} is {share} of the task's {size}: the task is memory-bound."


def why_held_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """Why the recommended size has no less memory although less was certainly used."""
    yield from map(as_sentence, why_memory_is_not_reduced(evidence.needs, choice, choice.size))


def why_memory_is_not_reduced(
    needs: MemoryAndCpuNeeds, choice: SizeDecision, size: TaskSize
) -> Iterator[str]:
    """Why a size has no less memory although less was certainly used; without full stops."""
    held = (
        _why_held_by_huge_pages(needs),
        _why_held_by_files(needs, choice, size),
        _why_held_by_bound(needs, choice, size),
        _why_held_by_containers(needs, choice, size),
    )
    yield from known_values(held)


def _why_held_by_huge_pages(needs: MemoryAndCpuNeeds) -> str | None:
    """Why a size has no less memory than now: what was measured is not all; without a full stop."""
    if not needs.huge_pages_mb:
        return None
    return (
        f"a run also holds up to {format_memory(needs.huge_pages_mb)} of huge pages, which the "
        "memory used lacks: a smaller size is not recommended"
    )


def _why_held_by_files(
    needs: MemoryAndCpuNeeds, choice: SizeDecision, size: TaskSize
) -> str | None:
    """Why a size has no less memory, if that is for mapped files alone; without a full stop."""
    files_mb = needs.mapped_files_mb
    if not files_mb or not _is_smaller_memory_enough(choice, size):
        return None
    if (needs.with_files_mb or 0) < choice.need.held_mb:
        return None
    return (
        f"a run also keeps up to {format_memory(files_mb)} of its files in memory: a smaller size "
        "would read them again"
    )


def _why_held_by_bound(
    needs: MemoryAndCpuNeeds, choice: SizeDecision, size: TaskSize
) -> str | None:
    """Why a size has no less memory, if that is for what a run may have used; without a full
    stop.
    """
    if not needs.bound_mb or not _is_smaller_memory_enough(choice, size):
        return None
    if needs.bound_mb * choice.margin.margin_of_one_value.factor < choice.need.held_mb:
        return None
    return (
        f"a run may have used up to {format_memory(needs.bound_mb)}, as its warnings say: less is "
        "not recommended"
    )


def _why_held_by_containers(
    needs: MemoryAndCpuNeeds, choice: SizeDecision, size: TaskSize
) -> str | None:
    """Why a size has no less memory, if that is for what its containers reserve together; without
    a full stop.
    """
    least_mb = needs.apart.least_task_memory_mb(choice.margin)
    if (
        not least_mb
        or least_mb < choice.need.held_mb
        or not _is_smaller_memory_enough(choice, size)
    ):
        return None
    return (
        f"its containers may reserve up to {math.ceil(least_mb)} MB together, the monitor's "
        "included: a task with less is refused"
    )


def _is_smaller_memory_enough(choice: SizeDecision, size: TaskSize) -> bool:
    """Whether the next smaller memory would be enough for what was certainly used alone."""
    need = choice.need
    if choice.is_fargate:
        smaller_mb = _smaller_memory_mb(size)
    else:
        smaller_mb = (size.memory_mb or 0) - MEMORY_STEP_MB
    return need.holds_without_files(smaller_mb) and smaller_mb < need.held_mb


def _smaller_memory_mb(size: TaskSize) -> float:
    """The next smaller memory that Fargate has, with the same vCPUs or else with others; 0, which
    is enough for nothing, if there is none.
    """
    smaller = [
        (legal.vcpu == size.vcpu, legal.memory_mb)
        for legal in LEGAL_SIZES
        if legal.memory_mb < (size.memory_mb or 0)
    ]
    return max(smaller, default=(False, 0))[1]


def mixed_peaks_sentences(evidence: Evidence) -> Iterator[str]:
    """What the peaks of older records are worth beside those that say mapped files apart."""
    if not evidence.needs.has_older:
        return
    worth = "may have been less"
    if evidence.needs.older_memory_mb:
        worth = "only keeps the size from getting smaller"
    yield f"The memory of some of the runs may {INCLUDES_FILES}: it {worth}."


def instance_memory_sentences(choice: SizeDecision) -> Iterator[str]:
    """What of an instance's memory decides about the size of a job."""
    instance = choice.instance
    if instance is None:
        return
    about = "" if instance.is_seen else "about "
    registers = (
        f"An instance with {format_memory(instance.nominal_mb)} registers {about}"
        f"{instance.registered_mb} MB for jobs"
    )
    if (choice.size.memory_mb or 0) <= instance.registered_mb:
        yield f"{registers}: with more, a job would need the next larger instance."
    else:
        yield f"{registers}: this size needs the next larger one."


def margin_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """The reason for the memory's margin; that for means of minutes is said as a caveat."""
    if choice.is_memory_without_margin:
        yield (
            f"The memory must be more than {format_memory(choice.need.above_mb)}, with no margin "
            "above that: how much more the killed run needed is not known."
        )
        return
    margin = choice.margin
    used_mb = evidence.needs.required_memory_mb
    if not (margin.why and used_mb) or evidence.precision.is_by_minute:
        return
    if choice.is_margin_cut:
        yield f"The memory has less than {margin.margin_text}, which it should have: {margin.why}."
    elif choice.need.above_mb >= used_mb:
        # Beside a size that is hardly more than that with which the run was killed.
        yield (
            f"The memory has {margin.margin_text} above the {format_memory(used_mb)} that a run "
            f"used: {margin.why}."
        )
    else:
        yield f"The memory has {margin.margin_text}: {margin.why}."


def why_memory_is_not_smaller(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """The reason why the memory is not smaller."""
    chosen = choice.chosen
    is_known = evidence.needs.has_memory and evidence.outcomes.has_success
    if not (choice.is_of_fargate and is_known):
        return
    smaller_mb = _smaller_memory_mb(choice.size)
    if choice.need.holds_need(smaller_mb):
        yield (
            f"{format_memory(chosen.size.memory_mb)} of memory is the least that Fargate allows "
            f"with {format_vcpu(chosen.size.vcpu)}."
        )
    elif (
        not choice.need.holds_without_files(smaller_mb)
        and choice.need.above_mb < smaller_mb
        and not choice.will_soon_be_outgrown
        and not evidence.precision.is_too_short
    ):
        yield (
            f"{format_memory(smaller_mb)} of memory would be too little: with "
            f"{choice.margin.margin_text}, the task needs "
            f"{_needed_memory_text(choice.need.memory_mb, smaller_mb)}."
        )


def _needed_memory_text(memory_mb: float, smaller_mb: float) -> str:
    """What is needed, so that it reads as more than the size that is too small."""
    needed = format_memory(memory_mb)
    return f"{math.ceil(memory_mb)} MB" if needed == format_memory(smaller_mb) else needed


def why_largest_memory_is_too_little(
    evidence: Evidence, choice: SizeDecision, largest_mb: float
) -> str:
    """Why the largest memory that a vCPU size allows is not enough."""
    if evidence.precision.is_too_short and largest_mb < (choice.current.memory_mb or 0):
        return "is less than now"  # what is needed is not known
    if not choice.need.holds_without_files(largest_mb):
        return "would be too little"
    if (evidence.needs.with_files_mb or 0) >= choice.need.held_mb:
        return "is less than a run has with its files in memory"
    if evidence.needs.apart.least_task_memory_mb(choice.margin) >= choice.need.held_mb:
        return "may be less than its containers reserve"
    return "may be less than a run had"


def growth_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """The growth of the task's need against its size, and of the batch's peak against the
    container's own limit.
    """
    needed = choice.growth
    size_mb = choice.size.memory_mb
    passed_mb = max(evidence.needs.oom_size_mb or 0, evidence.needs.required_memory_mb or 0)
    current_mb = choice.current.memory_mb
    if choice.will_soon_be_outgrown:
        verb = "grows" if needed.is_sure else "may grow"
        grows = (
            f"The memory peak {verb} by about {format_memory(needed.per_run)} a run (over "
            f"{needed.runs} runs)"
        )
        smaller = choice.outgrown.text
        left = needed.runs_until(choice.outgrown.memory_mb or 0)
        when = words_if_known("would be too small in about {}", known(_run_count_text, left))
        when = when or "is too small already"
        yield f"{grows}: {smaller} {when}, so a size with more memory is recommended."
    if needed.is_notable and not choice.will_soon_be_outgrown:
        limits_mb = {limit for limit in known_values((size_mb, current_mb)) if limit > passed_mb}
        passed = [*filter(None, (_limit_passed_words(needed, mb) for mb in sorted(limits_mb)))]
        if passed:
            passes = f": it will pass {listed(passed)}"
        else:
            passes = ""
        yield f"The memory peak grows by about {format_memory(needed.per_run)} a run{passes}."
    own_limit_mb = evidence.latest.metrics.memory_size_mb or 0
    peak_mb = max(evidence.needs.oom_size_mb or 0, *evidence.needs.peaks_mb.values, 0)
    if not peak_mb < own_limit_mb < (current_mb or math.inf):
        return
    batch = evidence.needs.peaks_mb.growth
    own_limit = _limit_passed_words(batch, own_limit_mb)
    if batch.is_sure and own_limit:
        yield (
            f"The peak of the container {evidence.latest.container.name!r} will pass {own_limit}."
        )


def _limit_passed_words(trend: Growth, limit_mb: float) -> str:
    """The limit that the trend will soon pass; nothing for none."""
    runs = known(_run_count_text, trend.runs_until_near(limit_mb))
    return words_if_known(f"the limit of {format_memory(limit_mb)} in about {{}}", runs)


def _run_count_text(count: int) -> str:
    return format_count(count, "run")


def spike_sentences(evidence: Evidence) -> Iterator[str]:
    """That the largest peak was short."""
    peak_mb = evidence.needs.batch_peak_mb or 0
    p99_mb = first_known(evidence.needs.batch_p99_mb, math.inf)
    if p99_mb < 0.5 * peak_mb and peak_mb - p99_mb >= MEMORY_STEP_MB:  # less changes no size
        is_least = isinstance(evidence.needed_memory, AtLeast)
        peak = measured_from(peak_mb, is_least=is_least).text(format_memory)
        yield (
            f"The memory peak is a short spike: {peak} for less than 1 % of the time, at most "
            f"{format_memory(p99_mb)} otherwise."
        )
