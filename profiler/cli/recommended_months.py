"""What recommended sizes save in a month: estimates where the runs do not cover one, and the
marks of these.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from profiler.cli.options import SourceOptions
from profiler.cli.printing import UNKNOWN
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_past_runs import reads_aws
from profiler.core.optional_math import known, known_values
from profiler.core.timestamps import NS_PER_DAY, parse_ns
from profiler.record.family_identity import FamilyKey
from profiler.record.family_statistics import (
    MonthlyTasks,
    estimated_month,
    measured_month,
)
from profiler.record.units import APPROXIMATELY, format_count, format_usd_a_month
from profiler.runs.past_runs.run_source import RunSource
from profiler.schedules.due_times import tasks_a_month
from profiler.schedules.schedule_model import Schedule
from profiler.sizing.advice import Advice
from profiler.sizing.evidence import Evidence
from profiler.sizing.run_collector import ReadTaskCounts
from profiler.sizing.size_options import EstimateBasis

_BASES: Mapping[EstimateBasis, str] = {
    "schedule": "by the schedules of {}",
    "window": "as many runs a day as seen of {}",
    "nightly": "one run a night assumed of {}",
    "Spot": "the least that Spot costs of {}",
}


def months_of_families(
    advices: Sequence[Advice],
    read: Mapping[FamilyKey, ReadTaskCounts],
    source: RunSource,
    options: SourceOptions,
    now_ns: int,
) -> Mapping[FamilyKey, MonthlyTasks]:
    """The months of families with a price whose last runs do not show how many there are: of all
    runs that were read, else estimates.

    The schedules are read once, if such a family is there, and if the runs are AWS's, too: what
    cannot be read is a warning.
    """
    months: dict[FamilyKey, MonthlyTasks] = {}
    lacking = []
    for advice in advices:
        if advice.month is not None or advice.usd_per_run is None:
            continue
        family = advice.evidence.family
        month = measured_month(read[family].tasks, read[family].window_ns)
        if month is None:
            lacking.append(family)
        else:
            months[family] = month
    if not lacking:
        return months
    schedules = _read_schedules(options) if reads_aws(options) else ()
    covered_days = _covered_days(source, [advice.evidence for advice in advices], now_ns)
    for family in lacking:
        due = tasks_a_month(_enabled_schedules_of(family, schedules), now_ns)
        tasks = read[family]
        months[family] = estimated_month(tasks.tasks, tasks.window_ns, due, covered_days)
    return months


def _read_schedules(options: SourceOptions) -> Sequence[Schedule]:
    """All schedules and timed rules of the account's Region; a part that cannot be read is a
    warning.
    """
    # Other sources do without the commands of AWS.
    from profiler.aws_account.eventbridge_calls import ScheduleReader
    from profiler.cli.schedules_command import warn_unread

    timed = ScheduleReader(open_clients(options.region, options.profile)).read_timed_schedules()
    warn_unread(timed)
    return timed.schedules


def _enabled_schedules_of(family: FamilyKey, schedules: Sequence[Schedule]) -> list[Schedule]:
    """The enabled schedules that start a family; an unknown account or Region may be any."""
    of_family: list[Schedule] = []
    for schedule in schedules:
        key = schedule.family_key
        is_its = (
            key.name == family.name
            and family.account_id in (None, key.account_id)
            and family.region in (None, key.region)
        )
        if is_its and schedule.is_enabled:
            of_family.append(schedule)
    return of_family


def _covered_days(source: RunSource, evidences: Sequence[Evidence], now_ns: int) -> float:
    """The days of which the source has all runs, at least: it does not go back further for one
    family than for another.
    """
    if source.complete_since_ns is not None:
        return (now_ns - source.complete_since_ns) / NS_PER_DAY
    outcomes = [evidence.outcomes for evidence in evidences]
    first_ns = known_values(parse_ns(outcome.first_started_at) for outcome in outcomes)
    last_ns = known_values(parse_ns(outcome.last_started_at) for outcome in outcomes)
    if not first_ns or not last_ns:
        return 0
    return (max(last_ns) - min(first_ns)) / NS_PER_DAY


def month_text(advice: Advice, usd: float | None) -> str:
    """An amount a month, with the mark of an estimate."""
    return known(partial(format_usd_a_month, mark=advice.monthly_amount_mark), usd) or UNKNOWN


def estimate_mark_of(advices: Sequence[Advice]) -> str:
    """The mark of a sum; empty if nothing in it is estimated."""
    return max((advice.monthly_amount_mark for advice in advices), default="")


def basis_sentences(advices: Sequence[Advice]) -> Iterator[str]:
    """A sentence about the bases of the estimates, if there are any."""
    return estimate_sentences(
        advice.estimated_by for advice in advices if advice.usd_per_run is not None
    )


def estimate_sentences(families: Iterable[Collection[EstimateBasis]]) -> Iterator[str]:
    """A sentence about the bases of each family's amounts, if one is an estimate."""
    counts = Counter(chain.from_iterable(families))
    texts = []
    for basis, text in _BASES.items():
        if counts[basis]:
            texts.append(text.format(format_count(counts[basis], "family")))
    if texts:
        yield f"{APPROXIMATELY}is an estimate: {'; '.join(texts)}."
