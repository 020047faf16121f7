"""``task-profiler schedules``: what should have run, what came of it, and what is due next, as a
table and as JSON.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, compress

import click
from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient, note_only_first
from profiler.aws_account.eventbridge_calls import FoundSchedules, ScheduleReader
from profiler.aws_account.gone_revisions import GoneRevisionFinder
from profiler.aws_account.missed_reasons import MissedReasonFinder
from profiler.aws_account.scheduled_jobs import read_queues
from profiler.aws_account.scheduled_machines import (
    EXPRESS,
    MachineSchedule,
    read_executions,
    read_machine_schedules,
)
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.started_tasks import read_clusters
from profiler.aws_account.state_machines import StateMachineReader
from profiler.aws_account.target_contents import is_machine_version
from profiler.cli.aws_names import CLUSTER
from profiler.cli.options import (
    SOURCE_FAILED,
    PastRunsCommand,
    SourceOptions,
    family_arguments,
    flag,
    gathered,
    option,
    past_run_options,
)
from profiler.cli.printing import UNKNOWN, value_text, warn, write_json_lines
from profiler.cli.progress import progress_row, say_if_slow
from profiler.cli.styled_text import Line, Span, sentences_about, write_lines
from profiler.cli.tables import Column, aligned_table, table_width
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_past_runs import open_source, reads_local_only, source_names
from profiler.core.clock import Clock, SystemClock
from profiler.core.ecs_terms import cluster_name, task_id
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import any_known, known, known_values
from profiler.core.text import did_you_mean, listed
from profiler.core.timestamps import (
    NS_PER_DAY,
    NS_PER_MINUTE,
    NS_PER_MS,
    format_local,
    format_ms,
    local_zone,
    parse_ns,
    with_local_times,
)
from profiler.record.family_identity import FamilyKey, matches_any
from profiler.record.family_statistics import UsualDuration
from profiler.record.units import format_count, format_duration
from profiler.runs.past_runs.family_evidence import FamilyCache, usual_since_ns
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_lookup import similar_families_sentence
from profiler.runs.past_runs.run_source import RunFilter, RunSource, exact_patterns_of
from profiler.schedules.due_outcomes import (
    CHANGED,
    TOO_OLD,
    JudgedSchedule,
    judge_schedules,
    with_refusal,
)
from profiler.schedules.due_times import (
    ScheduleExpressionError,
    last_due,
    may_start_again,
    next_due,
    overlap_clause,
)
from profiler.schedules.schedule_model import (
    DEFAULT_GRACE_MINUTES,
    SKEW_NS,
    DueOutcome,
    DueTime,
    ReadTasks,
    Schedule,
    StartedTask,
)

_GRACE_NS = DEFAULT_GRACE_MINUTES * NS_PER_MINUTE
_MAX_PAST_NS = 32 * NS_PER_DAY
_MAX_PROBLEMS = 3
_READING = "Reading schedules, rules and state machines"
_UNKNOWN_STARTS = "It is unknown whether all schedules start tasks or jobs."
_CHANGES_UNKNOWN = (
    "CloudTrail, which shows changes of rules, cannot be read, so the rule may have been changed."
)
# In the order of the rows.
_STYLES: Mapping[DueOutcome, str] = {
    "missed": "red",
    "refused": "red",
    "late": "yellow",
    "overlapped": "yellow",
    "started twice": "yellow",
    "unknown": "yellow",
    "due": "",
    "running": "cyan",
    "ran": "green",
    "none": "",
    "disabled": "dim",
}
_ORDER = {outcome: place for place, outcome in enumerate(_STYLES)}


@click.command(
    "schedules",
    cls=PastRunsCommand,
    epilog="Example: task-profiler schedules --cluster jobs --from logs:/ecs/jobs",
)
@family_arguments
@option("--cluster", "NAME", "Only schedules that start tasks in this ECS cluster.", type=CLUSTER)
@flag("--json as_lines", "Print one JSON object per schedule instead of a table.")
@past_run_options
@gathered(SourceOptions, "options")
def schedules(*, cluster: str | None, as_lines: bool, options: SourceOptions) -> int:
    """List the schedules that start ECS tasks or submit jobs, and what became of them.

    FAMILY can be a shell pattern; the default is all families. These are the schedules of
    EventBridge Scheduler and the rules of EventBridge in one Region, also with a queue of AWS Batch
    as their target. The usual duration comes from
    the last successes in --from. Only https://HOST there also shows what became of due times of
    more than an hour ago. The exit code is 1 if a schedule starts nothing: its revision, or all of
    its family, was deregistered or deleted, or ECS refuses what its input overrides. The same is
    said of states of Step Functions that run ECS tasks or submit jobs. A schedule of such a state
    machine is judged by its executions, of which Step Functions does not say who started them.
    """
    clock = SystemClock()
    past = None
    events = None
    if not reads_local_only(options):
        past = open_source(options)
    if source_names(options, "search"):
        events = past
    open_client = open_clients(options.region, options.profile)
    with say_if_slow(f"{_READING} …"), progress_row() as show:
        show(_READING, None)
        found = list_schedules(open_client)
        versions = [target.machine_arn or "" for target in found.of_machines]
        read = StateMachineReader(
            open_client, warn, lambda: filter(is_machine_version, versions)
        ).starting_states()
        states = [*_selected_states(read, cluster, options.families)]
        machines = read_machine_schedules(open_client, found.of_machines, warn)
    note_unread = note_only_first(warn)
    gone = GoneRevisionFinder(
        open_client,
        lambda error: note_unread(f"{_UNKNOWN_STARTS} {error}"),
        found.targets,
    )
    now_ns = clock.wall_ns()
    # Also of an account without schedules, about which the next call raises.
    ends = [
        *filter(None, map(gone.why_state_starts_nothing, states)),
        *_missing_machine_sentences(machines, cluster, options.families, now_ns),
    ]
    for sentence in ends:
        warn(sentence)
    starts_nothing = bool(ends)
    selected = _selected_machines(machines, cluster, options.families)
    readable = selected_schedules(found, cluster, options.families, selected)
    others = [machine.schedule for machine in machines if not machine.is_gone]
    judged = judge_account(readable, open_client, events, clock, now_ns, selected, others)
    since_ns = usual_since_ns(now_ns, reads_logs=bool(source_names(options, "logs")))
    families_known = FamilyCache(lambda: past, since_ns)
    try:
        families_known.read_families(schedule.family_key for schedule in readable)
    except TaskProfilerError as error:
        warn(f"The usual durations are unknown. {error}")
    rows = []
    for schedule in judged:
        duration = families_known.known_family(schedule.schedule.family_key).usual_duration()
        title, row = titled_schedule_row(schedule, duration, now_ns)
        why = gone.why_schedule_starts_nothing(schedule, now_ns)
        if why is not None:
            starts_nothing = True
            row = replace(row, reason=" ".join(filter(None, (why, row.reason))))
        rows.append((title, row))
    rows.sort(key=sort_key_of_row)
    if as_lines:
        write_json_lines(row for _, row in rows)
    else:
        write_lines(schedule_table_lines(rows, table_width()))
    return int(starts_nothing)


def list_schedules(open_client: OpenClient) -> FoundSchedules:
    """All schedules.

    An unreadable part is a warning, and the exit code becomes 1. Raises TaskProfilerError.
    """
    found = ScheduleReader(open_client).read_timed_schedules(with_jobs=True, with_machines=True)
    if found.problems and not (found.schedules or found.of_machines):
        raise TaskProfilerError(found.problems[0])
    warn_unread(found)
    if found.problems:
        click.get_current_context().meta[SOURCE_FAILED] = True
    return found


def selected_schedules(
    found: FoundSchedules,
    cluster: str | None,
    families: Collection[str],
    machines: Sequence[MachineSchedule] = (),
) -> list[Schedule]:
    """The schedules of these families in this cluster, and those of ``machines``. Raises
    TaskProfilerError if there are none.
    """
    readable = [machine.schedule for machine in machines]
    for schedule in found.schedules:
        clusters: list[str | None] = [None]
        if not schedule.is_of_jobs:
            clusters += [cluster_name(schedule.cluster_arn), schedule.cluster_arn]
        if cluster in clusters and matches_any(schedule.family, families):
            readable.append(schedule)
    if readable:
        return readable
    raise TaskProfilerError(_nothing_found_sentence(found.schedules, cluster, tuple(families)))


def _selected_machines(
    machines: Sequence[MachineSchedule], cluster: str | None, families: Collection[str]
) -> list[MachineSchedule]:
    """Those with a state that starts tasks of these families in this cluster, or submits jobs."""
    return [
        machine for machine in machines if any(_selected_states(machine.states, cluster, families))
    ]


def _missing_machine_sentences(
    machines: Sequence[MachineSchedule],
    cluster: str | None,
    families: Collection[str],
    now_ns: int,
) -> Iterator[str]:
    """Say of schedules that may still be due that their state machine does not exist any more. It
    is unknown what it started, so nothing is said of some families or one cluster.
    """
    if cluster or families:
        return
    for machine in machines:
        schedule = machine.schedule
        if machine.is_gone and may_start_again(schedule, now_ns):
            yield (
                f"The {schedule.kind} {schedule.name} starts nothing: the state machine "
                f"{schedule.machine_name}, or the version or the alias that it names, does not "
                "exist."
            )


def _selected_states(
    states: Iterable[ScheduledTarget], cluster: str | None, families: Collection[str]
) -> Iterator[ScheduledTarget]:
    """The states of Step Functions that start tasks of these families in this cluster, or submit
    jobs if any cluster is asked for.
    """
    for state in states:
        clusters: list[str | None] = [None]
        if not state.is_of_job:
            clusters += [cluster_name(state.cluster_arn), state.cluster_arn]
        if cluster in clusters and matches_any(state.family, families):
            yield state


def _nothing_found_sentence(
    others: Sequence[Schedule], cluster: str | None, families: tuple[str, ...]
) -> str:
    """Say that no schedule is of these families in this cluster, and which may be meant."""
    sentence = "No schedule and no rule of EventBridge starts an ECS task"
    if families:
        sentence += f" of {listed(families, 'or')}"
    if cluster is None:
        sentence += ": check --region and --profile."
    else:
        sentence += f" in the cluster {cluster}: check --cluster, --region and --profile."
        clusters = {cluster_name(schedule.cluster_arn) or "" for schedule in others}
        if cluster not in clusters:
            sentence += did_you_mean([cluster], sorted(clusters))
    names = frozenset(schedule.family for schedule in others)
    return sentence + similar_families_sentence(RunFilter(families=families), lambda: names)


def warn_unread(found: FoundSchedules) -> None:
    """Print the first sentences about what could not be read, and the number of the others."""
    for problem in found.problems[:_MAX_PROBLEMS]:
        warn(problem)
    more = len(found.problems) - _MAX_PROBLEMS
    if more > 0:
        warn(f"{format_count(more, 'more schedule')} could not be read.")


def judge_account(
    asked: Sequence[Schedule],
    open_client: OpenClient,
    past: RunSource | None,
    clock: Clock,
    now_ns: int,
    machines: Sequence[MachineSchedule] = (),
    others: Sequence[Schedule] = (),
) -> list[JudgedSchedule]:
    """Judge the last due time of each schedule.

    ``past`` has runs with ECS's events, which ECS itself forgets. ``machines`` are those of the
    schedules that start state machines, and ``others`` may have started their executions, too.
    """
    places = {machine.schedule.cluster_arn for machine in machines}
    of_places = [one for one in others if one.cluster_arn in places]
    starting = [*of_places, *(one for one in asked if one not in of_places)]

    def judge(tasks: Mapping[str, ReadTasks]) -> list[JudgedSchedule]:
        judged = judge_schedules(starting, tasks, now_ns=now_ns, grace_ns=_GRACE_NS)
        return [one for one in judged if one.schedule in asked]

    of_tasks = {
        schedule.cluster_arn
        for schedule in asked
        if not (schedule.is_of_jobs or schedule.is_of_machine)
    }
    clusters = read_clusters(open_client("ecs"), of_tasks, now_ns)
    due_ns = known_values(_last_due_or_none(machine.schedule, now_ns) for machine in machines)
    since_ns = min(due_ns, default=now_ns) - SKEW_NS
    listing = [machine.schedule for machine in machines if not machine.is_express]
    clusters |= {machine.schedule.cluster_arn: ReadTasks(problem=EXPRESS) for machine in machines}
    clusters |= read_executions(open_client, listing, now_ns, since_ns)
    clusters |= read_queues(open_client, asked, now_ns, pause=clock.sleep)
    known_ids = set[str]()
    for cluster in clusters.values():
        known_ids.update(task_id(task.arn) for task in cluster.tasks or ())
    judged = judge(clusters)
    forgotten = [schedule for schedule in judged if _has_forgotten_due_time(schedule)]
    if forgotten and past is not None:
        try:
            merged = _with_past_tasks(clusters, known_ids, forgotten, past, now_ns)
            judged = judge(merged)
        except TaskProfilerError as error:
            warn(f"Due times of more than an hour ago are unknown. {error}")
    problems: set[str] = set()
    reasons = MissedReasonFinder(open_client, pause=clock.sleep, warn=problems.add)
    explained = [_with_reason(schedule, reasons, known_ids, now_ns) for schedule in judged]
    for problem in sorted(problems):
        warn(problem)
    return explained


def _last_due_or_none(schedule: Schedule, now_ns: int) -> int | None:
    with suppress(ScheduleExpressionError):
        return last_due(schedule, now_ns)
    return None


def _has_forgotten_due_time(judged: JudgedSchedule) -> bool:
    return any(due.reason == TOO_OLD for due in judged.due_times)


def _with_past_tasks(
    clusters: dict[str, ReadTasks],
    known_ids: Collection[str],
    forgotten: Sequence[JudgedSchedule],
    source: RunSource,
    now_ns: int,
) -> dict[str, ReadTasks]:
    """The clusters with the tasks of past runs, too.

    ``known_ids``: the ids of the tasks that they have.
    """
    families = {judged.schedule.family_key for judged in forgotten}
    due_times = chain.from_iterable(judged.due_times for judged in forgotten)
    oldest_ns = min(due.due_ns for due in due_times) - SKEW_NS
    past = past_tasks_by_cluster(source, families, max(oldest_ns, now_ns - _MAX_PAST_NS))
    merged = {}
    for arn, cluster in clusters.items():
        merged[arn] = cluster
        if cluster.tasks is not None:
            tasks = [*cluster.tasks]
            for task in past.get(cluster_name(arn) or "", ()):
                if task_id(task.arn) not in known_ids:
                    tasks.append(task)
            merged[arn] = replace(cluster, tasks=tuple(tasks))
    return merged


def _with_reason(
    judged: JudgedSchedule, reasons: MissedReasonFinder, known_ids: Collection[str], now_ns: int
) -> JudgedSchedule:
    """Add AWS's reason to a missed due time.

    One before its rule changed is unknown, and a late one of a past run.
    """

    def explained(due: DueTime) -> DueTime:
        if due.outcome not in ("missed", "late"):
            return due
        if due.task is not None and task_id(due.task.arn) not in known_ids:
            return replace(due, outcome="unknown", reason=TOO_OLD, task=None)
        was_changed = reasons.was_rule_changed(judged.schedule, due.due_ns, now_ns)
        if was_changed is not False:
            reason = CHANGED if was_changed else _CHANGES_UNKNOWN
            return replace(due, outcome="unknown", reason=reason)
        return with_refusal(due, reasons.find_reason(judged.schedule, due.due_ns))

    return replace(judged, due_times=tuple(map(explained, judged.due_times)))


def past_tasks_by_cluster(
    source: RunSource, families: Collection[FamilyKey], since_ns: int
) -> dict[str, list[StartedTask]]:
    """The tasks of the families by the name of their cluster, with the runs' starts for the
    later unknown creation.
    """
    tasks: dict[str, dict[str, StartedTask]] = {}
    patterns = exact_patterns_of(family.name for family in families)
    for run in source.runs(RunFilter(families=patterns, since_ns=since_ns)):
        if run.family not in families:
            continue
        cluster = run.record.cluster
        task = _started_task(run)
        if cluster is not None and task is not None:
            tasks.setdefault(cluster, {})[task.arn] = task
    return {cluster: list(by_arn.values()) for cluster, by_arn in tasks.items()}


def _started_task(run: PastRun) -> StartedTask | None:
    record = run.record
    event = run.event
    if event.started_by is None or record.family is None or not run.started_ns:
        return None
    duration_ms = record.metrics.duration_ms or 0
    return StartedTask(
        arn=record.task_arn or record.task_id,
        family=record.family,
        started_by=event.started_by,
        created_ns=run.started_ns,
        started_ns=run.started_ns,
        stopped_ns=run.started_ns + round(duration_ms * NS_PER_MS),
        exit_code=run.outcome.exit_code,
        stop_code=event.stop_code,
        stopped_reason=run.outcome.reason,
    )


class ScheduleRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """The object of ``--json``: a schedule, the outcome of its last due time, and the next due
    time.
    """

    name: str
    kind: str
    expression: str
    time_zone: str
    cluster: str | None
    queue: str | None  # of AWS Batch; ``family`` is then the job definition
    # Of Step Functions; ``family`` then has all that its states start, separated by commas.
    state_machine: str | None
    family: str
    last_due: str | None
    outcome: DueOutcome
    reason: str | None
    next_due: str | None
    usual_duration_ms: int | None
    overlap: str | None


def titled_schedule_row(
    judged: JudgedSchedule, usual: UsualDuration | None, now_ns: int
) -> tuple[str, ScheduleRow]:
    """The title of a schedule, which has its group unless that is the default one, and its row."""
    schedule = judged.schedule
    problem = judged.problem
    outcome: DueOutcome = "none" if schedule.is_enabled else "disabled"
    reason = problem
    due_at = None
    if judged.due_times:
        last = judged.due_times[-1]
        due_at = format_ms(last.due_ns)
        outcome = last.outcome
        reason = problem or last.reason
    next_ns = None
    overlap = None
    usual_ms = None
    if usual is not None:
        usual_ms = round(usual.median_ms)
    if problem is not None:
        outcome = "unknown"
    elif schedule.is_enabled:
        next_ns = next_due(schedule, now_ns)
        if usual is not None:
            overlap = overlap_clause(schedule, now_ns, usual.median_ms, usual.p95_ms)
    place = cluster_name(schedule.cluster_arn) or UNKNOWN
    is_of_tasks = not (schedule.is_of_jobs or schedule.is_of_machine)
    row = ScheduleRow(
        name=schedule.name,
        kind=schedule.kind,
        expression=schedule.expression,
        time_zone=schedule.time_zone,
        cluster=place if is_of_tasks else None,
        queue=place if schedule.is_of_jobs else None,
        state_machine=schedule.machine_name,
        family=schedule.family,
        last_due=due_at,
        outcome=outcome,
        reason=reason,
        next_due=known(format_ms, next_ns),
        usual_duration_ms=usual_ms,
        overlap=overlap,
    )
    return schedule.title, row


def sort_key_of_row(titled: tuple[str, ScheduleRow]) -> tuple[int, str, str]:
    """The place of a row: rows that need attention come first."""
    title, row = titled
    return _ORDER[row.outcome], title, _place_of_tasks(row)


def _place_of_tasks(row: ScheduleRow) -> str:
    """The cluster of its tasks, the queue of its jobs, or its state machine."""
    return row.cluster or row.queue or row.state_machine or UNKNOWN


def _places_heading(rows: Sequence[tuple[str, ScheduleRow]]) -> str:
    """The head of the column of places."""
    names = ["Cluster"]
    if any(row.queue for _, row in rows):
        names.append("queue")
    if any(row.state_machine for _, row in rows):
        names.append("state machine")
    return ", ".join(names)


def schedule_table_lines(
    rows: Sequence[tuple[str, ScheduleRow]], width: int | None
) -> Iterator[Line]:
    """One row per schedule, then the sentences about them."""
    columns = [
        Column("Schedule", folds=True),
        Column(_places_heading(rows), folds=True),
        Column("Expression", folds=True),
        Column(f"Last due ({local_zone()})", folds=True),
        Column("Outcome"),
        Column("Next due", folds=True),
        Column("Usual", is_right=True),
    ]
    has_clusters = len({_place_of_tasks(row) for _, row in rows}) > 1
    has_usual = any_known(*(row.usual_duration_ms for _, row in rows))
    is_shown = (True, has_clusters, True, True, True, True, has_usual)
    cells = []
    sentences = []
    for title, row in rows:
        cells.append([*compress(_schedule_cells(title, row), is_shown)])
        for sentence in filter(None, (row.reason, row.overlap)):
            sentences.append((title, f"{with_local_times(sentence).rstrip('.')}.", ""))
    yield from aligned_table([*compress(columns, is_shown)], cells, width=width)
    yield from sentences_about(sentences, width)


def _schedule_cells(title: str, row: ScheduleRow) -> list[str | Span]:
    usual = value_text(row.usual_duration_ms, format_duration)
    return [
        title,
        _place_of_tasks(row),
        f"{row.expression} {row.time_zone}",
        format_local(parse_ns(row.last_due)) or UNKNOWN,
        Span(row.outcome, _STYLES[row.outcome]),
        format_local(parse_ns(row.next_due)) or UNKNOWN,
        Span(usual, "" if row.overlap is None else "yellow"),
    ]
