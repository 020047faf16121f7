"""What is known of a night: its runs and missed due times, and earlier runs of its families.

They come from the search cluster (``night_searches``); without one, the runs come from the lines
that ``task_stopped`` has printed.
"""

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import itemgetter

from msgspec import Struct

from profiler.core.completeness import WHOLE, Completeness, Gap
from profiler.core.optional_math import first_known, known_values
from profiler.core.timestamps import parse_ns
from profiler.forwarder.ended_lines import PrintedRuns
from profiler.forwarder.night_period import NightPeriod
from profiler.forwarder.notifications.event_details import EndedLine
from profiler.forwarder.run_links import RunLinks
from profiler.record.ecs_event_outcome import document_outcome
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.last_night import count_runs
from profiler.record.measured import UNKNOWN, Measured, total_of_known
from profiler.record.record_model import TaskSize
from profiler.record.run_outcome import OUT_OF_MEMORY, Outcome
from profiler.record.spot_price import measured_cost
from profiler.record.units import format_count

FAILED_OUTCOMES = (OUT_OF_MEMORY, "failure")


class FailedRun(Struct, frozen=True, kw_only=True):
    """The newest failed run of a family in the night. ``ended_at`` is RFC 3339."""

    outcome: str
    family: str
    reason: str | None = None
    ended_at: str | None = None
    url: str | None = None

    @property
    def outcome_rank(self) -> int:
        """The worst outcome first."""
        return FAILED_OUTCOMES.index(self.outcome)


class NightRuns(Struct, frozen=True, kw_only=True):
    """The runs of a night, each a task, by outcome and family, the newest family first.

    ``others`` are the runs by outcome of ``other_families``, which are too many to be named.
    ``reports`` is the number of runs with a report. ``remembered``: the tasks that the next message
    must know. ``until_ns``: what became known from then on is left to it. ``unconfirmed``: the
    tasks whose reports arrived without an event of ECS, which are not counted. ``is_cut``: there
    was no time to read the rest of the lines. ``unproven``: the runs that ended earlier, and that
    may have been in an earlier message: there was no time to look. ``corrected``: the
    jobs of AWS Batch, by family, that an earlier message told by an attempt that did not succeed,
    and that have succeeded since; they are not in ``counts``.
    """

    counts: Mapping[str, Mapping[str, int]]
    others: Mapping[str, int] = {}
    other_families: int = 0
    failed: tuple[FailedRun, ...] = ()
    cost: Measured = UNKNOWN
    reports: int = 0
    remembered: tuple[str, ...] = ()
    told_jobs: tuple[str, ...] = ()
    until_ns: int | None = None
    unconfirmed: int = 0
    is_cut: bool = False
    unproven: int = 0
    corrected: Mapping[str, int] = {}
    completeness: Completeness = WHOLE

    @property
    def family_names(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for families in self.counts.values():
            names.update(dict.fromkeys(families))
        return tuple(names)


class MissedTime(Struct, frozen=True, kw_only=True):
    """A due time of a schedule without a task, in the words of its notification."""

    family: str
    message: str


class MissedTimes(Struct, frozen=True, kw_only=True):
    """The missed due times of a night: the newest, and the number of ``others``.

    ``remembered``: the due times that the next message must know. ``until_ns``: notices from then
    on are left to it. ``problem``: why none could be read.
    """

    times: tuple[MissedTime, ...] = ()
    others: int = 0
    remembered: tuple[str, ...] = ()
    until_ns: int | None = None
    completeness: Completeness = WHOLE
    problem: str | None = None


class EarlierRun(Struct, frozen=True, kw_only=True):
    """A run of a family's history. ``peak_mb`` and ``size_mb`` are the container's memory.
    ``counts_files``: the peak may include pages of mapped files (see
    :mod:`profiler.record.mapped_files`). ``saving_usd_per_month``: by the size that it recommends;
    0 if none is cheaper, and None without a cost. ``known_ns``: when it became known.
    """

    ended_ns: int
    status: str | None
    duration_ms: float | None
    peak_mb: float | None
    size_mb: float | None
    saving_usd_per_month: float | None
    counts_files: bool = False
    known_ns: int | None = None

    def is_known_since(self, moment_ns: int) -> bool:
        """Whether the run became known from then on; of an old one, whether it ended then."""
        return first_known(self.known_ns, self.ended_ns) >= moment_ns


class ResizedCost(Struct, frozen=True, kw_only=True):
    """What runs have cost since ``taskdef resize`` changed their size; ``tag`` names the size
    before.
    """

    tag: str
    size: TaskSize
    usd: float


class FamilyHistory(Struct, frozen=True, kw_only=True):
    """The earlier runs of the night's families, the oldest first, and the costs of resized ones;
    none of a part of them. ``problem``: why they could not be read.
    """

    runs: Mapping[str, Sequence[EarlierRun]] = {}
    resized: tuple[ResizedCost, ...] = ()
    completeness: Completeness = WHOLE
    problem: str | None = None


def night_runs_of_printed(
    printed: PrintedRuns,
    period: NightPeriod,
    is_selected: Callable[[EndedLine], bool] = lambda _: True,
    *,
    kept_days: float = math.inf,
) -> NightRuns:
    """The selected runs of the period, or of the part of it that was read. A task that was printed
    twice counts once, in the message after its first line. An attempt of a job that is repeated
    only costs. Older lines than ``kept_days`` are deleted.
    """
    selected = [
        (run, written_ns)
        for run, written_ns in printed.runs
        if run.family != PROOF_FAMILY and is_selected(run) and written_ns < period.end_ns
    ]
    known_ns: dict[str, int] = {}
    for run, written_ns in selected:
        known_ns.setdefault(run.task_id, written_ns)
    newest = [task for task, first_ns in known_ns.items() if first_ns >= period.seen_until_ns]
    until_ns = period.counting_end_ns(len(newest))
    told_before = set(period.last.tasks)
    told_now = {
        task
        for task, first_ns in known_ns.items()
        if period.known_from_ns <= first_ns < until_ns and task not in told_before
    }
    of_period = _newest_line_of_tasks(selected, told_now)
    last = [
        run
        for run in _without_repeated_attempts(
            of_period, [run for run, _ in selected], printed.repeated
        )
        if run.batch.job_id not in period.last.jobs
    ]
    outcomes = [(_outcome_of_line(run).count_group, run.family) for run in last]
    failed: dict[tuple[str, str], FailedRun] = {}
    for (outcome, family), run in zip(outcomes, last, strict=True):
        if outcome in FAILED_OUTCOMES:
            failed.setdefault((outcome, family), _failed_run_of_line(outcome, run))
    return NightRuns(
        counts=count_runs(outcomes),
        failed=tuple(sorted(failed.values(), key=lambda run: run.outcome_rank)),
        cost=total_of_known(measured_cost(run.cost) for run in of_period),
        reports=sum(run.has_report for run in last),
        remembered=tuple(newest) if until_ns == period.end_ns else (),
        told_jobs=known_values(run.batch.job_id for run in last if _may_have_further_attempts(run)),
        until_ns=until_ns,
        is_cut=printed.read_until_ns == period.end_ns,
        unproven=sum(run.task_id in printed.unproven for run in last),
        corrected=_corrected_job_families(of_period, period),
        completeness=_completeness_by_kept_days(period, kept_days),
    )


def _newest_line_of_tasks(
    lines: Iterable[tuple[EndedLine, int]], tasks: Container[str]
) -> list[EndedLine]:
    """The last line of each of the tasks, by the end of its run, else by when it was written."""
    ends: dict[str, tuple[int, EndedLine]] = {}
    for run, written_ns in lines:
        if run.task_id in tasks:
            ends[run.task_id] = (parse_ns(run.finished_at) or written_ns, run)
    newest_first = sorted(ends.values(), key=itemgetter(0), reverse=True)
    return [run for _, run in newest_first]


def _corrected_job_families(runs: Iterable[EndedLine], period: NightPeriod) -> Mapping[str, int]:
    """See :class:`NightRuns`: a job ends with its success, so an earlier message told another
    attempt.
    """
    families = {
        run.batch.job_id: run.family
        for run in runs
        if run.batch.job_id in period.last.jobs and _outcome_of_line(run).count_group == "success"
    }
    return Counter(families.values())


def _without_repeated_attempts(
    runs: Sequence[EndedLine], known: Iterable[EndedLine], repeated: Mapping[str, int]
) -> list[EndedLine]:
    """The runs without attempts of jobs of AWS Batch after which there was another one, or will
    be, by all ``known`` attempts and the number of the last one that is ``repeated``: the message
    of another attempt can be the next one.
    """
    last: dict[str, float] = {job_id: number + 1 for job_id, number in repeated.items()}
    for job_id, number in map(_job_and_attempt_number, known):
        last[job_id] = max(last.get(job_id, 0), number)
    attempts = ((run, *_job_and_attempt_number(run)) for run in runs)
    return [run for run, job_id, number in attempts if not job_id or number == last[job_id]]


def _may_have_further_attempts(run: EndedLine) -> bool:
    """Whether the run's job may have another attempt, or has had one, of which no line is there."""
    _, number = _job_and_attempt_number(run)
    return bool(run.batch.job_id) and (number > 1 or _outcome_of_line(run).count_group != "success")


def _job_and_attempt_number(run: EndedLine) -> tuple[str, float]:
    """Which attempt of which job the run is; "" if no job is known. A line of the job itself is of
    its end.
    """
    job_id = run.batch.job_id or ""
    return job_id, math.inf if job_id == run.task_id else run.batch.attempt or 0


def _completeness_by_kept_days(period: NightPeriod, kept_days: float) -> Completeness:
    # A schedule is not exact to the minute.
    if round(period.days, 1) <= kept_days:
        return WHOLE
    kept = round(kept_days)
    days = f"{period.days:.0f}"
    if days == f"{kept}":
        days = f"{period.days:.1f}"
    reason = (
        f"the log group of task_stopped keeps {format_count(kept, 'day')}, and this message is "
        f"about {days}"
    )
    return Completeness((Gap(place="task_stopped", reason=reason),))


def _failed_run_of_line(outcome: str, run: EndedLine) -> FailedRun:
    links = run.links or RunLinks()
    return FailedRun(
        outcome=outcome,
        family=run.family,
        reason=run.outcome_sentence or _outcome_of_line(run).sentence,
        ended_at=run.finished_at,
        url=links.kibana or links.log_stream,
    )


def _outcome_of_line(run: EndedLine) -> Outcome:
    """How the run of a line ended."""
    return document_outcome(
        {
            "outcome": run.outcome,
            "status": run.status,
            "exit_code": run.exit_code,
            "stop_category": run.stop_category,
            "stopped_reason": run.stopped_reason,
        },
        run.container,
    )
