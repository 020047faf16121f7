"""``task-profiler monitor`` with ``TASK_PROFILER_SCOPE=instance``: builds the monitor of all tasks of an instance."""

import os
import resource
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from profiler.cli.wiring.build_collectors import accelerator_collectors, batch_processes, tag_lookup
from profiler.cli.wiring.monitor_process import drain_outputs, shared_parts
from profiler.collectors.collector import Collector, TaskTags
from profiler.core.aws_clients import AwsClient
from profiler.core.clock import Clock, SystemClock
from profiler.core.deadline_writer import standard_outputs
from profiler.core.log import JsonLog
from profiler.core.stop_request import SignalHandler
from profiler.core.threads import BackgroundCall, WakeEvent
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.instance.instance_loop import FollowedFamilies, InstanceAccess, InstanceLoop
from profiler.monitor.instance.instance_task import InstanceTask
from profiler.monitor.instance.reported_file import ReportedFile
from profiler.monitor.loop import MonitoredTask
from profiler.monitor.task_sampler import OutputWarning, SwapWarning, TaskSampler
from profiler.readers.docker.docker_api import SOCKETS, DockerApi, connect_docker
from profiler.readers.docker.docker_events import DockerEvents
from profiler.readers.docker.task_groups import InstanceCgroups
from profiler.readers.ecs.container_stats import parse_device_mapper_majors
from profiler.readers.ecs.endpoint_client import HttpEndpoint, TaskMetadataSource
from profiler.readers.linux import proc
from profiler.readers.linux.host import read_host, read_swap_counters, with_processor
from profiler.settings import MonitorSettings, problems_message
from profiler.sinks.report_upload import Connect, connect

_STATE_FILE = Path("/var/lib/task-profiler/reported")
_CLIENT_AGE_NS = 600 * NS_PER_SECOND


def run_instance_monitor(settings: MonitorSettings, stop: SignalHandler) -> None:
    """Monitor the tasks of the instance until a stop request."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # ten files of each container are open
    clock, interval_ns = SystemClock(), round(settings.interval_seconds * NS_PER_SECOND)
    stdout, stderr = standard_outputs()
    log, wake = JsonLog(stderr), WakeEvent()
    reported = ReportedFile(_STATE_FILE, log)
    reported.load()
    collectors: list[Collector] = [SwapWarning(read_swap_counters), OutputWarning(stdout, stderr)]
    collectors += _collectors(settings, clock, log, interval_ns, lambda batch: loop.gpus_of(batch))  # noqa: PLW0108  made later
    if settings.tags:
        collectors.append(
            TaskTags(lambda batch: BackgroundCall(tag_lookup(loop.address_of(batch) or "", 4, clock), clock, seconds=0))
        )
    shared = shared_parts(
        settings,
        stop,
        clock=clock,
        stdout=stdout,
        log=log,
        collectors=collectors,
        connect_logs=_shared_clients(clock),
        reported=reported,
    )
    host, points = with_processor(read_host()), settings.task.series_points
    problems = (problems_message(settings.problems),) if settings.problems else ()

    def make_task(source: InstanceTask) -> MonitoredTask:
        sampler = TaskSampler(source, clock, log, interval_ns, shared.collectors, series_points=points, host=host)
        return MonitoredTask(settings.task, sampler, shared, (*problems, *source.warnings))

    def wait(seconds: float) -> None:
        if stop.wait_readable(wake, seconds):
            wake.clear()

    access = InstanceAccess(
        docker=DockerApi(SOCKETS, clock, stop),
        events=DockerEvents(lambda seconds: connect_docker(SOCKETS, seconds), wake.set, log, clock),
        groups=InstanceCgroups(device_mapper_majors=parse_device_mapper_majors(proc.read_text("/proc/devices"))),
        open_agent=lambda address: TaskMetadataSource(
            HttpEndpoint(address, settings.interval_seconds, clock, stop), settings.endpoint_version
        ),
        read_network=lambda pid: (
            None if settings.processes == "off" else proc.parse_network(proc.read(f"/proc/{pid}/net/dev") or b"")
        ),
    )
    watched = FollowedFamilies(families=settings.families, own_address=settings.endpoint_address)
    for problem in problems:
        log.warning(problem)
    loop = InstanceLoop(access, watched, shared, reported=reported, make_task=make_task, wait=wait)
    loop.run()
    drain_outputs(settings, stop, clock, (stdout, stderr))


def _collectors(
    settings: MonitorSettings, clock: Clock, log: JsonLog, interval_ns: int, gpus_of: Callable[[str], str | None]
) -> tuple[Collector, ...]:
    """The collectors of GPUs and, where they are enabled, of processes and stacks. Neuron devices have none here."""
    accelerators = accelerator_collectors(
        replace(settings.accelerators, neuron="off"),
        os.environ,
        clock,
        log,
        settings.interval_seconds,
        hour_usd=None if settings.task.prices is None else settings.task.prices.hour_usd,
        gpus_of=gpus_of,
    )
    if settings.processes == "off":
        return accelerators
    processes = batch_processes(settings, clock, interval_ns, accelerators, lambda: False)
    if settings.stacks == "off":
        return (processes, *accelerators)
    from profiler.cli.wiring.build_stacks import task_stacks  # only where it is enabled

    return (processes, *accelerators, task_stacks(settings.stacks, clock, log))


def _shared_clients(clock: Clock) -> Connect:
    """One client of a region for all uploads, which begin at the same time: a client takes megabytes of memory."""
    clients: dict[str | None, tuple[AwsClient, int]] = {}
    lock = threading.Lock()

    def shared_client(region: str | None, on_failure: Callable[[str], None]) -> AwsClient:
        with lock:
            client, made_ns = clients.get(region, (None, 0))
            if client is None or clock.monotonic_ns() - made_ns > _CLIENT_AGE_NS:
                client = connect(region, on_failure)
                clients[region] = client, clock.monotonic_ns()
            return client

    return shared_client
