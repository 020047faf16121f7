"""Decides on the size of a family: the first rule that applies, with the money, the verdict on the
last change, and the evidence that a person should see.
"""

from collections.abc import Sequence
from functools import partial
from operator import neg

from msgspec.structs import replace

from profiler.core.optional_math import difference, known, max_known, min_known, rounded
from profiler.core.text import words_if_known
from profiler.record.measured import AtLeast, measured_from
from profiler.record.record_model import UNKNOWN_SIZE, TaskSize
from profiler.sizing.advice import Advice
from profiler.sizing.advice_document import rounded_usd_per_month
from profiler.sizing.resize_case import ResizeCase
from profiler.sizing.resize_effect import ChangeEffect
from profiler.sizing.resize_limits import ResizeDecision, ResizeVerdict, ShownEvidence
from profiler.sizing.size_candidates import ChosenSize, MeasuredCase, resize_case
from profiler.sizing.size_options import usd_per_month
from profiler.sizing.sized_revision import FamilyCircumstances, SizedRevision
from profiler.sizing.sizing_rules import RULES, Precondition, Rule, is_decided_by_others
from profiler.sizing.window_advice import WindowAdvice
from profiler.sizing.window_evidence import run_with_largest_need


def decide_on_resize(
    advised: WindowAdvice, revision: SizedRevision, circumstances: FamilyCircumstances
) -> ResizeDecision:
    """Decide on the size of a family by a closed window of its runs."""
    case = resize_case(advised, revision, circumstances)
    decision = replace(
        _first_decision(case, RULES), is_decided_by_others=is_decided_by_others(case)
    )
    shown = _shown_evidence(case)
    if not isinstance(case, MeasuredCase):
        return replace(decision, evidence=shown)
    return replace(
        decision,
        usd_per_month=case.advice.usd_per_month,
        estimated_by=case.advice.estimated_by,
        evidence=_evidence_with_advice(shown, case.advice_of_all, decision.size),
    )


def _first_decision(case: ResizeCase, rules: Sequence[Precondition | Rule]) -> ResizeDecision:
    """The decision of the first rule that applies; one always does."""
    for number, rule in enumerate(rules):
        reason = rule.reason_to_act(case)
        if not reason:
            continue
        if isinstance(rule, Precondition) and rule.shows_later:
            return _decision_to_leave_alone(
                rule, reason, _first_decision(case, rules[number + 1 :])
            )
        return _decision_of_rule(case, rule, reason)
    raise AssertionError


def _decision_to_leave_alone(
    rule: Precondition, reason: str, later: ResizeDecision
) -> ResizeDecision:
    """A family is left alone, with the size of the first later rule that applies."""
    if later.action == "revert" and rule.allows_revert:
        return later
    if later.size is not None and rule.remedy:
        size = later.size.text
        reason += rule.remedy.format(size=size)
    return replace(later, action="none", reason=reason, saving_usd_per_month=None)


def _decision_of_rule(case: ResizeCase, rule: Precondition | Rule, reason: str) -> ResizeDecision:
    decision = ResizeDecision(
        action=rule.action or "none",
        reason=reason,
        runs=case.window.deciding_counts.task_count,
        verdict=known(partial(_resize_verdict, case), case.verdict_on_last_change),
    )
    chosen = rule.new_size(case)
    if not isinstance(chosen, ChosenSize):
        return replace(decision, size=chosen, saving_usd_per_month=_saving_of_size(rule, decision))
    if rule.action == "resize":
        decision = replace(decision, reason=reason + words_if_known("; {}", chosen.refused))
    saving = None
    if rule.action != "none" and isinstance(case, MeasuredCase):
        saving = usd_per_month(chosen.usd_saved, case.evidence)
    return replace(decision, size=chosen.size, saving_usd_per_month=saving)


def _saving_of_size(rule: Precondition | Rule, decision: ResizeDecision) -> float | None:
    """A revert costs what the change has saved; the same size costs the same."""
    if rule.action == "resize":
        return 0
    if rule.action == "revert" and decision.verdict is not None:
        return known(neg, decision.verdict.saved_usd_per_month)
    return None


def _resize_verdict(case: ResizeCase, judged: ChangeEffect) -> ResizeVerdict:
    change_percent = judged.duration_change_percent
    return ResizeVerdict(
        runs=judged.own.counts.task_count,
        killed=judged.killed_runs,
        failed=judged.failed_runs,
        duration_change_percent=rounded(change_percent, 1),
        saved_usd_per_month=rounded_usd_per_month(_saved_usd_per_month(case, judged)),
    )


def _saved_usd_per_month(case: ResizeCase, judged: ChangeEffect) -> float | None:
    """What a run cost before less what it costs now, for the runs before and since."""
    if not isinstance(case, MeasuredCase):
        return None
    before = judged.before.counts
    own = judged.own.counts
    first_ns = min_known(before.first_ns, own.first_ns)
    last_ns = max_known(before.last_ns, own.last_ns)
    usage = replace(
        case.evidence.usage,
        window_ns=(last_ns or 0) - (first_ns or 0),
        window_tasks=before.task_count + own.task_count,
    )
    saved_usd = difference(case.usd_per_run_at(judged.change.size), case.advice.usd_per_run)
    return usd_per_month(saved_usd, replace(case.evidence, usage=usage))


def _shown_evidence(case: ResizeCase) -> ShownEvidence:
    shown = ShownEvidence(
        runs=case.window.deciding_counts.task_count,
        days=case.days_seen,
        unconfirmed=case.window.unconfirmed,
        elsewhere=case.window.task_count_elsewhere,
        by_minute=case.window.by_minute,
    )
    largest = run_with_largest_need(case.window)
    if largest is not None:
        peak = measured_from(largest.needed_memory_mb)
        shown = replace(shown, peak=peak, peak_at=largest.began)
    return shown


def _evidence_with_advice(
    shown: ShownEvidence, of_all: Advice, size: TaskSize | None
) -> ShownEvidence:
    """The evidence with what the runs at any size say, and how long they take at the new one."""
    vcpu = (size or UNKNOWN_SIZE).vcpu
    durations = [option.factor for option in of_all.choice.ranked if option.size.vcpu == vcpu]
    is_least = isinstance(of_all.evidence.needed_memory, AtLeast)
    return replace(
        shown,
        peak=measured_from(shown.peak.value, is_least=is_least),
        duration=durations[-1] if durations else None,
        # All that is known of the largest need, if a run was killed.
        killed_above_mb=of_all.evidence.needs.oom_size_mb,
        margin_percent=of_all.choice.margin.percent,
    )
