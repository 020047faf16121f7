"""The rules by which a size is advised, and by which a task definition's size changes or does not.

One table has them all. ``recommend`` reads the rows that advise, and ``resize`` those that act: the
first that applies decides. An act needs more than advice does, so a row may need more of a family
to act. docs/from-advice-to-effect.md lists the rows that leave a family alone.
"""

import math
from collections.abc import Callable
from functools import partial, wraps
from operator import attrgetter
from typing import ClassVar, Final, Literal

from msgspec import Struct

from profiler.core.ecs_terms import EC2, EXTERNAL, FARGATE, MANAGED_INSTANCES
from profiler.core.optional_math import first_known, known, known_values
from profiler.core.text import listed, words_if_known
from profiler.record.record_model import TaskSize
from profiler.record.units import format_count, format_percent
from profiler.sizing.advice import Advice
from profiler.sizing.memory_reasons import why_memory_is_not_reduced
from profiler.sizing.prices import missing_prices
from profiler.sizing.resize_case import DAYS_AFTER_REVERT, MIN_DAYS, RUNS_AFTER_REVERT, ResizeCase
from profiler.sizing.resize_effect import MIN_SUCCESSES_TO_KEEP, ChangeEffect
from profiler.sizing.resize_limits import (
    ResizeAction,
)
from profiler.sizing.size_candidates import ChosenSize, MeasuredCase

# What the runs say about the current size.
AdviceVerdict = Literal[
    "too small", "saves", "less is enough", "fits", "without a size", "not known"
]
_MORE_IS_SAFER = "more is safer"
# So many runs of an older revision show that something passes it.
_MIN_RUNS_OF_OLDER_REVISION = 20
_OR_A_FILE = ", or let it read a file of sizes (--write-sizes)"
_PLATFORMS: Final = {FARGATE: "on Fargate", EC2: "on EC2"}
_PLACES: Final = {
    EC2: "on EC2",
    EXTERNAL: "on external instances",
    MANAGED_INSTANCES: "on Managed Instances",
}


def _no_size(_case: ResizeCase) -> None:
    """A row that shows no other size."""


def _no_advice(_advice: Advice) -> None:
    """A row that ``recommend`` does not read."""


def _always_applies(_case: ResizeCase) -> bool:
    return True


# The reason of a row about the last change, or about the best smaller size that may be taken.
_ReasonOfChange = Callable[[MeasuredCase, ChangeEffect], str | None]
_ReasonOfSmaller = Callable[[MeasuredCase, ChosenSize], str | None]
_Reason = Callable[[MeasuredCase], str | None]


def _reason_after_a_change(reason: _ReasonOfChange) -> _Reason:
    """The reason of a row that applies only to a definition whose size was changed."""

    @wraps(reason)
    def applied(case: MeasuredCase) -> str | None:
        return known(partial(reason, case), case.verdict_on_last_change)

    return applied


def _reason_with_a_smaller_size(reason: _ReasonOfSmaller) -> _Reason:
    """The reason of a row that applies only if a smaller size may be taken."""

    @wraps(reason)
    def applied(case: MeasuredCase) -> str | None:
        return known(partial(reason, case), case.smaller_size)

    return applied


class Precondition(Struct, frozen=True, kw_only=True):
    """A row that leaves a family alone, measured or not. Its reason is None if it does not apply.

    ``docs``: what is left alone, for the documentation. ``size``: one that would be better.
    ``shows_later``: it is the one of the first later row that applies. ``remedy`` is added to the
    reason if that size is known. ``allows_revert``: what this command has registered may be put
    back. ``is_decided_by_others``: somebody else decides on the definition, or nobody can, so that
    its schedules stay as they are, too.
    """

    reason: Callable[[ResizeCase], str | None]
    docs: str
    size: Callable[[ResizeCase], TaskSize | None] = _no_size
    shows_later: bool = False
    remedy: str = ""
    allows_revert: bool = False
    is_decided_by_others: bool = False

    action: ClassVar[ResizeAction] = "none"

    def reason_to_act(self, case: ResizeCase) -> str | None:
        """Why ``resize`` leaves the family alone by this row."""
        return self.reason(case)

    def new_size(self, case: ResizeCase) -> TaskSize | None:
        return self.size(case)


class Rule(Struct, frozen=True, kw_only=True):
    """A row that judges a measured family. A reason is None if the rule does not apply.

    ``verdict``: what ``recommend`` says if ``advice`` has a reason. ``action``: what ``resize``
    does, None for a row that only advises. Its reason is ``reason``, or else that of ``advice`` at
    the definition's size if the case ``is_proven``.

    ``docs``: what is left alone, for the documentation; None for a rule that is no such case.
    ``size``: the new size; of action ``none``, the one that would be better.
    """

    verdict: AdviceVerdict | None = None
    advice: Callable[[Advice], str | None] = _no_advice
    action: ResizeAction | None = None
    reason: Callable[[MeasuredCase], str | None] | None = None
    is_proven: Callable[[MeasuredCase], bool] = _always_applies
    docs: str | None = None
    size: Callable[[MeasuredCase], ChosenSize | TaskSize | None] = _no_size

    def reason_to_act(self, case: ResizeCase) -> str | None:
        """Why ``resize`` acts by this row."""
        if self.action is None or not isinstance(case, MeasuredCase):
            return None
        if self.reason:
            return self.reason(case)
        return self.advice(case.advice) if self.is_proven(case) else None

    def new_size(self, case: ResizeCase) -> ChosenSize | TaskSize | None:
        return self.size(case) if isinstance(case, MeasuredCase) else None


# What the account decides.


def _why_windows_is_left(case: ResizeCase) -> str | None:
    system = case.circumstances.operating_system or ""
    if not system.upper().startswith("WINDOWS"):
        return None
    return f"it is for {system}, which is not measured"


def _why_switched_off(case: ResizeCase) -> str | None:
    return known("its tag {} is off".format, case.circumstances.off_tag)


def _why_service_is_left(case: ResizeCase) -> str | None:
    return "a service runs it" if case.circumstances.is_service else None


def _why_left_to_others(case: ResizeCase) -> str | None:
    return case.circumstances.left_to


def _why_stack_owns_it(case: ResizeCase) -> str | None:
    return known("the stack {} of CloudFormation owns it".format, case.circumstances.stack)


def _why_runs_are_missing(case: ResizeCase) -> str | None:
    return case.circumstances.missing_runs or None


def _why_account_contradicts(case: ResizeCase) -> str | None:
    count = case.window.contradicted
    if not count:
        return None
    reports = "a report does" if count == 1 else f"{count} reports do"
    return f"{reports} not say what task_stopped has read, so somebody else may have written it"


def _why_not_on_fargate(case: ResizeCase) -> str | None:
    """A family that also runs on Fargate is judged by its runs there, whichever came last."""
    record = case.newest_record
    if record is None or record.launch_type == case.window.launch_type:
        return None
    if case.circumstances.is_job:
        platform = _PLATFORMS.get(case.window.launch_type, "elsewhere")
        return f"its newest jobs did not run {platform}, which its definition asks for"
    place = _PLACES.get(record.launch_type or "", "outside Fargate")
    reason = f"its runs are {place}, where the size is only a reservation"
    advice = case.advice_on_reservation
    if advice is None:
        return reason
    verdict = advice_verdict(advice)
    if verdict not in ("less is enough", "too small"):
        return reason
    return f"{reason}: {verdict}"


def _why_left_fargate(case: ResizeCase) -> str | None:
    """A family that has moved saves nothing of what it cost on Fargate."""
    record = case.newest_record_since_fargate
    if record is None or case.circumstances.is_job:
        return None
    place = _PLACES.get(record.launch_type or "", "outside Fargate")
    return f"its newest runs are {place}, where the size is only a reservation"


def _reservation_size(case: ResizeCase) -> TaskSize | None:
    advice = case.advice_on_reservation
    if advice is None or not advice.choice.is_other_size_better:
        return None
    return advice.choice.size


# What is not known yet.


def _why_old_revision_stays(case: ResizeCase) -> str | None:
    runs = case.older_revision_run_count
    if case.sizes_of_revision or runs < _MIN_RUNS_OF_OLDER_REVISION:
        return None
    starters = case.circumstances.starters
    if starters:
        by = f", started by {', '.join(starters)}"
    else:
        by = ""
    return (
        f"{format_count(runs, 'run')} since its registration had an older revision{by}: start the "
        "family without a revision"
    )


def _why_no_run(case: ResizeCase) -> str | None:
    if case.sizes_of_revision:
        return None
    revision = case.revision.revision
    of_revision = words_if_known(" of revision {}", revision)
    on_fargate = " on Fargate" if case.has_runs_outside_fargate else ""
    return f"no run{of_revision}{on_fargate} is known yet"


def _why_size_is_overridden(case: ResizeCase) -> str | None:
    """A few jobs with another size, such as those that are submitted once more with enough, only
    forbid a smaller one.
    """
    if not case.circumstances.is_job:
        return None
    overriding = case.overriding_run_count
    jobs = case.run_count_of(case.revision.revision or "")
    if overriding * 2 <= jobs:
        return None
    return (
        f"{overriding} of {format_count(jobs, 'job')} had another size by their submission, so "
        "the definition's size has no effect on them"
    )


def _why_size_has_no_effect(case: ResizeCase) -> str | None:
    if case.definition_size in case.sizes_of_revision:
        return None
    revision = case.revision.revision
    seen = TaskSize()
    for run in case.newest_runs_of_sizes:
        if revision in (None, run.record.revision):
            seen = run.record.task_size
    shown = seen.text or "an unknown size"
    if revision is None:
        return f"its newest run has {shown}, not the size of the file"
    return f"its runs have {shown}, so the definition's size has no effect"


def _why_not_measured(case: ResizeCase) -> str | None:
    return None if isinstance(case, MeasuredCase) else "no run was measured"


def _why_insights_is_not_enough(case: ResizeCase) -> str | None:
    if not case.window.is_by_minute:
        return None
    return "Container Insights knows neither the peaks nor the ends of its runs"


# The last change.


@_reason_after_a_change
def _why_new_size_is_too_small(_case: MeasuredCase, judged: ChangeEffect) -> str | None:
    return None if judged.gave_more else judged.why_too_small


def _size_before_change(case: MeasuredCase) -> TaskSize | None:
    return None if case.verdict_on_last_change is None else case.verdict_on_last_change.change.size


@_reason_after_a_change
def _why_too_few_successes(_case: MeasuredCase, judged: ChangeEffect) -> str | None:
    if judged.successful_runs >= MIN_SUCCESSES_TO_KEEP:
        return None
    if judged.why_too_small and judged.gave_more:
        return None
    return f"{judged.successful_runs} of {MIN_SUCCESSES_TO_KEEP} successes seen"


def _why_change_was_overwritten(case: MeasuredCase) -> str | None:
    if case.revision.overwritten is None:
        return None
    return f"a later revision has the old size again: set the size at its source{_OR_A_FILE}"


def _why_change_was_withdrawn(case: MeasuredCase) -> str | None:
    if not case.revision.withdrawn:
        return None
    return (
        f"somebody deregistered {case.revision.withdrawn}, so that an older one is the newest: "
        "register a revision to have it sized again"
    )


def _larger_or_smaller_size(case: MeasuredCase) -> ChosenSize | None:
    return case.larger_size or case.smaller_size


def _better_or_overwritten_size(case: MeasuredCase) -> ChosenSize | TaskSize | None:
    return case.smaller_size or case.revision.overwritten


def _why_reverted_recently(case: MeasuredCase) -> str | None:
    if not case.was_reverted_recently or case.was_run_killed_at_size:
        return None
    return (
        f"a smaller size has failed, so the size is left alone for {RUNS_AFTER_REVERT} runs or "
        f"{DAYS_AFTER_REVERT} days"
    )


# A larger size.


def _risk_reason(advice: Advice) -> str | None:
    return advice.risk_sentence or None


def _can_be_enlarged(case: MeasuredCase) -> bool:
    """A kill needs no number of runs."""
    return case.larger_size is not None and (
        case.was_run_killed_at_size or not case.why_too_few_runs
    )


def _killed_at_limit_reason(case: MeasuredCase) -> str | None:
    return case.revision.killed_limit if _can_be_enlarged(case) else None


def _killed_at_largest_reason(case: MeasuredCase) -> str | None:
    if not case.advice.choice.exceeds_fargate:
        return None
    return "a run was killed at Fargate's largest memory: split its work, or run it on EC2"


def _beyond_fargate_reason(advice: Advice) -> str | None:
    if not (advice.choice.needs_more_vcpu or advice.choice.needs_more_memory):
        return None
    return "its runs need more than the largest size of Fargate has: split its work"


def _growth_reason(advice: Advice) -> str | None:
    if not (advice.choice.will_soon_be_outgrown and advice.choice.has_more_memory):
        return None
    if advice.choice.growth.is_sure:
        return "its memory need grows, and soon passes the size"
    return "its memory need may grow, and then soon passes the size"


def _larger_size_of(case: MeasuredCase) -> ChosenSize | None:
    return case.larger_size


# A smaller size.


def _reserves_too_much_reason(advice: Advice) -> str | None:
    """A reservation has no price."""
    if not advice.choice.is_reserved_too_much:
        return None
    return "less than it reserves is enough"


def _saving_reason(advice: Advice) -> str | None:
    """A larger size that is recommended only for its margin saves nothing."""
    choice = advice.choice
    unpriced = 0 if choice.has_more_memory else 1
    is_cheaper = first_known(choice.saving_percent, unpriced) > 0
    is_known = advice.evidence.outcomes.has_success
    if not (is_known and choice.is_fargate and choice.is_other_size_better and is_cheaper):
        return None
    return "a smaller size is enough"


# Each of these is a reason against a smaller size.


def _why_too_few_runs(case: MeasuredCase) -> str | None:
    return case.why_too_few_runs


def _why_no_success(advice: Advice) -> str | None:
    return None if advice.evidence.outcomes.has_success else "no run has succeeded"


def _why_size_is_unknown(advice: Advice) -> str | None:
    return "its size is not known" if advice.choice.current == TaskSize() else None


def _why_too_small_soon(case: MeasuredCase) -> str | None:
    """Nothing is enlarged before a run has needed it."""
    if case.has_better_smaller_size:
        return None
    return _beyond_fargate_reason(case.advice) or _growth_reason(case.advice)


def _fits_or_is_safer_reason(advice: Advice) -> str:
    return _MORE_IS_SAFER if advice.choice.has_more_memory else "the size fits"


def _fits_reason(case: MeasuredCase) -> str | None:
    if case.has_better_smaller_size:
        return None
    of_all = case.advice_of_all
    held = next(
        why_memory_is_not_reduced(of_all.evidence.needs, of_all.choice, case.definition_size), None
    )
    return "the size fits" + words_if_known(": {}", held)


def _why_too_few_days(case: MeasuredCase) -> str | None:
    return case.why_too_few_days


def _why_smaller_is_refused(case: MeasuredCase) -> str | None:
    if case.smaller_size is not None:
        return None
    return known(case.why_refused, known(attrgetter("option"), case.best_smaller_even_if_refused))


@_reason_with_a_smaller_size
def _why_saving_is_small(case: MeasuredCase, smaller: ChosenSize) -> str | None:
    saving_percent = smaller.option.saving_percent
    if first_known(saving_percent, -math.inf) >= case.policy.min_saving_percent:
        return None
    if smaller.refused:
        return smaller.refused
    if not case.is_fargate:
        return _why_reduction_is_small(case, smaller)
    shown = known(
        "the recommended size saves only {}".format, known(format_percent, saving_percent)
    )
    return first_known(shown, _unknown_saving_reason(case))


def _unknown_saving_reason(case: MeasuredCase) -> str:
    names = missing_prices(case.advice_of_all.evidence.latest, case.advised.price_overrides)
    text = "what the recommended size saves is unknown"
    if not names:
        return text
    price = "price of storage above 20 GB" if len(names) == 1 else "price"
    return f"{text}, because its Region has no known {price}: set {listed(names)}"


def _why_reduction_is_small(case: MeasuredCase, smaller: ChosenSize) -> str | None:
    """A reservation on EC2 has no price: what becomes free for other jobs decides."""
    percent = _lowered_percent(case, smaller)
    if percent >= case.policy.min_saving_percent:
        return None
    return f"the recommended size asks for only {format_percent(percent)} less"


def _lowered_percent(case: MeasuredCase, smaller: ChosenSize) -> float:
    """How much less of the memory or of the vCPUs a size has, whichever is more."""
    shares = [
        1 - part / present
        for part, present in (
            (smaller.size.vcpu or 0, case.definition_size.vcpu),
            (smaller.size.memory_mb or 0, case.definition_size.memory_mb),
        )
        if present
    ]
    return round(100 * max(shares, default=0), 1)


@_reason_with_a_smaller_size
def _why_size_failed_before(case: MeasuredCase, smaller: ChosenSize) -> str | None:
    if not case.has_failed_before(smaller.size):
        return None
    return "this size, or a larger one, has failed before"


def _better_smaller_size(case: MeasuredCase) -> ChosenSize | None:
    return case.smaller_size or case.best_smaller_even_if_refused


@_reason_with_a_smaller_size
def _saving_of_smaller_reason(case: MeasuredCase, smaller: ChosenSize) -> str | None:
    if any(rule.reason_to_act(case) for rule in REASONS_AGAINST):
        return None
    return f"saves {format_percent(smaller.option.saving_percent or 0)}"


@_reason_with_a_smaller_size
def _asks_for_less_reason(case: MeasuredCase, smaller: ChosenSize) -> str | None:
    """The gain of a job on EC2 that asks for less: it has a limit of memory, as on Fargate."""
    if not case.circumstances.is_job or case.is_fargate:
        return None
    if any(rule.reason_to_act(case) for rule in REASONS_AGAINST):
        return None
    return f"asks for {format_percent(_lowered_percent(case, smaller))} less"


def _smaller_size_of(case: MeasuredCase) -> ChosenSize | None:
    return case.smaller_size


# No other size.


def _limit_too_small_reason(case: MeasuredCase) -> str | None:
    if case.policy.size.least_memory_mb > (case.definition_size.memory_mb or 0):
        return None
    return case.revision.killed_limit


def _definition_size(case: MeasuredCase) -> TaskSize:
    return case.definition_size


@_reason_after_a_change
def _why_change_went_badly(case: MeasuredCase, judged: ChangeEffect) -> str | None:
    if case.revision.killed_limit:
        return None
    return known("{}; a larger size is not put back".format, judged.why_too_small)


@_reason_after_a_change
def _change_went_well_reason(_case: MeasuredCase, judged: ChangeEffect) -> str:
    runs = f"{format_count(judged.own.counts.task_count, 'run')} at the new size"
    if not judged.failed_runs:
        return f"{runs} went well"
    return f"{judged.failed_runs} of {runs} failed, which is no reason to put the old size back"


def _why_larger_is_refused(case: MeasuredCase) -> str | None:
    """A larger size would be needed, and every one is refused."""
    if not (case.runs_need_more and case.advice.risk_sentence) or case.larger_size is not None:
        return None
    return case.why_larger_is_refused


REASONS_AGAINST: Final = (
    Rule(
        action="none",
        reason=_why_too_few_runs,
        docs="with fewer than `--min-runs` runs at its size",
    ),
    Rule(
        verdict="not known",
        advice=_why_no_success,
        action="none",
        docs="without a success",
    ),
    Rule(verdict="without a size", advice=_why_size_is_unknown),
    Rule(action="none", reason=_why_too_small_soon),
    Rule(verdict="fits", advice=_fits_or_is_safer_reason, action="none", reason=_fits_reason),
    Rule(
        action="none",
        reason=_why_too_few_days,
        size=_better_smaller_size,
        docs=f"seen for fewer than {MIN_DAYS} days",
    ),
    Rule(
        action="none",
        reason=_why_smaller_is_refused,
        size=_better_smaller_size,
        docs="whose slower run could overlap the next one or exceed the timeout of its job or "
        "state, or whose schedule overrides sizes that do not fit",
    ),
    Rule(
        action="none",
        reason=_why_size_failed_before,
        size=_better_smaller_size,
        docs="of which that size has failed",
    ),
    Rule(action="none", reason=_why_saving_is_small),
)
PRECONDITIONS: Final = (
    Precondition(
        reason=_why_windows_is_left, shows_later=True, is_decided_by_others=True, docs="for Windows"
    ),
    Precondition(
        reason=_why_switched_off,
        shows_later=True,
        is_decided_by_others=True,
        docs="with the tag `task-profiler:resize` = `off`",
    ),
    Precondition(
        reason=_why_service_is_left,
        shows_later=True,
        is_decided_by_others=True,
        docs="that a service runs",
    ),
    Precondition(
        reason=_why_left_to_others,
        is_decided_by_others=True,
        docs="of AWS Batch for several nodes, on EKS or Managed Instances, or of an engine such as "
        "Nextflow",
    ),
    Precondition(
        reason=_why_stack_owns_it,
        shows_later=True,
        is_decided_by_others=True,
        remedy=f": set {{size}} in its template{_OR_A_FILE}",
        allows_revert=True,
        docs="that a stack of CloudFormation owns",
    ),
    Precondition(
        reason=_why_runs_are_missing,
        shows_later=True,
        allows_revert=True,
        docs="whose log group, or that of `task_stopped`, keeps or has fewer days than the window",
    ),
    Precondition(
        reason=_why_account_contradicts,
        shows_later=True,
        docs="whose reports do not say what `task_stopped` has read",
    ),
    Precondition(
        reason=_why_not_on_fargate,
        size=_reservation_size,
        docs="on EC2, Managed Instances or external instances, where the size is only a "
        "reservation",
    ),
    Precondition(
        reason=_why_old_revision_stays,
        docs="of which something starts an older revision",
    ),
    Precondition(reason=_why_no_run, docs="without a run of the newest revision"),
    Precondition(
        reason=_why_left_fargate,
        shows_later=True,
        allows_revert=True,
        docs="that has moved from Fargate to EC2, Managed Instances or external instances",
    ),
    Precondition(
        reason=_why_size_is_overridden,
        docs="of AWS Batch whose jobs mostly have another size by their submission",
    ),
    Precondition(
        reason=_why_size_has_no_effect,
        docs="none of whose runs has the definition's size",
    ),
    Precondition(reason=_why_not_measured, docs="without a measurement"),
    Precondition(
        reason=_why_insights_is_not_enough,
        shows_later=True,
        docs="that only Container Insights knows",
    ),
)
RULES: Final[tuple[Precondition | Rule, ...]] = (
    *PRECONDITIONS,
    Rule(action="revert", reason=_why_new_size_is_too_small, size=_size_before_change),
    Rule(action="none", reason=_why_too_few_successes),
    Rule(
        action="none",
        reason=_why_change_was_withdrawn,
        size=_larger_or_smaller_size,
        docs="of which somebody deregistered a newer revision",
    ),
    Rule(
        action="none",
        reason=_why_change_was_overwritten,
        size=_better_or_overwritten_size,
        docs="whose old size someone registered again: set the size at its source",
    ),
    Rule(
        action="none",
        reason=_why_reverted_recently,
        size=_better_smaller_size,
        docs=f"reverted, for {RUNS_AFTER_REVERT} runs or {DAYS_AFTER_REVERT} days",
    ),
    Rule(
        verdict="too small",
        advice=_risk_reason,
        action="resize",
        is_proven=_can_be_enlarged,
        size=_larger_size_of,
    ),
    Rule(action="resize", reason=_killed_at_limit_reason, size=_larger_size_of),
    Rule(action="none", reason=_killed_at_largest_reason),
    Rule(verdict="too small", advice=_beyond_fargate_reason),
    Rule(verdict="too small", advice=_growth_reason),
    Rule(action="none", reason=_why_larger_is_refused),
    Rule(action="none", reason=_why_change_went_badly),
    Rule(
        verdict="less is enough",
        advice=_reserves_too_much_reason,
        action="resize",
        reason=_asks_for_less_reason,
        size=_smaller_size_of,
    ),
    Rule(
        verdict="saves",
        advice=_saving_reason,
        action="resize",
        reason=_saving_of_smaller_reason,
        size=_smaller_size_of,
    ),
    Rule(action="resize", reason=_limit_too_small_reason, size=_definition_size),
    Rule(action="keep", reason=_change_went_well_reason),
    *REASONS_AGAINST,
)


def is_decided_by_others(case: ResizeCase) -> bool:
    """Whether a row says that somebody else decides on the definition, or nobody can."""
    return any(row.is_decided_by_others and row.reason(case) for row in PRECONDITIONS)


def advice_verdict(advice: Advice) -> AdviceVerdict:
    """What ``recommend`` says of the current size: the first row that advises."""
    for rule in RULES:
        if isinstance(rule, Rule) and rule.verdict and rule.advice(advice):
            return rule.verdict
    raise AssertionError


def size_words_without_saving(advice: Advice) -> str:
    """What the recommended size is for where money does not decide: ``less is enough``, or ``more
    is safer`` for a margin that no run has needed; else empty.
    """
    verdict = advice_verdict(advice)
    if verdict == "fits" and advice.choice.has_more_memory:
        return _MORE_IS_SAFER
    return verdict if verdict == "less is enough" else ""


def left_alone_families() -> tuple[str, ...]:
    """The families that are left alone, in the order of the rules, for the documentation."""
    return known_values(rule.docs for rule in RULES)
