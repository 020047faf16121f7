"""The plan and the result of ``task-profiler setup proof``: on a terminal, for programs, and for an
issue.
"""

import secrets
from collections.abc import Iterator, Sequence
from functools import partial

import click
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient, noted_errors
from profiler.aws_account.proof.arrivals import EvidenceReader
from profiler.aws_account.proof.job_plan import JobsPlan, make_jobs_plan
from profiler.aws_account.proof.job_run import JobRunner
from profiler.aws_account.proof.plan import ProofPlan
from profiler.aws_account.proof.proof_checks import ProofRow
from profiler.aws_account.proof.proof_options import ProofOptions
from profiler.aws_account.proof.proof_steps import WAIT_SECONDS, ProofRun, Runner
from profiler.aws_account.proof.task_plan import TasksPlan, make_tasks_plan
from profiler.aws_account.proof.task_run import TaskRunner
from profiler.aws_account.setup.monitor_image import check_default_image
from profiler.cli.interruption import hold_stop_signals
from profiler.cli.options import ProofRequest, SourceOptions
from profiler.cli.printing import NOT_APPLIED, say, say_done, warn, write_json_lines
from profiler.cli.progress import progress_row
from profiler.cli.standard_streams import terminal_columns
from profiler.cli.styled_text import Line, Span, wrapped_lines, write_lines
from profiler.cli.tables import Column, aligned_table, table_width
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_log_groups import log_trust, page_reader
from profiler.cli.wiring.open_past_runs import open_search, parse_source
from profiler.core.clock import Clock, SystemClock
from profiler.core.commands_to_copy import command_line
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.text import words_if_known
from profiler.core.version import __version__
from profiler.record.units import format_count

_STYLES = {"ok": "green", "differs": "red", "not checked": "yellow"}
_TITLES = ("Task", "Check", "", "Expected", "Seen")


def print_proof(
    options: ProofOptions,
    request: ProofRequest,
    clock: Clock | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> int:
    """Print the plan, or carry it out and print the table. Returns the exit code."""
    _check_options(options, request)
    open_client = open_clients(request.region, request.profile)
    new_id = secrets.token_hex(4)
    plan: TasksPlan | JobsPlan
    if options.queue:
        plan = make_jobs_plan(options, new_id, open_client, warn)
    else:
        plan = make_tasks_plan(options, new_id, open_client, warn)
    plan = replace(plan, reads_documents=request.source is not None)
    if options.image is None:
        remedy = f"run {command_line('setup', 'image')}, or name another image with --image"
        check_default_image(open_client, remedy, warn, must_exist=request.yes)
    if not request.yes:
        _print_plan(plan, as_json=request.as_json)
        return 0
    proof = _make_proof_run(request, plan, open_client, clock or SystemClock(), wait_seconds)
    with (
        progress_row() as show,
        hold_stop_signals("It stops, and removes what it has made.") as stop,
    ):
        proof.check_stop = stop.raise_if_stopped
        proof.on_wait = partial(show, "Waiting for reports")
        try:
            proof.run_to_end()
            rows = proof.compare_and_list_rows()
            platform = _platform_text(proof, open_client)
        finally:
            left = proof.clean_up()
            for sentence in left:
                warn(sentence)
    if request.keep:
        warn(f"The log group {plan.log_group_name} is kept.")
    _print_rows(request, plan, rows, platform)
    return 1 if left or any(row.state == "differs" for row in rows) else 0


def _check_options(options: ProofOptions, request: ProofRequest) -> None:
    if bool(options.cluster) == bool(options.queue):
        raise UsageError("The programs run in one place: give either --cluster or --queue.")
    of_tasks = (options.subnets, options.security_groups, options.task_role)
    if options.queue and any(of_tasks):
        raise UsageError(
            "--subnets, --security-groups and --task-role are of tasks: the queue's compute "
            "environment has them for jobs."
        )
    if request.as_json and request.markdown:
        raise UsageError("--json and --markdown are two formats: use one of them.")
    if request.markdown and not request.yes:
        raise UsageError("--markdown prints the result: use it with --yes.")
    if request.source is not None and parse_source(request.source).kind != "search":
        raise UsageError("--from names a search cluster here: give its address, https://HOST.")


def _make_proof_run(
    request: ProofRequest,
    plan: TasksPlan | JobsPlan,
    open_client: OpenClient,
    clock: Clock,
    wait_seconds: float,
) -> ProofRun:
    runner: Runner
    if isinstance(plan, JobsPlan):
        runner = JobRunner(plan=plan, open_client=open_client, clock=clock)
    else:
        runner = TaskRunner(plan=plan, open_client=open_client, clock=clock)
    options = SourceOptions(region=request.region, profile=request.profile)
    documents = None if request.source is None else open_search(request.source, options)
    trust = log_trust(open_client)
    if trust.problem:  # no report could be confirmed
        raise TaskProfilerError(trust.problem)
    reader = EvidenceReader(
        plan=plan,
        describe=runner.add_answers_of_aws,
        open_client=open_client,
        read_pages=page_reader(open_client),
        trust=trust,
        documents=documents,
        clock=clock,
        since_ns=clock.wall_ns(),
    )
    return ProofRun(
        plan=plan,
        runner=runner,
        open_client=open_client,
        clock=clock,
        reader=reader,
        on_step=partial(say_done, as_json=True),
        wait_seconds=wait_seconds,
        keeps_group=request.keep,
    )


def _print_plan(plan: TasksPlan | JobsPlan, *, as_json: bool) -> None:
    document = plan.plan_document()
    if as_json:
        write_json_lines([document])
        return
    for name, value in document.items():
        values = value if isinstance(value, list) else [value]
        separator = " " if name == "problems" else ", "  # sentences
        text = separator.join(map(str, values)) if value not in (None, [], "") else "-"
        write_lines(wrapped_lines(text, terminal_columns(), f"{name:18}"))
    click.echo(NOT_APPLIED, err=True)


def _platform_text(proof: ProofRun, open_client: OpenClient) -> str:
    """The platform version of Fargate, or the agent and the type of the instance."""
    versions = {f"Fargate {task.platform}" for task in proof.tasks if task.platform}
    instances = [task.instance_arn for task in proof.tasks if task.instance_arn]
    if instances and isinstance(proof.plan, TasksPlan):
        with noted_errors(warn, "The instance is unknown", "ecs:DescribeContainerInstances"):
            described = open_client("ecs").describe_container_instances(
                cluster=proof.plan.cluster, containerInstances=instances[:1]
            )
            for instance in described["containerInstances"]:
                attributes = instance.get("attributes", ())
                types = {attribute["name"]: attribute.get("value") for attribute in attributes}
                agent = instance.get("versionInfo", {}).get("agentVersion", "unknown")
                versions.add(f"ECS agent {agent} on {types.get('ecs.instance-type', 'EC2')}")
    return ", ".join(sorted(versions)) or "unknown platform"


def _print_rows(
    request: ProofRequest, plan: ProofPlan, rows: Sequence[ProofRow], platform: str
) -> None:
    if request.as_json:
        result = {"version": __version__, "platform": platform, "rows": rows}
        write_json_lines([result | ({"logGroup": plan.log_group_name} if request.keep else {})])
    elif request.markdown:
        say("\n".join(_markdown_lines(plan, rows, platform)))
    else:
        write_lines(_row_lines(rows, table_width()))
        differing = sum(row.state == "differs" for row in rows)
        warn(f"{platform}: {format_count(len(rows), 'row')}, {differing or 'none'} differ.")


def _row_lines(rows: Sequence[ProofRow], width: int | None) -> Iterator[Line]:
    cells = []
    for row in rows:
        seen = row.seen + words_if_known(": {}", row.detail)
        state = Span(row.state, _STYLES[row.state])
        cells.append((row.task, row.check, state, row.expected, seen))
    yield from aligned_table([Column(title, folds=True) for title in _TITLES], cells, width=width)
    for row in rows:
        if row.remedy is not None:
            yield from wrapped_lines(
                f"{row.task}, {row.check}: {row.remedy}", width, "- ", style="red"
            )


def _markdown_lines(plan: ProofPlan, rows: Sequence[ProofRow], platform: str) -> Iterator[str]:
    """The table in this project's words alone: AWS's and the remedies can name the account."""
    yield f"Task Profiler {__version__}, {platform}, {plan.region}"
    yield ""
    yield "| task | check | | expected | seen |"
    yield "|---|---|---|---|---|"
    for row in rows:
        yield f"| {row.task} | {row.check} | {row.state} | {row.expected} | {row.seen} |"
