"""One message in the morning about the runs whose ends became known since the last one: what
failed, what is unusual, what grows, and what a resize would save and has saved.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from profiler.core.commands_to_copy import NameArgument, command_line
from profiler.core.completeness import Completeness, joined_completeness
from profiler.core.optional_math import known_values, mean_known, median
from profiler.core.search_answers import part_remedy
from profiler.core.text import listed, listed_and_more, shown_of
from profiler.core.timestamps import format_ms, parse_datetime
from profiler.forwarder.night_period import NightPeriod
from profiler.forwarder.night_runs import (
    FAILED_OUTCOMES,
    EarlierRun,
    FamilyHistory,
    MissedTimes,
    NightRuns,
)
from profiler.forwarder.notifications.notification import NightSummary, SummaryLine
from profiler.record.last_night import MISSED, count_runs, night_sentence
from profiler.record.record_model import TaskSize
from profiler.record.units import (
    format_count,
    format_duration,
    format_memory,
    format_percent,
    format_usd_a_month,
)
from profiler.record.unusual import MIN_RUNS, usual_value_of
from profiler.sizing.fargate_sizes import whole_size
from profiler.sizing.prices import REFERENCE_PRICES
from profiler.sizing.sized_revision import parse_size_before_tag
from profiler.sizing.trend import course_of_values, nights_before

# Beside the sentence. What comes last is news of money.
_MAX_LINES = 19
_MAX_FAILED = 5
_MAX_MISSED = 3
_MAX_NAMED = 3
_MAX_UNUSUAL = 2
_MAX_GROWING = 2
_FULL_NIGHTS = 30
_MIN_USD_PER_MONTH = 1.0
_ASK = "What a resize would save:"
# Families whose resize is planned, and named in its command.
MAX_SIZED = 5
_WHOLE_PERCENT = 100.0


class DigestPlace(Struct, frozen=True, kw_only=True):
    """Where the printed commands look. ``source`` is a SOURCE of ``--from``, None without a
    search cluster; ``stack`` is the forwarder's.
    """

    region: str | None = None
    source: str | None = None
    stack: str = "STACK"


class NightSaving(Struct, frozen=True, kw_only=True):
    """What ``taskdef resize`` says of some families: those of them that it changes, and what that
    saves.

    ``mark``: of an estimated amount. ``asked``: how many there were. ``problem``: why it is not
    known.
    """

    asked: int
    families: tuple[str, ...] = ()
    usd_per_month: float = 0
    mark: str = ""
    problem: str | None = None


# No family was asked about.
NO_SAVING: Final = NightSaving(asked=0)


def families_with_saving(history: FamilyHistory) -> list[str]:
    """The families whose last runs all recommend a cheaper size, the largest saving first.

    Only the command knows the saving. Its size is the one that the largest run needs: a success at
    the newest size that needs all of it leaves nothing. The money is that of a mean run.
    """
    savings: list[tuple[float, str]] = []
    for family, runs in history.runs.items():
        size_mb = next((run.size_mb for run in reversed(runs) if run.size_mb), None)
        successes = [run for run in runs if run.status == "success" and run.size_mb == size_mb]
        savings_usd = known_values(run.saving_usd_per_month for run in successes)
        saving_usd = mean_known(*savings_usd) if min(savings_usd, default=0) > 0 else None
        if saving_usd is not None and saving_usd >= _MIN_USD_PER_MONTH:
            savings.append((-saving_usd, family))
    return [family for _, family in sorted(savings)]


def summarize_night(
    period: NightPeriod,
    runs: NightRuns,
    missed: MissedTimes,
    history: FamilyHistory,
    place: DigestPlace,
    *,
    saving: NightSaving = NO_SAVING,
) -> NightSummary:
    """The message of a night: its sentence, and what is worth a line, worst first.

    ``saving``: of the first of the families to size, if it was planned.
    """
    completeness = joined_completeness(
        (runs.completeness, missed.completeness, history.completeness)
    )
    counts = {**runs.counts, **count_runs((MISSED, one.family) for one in missed.times)}
    others = {**runs.others, MISSED: missed.others}
    lines = [
        *_failed_lines(runs),
        *_corrected_lines(runs),
        *_missed_lines(missed),
        *_unusual_lines(period, history),
        *_growth_lines(history),
    ]
    title = period.title_text
    if runs.is_cut:
        title = f"From {period.local_begin:%-d %B %H:%M} to {period.local_end:%-d %B %H:%M %Z}"
    sentence = night_sentence(title, counts, runs.cost, others)
    if not runs.family_names:
        is_whole = completeness.is_whole and not runs.unconfirmed
        seen = "has left a report" if is_whole else "is known"
        new = "new run is known" if runs.corrected else f"run {seen}"
        sentence = f"{title}: no {new}."
    lines.extend(_unread_part_lines(period, runs))
    lines.extend(_incompleteness_lines(runs, completeness, place))
    lines.extend(_read_problem_lines(missed, history))
    lines.extend(_saving_lines(history, place, saving))
    return NightSummary(
        night=period.local_begin.date().isoformat(),
        since=format_ms(period.start_ns),
        title=title,
        sentence=sentence,
        lines=tuple(lines[:_MAX_LINES]),
    )


def _unread_part_lines(period: NightPeriod, runs: NightRuns) -> Iterator[SummaryLine]:
    """What there was no time for, without a search cluster."""
    if runs.is_cut:
        until = f"{period.local_end:%-d %B %H:%M %Z}"
        text = f"There was time to read the runs until {until}: the next message continues. If it"
        yield SummaryLine(text=f"{text} happens again, raise TimeoutSeconds")
    if runs.unproven:
        ended = "1 of these runs" if runs.unproven == 1 else f"{runs.unproven:,} of these runs"
        text = f"{ended} ended earlier, and may have been in an earlier message"
        yield SummaryLine(text=f"{text}: there was no time to look")


def _incompleteness_lines(
    runs: NightRuns, completeness: Completeness, place: DigestPlace
) -> Iterator[SummaryLine]:
    """What the message does not know."""
    if runs.other_families:
        families = f"{runs.other_families:,} more families are"
        if runs.other_families == 1:
            families = "1 more family is"
        yield SummaryLine(text=f"{families} counted above, and not compared with earlier runs")
    if completeness.sentences:
        why = "; ".join(completeness.sentences)
        remedy = "raise LogRetentionDays"
        if place.source:
            remedy = part_remedy(why)
        text = f"{why}, so runs are missing here: {remedy}"
        yield SummaryLine(text=text[0].upper() + text[1:])
    command = command_line("doctor", "--deployed", place.stack, region=place.region)
    if runs.unconfirmed:
        count = format_count(runs.unconfirmed, "run")
        of_them = "its end, so it is not counted"
        if runs.unconfirmed > 1:
            of_them = "their ends, so they are not counted"
        text = f"{count} unconfirmed: no event of ECS has told of {of_them}"
        yield SummaryLine(text=f"{text}. Look for the reason:", command=command)
    elif completeness.is_whole and not runs.reports and not runs.corrected:
        text = "If tasks ran, their reports did not arrive"
        if runs.family_names:
            text = "None of these runs left a report"
        yield SummaryLine(text=f"{text}. Look for the reason:", command=command)


def _read_problem_lines(missed: MissedTimes, history: FamilyHistory) -> Iterator[SummaryLine]:
    """What could not be read: the message goes out without it."""
    if missed.problem:
        why = missed.problem.rstrip(".")
        yield SummaryLine(text=f"Due times that were missed are in the next message ({why})")
    if history.problem:
        why = history.problem.rstrip(".")
        text = "What was unusual, what grows and what would be saved is unknown here"
        yield SummaryLine(text=f"{text} ({why})")


def _failed_lines(runs: NightRuns) -> Iterator[SummaryLine]:
    for failed in runs.failed[:_MAX_FAILED]:
        yield SummaryLine(
            text=f"{failed.family}: {failed.reason or failed.outcome}",
            at=parse_datetime(failed.ended_at),
            url=failed.url,
        )
    more = len(runs.failed) - _MAX_FAILED
    # Of families without a name, only the runs are known.
    unnamed = sum(runs.others.get(outcome, 0) for outcome in FAILED_OUTCOMES)
    parts = []
    if more > 0:
        parts.append(format_count(more, "more family"))
    if unnamed:
        parts.append(f"{format_count(unnamed, 'run')} of other families")
    if parts:
        yield SummaryLine(text=f"{listed(parts)} failed")


def _corrected_lines(runs: NightRuns) -> Iterator[SummaryLine]:
    jobs = sum(runs.corrected.values())
    if not jobs:
        return
    families = [
        family if count == 1 else f"{family} ×{count:,}" for family, count in runs.corrected.items()
    ]
    have = "has" if jobs == 1 else "have"
    told = f"{format_count(jobs, 'job')} that did not succeed in an earlier message {have}"
    yield SummaryLine(text=f"{told} succeeded since: {listed_and_more(families, _MAX_NAMED)}")


def _missed_lines(missed: MissedTimes) -> Iterator[SummaryLine]:
    total = len(missed.times) + missed.others
    named = missed.times[: shown_of(total, _MAX_MISSED)]
    for due_time in named:
        yield SummaryLine(text=due_time.message)
    more = total - len(named)
    if more > 0:
        verb = "was" if more == 1 else "were"
        yield SummaryLine(text=f"{format_count(more, 'more due time')} {verb} missed")


def _unusual_lines(period: NightPeriod, history: FamilyHistory) -> list[SummaryLine]:
    """The families whose successes of the night took much longer, or used much more memory, than
    their successes before. Of several runs in the night, their median counts: one of them is large
    by chance.
    """
    by_ratio: list[tuple[float, SummaryLine]] = []
    for family, runs in history.runs.items():
        successes = [run for run in runs if run.status == "success"]
        duration = _night_median(period, [(run, run.duration_ms) for run in successes])
        if duration.ratio:
            text = f"{family}: took {format_duration(duration.middle)}{duration.median_words}, "
            line = SummaryLine(text=f"{text}{duration.ratio:.1f}× its usual time")
            by_ratio.append((duration.ratio, line))
        measured = [run for run in successes if run.peak_mb is not None]
        alike = [run for run in measured if run.counts_files == measured[-1].counts_files]
        memory = _night_median(period, [(run, run.peak_mb) for run in alike])
        if memory.ratio:
            text = f"{family}: used {format_memory(memory.middle)} of memory{memory.median_words}, "
            line = SummaryLine(text=f"{text}{memory.ratio:.1f}× its usual peak")
            by_ratio.append((memory.ratio, line))
    by_ratio.sort(key=lambda ratio_and_line: -ratio_and_line[0])
    return [line for _, line in by_ratio[:_MAX_UNUSUAL]]


class _NightMedian(Struct, frozen=True):
    """The median of a night's values, and how many times the usual value it is; 0: it does not
    stand out.
    """

    middle: float = 0
    ratio: float = 0
    count: int = 0

    @property
    def median_words(self) -> str:
        return f" (median of {self.count} runs)" if self.count > 1 else ""


def _night_median(
    period: NightPeriod, values: Sequence[tuple[EarlierRun, float | None]]
) -> _NightMedian:
    """The values of the night beside those of the runs before, the oldest first; a median of 0 has
    no multiple.
    """
    before: list[float | None] = []
    of_night: list[float | None] = []
    for run, value in values:
        (of_night if run.is_known_since(period.start_ns) else before).append(value)
    usual = usual_value_of(reversed(before))
    night = sorted(known_values(of_night))
    if not night or usual is None or not usual.middle:
        return _NightMedian()
    middle = median(night)
    ratio = middle / usual.middle if usual.is_worth_a_line(middle) else 0
    return _NightMedian(middle, ratio, len(night))


def _growth_lines(history: FamilyHistory) -> list[SummaryLine]:
    """The families whose memory peak grows to its limit within 30 nights. Each night counts once:
    within a night, the inputs of a workflow may grow.
    """
    by_nights: list[tuple[int, SummaryLine]] = []
    for family, runs in history.runs.items():
        peaks = _highest_of_nights(_peaks_at_the_newest_size(runs))
        if len(peaks) < MIN_RUNS:
            continue
        trend = course_of_values(peaks).growth
        nights = nights_before(peaks[-1][0], peaks[0][0])
        if not trend.is_sure or nights < 1:
            continue
        runs_left = trend.runs_until(_WHOLE_PERCENT) or 0
        nights_left = round(runs_left * nights / (len(peaks) - 1))
        if nights_left > _FULL_NIGHTS:
            continue
        # At its ends, the line can be where no peak was, such as above the limit.
        measured = [percent for _, percent in peaks]
        first = max(trend.now - trend.per_run * (len(peaks) - 1), min(measured))
        last = min(trend.now, max(measured))
        full = f"full in {format_count(nights_left, 'night')}" if nights_left else "full now"
        then = format_percent(first).removesuffix(" %")
        text = f"{family}: memory {then} → {format_percent(last)} in {nights} nights, {full}"
        by_nights.append((nights_left, SummaryLine(text=text)))
    by_nights.sort(key=lambda nights_and_line: nights_and_line[0])
    return [line for _, line in by_nights[:_MAX_GROWING]]


def _peaks_at_the_newest_size(runs: Sequence[EarlierRun]) -> list[tuple[int, float]]:
    """The end and the memory peak, in percent, of the runs at the newest run's size, and whose
    peaks mean the same as that of the last success: a run that fails at once has no sample, and
    its peak another meaning.
    """
    measured = [(run, run.peak_mb) for run in runs if run.peak_mb is not None]
    newest = measured[-1][0] if measured else None
    if newest is None or not newest.size_mb:
        return []
    at_size = [(run, peak_mb) for run, peak_mb in measured if run.size_mb == newest.size_mb]
    successes = (run for run, _ in reversed(at_size) if run.status == "success")
    last = next(successes, newest)
    return [
        (run.ended_ns, peak_mb / newest.size_mb * _WHOLE_PERCENT)
        for run, peak_mb in at_size
        if run.counts_files == last.counts_files
    ]


def _highest_of_nights(peaks: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The highest peak of each night, the oldest first."""
    highest: dict[int, tuple[int, float]] = {}
    for ended_ns, percent in peaks:
        night = nights_before(peaks[-1][0], ended_ns)
        if night not in highest or percent > highest[night][1]:
            highest[night] = (ended_ns, percent)
    return [highest[night] for night in sorted(highest, reverse=True)]


def _saving_lines(
    history: FamilyHistory, place: DigestPlace, saving: NightSaving
) -> Iterator[SummaryLine]:
    """What other sizes would save, with the command that says the same amount, and what resized
    families have saved.
    """
    cheaper = families_with_saving(history)
    if place.source and cheaper:
        yield from _cheaper_sizes_line(cheaper, saving, place)
    saved_usd = sum(_saved_usd_of_families(history))
    if saved_usd >= _MIN_USD_PER_MONTH:
        yield SummaryLine(text=f"Resized families saved {format_usd_a_month(saved_usd)} in 30 days")


def _cheaper_sizes_line(
    cheaper: Sequence[str], saving: NightSaving, place: DigestPlace
) -> Iterator[SummaryLine]:
    """The line about cheaper sizes. Without a plan, it counts the families whose last runs advise
    one, and gives no amount: only the command knows what it leaves alone, such as the tasks of a
    stack.
    """
    named: tuple[str, ...] = ()
    unasked = len(cheaper) - saving.asked
    usd = saving.usd_per_month
    if usd >= _MIN_USD_PER_MONTH:
        named = saving.families
        money = format_usd_a_month(usd, saving.mark)
        text = f"Other sizes of {_family_count_text(len(named))} would save {money} a month"
        if unasked:
            text += f", and the last runs of {unasked:,} more recommend a cheaper size"
        text += ":"
    elif saving.problem:
        why = saving.problem.rstrip(".")
        text = f"{_last_runs_text(len(cheaper))}; by how much is unknown here ({why}). {_ASK}"
    elif unasked:
        text = f"{_last_runs_text(unasked)}. {_ASK}"
    else:
        return
    command = command_line(
        "taskdef", "resize", *map(NameArgument, named), source=place.source, region=place.region
    )
    yield SummaryLine(text=text, command=command)


def _last_runs_text(count: int) -> str:
    return f"The last runs of {_family_count_text(count)} recommend a cheaper size"


def _family_count_text(count: int) -> str:
    return format_count(count, "family")


def _saved_usd_of_families(history: FamilyHistory) -> Iterator[float]:
    """What the runs of resized families would have cost more at the size before."""
    for cost in history.resized:
        before = parse_size_before_tag(cost.tag)
        if before is None:
            continue
        old_usd = _hour_price_usd(before.size)
        new_usd = _hour_price_usd(cost.size)
        if old_usd and new_usd:
            yield cost.usd * (old_usd / new_usd - 1)


def _hour_price_usd(size: TaskSize) -> float | None:
    """The list price of a size. The ratio of two sizes is about the same in every Region."""
    whole = whole_size(size)
    return (
        None if whole is None else REFERENCE_PRICES.size_hour_price_usd(whole.vcpu, whole.memory_mb)
    )
