"""Recommendations: size, saving and reasons, for a family of runs and for the record of a single
run.
"""

import math
from functools import partial
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import first_known, known, product
from profiler.core.text import words_if_known
from profiler.record.device_totals import gpu_totals
from profiler.record.family_statistics import MonthlyTasks
from profiler.record.gpu_sentences import gpu_advice
from profiler.record.mention_limits import is_near_limit
from profiler.record.record_model import (
    NO_RECOMMENDATION,
    Recommendation,
    Record,
    Report,
    possible_record,
)
from profiler.record.stop_causes import outcome_of
from profiler.record.units import (
    format_count,
    format_memory,
    format_percent,
    format_usd_a_month,
)
from profiler.sizing.advice_reasons import reason_sentences
from profiler.sizing.choose_size import SizeDecision, SizePolicy, recommend_size
from profiler.sizing.evidence import Evidence, evidence_of_runs
from profiler.sizing.prices import PriceOverrides, cost_of
from profiler.sizing.run_facts import run_facts_of
from profiler.sizing.size_options import EstimateBasis, mark_of_estimates


class Advice(Struct, frozen=True, kw_only=True):
    """The recommended size for a family, with the evidence; its reasons are made for who prints
    them.

    ``month``: None if neither a measurement nor an estimate was asked for or possible.
    """

    evidence: Evidence
    choice: SizeDecision
    month: MonthlyTasks | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons as sentences, the most important first."""
        return reason_sentences(self.evidence, self.choice, self.month, brief=False)

    @property
    def brief_reasons(self) -> tuple[str, ...]:
        """The reasons without the sizes that were not chosen, and without options."""
        return reason_sentences(self.evidence, self.choice, self.month, brief=True)

    @property
    def risk_sentence(self) -> str:
        """A sentence if the current memory may be too small: a run used nearly all of it, and the
        margin does not fit; "" else.

        A kill at a size below the current one does not count.
        """
        evidence = self.evidence
        size_mb = self.choice.current.memory_mb or 0
        peak_mb = evidence.needs.required_memory_mb or 0
        killed_at_mb = first_known(evidence.needs.oom_size_mb, math.inf)
        if evidence.outcomes.out_of_memory and killed_at_mb >= size_mb:
            return f"{format_count(evidence.outcomes.out_of_memory, 'run')} ran out of memory"
        if is_near_limit(peak_mb, size_mb) and not self.choice.need.holds_need(size_mb):
            return (
                f"a run needed {format_memory(peak_mb)} of the task's {format_memory(size_mb)} of "
                "memory"
            )
        return ""

    @property
    def usd_per_run(self) -> float | None:
        """What a run costs at the current size."""
        options = self.choice.options
        return options[0].current_usd_per_run if options else None

    @property
    def usd_per_month(self) -> float | None:
        """What the runs cost in a month at the current size."""
        return self.usd_in_a_month(self.usd_per_run)

    @property
    def saving_usd_per_month(self) -> float | None:
        """The saving in a month at the upper bound of the duration; negative if the recommended
        size costs more.
        """
        return self.usd_in_a_month(self.choice.usd_saved)

    def usd_in_a_month(self, usd_per_run: float | None) -> float | None:
        """The price of a run × the runs a month; None if one of them is unknown."""
        return product(usd_per_run, self.runs_per_month)

    @property
    def runs_per_month(self) -> float | None:
        return known(attrgetter("runs"), self.month)

    @property
    def estimated_by(self) -> tuple[EstimateBasis, ...]:
        """By what amounts a month are estimates: an assumption about the runs, those of a few days,
        or the least that Spot costs; empty if they are none.
        """
        month = self.month
        bases: list[EstimateBasis] = []
        if month is not None and (month.is_estimate or month.is_of_few_days):
            bases.append("window" if month.is_of_few_days else month.basis)
        if self.evidence.usage.on_spot:
            bases.append("Spot")
        return tuple(bases)

    @property
    def monthly_amount_mark(self) -> str:
        """The mark of amounts a month."""
        return mark_of_estimates(self.estimated_by)

    @property
    def has_estimated_month(self) -> bool:
        return self.month is not None and self.month.is_estimate

    def possible_saving_sentence(self, min_saving_percent: float, min_saving_usd: float = 0) -> str:
        """A sentence if the recommended size saves at least ``min_saving_percent``, and in a
        month the USD, which an estimate of the runs a month does not prove; "" else.
        """
        saving_percent = first_known(self.choice.saving_percent, -math.inf)
        usd = self.saving_usd_per_month
        if not self.choice.is_other_size_better or saving_percent < min_saving_percent:
            return ""
        is_unproven = first_known(usd, -math.inf) < min_saving_usd or self.has_estimated_month
        if min_saving_usd and is_unproven:
            return ""
        text = f"the recommended size saves {format_percent(saving_percent)}"
        amount = known(partial(format_usd_a_month, mark=self.monthly_amount_mark), usd)
        return text + words_if_known(", {} a month", amount)


def advise_on_size(
    evidence: Evidence,
    policy: SizePolicy,
    price_overrides: PriceOverrides,
    month: MonthlyTasks | None = None,
) -> Advice:
    """Recommend a size for a family where its latest run was.

    ``month``: an estimate, for a window too short to measure it.
    """
    choice = recommend_size(evidence, policy, price_overrides)
    return Advice(evidence=evidence, choice=choice, month=evidence.usage.tasks_in_a_month or month)


def with_recommendation(
    record: Record, price_overrides: PriceOverrides | None, *, time: str
) -> Record:
    """Add cost and recommendation to the record of an ended run.

    Advice on GPUs that may be others' is left out.
    """
    if record.status == "running":
        return record
    possible = possible_record(record)
    prices = price_overrides or PriceOverrides()
    advice = NO_RECOMMENDATION
    report = Report(time=time, type="task.report", record=possible)
    run = run_facts_of(report, outcome_of(possible))
    evidence = evidence_of_runs(run.family, [run])
    if evidence is not None:
        advised = advise_on_size(evidence, SizePolicy(), prices)
        size = advised.choice.size
        saving_percent = advised.choice.saving_percent
        advice = Recommendation(
            vcpu=size.vcpu,
            memory_mb=size.memory_mb,
            saving_percent=saving_percent,
            reasons=advised.brief_reasons,
        )
    for sentence in gpu_advice(possible, gpu_totals(possible)):
        advice = replace(advice, reasons=(*advice.reasons, sentence))
    return replace(record, cost=cost_of(possible, prices), recommendation=advice)
