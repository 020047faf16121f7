"""``task-profiler taskdef``: task definitions in files, on standard input and in Amazon ECS."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.cloudformation_owners import CloudFormationOwners
from profiler.aws_account.overlapping_permissions import with_shared_streams
from profiler.aws_account.planned_family import (
    PlanChange,
    PlannedFamily,
    plan_addition,
    plan_removal,
)
from profiler.aws_account.report_prerequisites import ReportPathReader, task_role
from profiler.aws_account.rollout import Rollout
from profiler.aws_account.rollout_request import RolloutRequest
from profiler.cli.aws_names import CLUSTER, CONTAINER, LOG_GROUP, STREAM_PREFIX
from profiler.cli.options import (
    CallStacksCommand,
    WholeSentenceGroup,
    add_options,
    aws_options,
    call_stacks_option,
    flag,
    gathered,
    image_option,
    is_file_name,
    option,
    repeatable,
    report_stream_option,
)
from profiler.cli.printing import UNKNOWN, say, say_done, warn, write_json_lines
from profiler.cli.progress import say_if_slow
from profiler.cli.resize_command import resize
from profiler.cli.rollout_progress import (
    READING_ACCOUNT,
    attach_policies,
    carry_out_plans,
    check_update_schedules,
    collect_with_progress,
    done_text,
    rollout_exit_code,
)
from profiler.cli.standard_streams import STDERR, write_out
from profiler.cli.styled_text import Line, sentences_about, sentences_of_many, write_lines
from profiler.cli.tables import aligned_table, folding_columns, table_width
from profiler.cli.wiring.aws_options import open_clients, region_of_environment
from profiler.core.clock import SystemClock
from profiler.core.ecs_terms import CONTAINER_VARIABLE, MONITOR_REPOSITORY
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.files import STANDARD_OUTPUT, read_text_file, standard_input
from profiler.core.optional_math import first_known
from profiler.core.text import similar_name, words_if_known
from profiler.core.version import __version__
from profiler.record.model_base import JsonLine
from profiler.record.units import format_count
from profiler.runs.past_runs.record_files import STANDARD_INPUT, source_name
from profiler.settings import SCOPE_VARIABLE, SETTING_NAMES, Scope, read_settings
from profiler.task_definitions.container_snippets import (
    DEFAULT_CONTAINER,
    ContainerFormat,
    ContainerRequest,
    container_text,
)
from profiler.task_definitions.containers import LOG_GROUP_VARIABLE
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument
from profiler.task_definitions.definition_texts import (
    ChangeDefinition,
    ChangeJob,
    change_job_text,
    change_text,
    read_bytes,
    write_definition,
)
from profiler.task_definitions.job_monitor import add_to_job, remove_from_job
from profiler.task_definitions.monitor_changes import AddMonitorOptions
from profiler.task_definitions.monitor_changes import add_monitor as add_to
from profiler.task_definitions.monitor_changes import remove_monitor as remove_from
from profiler.task_definitions.monitor_container import CALL_STACKS_VARIABLE, DEFAULT_STREAM_PREFIX
from profiler.task_definitions.permissions import report_policy

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PREFIX = "TASK_PROFILER_"
_STARTED_BY_PLACE = 2  # of the column in the plan
_ENDPOINT = {"ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/unknown"}
_OPTIONS = {
    CONTAINER_VARIABLE: "--container",
    LOG_GROUP_VARIABLE: "--log-group",
    CALL_STACKS_VARIABLE: "--stacks",
}
_WRAP_NEEDS_JOB = (
    "--wrap changes the command of a job definition of AWS Batch, and this is {}: docs/run.md says "
    "how to put task-profiler run before another command."
)
# The implementation gathers them as RolloutRequest.
_rollout_options = add_options(
    repeatable("--family globs", "GLOB", "Plan these families of ECS."),
    repeatable(
        "--cluster clusters",
        "NAME",
        "Plan the families of this cluster's tasks and schedules.",
        type=CLUSTER,
    ),
    flag(
        "--scheduled",
        "Only families that an EventBridge rule or schedule starts, also by Step Functions.",
    ),
    flag("--services", "Include families that services run."),
    flag("--register", "Register the planned revisions."),
    flag(
        "--update-schedules",
        "With --register: move schedules pinned to a revision that differs only by the monitor.",
    ),
)
_output_options = add_options(
    option("-o --output out", "OUT", "Write the new definition to a file (-: standard output)."),
    flag("--in-place", "Write the new definition to FILE."),
    flag("--json as_json", "Print the plan as one JSON object for each family."),
)


@click.group(
    "taskdef",
    cls=WholeSentenceGroup,
    epilog="Example: task-profiler taskdef add-monitor nightly-etl.json --in-place",
)
def taskdef() -> None:
    """Change task definitions: add or remove the monitor, and resize."""


@taskdef.command(
    "add-monitor",
    cls=CallStacksCommand,
    epilog="Example: task-profiler taskdef add-monitor nightly-etl.json "
    "--image 111122223333.dkr.ecr.us-west-2.amazonaws.com/task-profiler:0.1.0 --in-place",
)
@click.argument("names", metavar="[FILE|FAMILY]...", nargs=-1)
@_rollout_options
@flag("--policy print_policy", "Print the IAM policy that the task roles need.")
@flag(
    "--attach-policy", "Attach that policy to each task role, as the inline policy task-profiler."
)
@flag("--yes", "Attach the policies also without --register.")
@option(
    "--container",
    "NAME",
    "The batch container (default: the only essential container that is not a sidecar).",
)
@image_option(
    "The monitor's image (default: the existing monitor's image, else the image that setup image "
    f"pushes, {MONITOR_REPOSITORY}:{__version__}, in the private registry of the account in the "
    "definition, if it has one).",
)
@option(
    "--log-group",
    "NAME",
    "Send the report to this group (default: the batch's stream, else /ecs/FAMILY).",
    type=LOG_GROUP,
)
@report_stream_option
@flag(
    "--pid shared_pids",
    "Share the process namespace of the task, which makes the kernel's peaks readable.",
)
@flag(
    "--wrap wraps",
    "In a job definition of AWS Batch: put task-profiler run before the batch's command, instead "
    "of a second container.",
)
@call_stacks_option
@repeatable("--setting settings", "NAME=VALUE", "Set this environment variable of each monitor.")
@_output_options
@aws_options
@gathered(RolloutRequest, "request")
@gathered(AddMonitorOptions, "options")
def add_monitor(
    *,
    names: tuple[str, ...],
    request: RolloutRequest,
    options: AddMonitorOptions,
    wraps: bool,
    settings: tuple[str, ...],
    out: str | None,
    in_place: bool,
    as_json: bool,
    region: str | None,
    profile: str | None,
) -> int:
    """Add the monitor container to the task definition in FILE, and print the new definition.

    FILE (JSON or YAML) has the format that register-task-definition reads or
    describe-task-definition prints, or is a CloudFormation template; - is standard input. Other
    containers and the task's size are not changed. An existing monitor is upgraded. Repeating the
    command changes nothing. In a job definition of AWS Batch, a second container gets its share
    from the batch's, or --wrap changes the command.

    FAMILY, as --family, and --cluster print a plan for the families in ECS. --register carries it
    out.
    """
    files, request = _files_and_request(names, request, in_place=in_place, out=out, as_json=as_json)
    options = replace(
        options, region=region_of_environment(region), settings=parse_settings(settings)
    )
    if files:
        return _add_to_files(files, options, wraps=wraps, out=out, in_place=in_place)
    if wraps:
        raise UsageError(_WRAP_NEEDS_JOB.format("a family"))
    # The monitor's parts, for a plan alone.
    from profiler.aws_account.doctor.definition_checks import (
        add_monitor_command,
        image_pull_obstacle,
        start_problems,
    )

    open_client = open_clients(region, profile)
    paths = ReportPathReader(open_client, partial(open_clients, profile=profile))
    of_all = add_monitor_command(
        *request.globs,
        clusters=request.clusters,
        scheduled=request.scheduled,
        services=request.services,
        image=options.image,
    )

    def plan(
        family: str, document: TaskDefinitionDocument, started_by: Sequence[str]
    ) -> PlannedFamily:
        planned = plan_addition(family, document, started_by, options=options)
        role = task_role(planned.changed.definition)
        permission = (
            paths.may_role_write(role, planned.report_stream_arns) if role else None
        )  # a note says it
        if permission == "denied" and request.attach_policy:
            permission = None  # the policy allows it
        command = add_monitor_command(family, image=options.image)
        unmet = start_problems(planned, permission, paths, command, of_all=of_all)
        return replace(
            planned,
            problems=tuple(f"{problem.text} {problem.advice or ''}".rstrip() for problem in unmet),
            obstacle=image_pull_obstacle(planned, paths),
        )

    return _roll_out(request, plan, open_client, image=options.image, as_json=as_json, paths=paths)


def _add_to_files(
    files: Sequence[str],
    options: AddMonitorOptions,
    *,
    wraps: bool,
    out: str | None,
    in_place: bool,
) -> int:
    """Add the monitor to the definitions in the files."""

    def add(
        definition: Mapping[str, object], arn: str | None, template_region: str | None
    ) -> ChangedDefinition:
        if wraps:
            raise UsageError(_WRAP_NEEDS_JOB.format("a task definition"))
        return add_to(definition, options, revision_arn=arn, template_region=template_region)

    return _change_files(
        files,
        add,
        lambda job: add_to_job(job, options, wraps=wraps),
        out=out,
        in_place=in_place,
    )


@taskdef.command(
    "remove-monitor", epilog="Example: task-profiler taskdef remove-monitor 'nightly-*' --register"
)
@click.argument("names", metavar="[FILE|FAMILY]...", nargs=-1)
@_rollout_options
@option("--image", "IMAGE", "The monitor's image, if its repository is not called task-profiler.")
@_output_options
@aws_options
@gathered(RolloutRequest, "request")
def remove_monitor(
    *,
    names: tuple[str, ...],
    request: RolloutRequest,
    image: str | None,
    out: str | None,
    in_place: bool,
    as_json: bool,
    region: str | None,
    profile: str | None,
) -> int:
    """Remove the monitor container from the task definition in FILE, and print the definition
    without it.

    The result is the definition before add-monitor. FAMILY, as --family, and --cluster print a plan
    for the families in ECS, and --register carries it out. IAM policies and log groups are not
    removed.
    """
    files, request = _files_and_request(names, request, in_place=in_place, out=out, as_json=as_json)

    def remove(definition: Mapping[str, object], *_: object) -> ChangedDefinition:
        removed = remove_from(definition, image)
        if removed.old_monitor:
            notes = removed.notes
        else:
            notes = ("There is no monitor: nothing was removed.",)
        return replace(removed, notes=notes)

    if files:
        return _change_files(
            files, remove, lambda job: remove_from_job(job, image), out=out, in_place=in_place
        )
    return _roll_out(
        request,
        lambda family, document, _: plan_removal(family, document, image),
        open_clients(region, profile),
        image=image,
        as_json=as_json,
        paths=None,
    )


@taskdef.command(
    "container",
    cls=CallStacksCommand,
    epilog=(
        "Example: task-profiler taskdef container --format terraform --container etl --log-group "
        "/ecs/etl"
    ),
)
@option(
    "--format output_format",
    "",
    "JSON of the API, HCL for jsonencode(), YAML of CloudFormation, TypeScript of the CDK.",
    type=click.Choice(["json", "terraform", "cloudformation", "cdk"]),
    default="json",
)
@option(
    *("--container", "NAME", "The name of the batch container."),
    type=CONTAINER,
    default=DEFAULT_CONTAINER,
)
@image_option(
    "The monitor's image, which you build and push.",
    default=f"{MONITOR_REPOSITORY}:{__version__}",
)
@option(
    "--log-group",
    "NAME",
    "The log group of the batch's awslogs log driver (default: /ecs/CONTAINER).",
    type=LOG_GROUP,
)
@option(
    "--region",
    "REGION",
    "Region of the log group (default: AWS_REGION, else the deployment's).",
    type=str,
)
@option(
    *("--stream-prefix", "PREFIX", "The batch's awslogs-stream-prefix."),
    type=STREAM_PREFIX,
    default=DEFAULT_STREAM_PREFIX,
)
@report_stream_option
@call_stacks_option
@gathered(ContainerRequest, "request")
def container(*, output_format: ContainerFormat, request: ContainerRequest) -> None:
    """Print the monitor's container definition, to paste into a definition that is kept in code."""
    complete = replace(
        request,
        log_group=request.log_group or f"/ecs/{request.container}",
        region=region_of_environment(request.region),
        report_stream=request.report_stream or "batch",
    )
    if request.stacks is not None and output_format != "cdk":
        warn(
            "Set pidMode to task in the task definition, too, because the monitor must see the "
            "batch's processes."
        )
    say(container_text(complete, output_format), end="")


def parse_settings(texts: tuple[str, ...], scope: Scope = "task") -> dict[str, str]:
    """The variables by their names.

    Raises UsageError for a mistake in a name or a value, and for one without an effect in the
    monitor's scope.
    """
    settings: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (sign and _NAME.fullmatch(name)):
            raise UsageError(
                f"--setting {text!r} is not NAME=VALUE: write a variable's name, =, and its value."
            )
        if name in settings:
            raise UsageError(f"--setting {name} is given twice: use one value.")
        if name in _OPTIONS:
            raise UsageError(
                f"--setting cannot set {name}, which requires further changes: use "
                f"{_OPTIONS[name]}."
            )
        if name.upper().startswith(_PREFIX) and name not in SETTING_NAMES:
            similar = similar_name(name, SETTING_NAMES)
            meant = words_if_known(", but {}", similar)
            raise UsageError(
                f"--setting {name}: the monitor has no such setting{meant}: check its name in "
                "docs/monitor.md."
            )
        settings[name] = value
    problems = read_settings({**_ENDPOINT, SCOPE_VARIABLE: scope, **settings}).problems
    if problems:
        raise UsageError(f"--setting {problems[0]}: correct it, or leave it out.")
    return settings


def _files_and_request(
    names: Sequence[str], request: RolloutRequest, *, in_place: bool, out: str | None, as_json: bool
) -> tuple[tuple[str, ...], RolloutRequest]:
    """The arguments that are files, and the request with the others as families.

    Raises UsageError for options that contradict each other.
    """
    files = tuple(filter(is_file_name, names))
    families = tuple(name for name in names if name not in files)
    request = replace(request, globs=(*families, *request.globs))
    is_account = bool(request.globs or request.clusters)
    if files and is_account:
        raise UsageError(
            f"{files[0]} is a file, and the families of the account are others: give files, or "
            "families and clusters, in a command of its own."
        )
    if not (files or is_account) or "" in (*request.globs, *request.clusters):
        raise UsageError(
            "Task definitions are missing: give a FILE (- is standard input), a FAMILY or "
            "--cluster NAME."
        )
    if is_account and (in_place or out is not None):
        raise UsageError(
            "--in-place and -o write files: with --family or --cluster, use --register."
        )
    of_account = (request.register, request.print_policy, request.attach_policy, request.services)
    if not is_account and any((*of_account, request.scheduled, request.update_schedules)):
        raise UsageError(
            "--register, --update-schedules, --scheduled, --services, --policy and "
            "--attach-policy need --family or --cluster: a file has no revision to compare with."
        )
    if files and as_json:
        raise UsageError(
            "--json prints the plan for families of ECS: the definition in a FILE is printed as "
            "it is."
        )
    check_update_schedules(request)
    return files, request


def _roll_out(
    request: RolloutRequest,
    plan_change: PlanChange,
    open_client: OpenClient,
    *,
    image: str | None,
    as_json: bool,
    paths: ReportPathReader | None,
) -> int:
    """Print the plan of an account's families, and carry it out as requested.

    ``paths`` None: no monitor is added.
    """
    adds = paths is not None
    rollout = Rollout(
        open_client=open_client,
        request=request,
        plan_change=plan_change,
        adds=adds,
        image=image,
        names_starters=adds,
        wall_ns=SystemClock().wall_ns,
        owners=CloudFormationOwners(open_client),
        on_step=partial(say_done, as_json=as_json),
        on_problem=warn,
    )
    with say_if_slow(READING_ACCOUNT):
        families = rollout.selected_families()
        planned = collect_with_progress(
            "Reading task definitions", rollout.plan_families(families), len(families)
        )
        if request.attach_policy or request.print_policy:
            others = rollout.other_streams(families)
            planned = tuple(with_shared_streams(planned, others, image))
    _print_plan(planned, prints_policy=request.print_policy, as_json=as_json, adds=adds)
    if paths is not None:
        for sentence in sorted(paths.problems):
            warn(sentence)
    attaches = request.attach_policy and (request.register or request.yes)
    try:
        _attach_policies(rollout, planned, attaches=attaches)
        if request.register:
            planned = _carry_out_plans(rollout, planned, attaches=attaches)
        attach_policies(
            rollout, tuple(rollout.policies.attached)
        )  # what somebody has replaced since
        if pinned := rollout.pinned_sentence(planned, planned):
            warn(pinned)
    finally:  # also of what was done until Ctrl-C
        rollout.counts["failed"] += sum(family.action == "failed" for family in planned)
        rollout.counts["dead"] = sum(len(family.dead) for family in planned)
        rollout.counts["attached"] = len(rollout.policies.attached)
        rollout.counts["left_roles"] = len(rollout.policies.left_roles)
        if request.register or attaches:
            done = done_text(rollout.counts, Counter(family.action for family in planned))
            warn(f"{format_count(len(planned), 'family')}: {done or 'nothing registered'}.")
    return rollout_exit_code(rollout)


def _attach_policies(rollout: Rollout, planned: Sequence[PlannedFamily], *, attaches: bool) -> None:
    """Attach the policies of the plan, or say why none was attached."""
    policies = tuple(rollout.policies.plan(planned))
    for role_policy in policies:
        if role_policy.prefix_sentence:
            warn(role_policy.prefix_sentence)
    if attaches:
        attach_policies(rollout, policies)
        if not rollout.request.register:  # which says it
            rollout.leave_without_policy(planned)
    elif rollout.request.attach_policy:
        warn(
            "No policy was attached: --yes attaches it without a new revision, --register with one."
        )


def _carry_out_plans(
    rollout: Rollout, planned: Sequence[PlannedFamily], *, attaches: bool
) -> tuple[PlannedFamily, ...]:
    """Carry the plans out, with the policies of definitions that have changed since the plan."""
    done = carry_out_plans(rollout, planned)
    changed = []
    for family_plan, old_plan in zip(done, planned, strict=True):
        if family_plan.document != old_plan.document:
            changed.append(family_plan)
    if attaches:
        attach_policies(rollout, rollout.policies.plan(changed))
    return done


def _print_plan(
    planned: Sequence[PlannedFamily], *, prints_policy: bool, as_json: bool, adds: bool
) -> None:
    """Print the plan, or the policy that it needs, to standard output.

    Raises TaskProfilerError if no policy is needed.
    """
    if prints_policy:  # to standard output, for a program
        write_lines(_plan_table(planned, None, adds=adds), STDERR)
        streams = frozenset[str]().union(*(family.report_stream_arns for family in planned))
        if not streams:
            raise TaskProfilerError(
                "No selected family needs a permission, because no report is written to a "
                "batch's log stream: see the plan."
            )
        say(json.dumps(report_policy(streams), indent=2))
    elif as_json:
        write_json_lines(map(_plan_document, planned))
    else:
        write_lines(_plan_table(planned, table_width(), adds=adds))


def _family_problems(family_plan: PlannedFamily) -> tuple[str, ...]:
    """What is wrong with a family whatever the plan does."""
    return (*family_plan.problems, *(dead.problem_text for dead in family_plan.dead))


class PlanDocument(JsonLine, frozen=True, kw_only=True):
    """What happens to a family, as ``--json`` prints it: ``batch`` is the container that is
    watched, ``startedBy`` the schedules and rules that start the family.
    """

    family: str
    batch: str | None
    started_by: tuple[str, ...]
    action: str
    notes: tuple[str, ...]


def _plan_document(family_plan: PlannedFamily) -> PlanDocument:
    return PlanDocument(
        family=family_plan.family,
        batch=family_plan.changed.batch,
        started_by=family_plan.started_by,
        action=family_plan.action,
        notes=(*family_plan.notes, *_family_problems(family_plan)),
    )


def _plan_table(planned: Sequence[PlannedFamily], width: int | None, *, adds: bool) -> list[Line]:
    """The plan as a table of ``width`` columns, None: no limit, and its problems.

    ``adds``: who starts them, too.
    """
    titles = ["FAMILY", "BATCH", "ACTION", "NOTES"]
    if adds:
        titles.insert(_STARTED_BY_PLACE, "STARTED BY")
    rows = []
    shared = []
    problems = []
    of_many = sentences_of_many(
        (family_plan.family, note) for family_plan in planned for note in family_plan.notes
    )
    for family_plan in planned:
        family = family_plan.family
        own = [note for note in family_plan.notes if (family, note) not in of_many]
        row = [
            family,
            family_plan.changed.batch or UNKNOWN,
            family_plan.action,
            " ".join(own),
        ]
        if adds:
            row.insert(_STARTED_BY_PLACE, ", ".join(family_plan.started_by) or UNKNOWN)
        rows.append(row)
        # What many families have in common is said once, below the table.
        for note in family_plan.notes:
            if note not in own:
                shared.append((family, of_many[family, note], ""))
        for sentence in _family_problems(family_plan):
            problems.append((family, sentence, "red"))
    return [
        *aligned_table(folding_columns(*titles), rows, width=width),
        *sentences_about([*shared, *problems], width),
    ]


def _change_files(
    files: Sequence[str],
    change: ChangeDefinition,
    change_job: ChangeJob,
    *,
    out: str | None,
    in_place: bool,
) -> int:
    """Change the files, of which a hyphen is standard input, and write or print the results if
    all can be changed.
    """
    if in_place and STANDARD_INPUT in files:
        raise UsageError("--in-place needs a FILE to write to: name one, or use -o OUT.")
    if in_place and out is not None:
        raise UsageError("--in-place and -o are two destinations: use one of them.")
    if len(files) > 1 and not in_place:
        raise UsageError(
            "Several files can only be changed in place: add --in-place, or name one FILE."
        )
    changes = {}
    for file in files:
        data, name = read_input(file), source_name(file)
        changes[file] = change_job_text(data, name, change_job) or change_text(data, name, change)
    for file, changed in changes.items():
        for note in changed.notes:
            warn(note if len(files) == 1 else f"{file}: {note}")
        if out in (None, STANDARD_OUTPUT) and not in_place:
            write_out(changed.after)
        elif out is not None or changed.is_changed:
            write_definition(
                Path(first_known(out, file)),
                changed.after,
                remedy="name another file with -o",
            )
    return 0


def read_input(file: str) -> bytes:
    """The content of a file, or of standard input for a hyphen.

    Raises TaskProfilerError if it cannot be read, or is too large.
    """
    if file == STANDARD_INPUT:
        name = source_name(file)
        try:
            return read_text_file(standard_input(), name, "a task definition")
        except OSError as error:
            raise TaskProfilerError(
                f"{name} cannot be read ({error.strerror}): name the file of a task definition."
            ) from error
    return read_bytes(Path(file))


taskdef.add_command(resize)
