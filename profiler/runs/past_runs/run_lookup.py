"""Finds the runs that a user names, and says what to do if there is none."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from shlex import quote

from msgspec.structs import replace

from profiler.core.commands_to_copy import command_line
from profiler.core.ecs_terms import (
    BATCH_LOG_GROUP,
    MONITOR_NAME,
    definition_in,
    family_of,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known_values
from profiler.core.text import did_you_mean, first_names, listed, similar_name
from profiler.core.timestamps import NS_PER_DAY
from profiler.record.activity_model import NO_STACKS
from profiler.record.batch_job import is_job_id, is_part_of_job, parent_id
from profiler.record.family_identity import family_key
from profiler.record.record_model import (
    UNKNOWN_COST,
    Cost,
    Record,
    Report,
)
from profiler.record.run_labels import label_values
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import (
    ELSEWHERE,
    RunFilter,
    RunSource,
    filter_of,
    is_pattern,
)

_MOST_COMPARED_RUNS = 200
# The option of a condition, and the values of a run for it, by the condition.
_NAMED_VALUES: Mapping[str, tuple[str, Callable[[Record], Iterable[str | None]]]] = {
    "clusters": ("--cluster", lambda record: [record.cluster]),
    "accounts": ("--account", lambda record: [record.account_id]),
    "regions": ("--task-region", lambda record: [record.region]),
    "tags": ("--tag", lambda record: map("=".join, (record.tags or {}).items())),
    "labels": ("--label", lambda record: map("=".join, label_values(record).items())),
}
# The containers of one task start within this time of each other.
_MAX_START_DISTANCE_NS = NS_PER_DAY


def find_runs(source: RunSource, selection: RunFilter) -> tuple[PastRun, ...]:
    """Find the runs of one task, one for each container with a report: the newest task that
    matches, or the named one.

    A family takes precedence over a task id, and of a job the newest attempt is found. Each run has
    the cost of the task, which one report contains. Of a family, a run that counts precedes. Raises
    TaskProfilerError if no run matches, or several task ids begin with ``selection.run``.
    """
    run = _find_run(source, selection)
    record = run.record
    if all(other.name == MONITOR_NAME for other in record.containers):
        return (run,)
    near = filter_of(
        run.family,
        run=record.task_id,
        since_ns=max(run.started_ns - _MAX_START_DISTANCE_NS, 0),
        until_ns=run.started_ns + _MAX_START_DISTANCE_NS,
        reads_checkpoints=selection.reads_checkpoints,
    )
    by_container = {record.container.name: run}
    for other in source.runs(near):
        if other.record.task_id == record.task_id:
            by_container.setdefault(other.record.container.name, other)
    costs: dict[str, Cost] = {}
    for of_task in by_container.values():
        cost = of_task.record.cost
        if cost != UNKNOWN_COST:
            costs[record.task_id] = cost
    is_named = selection.run.startswith(f"{record.task_id}/")
    chosen = [run] if is_named else list(by_container.values())
    return tuple(replace(run, report=with_task_cost(run.report, costs)) for run in chosen)


def with_task_cost(report: Report, costs: Mapping[str, Cost]) -> Report:
    """The report with the cost of its task.

    Of several containers of a task, only the last report contains the cost.
    """
    record = report.record
    if record.cost != UNKNOWN_COST or record.task_id not in costs:
        return report
    return replace(report, record=replace(record, cost=costs[record.task_id]))


def find_run(source: RunSource, selection: RunFilter, container: str | None = None) -> PastRun:
    """The only run that matches, of this container.

    Raises TaskProfilerError for none or several.
    """
    runs = find_runs(source, selection)
    for run in runs:
        if run.record.container.name == container:
            return run
    if len(runs) == 1:
        return runs[0]
    records = [run.record for run in runs]
    names = sorted(f"{record.task_id}/{record.container.name}" for record in records)
    raise TaskProfilerError(
        f"The task has reports of {len(runs)} containers: name one of them, {listed(names, 'or')}."
    )


def _find_run(source: RunSource, selection: RunFilter) -> PastRun:
    similar: list[PastRun] = []
    unconfirmed: PastRun | None = None
    of_family: PastRun | None = None  # or of the job: the newest one, which does not count
    for run in source.runs(selection):
        record = run.record
        identities = (record.task_id, f"{record.task_id}/{record.container.name}")
        if _names_several_runs(run, selection.run):
            if run.counts:
                return run
            of_family = of_family or run
        elif selection.run not in identities:
            similar.append(run)
        elif run.is_confirmed or run.place is not None:
            # A reader of log groups has chosen among a run's lines already.
            return run
        else:
            unconfirmed = unconfirmed or run
    return unconfirmed or of_family or _only_similar_run(similar, source, selection)


def _only_similar_run(
    similar: Sequence[PastRun], source: RunSource, selection: RunFilter
) -> PastRun:
    """The newest run with the id that alone begins as selected."""
    ids = {_id_that_begins(run.record, selection.run) for run in similar}
    if len(ids) == 1:
        return similar[0]
    if not ids:
        raise TaskProfilerError(no_run_sentence(source, selection))
    raise TaskProfilerError(
        f"The ids of {len(ids)} runs in {source.place} begin with {selection.run!r}: give more of "
        f"the id ({first_names(sorted(ids))})."
    )


def _names_several_runs(run: PastRun, name: str) -> bool:
    """Whether the name is that of the run's family or job, which has several runs."""
    if not name or fnmatchcase(run.family.name, name):
        return True
    return is_part_of_job(run.record.batch, name)


def _id_that_begins(record: Record, name: str) -> str:
    """The id that begins with the name: the run's, or its job's."""
    job_id = record.batch.job_id or ""
    if job_id and job_id.startswith(name):
        return parent_id(job_id)
    return record.task_id


def no_run_sentence(source: RunSource, selection: RunFilter) -> str:
    """Say that no run was found and what to do."""
    similar = similar_families_sentence(selection, source.family_names)
    meant = _swapped_label_hint(source, selection) or _similar_values_hint(source, selection)
    return f"{_no_run_sentence(source, selection)}{similar}{meant}"


def _swapped_label_hint(source: RunSource, selection: RunFilter) -> str:
    """A sentence, after a space, if a run has the labels that were given as tags, or the tags that
    were given as labels; "" if none has, or it cannot be read.
    """
    if not selection.tags and not selection.labels:
        return ""
    other = replace(selection, tags=selection.labels, labels=selection.tags)
    with suppress(TaskProfilerError):  # what was not found matters more
        if next(iter(source.runs(other)), None) is not None:
            return f" Did you mean {'--label' if selection.tags else '--tag'}?"
    return ""


def _similar_values_hint(source: RunSource, selection: RunFilter) -> str:
    """A sentence, after a space, if runs that match but for one condition have a value that is
    similar to its own; "" if none has, or it cannot be read.
    """
    for name, (option, values_of) in _NAMED_VALUES.items():
        given = [
            text if isinstance(text, str) else "=".join(text)
            for text in known_values(getattr(selection, name))
        ]
        known: set[str] = set()
        with suppress(TaskProfilerError):  # what was not found matters more
            others = source.runs(replace(selection, **{name: ()})) if given else ()
            for run in islice(others, _MOST_COMPARED_RUNS):
                known.update(known_values(values_of(run.record)))
        unknown = [value for value in given if value not in known]
        meant = known_values(similar_name(value, sorted(known)) for value in unknown)
        if meant:
            return f" Did you mean {listed(f'{option} {value}' for value in meant)}?"
    return ""


def similar_families_sentence(
    selection: RunFilter, family_names: Callable[[], Collection[str]]
) -> str:
    """The families that may be meant by the names of a selection, as a sentence after a space; ""
    if there are none or they cannot be read.
    """
    names = [selection.run.partition("@")[0], *selection.families]
    exact = [name for name in names if name and not is_pattern(name)]
    if not exact:
        return ""
    known: Collection[str] = ()
    with suppress(TaskProfilerError):  # what was not found matters more
        known = family_names()
    unknown = [family_of(definition_in(name)) or name for name in exact if name not in known]
    return did_you_mean(unknown, sorted(known))


def _no_run_sentence(source: RunSource, selection: RunFilter) -> str:
    if not source.completeness.is_whole:
        names = selection.families
        what = "No run"
        if selection.run:
            what = f"No run or family {selection.run!r}"
        elif names:
            what = f"No run of {', '.join(names)}"
        return f"{what} was found in the part of {source.place} that could be read."
    sentence = _empty_source_sentence(source, selection)
    unsearched = source.unsearched
    return f"{sentence} Not searched: {first_names(unsearched)}." if unsearched else sentence


def _empty_source_sentence(source: RunSource, selection: RunFilter) -> str:
    list_runs = f"list the runs with task-profiler history and the same source, or {ELSEWHERE}."
    files = [name for name in (selection.run, *selection.families) if _is_json_file(name)]
    if files:
        list_runs = f"to read the file of this name, write --from {quote(files[0])}."
    if selection.run:
        if source.is_of_this_machine and is_job_id(selection.run):
            list_runs = f"for the log group of AWS Batch, add --from logs:{BATCH_LOG_GROUP}."
        elif is_job_id(selection.run):
            doctor = command_line("doctor", selection.run)
            list_runs = f"{doctor} says how the job ended, and where its log is."
        return f"No run or family {selection.run!r} in {source.place}: {list_runs}"
    if selection.is_empty:
        return f"No runs in {source.place}: {source.remedy}."
    if replace(selection, families=()).is_empty:
        return f"No run of {', '.join(selection.families)} in {source.place}: {list_runs}"
    if selection.clusters and source.is_of_this_machine:
        return f"No run in {source.place} is of {listed(selection.clusters, 'or')}: {ELSEWHERE}."
    return f"No run in {source.place} matches: use fewer filters."


def _is_json_file(path: str) -> bool:
    """Whether there is a file that begins as JSON does, so that it may be one of records."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(1) in (b"{", b"[")
    except (OSError, ValueError):  # ValueError: no path has a null byte
        return False


def no_stacks_sentence(source: RunSource, record: Record) -> str:
    """Say that the source does not have the call stacks of a run, and what to do."""
    run = f"{family_key(record).name} {record.task_id}"
    if record.stacks is NO_STACKS:
        return (
            f"{run} has no call stacks: set TASK_PROFILER_STACKS=on for its monitor, or run the "
            "command with task-profiler run --stacks."
        )
    if record.task_arn is None:
        remedy = "the local history keeps those of the newest runs"
    else:
        command = command_line(
            *("show", record.task_id, "--stacks"),
            log_group=record.log_group or "GROUP",
            region=record.log_region or record.region,
        )
        remedy = f"the batch's log group has them while it keeps them ({command})"
    return f"{source.place} has no call stacks of {run}: {remedy}."
