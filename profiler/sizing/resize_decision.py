"""Decides on the size of a family: the first rule that applies, with the money, the verdict on the
last change, and the evidence that a person should see.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from profiler.core.optional_math import max_known, min_known
from profiler.record.record_model import TaskSize
from profiler.record.units import format_task_size
from profiler.sizing.advice_document import rounded_usd
from profiler.sizing.evidence import Evidence
from profiler.sizing.resize_case import ResizeCase
from profiler.sizing.resize_effect import Judged
from profiler.sizing.resize_policy import Resize, ResizeVerdict, ShownEvidence
from profiler.sizing.sized_revision import Circumstances, SizedRevision
from profiler.sizing.sizing_rules import RULES, Rule
from profiler.sizing.what_if import usd_per_month
from profiler.sizing.window_advice import WindowAdvice
from profiler.sizing.window_evidence import largest_need


def decide(advised: WindowAdvice, revision: SizedRevision, circumstances: Circumstances) -> Resize:
    """Decide on the size of a family by a closed window of its runs."""
    case = ResizeCase(advised, revision, circumstances)
    decision = _first(case, RULES)
    advice = case.advice
    return replace(
        decision,
        usd_per_month=None if advice is None else advice.usd_per_month,
        evidence=_shown(case, decision),
    )


def _first(case: ResizeCase, rules: Sequence[Rule]) -> Resize:
    """The decision of the first rule that applies; one always does."""
    for number, rule in enumerate(rules):
        reason = rule.reason_to_act(case)
        if reason is None:
            continue
        if rule.shows_later:
            later = _first(case, rules[number + 1 :])
            if later.action == "revert" and rule.allows_revert:
                return later
            if later.size is not None and rule.remedy:
                size = format_task_size(later.size.vcpu, later.size.memory_mb)
                reason += rule.remedy.format(size=size)
            return replace(later, action="none", reason=reason, saving_usd_per_month=None)
        return _decision(case, rule, reason)
    raise AssertionError


def _decision(case: ResizeCase, rule: Rule, reason: str) -> Resize:
    chosen = None if rule.size is None else rule.size(case)
    decision = Resize(
        action=rule.action or "none",
        reason=reason,
        runs=case.window.counts.tasks,
        verdict=None if case.judged is None else _verdict(case, case.judged),
    )
    if chosen is None:
        return decision
    if isinstance(chosen, TaskSize):
        return replace(decision, size=chosen, saving_usd_per_month=_saving_of_size(rule, decision))
    saving = None
    if rule.action != "none" and case.evidence is not None:
        saving = usd_per_month(chosen.usd_saved, case.evidence)
    return replace(decision, size=chosen.size, saving_usd_per_month=saving)


def _saving_of_size(rule: Rule, decision: Resize) -> float | None:
    """A revert costs what the change has saved; the same size costs the same."""
    if rule.action == "resize":
        return 0
    if rule.action == "revert" and decision.verdict is not None:
        saved_usd = decision.verdict.saved_usd_per_month
        return None if saved_usd is None else -saved_usd
    return None


def _verdict(case: ResizeCase, judged: Judged) -> ResizeVerdict:
    change_percent = judged.duration_change_percent
    return ResizeVerdict(
        runs=judged.own.counts.tasks,
        killed=judged.killed,
        failed=judged.failed,
        duration_change_percent=None if change_percent is None else round(change_percent, 1),
        saved_usd_per_month=rounded_usd(_saved_usd_per_month(case, judged)),
    )


def _saved_usd_per_month(case: ResizeCase, judged: Judged) -> float | None:
    """What a run cost before less what it costs now, for the runs before and since."""
    before_usd = case.usd_per_run_before
    now_usd = None
    if case.advice is not None:
        now_usd = case.advice.usd_per_run
    if before_usd is None or now_usd is None or case.evidence is None:
        return None
    before = judged.before.counts
    own = judged.own.counts
    first_ns = min_known(before.first_ns, own.first_ns)
    last_ns = max_known(before.last_ns, own.last_ns)
    usage = replace(
        case.evidence.usage,
        window_ns=(last_ns or 0) - (first_ns or 0),
        window_tasks=before.tasks + own.tasks,
    )
    evidence: Evidence = replace(case.evidence, usage=usage)
    return usd_per_month(before_usd - now_usd, evidence)


def _killed_above_mb(case: ResizeCase) -> float | None:
    """The size at which a run was killed, if that is all that is known of the largest need."""
    advice = case.advice_of_all
    return None if advice is None else advice.evidence.needs.oom_size_mb


def _shown(case: ResizeCase, decision: Resize) -> ShownEvidence:
    largest = largest_need(case.window)
    of_all = case.advice_of_all
    duration = None
    if decision.size is not None and decision.size.vcpu is not None and of_all is not None:
        for option in of_all.choice.ranked:
            if option.size.vcpu == decision.size.vcpu:
                duration = option.factor
    return ShownEvidence(
        runs=case.window.counts.tasks,
        days=case.days_seen,
        peak_mb=None if largest is None else largest.needed_memory_mb,
        peak_at=None if largest is None else largest.began,
        duration=duration,
        unconfirmed=case.window.unconfirmed,
        elsewhere=case.window.tasks_elsewhere,
        by_minute=case.window.by_minute,
        killed_above_mb=_killed_above_mb(case),
        margin_percent=None if of_all is None else of_all.choice.margin.percent,
    )
