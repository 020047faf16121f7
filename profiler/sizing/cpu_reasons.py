"""The reasons for the vCPUs of a recommended size: how busy they were, what threads waited for, and
why the next smaller size was not chosen.
"""

import math
from collections.abc import Iterator

from profiler.core.optional_math import first_known
from profiler.core.text import as_sentence
from profiler.record.cpu_wait import MIN_CPU_WAIT_PERCENT
from profiler.record.mention_limits import SATURATED_PERCENT
from profiler.record.record_model import SlowdownBounds
from profiler.record.success_advice import ALL_CPU_USED
from profiler.record.units import format_count, format_memory, format_percent, format_vcpu
from profiler.sizing.choose_size import SizeDecision
from profiler.sizing.cost_reasons import cost_range_text, factor_range_text
from profiler.sizing.evidence import Evidence
from profiler.sizing.fargate_sizes import LEGAL_SIZES
from profiler.sizing.memory_reasons import why_largest_memory_is_too_little
from profiler.sizing.size_options import ROUNDING, SizeOption
from profiler.sizing.slowdown_factors import smaller_vcpus


def unlimited_cpu_sentences(evidence: Evidence) -> Iterator[str]:
    """How many vCPUs a job used that nothing limits, against what it asked for."""
    asked = first_known(evidence.task_size.vcpu, math.inf)
    used = evidence.needs.required_vcpu or 0
    if evidence.is_cpu_limited or used <= asked:
        return
    yield (
        f"The jobs asked for {format_vcpu(asked)} and used {format_vcpu(used)}: on EC2, AWS Batch "
        "limits no job's CPU, so they took what others on the instance left."
    )


def saturation_sentences(evidence: Evidence, choice: SizeDecision, *, brief: bool) -> Iterator[str]:
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
        f"{factor_range_text(factor)} "
        f"as long{cost_range_text(larger, factor)}, depending on how much of its work is "
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


def cpu_wait_sentences(evidence: Evidence) -> Iterator[str]:
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


def starved_sentences(evidence: Evidence) -> Iterator[str]:
    """Why the CPU use is no reason for a vCPU size."""
    if not evidence.precision.is_starved:
        return
    who = "It" if evidence.outcomes.runs == 1 else "Each run"
    yield (
        f"{who} had less CPU than it could use, which does not show how many vCPUs it needs: run "
        "it again while the machine is quiet."
    )


def why_vcpu_is_not_smaller(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
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
        why = why_largest_memory_is_too_little(evidence, choice, largest_mb)
        yield f"{name} allows at most {format_memory(largest_mb)} of memory, which {why}."
    elif option.factor is None:
        used = format_vcpu(evidence.needs.vcpu_without_slowdown or 0)
        yield (
            f"{name} was not considered: some runs used up to {used} for 95 % of the time, and "
            "their reports do not show how much longer they would take."
        )
    elif option.factor.max > 1:
        duration = f"With {name}, a run would take {factor_range_text(option.factor)} as long"
        cost = cost_range_text(option, option.factor)
        yield f"{duration}{cost}{_accepting_option_text(option, option.factor, chosen)}."


def _accepting_option_text(option: SizeOption, factor: SlowdownBounds, chosen: SizeOption) -> str:
    """The command-line option with which the size would be chosen; none, if not only its duration
    excludes it.
    """
    if option.is_fast_enough or option.comparable_cost >= chosen.comparable_cost:
        return ""
    accepted_percent = math.ceil(100 * (factor.max - 1) - ROUNDING)
    return f": --max-slowdown {accepted_percent} accepts that"
