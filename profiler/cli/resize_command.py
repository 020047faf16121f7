"""``task-profiler taskdef resize``: gives families of ECS the sizes that their past runs call
for.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace

from profiler.aws_account.registered_definitions import TaskDefinitions
from profiler.aws_account.resize_plan import SizePlans
from profiler.aws_account.rollout import PlannedFamily, Rollout, RolloutRequest
from profiler.cli.options import (
    Number,
    PastRunsCommand,
    SourceOptions,
    WholeNumber,
    flag,
    gathered,
    option,
    past_run_options,
    policy_options,
    repeatable,
)
from profiler.cli.printing import (
    say,
    size_text,
    total_saving,
    value_text,
    warn,
    warned_notes,
    write_json_lines,
)
from profiler.cli.rollout_progress import (
    check_update_schedules,
    done_text,
    registered,
    with_progress,
)
from profiler.cli.styled_text import EMPTY, Column, sentences_about, table, table_width, write_lines
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_past_runs import open_source, price_overrides
from profiler.core.clock import SystemClock
from profiler.core.errors import UsageError
from profiler.core.json_fields import text
from profiler.core.text import as_sentence
from profiler.record.family_identity import FamilyKey
from profiler.record.record_model import TaskSize
from profiler.record.units import format_usd
from profiler.runs.past_runs.families import read_windows
from profiler.runs.past_runs.run_source import RunFilter, pattern_of
from profiler.sizing.advice import rounded_usd, size_object
from profiler.sizing.choose_size import Policy
from profiler.sizing.family_window import WINDOW_DAYS, FamilyWindow, WindowSpan
from profiler.sizing.resize_policy import Resize, ResizePolicy
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument
from profiler.task_definitions.definition_texts import (
    change_text,
    read_bytes,
    read_definitions,
    write_definition,
)
from profiler.task_definitions.size_changes import definition_size
from profiler.task_definitions.terraform_sizes import terraform_sizes

_MIN_DAYS, _MAX_DAYS = 14, 400
_COLUMNS = (
    Column("FAMILY", folds=True),
    Column("ACTION"),
    Column("FROM"),
    Column("TO"),
    Column("$ A MONTH", is_right=True),
    Column("WHY", folds=True),
)


@click.command(
    "resize", cls=PastRunsCommand, epilog="Example: task-profiler taskdef resize --scheduled"
)
@click.argument("globs", metavar="[FAMILY]...", nargs=-1)
@past_run_options
@repeatable("--cluster clusters", "NAME", "Only families of this cluster's tasks and schedules.")
@flag("--scheduled", "Only families that an EventBridge rule or schedule starts.")
@flag("--register", "Register the planned revisions.")
@flag(
    "--update-schedules",
    "With --register: move schedules pinned to a revision that differs only by the size.",
)
@option(
    "--days",
    "N",
    "Use the runs of the last N days.",
    type=WholeNumber(_MIN_DAYS, _MAX_DAYS),
    default=WINDOW_DAYS,
)
@policy_options
@option(
    "--min-saving min_saving_percent", "PERCENT", "Minimum saving.", type=Number(0, 100), default=10
)
@option(
    "--min-runs", "N", "Change a size only after N runs.", type=WholeNumber(1, 10_000), default=20
)
@repeatable(
    "--apply files",
    "FILE",
    "Write the sizes to the task definitions in FILE, and call nothing in ECS.",
)
@flag("--json as_json", "Print one JSON object for each family, and one for all.")
@gathered(RolloutRequest, "request")
@gathered(SourceOptions, "options")
@gathered(Policy, "policy")
def resize(
    *,
    request: RolloutRequest,
    options: SourceOptions,
    policy: Policy,
    days: int,
    min_saving_percent: float,
    min_runs: int,
    files: tuple[str, ...],
    as_json: bool,
) -> int:
    """Give families the size that their past runs call for, and judge the last change.

    FAMILY can be a shell pattern; the default is all families with runs. This prints a plan;
    --register carries it out. A revision remembers the size before. Its runs are judged: if it was
    too small, the old size comes back.
    """
    check_update_schedules(request)
    limits = ResizePolicy(size=policy, min_saving_percent=min_saving_percent, min_runs=min_runs)
    span = WindowSpan(now_ns=SystemClock().wall_ns(), days=days, min_runs=min_runs)
    if files:
        if request != RolloutRequest():
            raise UsageError(
                "--apply takes the families of its files: leave out FAMILY, --cluster, "
                "--scheduled, --register."
            )
        return _apply(files, options, span, limits, as_json=as_json)
    open_client = open_clients(options.region, options.profile)
    definitions = TaskDefinitions(open_client("ecs"))
    runs: dict[FamilyKey, FamilyWindow] = {}
    plans = SizePlans(
        runs=runs, policy=limits, price_overrides=price_overrides(), describe=definitions.describe
    )
    rollout = Rollout(
        open_client=open_client,
        request=request,
        plan_change=plans.plan,
        part="size",
        on_step=partial(click.echo, err=True) if as_json else say,
        on_problem=warn,
    )
    families = rollout.families()
    is_selected = bool(request.globs or request.clusters or request.scheduled)
    runs.update(_read_runs(options, families if is_selected else (), span))
    if not is_selected:
        names = {key.name for key in runs}
        families = tuple(family for family in families if family in names)
    planned = sorted(
        with_progress("Reading task definitions", rollout.plan(families), len(families)),
        key=lambda one: (-(_decision(one).saving_usd_per_month or 0), one.family),
    )
    _print(
        planned,
        as_json=as_json,
        hint="" if request.register else "--register registers the revisions.",
    )
    if request.register:
        planned = [*registered(rollout, planned)]
    if pinned := rollout.pinned_sentence(planned):
        warn(pinned)
    rollout.counts["failed"] += sum(one.action == "failed" for one in planned)
    if request.register:
        warn(f"{done_text(rollout.counts, Counter()) or 'nothing registered'}.")
    return 1 if rollout.counts["failed"] or rollout.counts["unmatched"] else 0


def _read_runs(
    options: SourceOptions, families: Sequence[str], span: WindowSpan
) -> Mapping[FamilyKey, FamilyWindow]:
    source = open_source(options)
    selection = RunFilter(families=tuple(map(pattern_of, families)))
    with warned_notes(source):
        return read_windows(source, selection, span)


def _apply(
    files: Sequence[str],
    options: SourceOptions,
    span: WindowSpan,
    policy: ResizePolicy,
    *,
    as_json: bool,
) -> int:
    """Write the sizes into the files, but for Terraform say where.

    A file without a change is left alone.
    """
    texts = {file: read_bytes(Path(file)) for file in files}
    resources = [
        one for file in texts if file.endswith(".tf") for one in terraform_sizes(texts[file], file)
    ]
    texts = {file: data for file, data in texts.items() if not file.endswith(".tf")}
    found = [
        definition for file, data in texts.items() for definition, _ in read_definitions(data, file)
    ]
    found += [resource.definition for resource in resources]
    families = tuple(
        dict.fromkeys(filter(None, (text(definition.get("family")) for definition in found)))
    )
    plans = SizePlans(
        runs=_read_runs(options, families, span) if families else {},
        policy=policy,
        price_overrides=price_overrides(),
    )
    planned: list[PlannedFamily] = []

    def change(definition: Mapping[str, object], *_: object) -> ChangedDefinition:
        family = str(
            text(definition.get("family")) or ""
        )  # for JSON, also of an intrinsic function
        planned.append(plans.plan(family, TaskDefinitionDocument(definition=definition)))
        return ChangedDefinition(definition=planned[-1].changed.definition)

    changes: dict[str, bytes] = {}
    for file, data in texts.items():
        changed = change_text(data, file, change, keeps_form=True)
        if changed.is_changed:
            changes[file] = changed.after
    for resource in resources:
        sized = change(resource.definition).definition
        planned[-1] = replace(planned[-1], notes=(*planned[-1].notes, *resource.hints(sized)))
    _print(planned, as_json=as_json, hint="")
    for file, after in changes.items():
        write_definition(Path(file), after, remedy="make it writable")
        warn(f"{file} was changed.")
    return 0


def _print(planned: Sequence[PlannedFamily], *, as_json: bool, hint: str) -> None:
    if as_json:
        write_json_lines([*map(_row, planned), _total(planned)])
        return
    found = ((one.family, note, "") for one in planned for note in _notes(one))
    width = table_width()
    write_lines(
        [*table(_COLUMNS, map(_cells, planned), width=width), *sentences_about(found, width), EMPTY]
    )
    changes = [one.saving_usd_per_month for one in _changes(planned)]
    say(total_saving(changes, [_decision(one).usd_per_month for one in planned]))
    if changes and hint:
        say(hint)


def _decision(planned: PlannedFamily) -> Resize:
    """The decision on a family; without one, why there is none."""
    if planned.resize is not None:
        return planned.resize
    reason = "a service runs it" if planned.action == "skipped" else " ".join(planned.notes)
    return Resize(action="none", reason=reason, runs=0)


def _notes(planned: PlannedFamily) -> tuple[str, ...]:
    """What else is to be known; the first note is the reason."""
    return planned.notes[1:] if planned.resize is not None else ()


def _present(planned: PlannedFamily) -> TaskSize:
    return TaskSize() if planned.document is None else definition_size(planned.document.definition)


def _row(planned: PlannedFamily) -> Mapping[str, object]:
    decision = _decision(planned)
    return {
        "type": "family",
        "family": planned.family,
        "action": decision.action,
        "reason": decision.reason,
        "from": size_object(_present(planned)),
        "to": size_object(decision.size or TaskSize()),
        "runs": decision.runs,
        "savingUsdPerMonth": rounded_usd(decision.saving_usd_per_month),
        "verdict": decision.verdict,
        "notes": _notes(planned),
    }


def _total(planned: Sequence[PlannedFamily]) -> Mapping[str, object]:
    decisions = [_decision(one) for one in planned]
    verdicts = (one.verdict for one in decisions if one.action == "keep")
    return {
        "type": "total",
        "families": len(planned),
        "changes": sum(one.is_new_revision for one in planned),
        "savingUsdPerMonth": _sum(one.saving_usd_per_month for one in _changes(planned)),
        "savedUsdPerMonth": _sum(
            verdict.saved_usd_per_month for verdict in verdicts if verdict is not None
        ),
    }


def _changes(planned: Sequence[PlannedFamily]) -> Sequence[Resize]:
    return [_decision(one) for one in planned if one.is_new_revision]


def _sum(amounts: Iterable[float | None]) -> float:
    return rounded_usd(sum(amount for amount in amounts if amount is not None)) or 0


def _cells(planned: PlannedFamily) -> tuple[str, ...]:
    decision = _decision(planned)
    money = value_text(decision.saving_usd_per_month, format_usd)
    sizes = size_text(_present(planned)), size_text(decision.size or TaskSize())
    return planned.family, decision.action, *sizes, money, as_sentence(decision.reason)
