"""``task-profiler doctor``: diagnoses this container, a task definition or a deployed forwarder."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing

import click

from profiler.aws_account.doctor.findings import Finding
from profiler.aws_account.doctor.task_checks import DoctorContext, MachineProbes, diagnose_task
from profiler.cli.aws_names import CLUSTER
from profiler.cli.options import (
    Quantity,
    SourceOptions,
    aws_options,
    flag,
    from_option,
    gathered,
    is_file_name,
    option,
)
from profiler.cli.printing import write_json_lines
from profiler.cli.standard_streams import terminal_columns
from profiler.cli.styled_text import Line, Span, wrapped_lines, write_lines
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.build_collectors import metadata_source
from profiler.cli.wiring.open_past_runs import open_search, source_names
from profiler.collectors.neuron import find_neuron_monitor, neuron_devices
from profiler.collectors.nvidia import is_driver_present
from profiler.collectors.nvidia.nvml_calls import load_binding
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import DriverReading
from profiler.collectors.processes.discovery import pids_of, visible_devices
from profiler.collectors.stacks.py_spy import PySpy, find_py_spy
from profiler.core.background_call import run_with_timeout
from profiler.core.clock import Clock, SystemClock
from profiler.core.commands_to_copy import command_line, template_command
from profiler.core.ecs_terms import definition_in, is_arn_or_page, is_task_id, run_id_in
from profiler.core.errors import UsageError
from profiler.core.optional_math import known, known_values
from profiler.readers import Unavailable
from profiler.readers.cgroup.container_group import find_container_cgroup
from profiler.readers.linux.host import read_host
from profiler.readers.linux.kernel_view import read_kernel_view
from profiler.record.batch_job import is_job_id
from profiler.search_setup.template_install import prefixed_name, setup_files
from profiler.settings import endpoint_address, read_settings
from profiler.sinks import DeliveryFailure, LogTarget
from profiler.sinks.report_upload import CloudWatchLogsSink, connect_logs_client

_NETWORK_SECONDS = 15.0
_DRIVER_SECONDS = 10.0
_DRIVER_TIMEOUT = Unavailable(f"the driver did not answer within {_DRIVER_SECONDS:.0f} s")
_LEVEL_STYLES = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "red")}


@click.command(
    "doctor",
    epilog="Example, as the monitor's command in a task definition for one run: "
    '"command": ["doctor"]; before the first run: task-profiler doctor nightly-etl.json',
)
@click.argument("name", metavar="[FILE|FAMILY|JOB-ID]", required=False)
@flag(
    "--json as_json",
    "Print one JSON object per finding (topic, level, text, advice) or per family.",
)
@option(
    "--seconds",
    "TIME",
    "Watch the stats for at most this time, up to 10m.",
    type=Quantity("parse_seconds", 0, 600),
    default="25s",
)
@option("--cluster", "NAME", "Check all families of this ECS cluster instead.", type=CLUSTER)
@option("--queue", "NAME", "Check why the jobs of this queue of AWS Batch do not start instead.")
@option("--deployed stack", "STACK", "Check the forwarder in this CloudFormation stack instead.")
@from_option
@aws_options
@gathered(SourceOptions, "options")
def doctor(
    *,
    name: str | None,
    as_json: bool,
    seconds: float,
    cluster: str | None,
    queue: str | None,
    stack: str | None,
    options: SourceOptions,
) -> None:
    """Check this container, a definition, a job, a cluster or the forwarder: what to change.

    Checks the task metadata, the batch, its processes, its log stream and the permission to write
    to it, GPUs and Neuron devices. To test the permission, the command sends an event that is too
    old for CloudWatch Logs to accept, so nothing is written; only this test uses --region and
    --profile. The exit code is 1 if there is a problem.

    FILE is a task definition, or a job definition of AWS Batch, to check before its first run.
    FAMILY checks its latest revision in ECS, or FAMILY:REVISION, the schedules that start it, and
    what --cluster checks of each family of a cluster: monitor, image, roles, log group,
    subscription, last report. --deployed checks a forwarder: its stack, subscriptions, functions
    and their last errors, and queues. JOB-ID and --queue say why a job of AWS Batch, or a queue's
    first one, does not start. https://HOST in --from is searched for reports (FAMILY, --cluster) or
    index templates.
    """
    if len(known_values((name, cluster, queue, stack))) > 1:
        raise UsageError(
            "FILE, FAMILY, JOB-ID, --cluster, --queue and --deployed are different checks: use one "
            "of them."
        )
    name = known(_checked_name, name)
    clock = SystemClock()
    if cluster is not None:
        # Slow to import, and not for the monitor's container.
        from profiler.cli.doctor.account_checks import check_cluster

        sys.exit(check_cluster(cluster, options, clock.wall_ns(), as_json=as_json))
    region = options.region
    profile = options.profile
    if queue is not None or is_job_id(name or ""):
        findings = _findings_of_batch(name, queue, options, clock)
    elif name is not None:
        # Slow to import, too.
        from profiler.cli.doctor.account_checks import findings_of_family, findings_of_file

        if is_file_name(name):
            findings = findings_of_file(name)
        else:
            findings = findings_of_family(name, options, clock.wall_ns())
    elif stack is not None:
        findings = _findings_of_deployment(stack, options, clock)
    else:
        findings = diagnose_task(
            _doctor_context(os.environ, clock, seconds),
            _machine_probes(os.environ, clock, region, profile),
        )
    problems = 0
    for finding in findings:
        problems += finding.level == "problem"
        if as_json:
            write_json_lines([finding])
        else:
            write_lines(_finding_lines(finding, terminal_columns()))
    sys.exit(1 if problems else 0)


def _checked_name(text: str) -> str:
    """What to check. Raises UsageError for a task, and for the address of something else."""
    name = definition_in(run_id_in(text))
    if is_task_id(name):
        raise UsageError(
            f"{name} is a task: {command_line('show', name)} shows its run, and "
            f"{command_line('doctor', 'FAMILY')} checks its definition."
        )
    if is_arn_or_page(name):
        raise UsageError(
            f"{name} is neither a task definition nor a job of AWS Batch: name a family, a file or "
            "the id of a job, or use --cluster, --queue or --deployed."
        )
    return name


def _findings_of_batch(
    job_id: str | None, queue: str | None, options: SourceOptions, clock: Clock
) -> Iterator[Finding]:
    # Slow to import.
    from profiler.aws_account.doctor.job_checks import findings_of_job, findings_of_queue

    open_client = open_clients(options.region, options.profile)
    if queue is not None:
        return findings_of_queue(open_client, queue, clock.wall_ns())
    return findings_of_job(open_client, job_id or "", clock.wall_ns())


def _findings_of_deployment(stack: str, options: SourceOptions, clock: Clock) -> Iterator[Finding]:
    # Slow to import.
    from profiler.aws_account.doctor.deployment_checks import deployment_findings, template_findings

    yield from deployment_findings(stack, open_clients(options.region, options.profile), clock)
    for url in source_names(options, "search"):
        indexed = open_search(url, options)
        names = [prefixed_name(name, indexed.prefix) for name in setup_files().templates]
        address = url.rstrip("/").removesuffix(f"/{indexed.prefix}")
        command = template_command(address, indexed.prefix)
        yield from template_findings(indexed.server, names, command)


def _finding_lines(finding: Finding, width: int | None) -> Iterator[Line]:
    word, colour = _LEVEL_STYLES[finding.level]
    topic = f" {finding.topic:14} "
    yield from wrapped_lines(finding.text, width, Span(f"{word:8}", colour), topic)
    yield from wrapped_lines(finding.advice or "", width, " " * (8 + len(topic)))


def _doctor_context(
    environment: Mapping[str, str], clock: Clock, seconds: float
) -> DoctorContext | None:
    if endpoint_address(environment) is None:
        return None
    settings = read_settings(environment)
    source = metadata_source(
        settings.endpoint_address, settings.endpoint_version, settings.interval_seconds, clock
    )
    return DoctorContext(settings=settings, source=source, clock=clock, max_seconds=seconds)


def _machine_probes(
    environment: Mapping[str, str], clock: Clock, region: str | None, profile: str | None
) -> MachineProbes:
    def read_gpus() -> DriverReading | Unavailable | None:
        if not is_driver_present(environment.get("LD_LIBRARY_PATH"), os.path.exists):
            return None
        source = NvmlSource(load_binding, clock)
        return (
            run_with_timeout(_DRIVER_SECONDS, lambda: source.read_all_gpus(counters=False))
            or _DRIVER_TIMEOUT
        )

    def may_put(target: LogTarget) -> DeliveryFailure | None:
        sink = CloudWatchLogsSink(
            lambda place, warn: connect_logs_client(region or place, warn, profile=profile), clock
        )
        answers = run_with_timeout(_NETWORK_SECONDS, lambda: (sink.check_permission(target),))
        if answers is not None:
            return answers[0]
        reason = (
            f"CloudWatch Logs did not answer within {_NETWORK_SECONDS:.0f} s: the task needs a "
            "route to it."
        )
        return DeliveryFailure(reason)

    return MachineProbes(
        read_gpus=read_gpus,
        visible_devices=visible_devices,
        count_processes=lambda docker_id: sum(1 for _ in pids_of(docker_id)),
        kernel_view=lambda docker_id: read_kernel_view(
            next(pids_of(docker_id), None) if docker_id else None
        ),
        py_spy_version=_py_spy_version,
        can_read_cgroup=_can_read_cgroup,
        find_neuron_monitor=lambda: find_neuron_monitor(environment.get("PATH")),
        neuron_devices=neuron_devices,
        may_put=may_put,
        read_host=read_host,
    )


def _py_spy_version() -> str | None:
    program = find_py_spy(os.environ.get("PATH"), sys.executable)
    if program is None:
        return None
    with closing(PySpy(program, os.environ.get("LD_LIBRARY_PATH"))) as py_spy:
        py_spy.start()
        return py_spy.version


def _can_read_cgroup(docker_id: str) -> bool:
    for pid in pids_of(docker_id):
        cgroup = find_container_cgroup(pid, docker_id)
        if cgroup is not None:
            cgroup.close()
            return True
    return False
