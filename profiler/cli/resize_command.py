"""``task-profiler taskdef resize``: gives families of ECS the sizes that their past runs call
for.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

import click
from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.cloudformation_owners import CloudFormationOwners
from profiler.aws_account.family_circumstances import FamilyCircumstancesReader, read_account
from profiler.aws_account.forwarder_stack import FORWARDER_STACK
from profiler.aws_account.planned_family import PlanChange, PlannedFamily
from profiler.aws_account.registered_definitions import TaskDefinitions
from profiler.aws_account.registered_job_definitions import JobDefinitions, read_job_account
from profiler.aws_account.resize_plan import RevertPlanner, SizePlanner
from profiler.aws_account.revision_read_limit import BoundedReads
from profiler.aws_account.rollout import Rollout
from profiler.aws_account.rollout_request import RolloutRequest
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.cli.aws_names import CLUSTER
from profiler.cli.options import (
    Number,
    PastRunsCommand,
    SourceOptions,
    Text,
    WholeNumber,
    flag,
    gathered,
    option,
    past_run_options,
    policy_options,
    repeatable,
)
from profiler.cli.printing import say_done, warn
from profiler.cli.progress import say_if_slow
from profiler.cli.resize_files import plan_sizes_in_files
from profiler.cli.resize_jobs import UNSEEN_SUBMITTERS, read_job_runs, request_with_definitions
from profiler.cli.resize_rows import (
    decision_of,
    has_too_little_now,
    plans_with_new_revision,
    print_github_plan,
    print_json_plan,
    print_json_total,
    print_plan,
    saving_usd_or_zero,
)
from profiler.cli.resize_runs import (
    ELSEWHERE,
    FoundRuns,
    NewestDefinitionReader,
    RecentRunsReader,
)
from profiler.cli.rollout_progress import (
    READING_ACCOUNT,
    carry_out_plans,
    check_update_schedules,
    collect_with_progress,
    done_text,
    rollout_exit_code,
)
from profiler.cli.standard_streams import STDERR, STDIN
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_past_runs import (
    price_overrides,
    reads_local_only,
    source_names,
)
from profiler.cli.write_sizes_option import SizesTarget, open_sizes_target
from profiler.core.clock import SystemClock
from profiler.core.completeness import Gap
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.files import STANDARD_OUTPUT
from profiler.core.text import first_names
from profiler.record.family_identity import FamilyKey
from profiler.record.family_statistics import WINDOW_DAYS
from profiler.record.units import format_count
from profiler.schedules.schedule_model import Schedule
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.resize_case import MIN_DAYS
from profiler.sizing.resize_limits import ResizePolicy
from profiler.task_definitions.definition_json import TaskDefinitionDocument
from profiler.task_definitions.definition_texts import write_definition

_MAX_DAYS = 400
# More registrations than these need a person's word.
_MAX_UNASKED = 5
_NO_ENDS = (
    "Container Insights knows neither the peaks of memory nor how a run ended: this plan is advice."
)
OutputFormat = Literal["text", "github", "json"]


@click.command(
    "resize", cls=PastRunsCommand, epilog="Example: task-profiler taskdef resize --scheduled"
)
@click.argument("globs", metavar="[FAMILY]...", nargs=-1, type=Text())
@past_run_options
@repeatable(
    "--cluster clusters",
    "NAME",
    "Only families of this cluster's tasks and schedules.",
    type=CLUSTER,
)
@flag(
    "--scheduled",
    "Only families that an EventBridge rule or schedule starts, also by Step Functions.",
)
@repeatable(
    "--job-definition job_definitions", "NAME", "Size job definitions of AWS Batch; also a pattern."
)
@repeatable("--queue queues", "NAME", "Size the job definitions of this job queue of AWS Batch.")
@flag("--register", "Register the planned revisions.")
@flag(
    "--update-schedules",
    "With --register: move schedules pinned to a revision that differs only by the size.",
)
@flag("--revert", "Put each FAMILY back to the size before the last change, whatever its runs say.")
@option(
    "--first",
    "N",
    "Register only N revisions: the largest savings, then what needs more.",
    type=WholeNumber(1, 10_000),
)
@flag("--yes", "Register more than five families without a question.")
@option(
    "--days",
    "N",
    "Use the runs of the last N days.",
    type=WholeNumber(MIN_DAYS, _MAX_DAYS),
    default=WINDOW_DAYS,
)
@policy_options
@option(
    "--min-saving min_saving_percent", "PERCENT", "Minimum saving.", type=Number(0, 100), default=10
)
@option(
    "--min-runs", "N", "Change a size only after N runs.", type=WholeNumber(1, 10_000), default=20
)
@option(
    "--stack",
    "NAME",
    "The stack whose task_stopped confirms runs of log groups.",
    default=FORWARDER_STACK,
)
@flag(
    "--believe-logs",
    "Register by lines of log groups that nothing confirms.",
)
@option(
    "--write-sizes sizes_file",
    "FILE",
    "Write the sizes to FILE, one JSON object by family, for definitions that read it.",
)
@repeatable(
    "--apply files",
    "FILE",
    "Write the sizes to a task definition's JSON, name the lines of other files; without ECS.",
)
@flag("--json as_json", "Print one JSON object for each family, and one for all.")
@option(
    "--format output_format",
    "",
    "Print tables; github: annotations too, and the tables in $GITHUB_STEP_SUMMARY.",
    type=click.Choice(["text", "github"]),
    default="text",
)
@gathered(RolloutRequest, "request")
@gathered(SourceOptions, "options")
@gathered(SizePolicy, "policy")
def resize(
    *,
    request: RolloutRequest,
    options: SourceOptions,
    policy: SizePolicy,
    days: int,
    min_saving_percent: float,
    min_runs: int,
    files: tuple[str, ...],
    revert: bool,
    first: int | None,
    stack: str,
    believe_logs: bool,
    as_json: bool,
    output_format: Literal["text", "github"],
) -> int:
    """Give families the size that their past runs call for, and judge the last change.

    FAMILY can be a shell pattern; the default is all families with runs. This prints a plan;
    --register carries it out. A revision remembers the size before. Its runs are judged: if it was
    too small, the old size comes back.
    """
    check_update_schedules(request)
    limits = ResizePolicy(size=policy, min_saving_percent=min_saving_percent, min_runs=min_runs)
    span = WindowSpan(now_ns=SystemClock().wall_ns(), days=days, min_runs=min_runs)
    is_for_act = request.is_act or bool(files)
    runs = RecentRunsReader(
        options=options,
        span=span,
        is_for_act=is_for_act,
        are_for_files=bool(files),
        stack=stack,
        believes_logs=believe_logs,
    )
    _check_jobs(request, files)
    _check_written_files(request, files)
    output = _Output(format="json" if as_json else output_format, days=None if revert else days)
    insights = source_names(options, "insights")
    is_advice = bool(options.sources) and len(insights) == len(options.sources)
    if is_advice and is_for_act:
        raise UsageError(
            f"{_acting_option(request, files)} needs runs with peaks and ends, which Container "
            "Insights does not have: add a source of reports (--from logs:GLOB, or a search "
            "cluster)."
        )
    if files:
        if request != RolloutRequest() or revert or first is not None:
            raise UsageError(
                "--apply takes the families of its files: leave out FAMILY, --cluster, "
                "--scheduled, --register, --write-sizes, --revert and --first."
            )
        return _write_sizes_into_files(files, runs, limits, output)
    _check_families(request)
    sizes = _sizes_target(request, revert=revert)
    if first is not None and not request.register:
        raise UsageError("--first needs --register: without it, the plan has all families.")
    open_client = open_clients(options.region, options.profile)
    if revert:
        _check_revert(request)
        return _revert_families(open_client, request, output)
    plan = _ResizePlanning(open_client=open_client, request=request, limits=limits, runs=runs)
    with say_if_slow(READING_ACCOUNT):
        rollout, planned = plan.make_plan(output)
    if is_advice:
        warn(_NO_ENDS)
    return _print_and_carry_out(rollout, planned, first, output, sizes)


def _check_jobs(request: RolloutRequest, files: Sequence[str]) -> None:
    if request.is_of_jobs and (request.globs or request.clusters or request.scheduled or files):
        raise UsageError(
            "--job-definition and --queue select job definitions of AWS Batch: leave out FAMILY, "
            "--cluster, --scheduled and --apply."
        )


def _check_families(request: RolloutRequest) -> None:
    """Raise UsageError for a file, of which the name has what no family's has."""
    for name in request.globs:
        if {*"./"} & {*name} and ":" not in name:
            raise UsageError(
                f"{name} is no family: to write the sizes into a file, use --apply {name}."
            )


def _check_written_files(request: RolloutRequest, files: Sequence[str]) -> None:
    if STANDARD_OUTPUT in (request.sizes_file, *files):
        raise UsageError(
            f"{_acting_option(request, files)} reads its FILE and writes it again: name a file."
        )


def _acting_option(request: RolloutRequest, files: Sequence[str]) -> str:
    """The option that acts on the plan."""
    if files:
        return "--apply"
    return "--register" if request.register else "--write-sizes"


def _sizes_target(request: RolloutRequest, *, revert: bool) -> SizesTarget | None:
    """The file of sizes, if one is asked for. Raises TaskProfilerError."""
    if request.sizes_file is None:
        return None
    if request.register or revert:
        raise UsageError(
            "--write-sizes leaves the registration to whoever deploys the definitions: leave out "
            "--register and --revert."
        )
    return open_sizes_target(request.sizes_file)


class _Output(Struct, frozen=True, kw_only=True):
    """How the plan is printed. ``days``: whose runs it is from; None: no run was read."""

    format: OutputFormat
    days: int | None

    def print_step(self, sentence: str) -> None:
        """Print what was done: with JSON, on standard error."""
        say_done(sentence, as_json=self.format == "json")

    def print_plan(
        self, planned: Sequence[PlannedFamily], counted: Sequence[PlannedFamily], *, hint: str
    ) -> None:
        """Print the plan. The sums are those of ``counted``."""
        if self.format == "json":
            print_json_plan(planned)
            return
        print_plan(planned, counted, hint, self.days)
        if self.format == "github":
            print_github_plan(planned, os.environ)

    def print_total(self, planned: Sequence[PlannedFamily], done: Sequence[PlannedFamily]) -> None:
        if self.format == "json":
            print_json_total(planned, done)


class _ResizePlanning(Struct, frozen=True, kw_only=True):
    """Makes the plan of an account's families."""

    open_client: OpenClient
    request: RolloutRequest
    limits: ResizePolicy
    runs: RecentRunsReader

    def _circumstances_reader(
        self, jobs: JobDefinitions | None, rollout: Callable[[], Rollout]
    ) -> FamilyCircumstancesReader:
        """What the account says about families; ``rollout`` reads it."""

        def targets() -> Sequence[ScheduledTarget]:
            return rollout().starters.starting_targets

        def other_starters(family: str) -> Sequence[str]:
            return rollout().starters.seen_starters(family)

        def of_services() -> Collection[str]:
            return rollout().starters.families_of_services

        def machine_schedules(names: Collection[str]) -> Sequence[Schedule]:
            return rollout().starters.machine_schedules(names)

        def outer_states(names: Collection[str]) -> Sequence[ScheduledTarget]:
            return rollout().starters.outer_states(names)

        def refusal_of_tags(
            target: ScheduledTarget,
            present: Mapping[str, object],
            new: Mapping[str, object],
            arn: str,
        ) -> str | None:
            return rollout().starter_roles.why_role_refuses_tags(target, present, new, arn)

        now_ns = self.runs.span.now_ns
        if jobs is None:
            account = read_account(
                self.open_client, targets, of_services, now_ns, other_starters=other_starters
            )
        else:
            account = read_job_account(self.open_client, targets, jobs, now_ns)
        return replace(
            account,
            machine_schedules=machine_schedules,
            outer_states=outer_states,
            refusal_of_tags=refusal_of_tags,
        )

    def make_plan(self, output: _Output) -> tuple[Rollout, list[PlannedFamily]]:
        """The plan, in the order in which it is printed."""
        runs: dict[FamilyKey, FamilyWindow] = {}
        gaps: list[Gap] = []
        jobs = _job_definitions(self.open_client, self.request)
        reads = _bounded_reads(self.open_client, self.request, jobs)

        def made() -> Rollout:
            return rollout

        def missing_runs(definition: Mapping[str, object]) -> str:
            return FoundRuns(windows=runs, gaps=tuple(gaps)).why_runs_are_missing(definition)

        account = self._circumstances_reader(jobs, made)
        plans = SizePlanner(
            runs=runs,
            policy=self.limits,
            price_overrides=price_overrides(),
            describe=reads.describe,
            account=account,
            are_for_source=self.request.sizes_file is not None,
            missing_runs=missing_runs,
        )

        def plan(
            family: str, document: TaskDefinitionDocument, started_by: Sequence[str]
        ) -> PlannedFamily:
            return plans.plan_size(family, document, started_by)

        rollout = _resize_rollout(
            self.open_client, self.request, plan, reads, account.owners, output, jobs
        )
        rollout.plans_services = True
        if jobs is not None:
            rollout.request = request_with_definitions(self.request, jobs, account.targets)
        families = rollout.selected_families()
        rollout.starters.check_reads()
        definitions = NewestDefinitionReader(families, reads)
        if jobs is None:
            family_runs = self._read_runs(families, definitions, rollout)
        else:
            family_runs = read_job_runs(self.runs, families, definitions)
        runs.update(family_runs.windows)
        gaps += family_runs.gaps
        if jobs is None and not self._is_selected:
            families = self._families_with_runs(families, runs)
        planned = collect_with_progress(
            "Reading task definitions", rollout.plan_families(families), len(families)
        )
        return rollout, sorted(planned, key=_plan_sort_key)

    @property
    def _is_selected(self) -> bool:
        return bool(self.request.globs or self.request.clusters or self.request.scheduled)

    def _read_runs(
        self, families: Sequence[str], definitions: NewestDefinitionReader, rollout: Rollout
    ) -> FoundRuns:
        """The runs of the sources; without one, of the selected families' log groups."""
        if not self._is_selected:
            return self.runs.read_runs((), definitions.places)
        if self.runs.options.sources:
            return self.runs.read_runs(families, definitions.places)
        own = [family for family in families if family not in rollout.starters.families_of_services]
        return self.runs.read_from_defined_groups(own, definitions)

    def _families_with_runs(
        self, families: Sequence[str], runs: Mapping[FamilyKey, FamilyWindow]
    ) -> tuple[str, ...]:
        """The families that have runs. Raises TaskProfilerError if none of the local
        history's families is this account's.
        """
        names = {key.name for key in runs}
        with_runs = tuple(family for family in families if family in names)
        if not with_runs and reads_local_only(self.runs.options):
            raise TaskProfilerError(
                f"No family of the local history is one of this account: {ELSEWHERE}"
            )
        return with_runs


def _job_definitions(open_client: OpenClient, request: RolloutRequest) -> JobDefinitions | None:
    return JobDefinitions(open_client, SystemClock()) if request.is_of_jobs else None


def _bounded_reads(
    open_client: OpenClient, request: RolloutRequest, jobs: JobDefinitions | None
) -> BoundedReads:
    definitions = jobs or TaskDefinitions(open_client("ecs"))
    return BoundedReads(definitions.describe, reads_twice=request.register)


def _resize_rollout(
    open_client: OpenClient,
    request: RolloutRequest,
    plan_change: PlanChange,
    reads: BoundedReads,
    owners: CloudFormationOwners,
    output: _Output,
    jobs: JobDefinitions | None,
) -> Rollout:
    """The rollout of new sizes, which reads and reports as this command does."""
    return Rollout(
        open_client=open_client,
        request=request,
        plan_change=plan_change,
        part="size",
        owners=owners,
        read_revision=reads.describe,
        jobs=jobs,
        wall_ns=SystemClock().wall_ns,
        on_step=output.print_step,
        on_problem=warn,
    )


def _check_revert(request: RolloutRequest) -> None:
    is_named = bool(request.globs or request.job_definitions)
    if not is_named or request.clusters or request.scheduled or request.queues:
        raise UsageError(
            "--revert puts back the families that are named: give each FAMILY or --job-definition, "
            "without --cluster, --scheduled and --queue."
        )


def _revert_families(open_client: OpenClient, request: RolloutRequest, output: _Output) -> int:
    """Put families back to the size in their tags; no run is read."""
    jobs = _job_definitions(open_client, request)
    reads = _bounded_reads(open_client, request, jobs)
    plans = RevertPlanner(describe=reads.describe)
    owners = CloudFormationOwners(open_client)
    if jobs is not None:
        request = replace(request, globs=request.job_definitions)
    rollout = _resize_rollout(open_client, request, plans.plan_revert, reads, owners, output, jobs)
    families = rollout.selected_families()
    planned = collect_with_progress(
        "Reading task definitions", rollout.plan_families(families), len(families)
    )
    return _print_and_carry_out(rollout, planned, None, output)


def _print_and_carry_out(
    rollout: Rollout,
    planned: Sequence[PlannedFamily],
    first: int | None,
    output: _Output,
    sizes: SizesTarget | None = None,
) -> int:
    """Print the plan, and carry it out as requested."""
    request = rollout.request
    output.print_plan(
        planned, planned, hint="" if request.is_act else "--register registers the revisions."
    )
    unread = [family_plan for family_plan in planned if family_plan.action == "failed"]
    for family_plan in unread:
        warn(f"{family_plan.family}: {decision_of(family_plan).reason}")
    rollout.counts["failed"] += len(unread)
    chosen = _first_resizes(planned, first)
    carried_out = plans_with_new_revision(planned)
    if request.register:
        _ask_before_many(chosen, request)
        carried_out = rollout.done
    try:
        if request.register:
            chosen = [*carry_out_plans(rollout, chosen)]
        if sizes is not None:
            carried_out = []
            carried_out = sizes.write_sizes_of_plan(chosen)
        else:
            pinned = rollout.pinned_sentence(chosen, planned)
            if pinned is not None:
                warn(pinned)
            if request.is_of_jobs and plans_with_new_revision(chosen):
                warn(UNSEEN_SUBMITTERS)
    finally:
        if request.register:
            warn(f"{done_text(rollout.counts, Counter()) or 'nothing registered'}.")
        output.print_total(planned, carried_out)
    return rollout_exit_code(rollout)


def _plan_sort_key(planned: PlannedFamily) -> tuple[bool, float, str]:
    """Families with too little come first, as on the report page, then the largest saving."""
    return not has_too_little_now(planned), -saving_usd_or_zero(planned), planned.family


def _first_resizes(planned: Sequence[PlannedFamily], first: int | None) -> list[PlannedFamily]:
    """The families to carry out: of those with a new revision, only the first, which are the
    largest savings. Those that need more and have to wait are named.
    """
    if first is None:
        return list(planned)
    by_saving = sorted(
        plans_with_new_revision(planned), key=lambda plan: (-saving_usd_or_zero(plan), plan.family)
    )
    waiting = by_saving[first:]
    enlargements = [
        family_plan.family for family_plan in waiting if has_too_little_now(family_plan)
    ]
    if enlargements:
        verb = "needs" if len(enlargements) == 1 else "need"
        warn(
            f"--first {first} leaves out {format_count(len(enlargements), 'family')} that {verb} "
            f"more: {first_names(enlargements)}."
        )
    left_out = {family_plan.family for family_plan in waiting}
    return [family_plan for family_plan in planned if family_plan.family not in left_out]


def _is_at_terminal() -> bool:
    return os.isatty(STDIN) and os.isatty(STDERR)


def _ask_before_many(chosen: Sequence[PlannedFamily], request: RolloutRequest) -> None:
    """Ask whether more than five families are to be registered.

    Raises UsageError without a terminal, and TaskProfilerError for a no.
    """
    count = len(plans_with_new_revision(chosen))
    if request.yes or count <= _MAX_UNASKED:
        return
    if not _is_at_terminal():
        raise UsageError(
            f"{format_count(count, 'family')} would be registered, and nobody can be asked: --yes "
            f"registers more than {_MAX_UNASKED}, --first N only N of them."
        )
    if not click.confirm(f"Register {format_count(count, 'family')}?", err=True):
        raise TaskProfilerError("Nothing was registered, because the answer was no.")


def _write_sizes_into_files(
    files: Sequence[str], runs: RecentRunsReader, policy: ResizePolicy, output: _Output
) -> int:
    """Write the sizes into the JSON of definitions, and say where they are in other files.

    A file without a change is left alone.
    """
    plan = plan_sizes_in_files(files, runs, policy, price_overrides())
    output.print_plan(plan.planned, plan.counted, hint="")
    output.print_total(plan.counted, plans_with_new_revision(plan.counted))
    for file, content in plan.contents.items():
        write_definition(Path(file), content, remedy="make it writable")
        warn(f"{file} was changed.")
    for sentence in plan.unnamed:
        warn(sentence)
    if plan.only_read:
        verb = "is" if len(plan.only_read) == 1 else "are"
        warn(
            f"{first_names(plan.only_read)} {verb} not changed: set the sizes there, or let the "
            "definitions read a file that --write-sizes FILE writes "
            "(docs/from-advice-to-effect.md)."
        )
    return 0
