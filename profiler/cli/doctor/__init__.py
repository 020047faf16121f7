"""``task-profiler doctor``: diagnoses this container, a task definition or a deployed forwarder."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

from profiler.cli.options import Number, SourceOptions, aws_options, ca_file_option, search_options
from profiler.cli.wiring.aws_options import AwsOptions
from profiler.collectors.neuron import find_neuron_monitor, neuron_devices
from profiler.collectors.nvidia import is_driver_present
from profiler.collectors.nvidia.gpu_reading_types import DriverReading
from profiler.collectors.nvidia.nvml_library import load_binding
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.processes.discovery import pids_of, visible_devices
from profiler.core.clock import Clock, SystemClock
from profiler.core.errors import UsageError
from profiler.core.threads import run_with_timeout
from profiler.doctor.findings import Finding
from profiler.doctor.task_checks import DoctorContext, Probes, diagnose
from profiler.readers import Unavailable
from profiler.readers.cgroup.container_group import find_container_cgroup
from profiler.readers.linux.kernel_view import read_kernel_view
from profiler.settings import endpoint_address, read_settings
from profiler.sinks import DeliveryFailure, LogTarget
from profiler.sinks.report_upload import CloudWatchLogsSink, Connect, LogsClient, connect

_NETWORK_SECONDS = 15.0
_DRIVER_SECONDS = 10.0
_DRIVER_TIMEOUT = Unavailable(f"the driver did not answer within {_DRIVER_SECONDS:.0f} s")
_LEVEL_STYLES = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "red")}


@click.command(
    "doctor",
    epilog="Example, as the monitor's command in a task definition for one run: "
    '"command": ["doctor"]; before the first run: task-profiler doctor --task nightly-etl.json',
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per finding (topic, level, text, advice) or per family.",
)
@click.option(
    "--seconds",
    type=Number(0, 600),
    default=25.0,
    show_default=True,
    help="Watch the stats for at most this time, to measure how often they are refreshed (on Fargate every 10 s).",
)
@click.option("--task", "file", metavar="FILE", help="Check the task definition in FILE instead, before its first run.")
@click.option(
    "--family",
    metavar="NAME",
    help="Check the latest revision of this family in ECS, or NAME:REVISION, and the schedules that start the family.",
)
@click.option("--cluster", metavar="NAME", help="Check all families of this ECS cluster instead.")
@click.option("--deployed", "stack", metavar="STACK", help="Check the forwarder in this CloudFormation stack instead.")
@click.option(
    "--elasticsearch",
    "url",
    metavar="URL",
    help="With --deployed: check the index templates there, too. With --cluster: look for reports there.",
)
@click.option("--url", "ui_url", metavar="URL", help="With --deployed: check the dashboards in this Kibana, too.")
@search_options
@ca_file_option
@aws_options
def command(
    *,
    as_json: bool,
    seconds: float,
    file: str | None,
    family: str | None,
    cluster: str | None,
    stack: str | None,
    region: str | None,
    profile: str | None,
    **search: Any,  # noqa: ANN401  the values of options
) -> None:
    """Show what can be measured in this container and what to change in the task definition.

    Checks the task metadata, the batch, its processes, its log stream and the permission to write to
    it, GPUs and Neuron devices. To test the permission, the command sends an event that is too old for CloudWatch
    Logs to accept, so nothing is written; only this test uses --region and --profile. The exit code
    is 1 if there is a problem.

    --task and --family check a task definition from outside. --cluster checks the families of a
    cluster: monitor, role, log group, subscription, last report. --deployed checks a forwarder: its
    stack, subscriptions, functions and their last errors, queues and alarms.
    """
    if sum(option is not None for option in (file, family, cluster, stack)) > 1:
        raise UsageError("--task, --family, --cluster and --deployed are different checks: use one of them.")
    if stack is None and (search["ui_url"] or (search["url"] and cluster is None)):
        raise UsageError("--elasticsearch and --url belong to the forwarder: add --deployed STACK.")
    clock = SystemClock()
    if cluster is not None:
        from profiler.cli.doctor.cluster_command import check_cluster  # not in the monitor's container

        del search["ui_url"]
        sys.exit(
            check_cluster(cluster, SourceOptions(region=region, profile=profile, **search), clock, as_json=as_json)
        )
    if file is not None or family is not None:
        from profiler.cli.doctor.definition_command import (
            findings_of_family,
            findings_of_file,
        )  # not in the monitor's container

        findings = findings_of_file(file) if file is not None else findings_of_family(family or "", region, profile)
    elif stack is not None:
        from profiler.cli.doctor.deployment_command import findings_of_deployment  # as above

        findings = findings_of_deployment(stack, AwsOptions(region=region, profile=profile), search, clock)
    else:

        def connect_to(region_of_stream: str | None, on_failure: Callable[[str], None]) -> LogsClient:
            return connect(region or region_of_stream, on_failure, profile=profile)

        findings = diagnose(_doctor_context(os.environ, clock, seconds), _probes(os.environ, clock, connect_to))
    problems = 0
    for finding in findings:
        problems += finding.level == "problem"
        click.echo(msgspec.json.encode(finding) if as_json else _lines(finding))
    sys.exit(1 if problems else 0)


def _lines(finding: Finding) -> str:
    word, colour = _LEVEL_STYLES[finding.level]
    first = f"{click.style(f'{word:8}', fg=colour)} {finding.topic:14} {finding.text}"
    return first if finding.advice is None else f"{first}\n{'':24}{finding.advice}"


def _doctor_context(environment: Mapping[str, str], clock: Clock, seconds: float) -> DoctorContext | None:
    if endpoint_address(environment) is None:
        return None
    from profiler.cli.wiring.task_endpoint import metadata_source  # only in ECS

    settings = read_settings(environment)
    source = metadata_source(settings.endpoint_address, settings.endpoint_version, settings.interval_seconds, clock)
    return DoctorContext(settings=settings, source=source, clock=clock, max_seconds=seconds)


def _probes(environment: Mapping[str, str], clock: Clock, connect_to: Connect) -> Probes:
    def read_gpus() -> DriverReading | Unavailable | None:
        if not is_driver_present(environment.get("LD_LIBRARY_PATH"), os.path.exists):
            return None
        source = NvmlSource(load_binding, clock)
        return run_with_timeout(_DRIVER_SECONDS, lambda: source.read(counters=False)) or _DRIVER_TIMEOUT

    def may_put(target: LogTarget) -> DeliveryFailure | None:
        sink = CloudWatchLogsSink(connect_to, clock)
        timeout = DeliveryFailure(
            f"CloudWatch Logs did not answer within {_NETWORK_SECONDS:.0f} s: the task needs a route to it."
        )
        answers = run_with_timeout(_NETWORK_SECONDS, lambda: (sink.check_permission(target),))
        return timeout if answers is None else answers[0]

    def read_tags() -> Mapping[str, str] | Unavailable:
        from profiler.cli.wiring.task_endpoint import tag_lookup  # only in ECS

        settings = read_settings(environment)
        return tag_lookup(settings.endpoint_address, settings.endpoint_version, clock)()

    return Probes(
        read_gpus=read_gpus,
        visible_devices=visible_devices,
        count_processes=lambda docker_id: sum(1 for _ in pids_of(docker_id)),
        kernel_view=lambda docker_id: read_kernel_view(next(pids_of(docker_id), None) if docker_id else None),
        py_spy_version=lambda: _py_spy_version(clock),
        can_read_cgroup=_can_read_cgroup,
        find_neuron_monitor=lambda: find_neuron_monitor(environment.get("PATH")),
        neuron_devices=neuron_devices,
        may_put=may_put,
        read_tags=read_tags,
    )


def _py_spy_version(clock: Clock) -> str | None:
    from profiler.collectors.stacks.py_spy import PySpy, find_py_spy  # only with call stacks

    program = find_py_spy(os.environ.get("PATH"), sys.executable)
    if program is None:
        return None
    py_spy = PySpy(program, clock.monotonic_ns)
    py_spy.start()
    try:
        return py_spy.version
    finally:
        py_spy.close()


def _can_read_cgroup(docker_id: str) -> bool:
    for pid in pids_of(docker_id):
        cgroup = find_container_cgroup(pid, docker_id)
        if cgroup is not None:
            cgroup.close()
            return True
    return False
