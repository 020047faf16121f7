"""The sentences that explain a recommended size."""

import math
from collections.abc import Iterator, Mapping
from functools import partial

from profiler.core.ecs_terms import FARGATE
from profiler.core.optional_math import all_known, difference, first_known, known, known_values
from profiler.core.text import as_sentence, first_names, listed, words_if_known
from profiler.core.timestamps import NS_PER_MS
from profiler.record.cpu_wait import MIN_CPU_WAIT_PERCENT
from profiler.record.family_statistics import MonthBasis, MonthlyTasks
from profiler.record.mapped_files import INCLUDES_FILES
from profiler.record.measured import AtLeast, Exactly, Measured, measured_from, scaled_number
from profiler.record.mention_limits import (
    SATURATED_PERCENT,
    is_near_limit,
)
from profiler.record.record_model import SlowdownBounds, TaskSize
from profiler.record.success_advice import ALL_CPU_USED
from profiler.record.task_needs import vcpu_p95
from profiler.record.units import (
    APPROXIMATELY,
    format_count,
    format_duration,
    format_memory,
    format_percent,
    format_period,
    format_range,
    format_share,
    format_usd,
    format_usd_a_month,
    format_vcpu,
)
from profiler.record.unusual import MIN_RUNS
from profiler.sizing.choose_size import MEMORY_STEP_MB, SizeDecision
from profiler.sizing.evidence import (
    MAX_FINE_PERIOD_MS,
    MIN_MINUTES,
    MIN_SAMPLES,
    Evidence,
    MemoryAndCpuNeeds,
)
from profiler.sizing.fargate_sizes import LARGEST, LEGAL_SIZES
from profiler.sizing.job_grouping import JobsRow
from profiler.sizing.size_options import ROUNDING, SizeOption
from profiler.sizing.slowdown_factors import smaller_vcpus
from profiler.sizing.trend import Growth

_MANY_RUNS = 10
_MIN_PERCENT = 0.5
_MONTH_BASES: Mapping[MonthBasis, str] = {
    "schedule": " by its schedules",
    "window": ", as many a day as its runs show",
    "nightly": ", if it runs nightly",
}


def reason_sentences(
    evidence: Evidence, choice: SizeDecision, month: MonthlyTasks | None, *, brief: bool
) -> tuple[str, ...]:
    """Return the sentences, the most important first.

    ``brief`` leaves out the sizes that were not chosen.
    """
    return (
        _runs_and_usage_sentence(evidence),
        *_memory_sentences(evidence, choice),
        *_why_held_sentences(evidence, choice),
        *_mixed_peaks_sentences(evidence),
        *_reservation_sentences(choice),
        *_unlimited_cpu_sentences(evidence),
        *_instance_memory_sentences(choice),
        *_saturation_sentences(evidence, choice, brief=brief),
        *_cpu_wait_sentences(evidence),
        *_starved_sentences(evidence),
        *_unmeasured_limits_sentences(evidence, choice),
        *_price_if_moved_sentences(evidence, choice, month),
        *_cost_sentences(evidence, choice, month),
        *(() if brief else _why_not_smaller_sentences(evidence, choice)),
        *_growth_sentences(evidence, choice),
        *_spike_and_device_sentences(evidence),
        *_caveat_sentences(evidence, choice),
        *_comparability_sentences(evidence, choice),
        *_job_submission_sentences(evidence, choice),
    )


def _why_not_smaller_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """What keeps the size from being smaller."""
    yield from _margin_sentences(evidence, choice)
    yield from _why_memory_is_not_smaller(evidence, choice)
    yield from _why_vcpu_is_not_smaller(evidence, choice)


def _runs_and_usage_sentence(evidence: Evidence) -> str:
    """How many runs there were, over which time, and what they used."""
    outcomes = evidence.outcomes
    needs = evidence.needs
    endings = []
    for count, ending in (
        (outcomes.failed, "failed"),
        (outcomes.stopped, "stopped"),
        (outcomes.out_of_memory - outcomes.out_of_memory_unmeasured, "out of memory"),
    ):
        if count:
            endings.append(f"{count} {ending}")
    runs = format_count(outcomes.runs, "run")
    if evidence.usage.window_ns and outcomes.runs > 1:
        runs += f" in {format_duration(evidence.usage.window_ns / NS_PER_MS)}"
    if endings:
        runs += f" ({', '.join(endings)})"
    used = []
    needed = evidence.needed_memory.maximum_words(format_memory)
    if needed:
        peak_source = evidence.precision.peak_source
        source = f" ({peak_source})" if peak_source else ""
        used.append(f"{needed} of memory{source}")
    vcpus = measured_from(needs.required_vcpu).text(format_vcpu)
    if vcpus:
        used.append(f"for 95 % of the time at most {vcpus}")
    text = f"{runs} used {listed(used)}"
    others_mb = difference(needs.required_memory_mb, needs.batch_peak_mb) or 0
    if others_mb >= 1:
        text += f"; {format_memory(others_mb)} of this memory is for the other containers"
    unmeasured = outcomes.out_of_memory_unmeasured
    if unmeasured:
        text += f"; {unmeasured} more ran out of memory before the first measurement"
    return f"{text}."


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


def _memory_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    size_mb = choice.current.memory_mb or 0
    oom_size_mb = evidence.needs.oom_size_mb
    required_mb = evidence.needs.required_memory_mb or 0
    if not (
        evidence.outcomes.has_success
        or evidence.outcomes.out_of_memory
        or choice.is_other_size_better
    ):
        if evidence.outcomes.failed + evidence.outcomes.stopped == evidence.outcomes.runs:
            succeeded = "succeeded"
        else:
            succeeded = "is known to have succeeded"
        yield (
            f"No run {succeeded}, so no smaller size is recommended: failures do not show how "
            "much a run needs."
        )
    if oom_size_mb:
        yield f"With {format_memory(oom_size_mb)} a run ran out of memory: the task needs more."
        if choice.exceeds_fargate:
            yield (
                f"No size of Fargate has more than {format_memory(LARGEST.memory_mb)}: split the "
                "work into smaller runs, or run the task on EC2, whose instances have more memory."
            )
    elif evidence.needs.reached_size_mb:
        yield (
            "The memory usage reached the limit between two samples, and a child process may "
            "have been killed there: less than "
            f"{format_memory(evidence.needs.reached_size_mb)} is not recommended."
        )
    # A size below 1 MB is an invalid record, and its share could be infinite.
    elif (
        size_mb >= 1 and is_near_limit(required_mb, size_mb) and not choice.need.holds_need(size_mb)
    ):
        yield _near_limit_sentence(evidence, required_mb, size_mb)
    own_mb = first_known(evidence.latest.metrics.memory_size_mb, math.inf)
    container = evidence.latest.container.name
    if own_mb >= size_mb or own_mb == choice.size.memory_mb:
        return
    if oom_size_mb or choice.is_other_size_better:
        yield (
            f"The container {container!r} has its own memory limit of {format_memory(own_mb)}: "
            "check that it fits the new size."
        )


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


def _why_held_by_huge_pages(needs: MemoryAndCpuNeeds) -> str | None:
    """Why a size has no less memory than now: what was measured is not all; without a full stop."""
    if not needs.huge_pages_mb:
        return None
    return (
        f"a run also holds up to {format_memory(needs.huge_pages_mb)} of huge pages, which the "
        "memory used lacks: a smaller size is not recommended"
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


def _why_held_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    yield from map(as_sentence, why_memory_is_not_reduced(evidence.needs, choice, choice.size))


def _mixed_peaks_sentences(evidence: Evidence) -> Iterator[str]:
    """What the peaks of older records are worth beside those that say mapped files apart."""
    if not evidence.needs.has_older:
        return
    worth = "may have been less"
    if evidence.needs.older_memory_mb:
        worth = "only keeps the size from getting smaller"
    yield f"The memory of some of the runs may {INCLUDES_FILES}: it {worth}."


def _reservation_sentences(choice: SizeDecision) -> Iterator[str]:
    if choice.is_reserved_too_much:
        reserved = choice.current.text
        yield (
            f"Less is enough than the reserved {reserved}: other tasks can use the rest of the "
            "instance."
        )


def _unlimited_cpu_sentences(evidence: Evidence) -> Iterator[str]:
    """How many vCPUs a job used that nothing limits, against what it asked for."""
    asked = first_known(evidence.task_size.vcpu, math.inf)
    used = evidence.needs.required_vcpu or 0
    if evidence.is_cpu_limited or used <= asked:
        return
    yield (
        f"The jobs asked for {format_vcpu(asked)} and used {format_vcpu(used)}: on EC2, AWS Batch "
        "limits no job's CPU, so they took what others on the instance left."
    )


def _instance_memory_sentences(choice: SizeDecision) -> Iterator[str]:
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


def _saturation_sentences(
    evidence: Evidence, choice: SizeDecision, *, brief: bool
) -> Iterator[str]:
    """The gain of a larger size, as bounds: all of the saturated time is shortened, or none of
    it.
    """
    percent = evidence.usage.saturated_percent or 0
    vcpu = evidence.vcpu_limit
    if not (evidence.usage.is_saturated and vcpu and evidence.is_cpu_limited):
        return
    used = f"For {format_percent(percent)} of the time, the task {ALL_CPU_USED} {format_vcpu(vcpu)}"
    larger_sizes = [
        option for option in choice.options if option.size.vcpu > vcpu and option.holds_memory
    ]
    if not larger_sizes:
        yield f"{used}."
        return
    larger = larger_sizes[0]
    factor = larger.likely_factor
    hint = "" if brief or choice.policy.faster else " (--faster recommends it)"
    yield (
        f"{used}: with {format_vcpu(larger.size.vcpu)}, a run would take "
        f"{_factor_range_text(factor)} "
        f"as long{_cost_range_text(larger, factor)}, depending on how much of its work is "
        f"parallel{hint}."
    )
    latest = evidence.latest.metrics
    threads = latest.max_pids or 0
    # Threads between two counts are missing where more CPUs were in use than were counted.
    is_whole = first_known(latest.vcpu_used.max, 0) < threads + 0.5
    if 0 < threads <= vcpu and is_whole:
        yield (
            f"The latest run never had more than {format_count(threads, 'thread')}, so more than "
            f"{format_vcpu(vcpu)} would hardly make it faster."
        )


def _cpu_wait_sentences(evidence: Evidence) -> Iterator[str]:
    """How long threads waited for a CPU, and why: the evidence for more vCPUs, or that the task
    does not have its own. Of one run, it is the run's own sentence.
    """
    of_latest = evidence.latest_cpu_wait
    if evidence.outcomes.runs == 1:
        if of_latest.sentence:
            yield as_sentence(of_latest.sentence)
        return
    waited = evidence.usage.cpu_wait_percent
    saturated = evidence.usage.saturated_percent
    if saturated is None or (waited.value or 0) < MIN_CPU_WAIT_PERCENT:
        return
    although = ""
    if saturated < SATURATED_PERCENT:
        rarely = f"used all of its vCPUs for only {format_percent(saturated)} of it"
        although = f", although the task {rarely if saturated else 'was never saturated'}"
    why = f": in the latest run, {of_latest.why}" if of_latest.why else ""
    yield (
        f"On average of the runs, threads that could run waited for a CPU "
        f"{waited.sentence_words(format_percent)} of the time{although}{why}."
    )


def _starved_sentences(evidence: Evidence) -> Iterator[str]:
    """Why the CPU use is no reason for a vCPU size."""
    if not evidence.precision.is_starved:
        return
    who = "It" if evidence.outcomes.runs == 1 else "Each run"
    yield (
        f"{who} had less CPU than it could use, which does not show how many vCPUs it needs: run "
        "it again while the machine is quiet."
    )


def _unmeasured_limits_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    if not choice.is_fargate:
        return
    if choice.size.vcpu == LARGEST.vcpu:
        ending = ": split the work" if choice.needs_more_vcpu else ""
        yield f"{format_vcpu(LARGEST.vcpu)} is the largest size that Fargate has{ending}."
    if choice.size.memory_mb == LARGEST.memory_mb:
        ending = ": split the work" if choice.needs_more_memory else ""
        yield f"{format_memory(LARGEST.memory_mb)} is the largest memory that Fargate has{ending}."
    if not evidence.needs.has_cpu:
        yield "CPU use was not measured, so the vCPU size stays as it is."
    if not evidence.needs.has_memory:
        yield "Memory use was not measured, so the memory size stays as it is."


def _cost_sentences(
    evidence: Evidence, choice: SizeDecision, month: MonthlyTasks | None
) -> Iterator[str]:
    saving_percent = choice.saving_percent
    if saving_percent is None or not choice.is_other_size_better:
        if choice.is_current_size_right and evidence.outcomes.has_success:
            yield "The current size is right."
        return
    factor = choice.factor
    is_slower = factor.max > 1
    percent = format_percent(abs(saving_percent))
    if saving_percent >= 0:
        change = f"The recommended size saves {'at least ' if is_slower else ''}{percent}"
    else:
        change = f"The recommended size costs {'up to ' if is_slower else ''}{percent} more"
    if is_slower:
        duration = f". A run takes {_factor_range_text(factor)} as long"
    elif choice.has_more_vcpu:
        duration = ", if a run takes as long as before"
    else:
        duration = ", at the same duration"
    saved = measured_from(known(abs, choice.usd_saved), is_least=evidence.usage.on_spot)
    money = saved.sentence_words(format_usd)
    if money:
        each = "a run on average" if evidence.outcomes.runs > 1 else "a run"
        change += f": {money} {each}{_monthly_cost_text(saved, month)}"
    yield f"{change}{duration}."


def _monthly_cost_text(usd_per_run: Measured, month: MonthlyTasks | None) -> str:
    if month is None:
        return ""
    # A quarterly batch has no month of 0 runs.
    runs = f"{month.runs:,.0f}" if month.runs >= _MANY_RUNS else f"{month.runs:.2g}"
    count = f"{runs} {'run' if runs == '1' else 'runs'}"
    is_least = isinstance(usd_per_run, AtLeast)
    is_estimate = month.basis != "measured"
    mark = APPROXIMATELY if is_estimate else "about "
    usd = scaled_number(usd_per_run, month.runs)
    if is_least:
        money = f"{APPROXIMATELY if is_estimate else ''}{usd.sentence_words(format_usd)}"
    else:
        money = usd.sentence_words(partial(format_usd_a_month, mark=mark))
    basis = _MONTH_BASES[month.basis] if is_estimate else ""
    return f", {money} a month at {count}{basis}"


def _price_if_moved_sentences(
    evidence: Evidence, choice: SizeDecision, month: MonthlyTasks | None
) -> Iterator[str]:
    """The cost on Fargate of a run of another place, or why it is unknown."""
    chosen = choice.chosen
    region = evidence.on_fargate
    is_here = choice.is_of_fargate and evidence.latest.region == region
    if not (evidence.is_moved and is_here):
        return
    usd = chosen.usd_per_run
    if chosen.hour_usd is None:
        architecture = evidence.latest.cpu_architecture
        if architecture:
            of = f"for {architecture} are unknown"
        else:
            of = "depend on the CPU architecture, which is unknown"
        yield f"Fargate's prices in {region} {of}, so a run has no price."
    elif usd is not None:
        size = chosen.size.text
        most = "at most " if choice.factor.max > 1 else ""
        yield (
            f"With {size} on Fargate in {region}, a run costs "
            f"{most}{format_usd(usd)}{_monthly_cost_text(Exactly(usd), month)}."
        )


def _margin_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
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


def _why_memory_is_not_smaller(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
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


def _why_vcpu_is_not_smaller(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """The reason why the vCPU size is not smaller: the next smaller one, and why it was not
    chosen.
    """
    chosen = choice.chosen
    is_known = evidence.has_cpu and evidence.outcomes.has_success
    if not (choice.is_of_fargate and is_known):
        return
    smaller = max(smaller_vcpus(chosen.size.vcpu), default=0)
    if not smaller:
        return
    name = format_vcpu(smaller)
    options = [option for option in choice.options if option.size.vcpu == smaller]
    option = next((option for option in options if option.holds_memory), None)
    if option is None:
        largest_mb = max(size.memory_mb for size in LEGAL_SIZES if size.vcpu == smaller)
        why = _why_largest_memory_is_too_little(evidence, choice, largest_mb)
        yield f"{name} allows at most {format_memory(largest_mb)} of memory, which {why}."
    elif option.factor is None:
        used = format_vcpu(evidence.needs.vcpu_without_slowdown or 0)
        yield (
            f"{name} was not considered: some runs used up to {used} for 95 % of the time, and "
            "their reports do not show how much longer they would take."
        )
    elif option.factor.max > 1:
        duration = f"With {name}, a run would take {_factor_range_text(option.factor)} as long"
        cost = _cost_range_text(option, option.factor)
        yield f"{duration}{cost}{_accepting_option_text(option, option.factor, chosen)}."


def _accepting_option_text(option: SizeOption, factor: SlowdownBounds, chosen: SizeOption) -> str:
    """The command-line option with which the size would be chosen; none, if not only its duration
    excludes it.
    """
    if option.is_fast_enough or option.comparable_cost >= chosen.comparable_cost:
        return ""
    accepted_percent = math.ceil(100 * (factor.max - 1) - ROUNDING)
    return f": --max-slowdown {accepted_percent} accepts that"


def _why_largest_memory_is_too_little(
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


def _cost_range_text(option: SizeOption, factor: SlowdownBounds) -> str:
    """How much a run would cost, compared with today, at both bounds of its duration."""
    savings = all_known(option.saving_percent_at(factor.max), option.saving_percent_at(factor.min))
    if savings is None:
        return ""
    least, most = savings
    if least >= 0:
        if most >= _MIN_PERCENT:
            return f" and cost {format_range(least, most, 0)} % less"
        return " and cost the same"
    if most <= 0:
        return f" and cost {format_range(-most, -least, 0)} % more"
    return f" and cost between {format_percent(most)} less and {format_percent(-least)} more"


def _factor_range_text(factor: SlowdownBounds) -> str:
    return f"{format_range(factor.min, factor.max)} times"


def _growth_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
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


def _spike_and_device_sentences(evidence: Evidence) -> Iterator[str]:
    peak_mb = evidence.needs.batch_peak_mb or 0
    p99_mb = first_known(evidence.needs.batch_p99_mb, math.inf)
    if p99_mb < 0.5 * peak_mb and peak_mb - p99_mb >= MEMORY_STEP_MB:  # less changes no size
        is_least = isinstance(evidence.needed_memory, AtLeast)
        peak = measured_from(peak_mb, is_least=is_least).text(format_memory)
        yield (
            f"The memory peak is a short spike: {peak} for less than 1 % of the time, at most "
            f"{format_memory(p99_mb)} otherwise."
        )
    if (
        evidence.usage.gpus_idle and evidence.outcomes.runs > 1
    ):  # the record of a single run has a warning for each GPU
        yield (
            "The GPUs were allocated but never used in any run: run the task without GPUs, or "
            "check why the program does not find them."
        )


def _caveat_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    if evidence.outcomes.runs < MIN_RUNS:
        are = "is" if evidence.outcomes.runs == 1 else "are"
        runs = format_count(evidence.outcomes.runs, "run")
        yield f"{runs} {are} a small sample: check again after more runs, with different input."
    if not evidence.usage.has_run_at_current_vcpu and choice.options and evidence.usage.billed:
        yield (
            f"No measured run had {format_vcpu(choice.current.vcpu or 0)}: the costs come from "
            "runs with other vCPU sizes."
        )
    if evidence.outcomes.stopped and evidence.outcomes.runs == evidence.outcomes.stopped:
        yield "Every run was stopped before its end, so the task may need more."
    if evidence.precision.is_by_minute:
        with_margin = f", so the memory has {choice.margin.margin_text}"
        if choice.is_memory_without_margin or choice.is_margin_cut:
            with_margin = ""
        yield (
            "The runs were sampled each minute, by Container Insights: shorter peaks are not "
            f"included{with_margin}."
        )
    if evidence.precision.is_too_short and not evidence.precision.is_by_minute:
        yield (
            f"No run has {MIN_SAMPLES} samples of its memory or a peak by the kernel: less memory "
            "than now is not recommended."
        )
    elif evidence.precision.is_too_short:
        yield (
            f"No run took {MIN_MINUTES} minutes, which is too short for values of each minute: "
            "less memory than now is not recommended."
        )
    is_coarse = (
        evidence.precision.stats_period_ms or 0
    ) > MAX_FINE_PERIOD_MS and not evidence.precision.is_by_minute
    if evidence.precision.peak_source == "sampled" and is_coarse:
        period = format_period(evidence.precision.stats_period_ms or 0)
        yield f"The statistics were refreshed only every {period}: shorter peaks are not included."


def _job_submission_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """Where the size of jobs is changed that ask for it themselves."""
    row = evidence.family
    if isinstance(row, JobsRow) and row.engine is None and choice.is_other_size_better:
        yield (
            "These jobs can ask for another size than their definition has: change it where they "
            "are submitted (resourceRequirements of the container's overrides)."
        )


def _comparability_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """What the runs and their sizes cannot be compared with."""
    if len(evidence.precision.processors) > 1:
        processors = first_names(
            [
                f"{name} ({format_count(count, 'run')})"
                for name, count in evidence.precision.processors
            ]
        )
        yield (
            "The runs had different processors, so their durations and CPU use are hard to "
            f"compare: {processors}."
        )
    others = evidence.latest.containers
    for what, names in (
        (
            "memory of {} was not measured and has no limit to use instead",
            evidence.precision.unknown_memory,
        ),
        (
            "CPU use of {} was not measured",
            [other.name for other in others if vcpu_p95(other.metrics) is None],
        ),
    ):
        if names:
            yield (
                f"The {what.format(first_names([repr(name) for name in names]))}: it is not "
                "included."
            )
    has_requirement = (
        evidence.outcomes.has_success
        or evidence.outcomes.out_of_memory
        or choice.is_other_size_better
    )
    if not choice.is_fargate and not choice.is_current_size_right and has_requirement:
        # With a Region, only runs that used devices remain outside Fargate.
        uses_devices = evidence.on_fargate is not None and evidence.latest.launch_type != FARGATE
        why = "outside Fargate, a size has no price"
        if uses_devices:
            why += ", and Fargate has neither GPUs nor Neuron devices"
        elif evidence.is_moved and choice.size.vcpu is None:
            why = "without the vCPUs that it needs, a size has no price"
        yield f"This is the requirement rounded up: {why}."
