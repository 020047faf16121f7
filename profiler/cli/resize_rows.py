"""The plan and the result of ``taskdef resize``: tables, JSON, and a summary for GitHub Actions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec

from profiler.aws_account.planned_family import PlannedFamily, planned_size_decisions
from profiler.cli.github_format import (
    annotation_command,
    append_to_summary,
    markdown_table,
    write_annotations,
)
from profiler.cli.printing import (
    UNKNOWN,
    say,
    say_sentence,
    size_text,
    total_saving_text,
    value_text,
    write_json_lines,
)
from profiler.cli.recommended_months import estimate_sentences
from profiler.cli.styled_text import (
    EMPTY,
    Line,
    sentences_about,
    sentences_of_many,
    wrapped_lines,
    write_lines,
)
from profiler.cli.tables import Column, aligned_table, table_width
from profiler.core.optional_math import known, sum_known
from profiler.core.text import as_sentence
from profiler.core.timestamps import format_local, parse_ns
from profiler.record.measured import AtLeast
from profiler.record.model_base import JsonLine
from profiler.record.record_model import SlowdownBounds, TaskSize
from profiler.record.units import format_memory, format_usd_a_month
from profiler.sizing.advice_document import (
    FactorDocument,
    SizeDocument,
    rounded_percent,
    rounded_usd_per_month,
    size_document,
)
from profiler.sizing.resize_limits import ResizeDecision, ResizeVerdict, ShownEvidence
from profiler.sizing.slowdown_factors import SAME_DURATION
from profiler.task_definitions.size_changes import definition_size

_COLUMNS = (
    Column("FAMILY", folds=True),
    Column("ACTION"),
    Column("FROM", folds=True),
    Column("TO", folds=True),
    Column("$ A MONTH", is_right=True),
    Column("WHY", folds=True),
)
_EVIDENCE_COLUMNS = (
    Column("EVIDENCE", folds=True),
    Column("PEAK", is_right=True),
    Column("STARTED"),
    Column("RUNS", is_right=True),
    Column("DAYS", is_right=True),
    Column("DURATION"),
)


def print_plan(
    planned: Sequence[PlannedFamily],
    counted: Sequence[PlannedFamily],
    hint: str,
    days: int | None = None,
) -> None:
    """The table of the plan, the evidence of what would change, notes, and the money of those
    that are counted, by the runs of the last ``days``; None: no run was read.
    """
    named = [(family.family, note) for family in planned for note in notes_beside_reason(family)]
    of_many = sentences_of_many(named)
    notes = [(family, of_many.get((family, note), note), "") for family, note in named]
    width = table_width()
    lines: list[Line] = [*aligned_table(_COLUMNS, map(_plan_cells, planned), width=width)]
    evidence = list(_evidence_rows(planned))
    if evidence:
        lines += [EMPTY, *aligned_table(_EVIDENCE_COLUMNS, evidence, width=width)]
    write_lines([*lines, *sentences_about(notes, width), EMPTY])
    changes = [decision.saving_usd_per_month for decision in planned_size_decisions(counted)]
    priced = [decision_of(plan) for plan in counted if decision_of(plan).usd_per_month is not None]
    costs = [decision_of(family_plan).usd_per_month for family_plan in counted]
    mark = max((decision.monthly_amount_mark for decision in priced), default="")
    say_sentence(total_saving_text(changes, costs, mark))
    for sentence in estimate_sentences(decision.estimated_by for decision in priced):
        write_lines(wrapped_lines(sentence, width))
    if days is not None and len(counted) > 1 and any(changes):
        basis = (
            f"By runs of {days} days, and only what resize may change: recommend adds up every "
            "family."
        )
        write_lines(wrapped_lines(basis, width))
    if changes and hint:
        say(hint)


class ShownEvidenceDocument(JsonLine, frozen=True, kw_only=True):
    """What speaks for a size: the largest need of a run and its start, the runs and the days on
    which they began, and the bounds of the duration.

    ``unconfirmed`` runs do not count. A run was killed at ``killedAboveMB``.
    """

    peak_mb: int | None
    peak_started_at: str | None
    runs: int
    days: int
    unconfirmed: int
    killed_above_mb: int | None
    margin_percent: float | None
    duration_factor: FactorDocument | None


class FamilyDocument(JsonLine, frozen=True, kw_only=True):
    """The decision on a family, ``from`` its present size ``to`` the next one.

    ``verdict`` is on the size that ``resize`` registered before. ``atLeast`` names the numbers that
    may have been larger.
    """

    type: Literal["family"] = "family"
    family: str
    action: str
    reason: str
    from_: SizeDocument | None = msgspec.field(name="from")
    to: SizeDocument | None
    runs: int
    saving_usd_per_month: float | None
    verdict: ResizeVerdict | None
    at_least: tuple[str, ...]
    evidence: ShownEvidenceDocument | None
    notes: tuple[str, ...]


class TotalDocument(JsonLine, frozen=True, kw_only=True):
    """The last line, of all families: ``changes`` are planned, or registered with
    ``--register``. ``savedUsdPerMonth``: by sizes that are kept.
    """

    type: Literal["total"] = "total"
    families: int
    changes: int
    saving_usd_per_month: float
    saved_usd_per_month: float


def print_json_plan(planned: Sequence[PlannedFamily]) -> None:
    """A line for each family."""
    write_json_lines(map(_family_document, planned))


def print_json_total(
    planned: Sequence[PlannedFamily], carried_out: Sequence[PlannedFamily]
) -> None:
    """The last line: what the plan changes, or what was registered."""
    saved_usd = [_saved_usd_per_month(decision_of(family_plan)) for family_plan in planned]
    saving_usd = [decision.saving_usd_per_month for decision in planned_size_decisions(carried_out)]
    total = TotalDocument(
        families=len(planned),
        changes=len(plans_with_new_revision(carried_out)),
        saving_usd_per_month=_total_usd_per_month(saving_usd),
        saved_usd_per_month=_total_usd_per_month(saved_usd),
    )
    write_json_lines([total])


def print_github_plan(planned: Sequence[PlannedFamily], environment: Mapping[str, str]) -> None:
    """An annotation for each change, and both tables in the summary."""
    for family_plan in plans_with_new_revision(planned):
        title = f"task-profiler taskdef resize: {family_plan.family}"
        write_annotations(
            [annotation_command("notice", title, _change_sentence(family_plan)), "\n"]
        )
    titles = [column.title for column in _COLUMNS]
    parts = ["### Sizes of the tasks", "", *markdown_table(titles, map(_plan_cells, planned))]
    evidence = list(_evidence_rows(planned))
    if evidence:
        titles = [column.title for column in _EVIDENCE_COLUMNS]
        parts += ["", *markdown_table(titles, evidence)]
    append_to_summary(parts, environment)


def plans_with_new_revision(planned: Sequence[PlannedFamily]) -> list[PlannedFamily]:
    """The families that get a new revision."""
    return [family_plan for family_plan in planned if family_plan.is_new_revision]


def has_too_little_now(planned: PlannedFamily) -> bool:
    """Whether a family has too little now: the new revision has more, or puts an old size back."""
    decision = decision_of(planned)
    present = _present_size(planned)
    size = decision.size or TaskSize()
    has_more_memory = (size.memory_mb or 0) > (present.memory_mb or 0)
    has_more_vcpu = (size.vcpu or 0) > (present.vcpu or 0)
    return decision.action == "revert" or has_more_memory or has_more_vcpu


def decision_of(planned: PlannedFamily) -> ResizeDecision:
    """The decision on a family; without one, why there is none."""
    if planned.resize is not None:
        return planned.resize
    reason = "a service runs it" if planned.action == "skipped" else " ".join(planned.notes)
    return ResizeDecision(action="none", reason=reason, runs=0)


def notes_beside_reason(planned: PlannedFamily) -> tuple[str, ...]:
    """What else is to be known; the first note is the reason."""
    return planned.notes[1:] if planned.resize is not None else ()


def saving_usd_or_zero(planned: PlannedFamily) -> float:
    """The saving in USD a month; 0 if it is not known."""
    return decision_of(planned).saving_usd_per_month or 0


def _change_sentence(planned: PlannedFamily) -> str:
    decision = decision_of(planned)
    sizes = f"{size_text(_present_size(planned))} to {size_text(decision.size or TaskSize())}"
    money = _month_text(decision, decision.saving_usd_per_month)
    return f"{planned.family}: {decision.action} from {sizes}, saves {money} a month."


def _present_size(planned: PlannedFamily) -> TaskSize:
    return definition_size(planned.document.definition)


def _family_document(planned: PlannedFamily) -> FamilyDocument:
    decision = decision_of(planned)
    return FamilyDocument(
        family=planned.family,
        action=decision.action,
        reason=decision.reason,
        from_=size_document(_present_size(planned)),
        to=size_document(decision.size or TaskSize()),
        runs=decision.runs,
        saving_usd_per_month=rounded_usd_per_month(decision.saving_usd_per_month),
        verdict=decision.verdict,
        at_least=tuple(_lower_bound_names(decision)),
        evidence=known(_evidence_document, decision.evidence),
        notes=notes_beside_reason(planned),
    )


def _lower_bound_names(decision: ResizeDecision) -> Iterator[str]:
    """The names of the numbers that may have been larger."""
    # Of a size that costs more, the difference is not a least saving.
    if "Spot" in decision.estimated_by and (decision.saving_usd_per_month or 0) > 0:
        yield "savingUsdPerMonth"
    if decision.evidence and isinstance(decision.evidence.peak, AtLeast):
        yield "evidence.peakMB"


def _evidence_document(seen: ShownEvidence) -> ShownEvidenceDocument:
    return ShownEvidenceDocument(
        peak_mb=known(round, seen.peak.value),
        peak_started_at=seen.peak_at,
        runs=seen.runs,
        days=seen.days,
        unconfirmed=seen.unconfirmed,
        killed_above_mb=known(round, seen.killed_above_mb),
        margin_percent=known(rounded_percent, seen.margin_percent),
        duration_factor=known(_factor_document, seen.duration),
    )


def _factor_document(factor: SlowdownBounds) -> FactorDocument:
    return FactorDocument(min=factor.min, max=factor.max)


def _total_usd_per_month(amounts: Iterable[float | None]) -> float:
    return rounded_usd_per_month(sum_known(*amounts) or 0) or 0


def _plan_cells(planned: PlannedFamily) -> tuple[str, ...]:
    decision = decision_of(planned)
    return (
        planned.family,
        decision.action,
        size_text(_present_size(planned)),
        size_text(decision.size or TaskSize()),
        _month_text(decision, decision.saving_usd_per_month),
        _reason_text(decision),
    )


def _month_text(decision: ResizeDecision, usd: float | None) -> str:
    """An amount a month, with the mark of an estimate."""
    return value_text(usd, partial(format_usd_a_month, mark=decision.monthly_amount_mark))


def _reason_text(decision: ResizeDecision) -> str:
    """Why, and what a size that is kept saves in fact."""
    saved_usd = _saved_usd_per_month(decision)
    if saved_usd is None:
        return as_sentence(decision.reason)
    money = _month_text(decision, abs(saved_usd))
    change = f"costs {money} more" if saved_usd < 0 else f"saves {money}"
    return f"{as_sentence(decision.reason)} It {change} a month."


def _saved_usd_per_month(decision: ResizeDecision) -> float | None:
    """What a size that is kept saves in fact; None for another decision."""
    if decision.action != "keep" or decision.verdict is None:
        return None
    return decision.verdict.saved_usd_per_month


def _evidence_rows(planned: Iterable[PlannedFamily]) -> Iterable[tuple[str, ...]]:
    """A row of each family: the peak of its need and when that was, and what is predicted."""
    for family_plan in planned:
        decision = decision_of(family_plan)
        seen = decision.evidence
        if seen is None or decision.action == "none":
            continue
        started = format_local(parse_ns(seen.peak_at))
        yield (
            family_plan.family,
            _peak_text(seen),
            started or UNKNOWN,
            str(seen.runs),
            str(seen.days),
            _duration_text(seen),
        )


def _peak_text(seen: ShownEvidence) -> str:
    """A run that was killed needs more than it could use."""
    killed_mb = seen.killed_above_mb
    if killed_mb is not None and killed_mb >= (seen.peak.value or 0):
        return f"> {format_memory(killed_mb)}"
    return seen.peak.text(format_memory) or UNKNOWN


def _duration_text(seen: ShownEvidence) -> str:
    factor = seen.duration
    if factor is None:
        return UNKNOWN
    if factor == SAME_DURATION:
        return "the same"
    return f"{factor.min:g} to {factor.max:g} times"
