"""The sentences that explain a recommended size, the most important first."""

from collections.abc import Iterator

from profiler.core.ecs_terms import FARGATE
from profiler.core.optional_math import difference
from profiler.core.text import first_names, listed
from profiler.core.timestamps import NS_PER_MS
from profiler.record.family_statistics import MonthlyTasks
from profiler.record.measured import measured_from
from profiler.record.task_needs import vcpu_p95
from profiler.record.units import (
    format_count,
    format_duration,
    format_memory,
    format_period,
    format_vcpu,
)
from profiler.record.unusual import MIN_RUNS
from profiler.sizing.choose_size import SizeDecision
from profiler.sizing.cost_reasons import cost_sentences, price_if_moved_sentences
from profiler.sizing.cpu_reasons import (
    cpu_wait_sentences,
    saturation_sentences,
    starved_sentences,
    unlimited_cpu_sentences,
    why_vcpu_is_not_smaller,
)
from profiler.sizing.evidence import MAX_FINE_PERIOD_MS, MIN_MINUTES, MIN_SAMPLES, Evidence
from profiler.sizing.fargate_sizes import LARGEST
from profiler.sizing.job_grouping import JobsRow
from profiler.sizing.memory_reasons import (
    growth_sentences,
    instance_memory_sentences,
    margin_sentences,
    memory_sentences,
    mixed_peaks_sentences,
    spike_sentences,
    why_held_sentences,
    why_memory_is_not_smaller,
)


def reason_sentences(
    evidence: Evidence, choice: SizeDecision, month: MonthlyTasks | None, *, brief: bool
) -> tuple[str, ...]:
    """Return the sentences, the most important first.

    ``brief`` leaves out the sizes that were not chosen.
    """
    return (
        _runs_and_usage_sentence(evidence),
        *memory_sentences(evidence, choice),
        *why_held_sentences(evidence, choice),
        *mixed_peaks_sentences(evidence),
        *_reservation_sentences(choice),
        *unlimited_cpu_sentences(evidence),
        *instance_memory_sentences(choice),
        *saturation_sentences(evidence, choice, brief=brief),
        *cpu_wait_sentences(evidence),
        *starved_sentences(evidence),
        *_unmeasured_limits_sentences(evidence, choice),
        *price_if_moved_sentences(evidence, choice, month),
        *cost_sentences(evidence, choice, month),
        *(() if brief else _why_not_smaller_sentences(evidence, choice)),
        *growth_sentences(evidence, choice),
        *spike_sentences(evidence),
        *_idle_gpu_sentences(evidence),
        *_caveat_sentences(evidence, choice),
        *_comparability_sentences(evidence, choice),
        *_job_submission_sentences(evidence, choice),
    )


def _why_not_smaller_sentences(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    """What keeps the size from being smaller."""
    yield from margin_sentences(evidence, choice)
    yield from why_memory_is_not_smaller(evidence, choice)
    yield from why_vcpu_is_not_smaller(evidence, choice)


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


def _reservation_sentences(choice: SizeDecision) -> Iterator[str]:
    if choice.is_reserved_too_much:
        reserved = choice.current.text
        yield (
            f"Less is enough than the reserved {reserved}: other tasks can use the rest of the "
            "instance."
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


def _idle_gpu_sentences(evidence: Evidence) -> Iterator[str]:
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
