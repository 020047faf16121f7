"""What other sizes would take and cost, and the advice, in a few lines."""

from collections.abc import Iterator

from profiler.cli.styled_text import Glyphs
from profiler.past_runs.families import read_families
from profiler.past_runs.run_source import CHECKPOINT, PastRun, RunFilter, RunSource
from profiler.record.family_identity import family_key
from profiler.record.hardware import idle_advice
from profiler.record.record_model import Record
from profiler.record.units import format_task_size, format_vcpu
from profiler.sizing.advice import Advice, advise
from profiler.sizing.choose_size import Policy
from profiler.sizing.duration_factors import SAME_DURATION, DurationFactor, smaller_vcpus
from profiler.sizing.evidence import LAST_RUNS, Evidence, evidence_of_runs
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.run_facts import facts_of
from profiler.sizing.what_if import SizeOption

_MAX_SMALLER_SIZES = 2
_MAX_REASONS = 2
# With one decimal, anything below is 1.0 times as long.
_MIN_FACTOR = 1.05
_MIN_PERCENT = 0.5


def find_advice(run: PastRun, source: RunSource | None, price_overrides: PriceOverrides) -> Advice | None:
    """Recommend a size from the last 50 runs of the family up to this run; without ``source``, from this run only.

    None if no such run was measured.
    """
    evidence = _evidence_of_run(run) if source is None else _evidence_of_family(run, source)
    return None if evidence is None else advise(evidence, Policy(), price_overrides, brief=True)


def _evidence_of_run(run: PastRun) -> Evidence | None:
    if run.report.type == CHECKPOINT:
        return None
    facts = facts_of(run.report)
    return evidence_of_runs(facts.family, [facts])


def _evidence_of_family(run: PastRun, source: RunSource) -> Evidence | None:
    up_to_run = RunFilter(family=family_key(run.report.record), until_ns=run.started_ns + 1)
    return next((family.evidence for family in read_families(source, up_to_run, LAST_RUNS).families), None)


def what_if_texts(advice: Advice | None, record: Record, glyphs: Glyphs) -> Iterator[str]:
    """How long a run would take with less vCPU, and what it would cost: the two next smaller sizes."""
    if advice is None or not advice.evidence.has_cpu:
        return
    evidence, options = advice.evidence, advice.choice.options
    current_vcpu = evidence.current_vcpu
    if options:
        smaller = [option for option in options if current_vcpu is not None and option.size.vcpu < current_vcpu]
        yield from (_option_text(option, glyphs) for option in reversed(smaller[-_MAX_SMALLER_SIZES:]))
    elif evidence.slowdowns is not None:
        limit = current_vcpu or record.metrics.vcpu_size or 0
        vcpus = [vcpu for vcpu in smaller_vcpus(current_vcpu) if vcpu < limit][-_MAX_SMALLER_SIZES:]
        factors = [evidence.slowdowns.get(vcpu, SAME_DURATION) for vcpu in vcpus]
        texts = [
            f"{format_vcpu(vcpu)}: {_factor_text(factor, glyphs)}" for vcpu, factor in zip(vcpus, factors, strict=True)
        ]
        yield glyphs.separator.join(reversed(texts))


def _option_text(option: SizeOption, glyphs: Glyphs) -> str:
    name = format_task_size(option.size.vcpu, option.size.memory_mb)
    if option.factor is None:
        return f"{name}: slower, but by an unknown factor"
    return f"{name}: {_factor_text(option.factor, glyphs)}{_saving_text(option.saving_percent)}"


def _factor_text(factor: DurationFactor, glyphs: Glyphs) -> str:
    if factor.max < _MIN_FACTOR:
        return "not slower"
    low, high = f"{factor.min:.1f}", f"{factor.max:.1f}"
    return f"{low if low == high else f'{low} to {high}'}{glyphs.times} as long"


def _saving_text(percent: float | None) -> str:
    """The saving at the upper bound of the duration."""
    if percent is None or abs(percent) < _MIN_PERCENT:
        return ""
    return f", saves {percent:.0f} %" if percent > 0 else f", costs {-percent:.0f} % more"


def advice_texts(advice: Advice | None, record: Record) -> Iterator[str]:
    """The recommended size with the runs that it was calculated from, its reasons, and unused GPUs."""
    if advice is not None:
        choice = advice.choice
        size = format_task_size(choice.size.vcpu, choice.size.memory_mb)
        basis = f"(based on {_runs_text(advice.evidence)})"
        if choice.is_right and advice.risk is None and choice.current is not None:
            yield f"keep {format_task_size(choice.current.vcpu, choice.current.memory_mb)} {basis}"
        else:
            yield f"{size}{_saving_text(choice.saving_percent)} {basis}"
            yield from advice.reasons[1 : _MAX_REASONS + 1]
    gpus = idle_advice(record.gpus)
    if gpus is not None:
        yield gpus


def _runs_text(evidence: Evidence) -> str:
    runs = evidence.runs + evidence.out_of_memory_unmeasured
    return "this run" if runs == 1 else f"{runs} runs"
