"""What other sizes would take and cost, and the advice, in a few lines."""

from collections.abc import Iterator

from profiler.cli.terminal.page_parts import PageText, label, labelled_once
from profiler.core.optional_math import known
from profiler.record.record_model import SlowdownBounds
from profiler.record.run_usage import CpuUse
from profiler.record.story_rows import UNSEEN_LIMITS, Story
from profiler.record.units import (
    format_count,
    format_duration,
    format_memory,
    format_range,
    format_vcpu,
    saving_words,
)
from profiler.runs.past_runs.family_evidence import family_evidence
from profiler.runs.past_runs.run_source import PastRun, RunSource
from profiler.sizing.advice import Advice, advise
from profiler.sizing.choose_size import Policy
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.sizing_rules import word_of_change
from profiler.sizing.slowdown_factors import MIN_SLOWER_FACTOR, SAME_DURATION, smaller_vcpus
from profiler.sizing.trend import growth

_MAX_SMALLER_SIZES = 2
_MAX_REASONS = 2


def find_advice(
    run: PastRun, source: RunSource | None, price_overrides: PriceOverrides
) -> Advice | None:
    """Recommend a size from the family's last 50 runs; without ``source``, from this run.

    None: none was measured.
    """
    evidence = family_evidence(run, source)
    if evidence is None:
        return None
    return advise(evidence, Policy(), price_overrides, brief=True)


def size_lines(advice: Advice | None, story: Story) -> Iterator[PageText]:
    """How the family grows, what less vCPU would take, and the advice."""
    yield PageText(label("trend"), trend_text(advice))
    yield from labelled_once("what if", what_if_texts(advice, story.usage.cpu))
    yield from labelled_once("advice", advice_texts(advice, story))


def what_if_texts(advice: Advice | None, cpu: CpuUse) -> Iterator[str]:
    """The duration and the cost of a run with less vCPU: the two next smaller sizes."""
    if advice is None or not (
        advice.evidence.needs.has_cpu and advice.evidence.outcomes.has_success
    ):
        return
    evidence = advice.evidence
    options = advice.choice.options
    current_vcpu = evidence.size.vcpu
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


def trend_text(advice: Advice | None) -> str:
    """How the family's memory peak and its duration grow over its runs; empty unless they do."""
    if advice is None:
        return ""
    texts = []
    memory = advice.choice.growth
    per_run_mb = format_memory(memory.per_run)
    if memory.is_notable and per_run_mb != format_memory(0):
        text = f"memory peak +{per_run_mb} a run over {memory.runs} runs"
        limit_mb = advice.choice.current.memory_mb
        runs = known(memory.runs_until_near, limit_mb)
        if limit_mb is not None and runs is not None:
            text += f", passes {format_memory(limit_mb)} in about {format_count(runs, 'run')}"
        texts.append(text)
    duration = growth(advice.evidence.usage.durations_ms)
    if duration.is_notable:
        per_run = format_duration(duration.per_run)
        texts.append(f"duration +{per_run} a run over {duration.runs} successes")
    return " · ".join(texts)


def advice_texts(advice: Advice | None, story: Story) -> Iterator[str]:
    """The recommended size with the runs that it was calculated from, its reasons, GPUs and
    unseen limits.
    """
    if advice is not None:
        choice = advice.choice
        size = choice.size.text
        beside = story.usage.beside_text.replace(" ", ", ", 1)
        runs = advice.evidence.outcomes.runs + advice.evidence.outcomes.out_of_memory_unmeasured
        basis = f"(based on {'this run' if runs == 1 else f'{runs} runs'}){beside}"
        is_kept = choice.is_right and not advice.risk
        if is_kept:
            yield f"keep {choice.current.text} {basis}"
        elif size:
            word = word_of_change(advice)
            change = f": {word}" if word else _saving_text(choice.saving_percent)
            yield f"{size}{change} {basis}"
        count = _MAX_REASONS
        if is_kept:
            count = int(not advice.evidence.outcomes.has_success)
        yield from advice.reasons[1 : 1 + count]
    named = story.named("GPU remedy", "GPU advice", *UNSEEN_LIMITS)
    yield from (row.text for row in named)
