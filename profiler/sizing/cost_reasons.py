"""The reasons of a recommended size that are money: what it saves or costs, a run and a month."""

from collections.abc import Iterator, Mapping
from functools import partial

from profiler.core.optional_math import all_known, known
from profiler.record.family_statistics import MonthBasis, MonthlyTasks
from profiler.record.measured import AtLeast, Exactly, Measured, measured_from, scaled_number
from profiler.record.record_model import SlowdownBounds
from profiler.record.units import (
    APPROXIMATELY,
    format_percent,
    format_range,
    format_usd,
    format_usd_a_month,
)
from profiler.sizing.choose_size import SizeDecision
from profiler.sizing.evidence import Evidence
from profiler.sizing.size_options import SizeOption

_MANY_RUNS = 10
_MIN_PERCENT = 0.5
_MONTH_BASES: Mapping[MonthBasis, str] = {
    "schedule": " by its schedules",
    "window": ", as many a day as its runs show",
    "nightly": ", if it runs nightly",
}


def cost_sentences(
    evidence: Evidence, choice: SizeDecision, month: MonthlyTasks | None
) -> Iterator[str]:
    """What the recommended size saves or costs more, or that the current one is right."""
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
        duration = f". A run takes {factor_range_text(factor)} as long"
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


def price_if_moved_sentences(
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


def cost_range_text(option: SizeOption, factor: SlowdownBounds) -> str:
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


def factor_range_text(factor: SlowdownBounds) -> str:
    """How many times as long a run would take."""
    return f"{format_range(factor.min, factor.max)} times"
