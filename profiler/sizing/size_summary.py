"""What a family's runs say of other sizes, in words: how it grows, what a smaller size would take,
and the advice.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from profiler.core.optional_math import known
from profiler.record.record_model import SlowdownBounds
from profiler.record.run_summary import Story
from profiler.record.run_usage import CpuUse, RunUsage
from profiler.record.success_advice import ALL_CPU_USED
from profiler.record.units import (
    format_count,
    format_duration,
    format_memory,
    format_range,
    format_vcpu,
    saving_words,
)
from profiler.sizing.advice import Advice
from profiler.sizing.sizing_rules import size_words_without_saving
from profiler.sizing.slowdown_factors import MIN_SLOWER_FACTOR, SAME_DURATION, smaller_vcpus
from profiler.sizing.trend import Growth

_MAX_SMALLER_SIZES = 2
_MAX_REASONS = 2


class SizeStory(Struct, frozen=True, kw_only=True):
    """``trend``: how the family's memory peak and duration grow, each where it does;
    ``what_if``: the duration and the cost of a run with less vCPU; ``advice``: the recommended
    size with the runs that it was calculated from, and its reasons; ``is_of_one_run``: these are
    one run.
    """

    trend: tuple[str, ...] = ()
    what_if: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    is_of_one_run: bool = False


NO_SIZE_STORY: Final = SizeStory()


def advice_lines(story: Story, sizes: SizeStory) -> list[str]:
    """What to do about a run: its own advice, the first as at the end of ``run``, and the size of
    its family. What the run itself says, the family does not repeat; of the use of all CPUs it
    speaks then only if it is more runs and says what a larger size brings.
    """
    of_run = [row.text for row in story.advice]
    told = {row.sentence for row in story.advice}
    is_said = any(ALL_CPU_USED in text for text in told)
    of_family = [
        text
        for text in sizes.advice
        if text not in told
        and not (
            is_said and ALL_CPU_USED in text and (sizes.is_of_one_run or ": with " not in text)
        )
    ]
    return [*of_run, *of_family]


def size_story(advice: Advice | None, usage: RunUsage) -> SizeStory:
    """The words of a family's advice for one of its runs, which used this; NO_SIZE_STORY without
    advice.
    """
    if not advice:
        return NO_SIZE_STORY
    return SizeStory(
        trend=tuple(_trend_texts(advice)),
        what_if=tuple(_what_if_texts(advice, usage.cpu)),
        advice=tuple(_advice_texts(advice, usage.beside_text)),
        is_of_one_run=_count_runs(advice) == 1,
    )


def _trend_texts(advice: Advice) -> Iterator[str]:
    memory = advice.choice.growth
    if memory.is_notable:
        yield from _memory_trend_texts(memory, advice.choice.current.memory_mb)
    duration = advice.evidence.usage.durations_ms.growth
    if duration.is_notable:
        per_run = format_duration(duration.per_run)
        yield f"duration +{per_run} a run over {duration.runs} successes"


def _memory_trend_texts(memory: Growth, limit_mb: float | None) -> Iterator[str]:
    per_run = format_memory(memory.per_run)
    if per_run == format_memory(0):
        return
    text = f"memory peak +{per_run} a run over {memory.runs} runs"
    runs = known(memory.runs_until_near, limit_mb)
    if limit_mb is not None and runs is not None:
        text += f", passes {format_memory(limit_mb)} in about {format_count(runs, 'run')}"
    yield text


def _what_if_texts(advice: Advice, cpu: CpuUse) -> Iterator[str]:
    """The duration and the cost of a run with less vCPU: the two next smaller sizes."""
    evidence = advice.evidence
    if not (evidence.has_cpu and evidence.outcomes.has_success):
        return
    options = advice.choice.options
    current_vcpu = evidence.task_size.vcpu
    if options:
        smaller = [option for option in options if option.size.vcpu < (current_vcpu or 0)]
        for option in reversed(smaller[-_MAX_SMALLER_SIZES:]):
            slower = "slower, but by an unknown factor"
            if option.factor is not None:
                slower = f"{_factor_text(option.factor)}{_saving_text(option.saving_percent)}"
            yield f"{option.size.text}: {slower}"
    elif evidence.needs.slowdowns is not None:
        limit = current_vcpu or cpu.size or 0
        vcpus = [vcpu for vcpu in smaller_vcpus(current_vcpu) if vcpu < limit][-_MAX_SMALLER_SIZES:]
        texts = []
        for vcpu in reversed(vcpus):
            factor = evidence.needs.slowdowns.get(vcpu, SAME_DURATION)
            texts.append(f"{format_vcpu(vcpu)}: {_factor_text(factor)}")
        yield " · ".join(texts)


def _factor_text(factor: SlowdownBounds) -> str:
    if factor.max < MIN_SLOWER_FACTOR:
        return "not slower"
    return f"{format_range(factor.min, factor.max)}× as long"


def _saving_text(percent: float | None) -> str:
    """The saving at the upper bound of the duration."""
    saving = saving_words(percent)
    return saving and f", {saving}"


def _advice_texts(advice: Advice, beside: str) -> Iterator[str]:
    choice = advice.choice
    size = choice.size.text
    devices = beside.replace(" ", ", ", 1)
    runs = _count_runs(advice)
    basis = f"(based on {'this run' if runs == 1 else f'{runs} runs'}){devices}"
    is_kept = choice.is_current_size_right and not advice.risk_sentence
    if is_kept:
        yield f"keep {choice.current.text} {basis}"
    elif size:
        word = size_words_without_saving(advice)
        change = f": {word}" if word else _saving_text(choice.saving_percent)
        yield f"{size}{change} {basis}"
    count = _MAX_REASONS
    if is_kept:
        count = int(not advice.evidence.outcomes.has_success)
    yield from advice.brief_reasons[1 : 1 + count]


def _count_runs(advice: Advice) -> int:
    return advice.evidence.outcomes.runs + advice.evidence.outcomes.out_of_memory_unmeasured
