"""``task-profiler monitor`` with ``TASK_PROFILER_SCOPE=instance``: builds the monitor of all
tasks of an instance.
"""

import resource
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from profiler.cli.wiring.build_collectors import metadata_source, read_tags
from profiler.cli.wiring.monitor_process import MonitorProcess
from profiler.collectors.collector import TagRequest
from profiler.core.aws_clients import AwsClient
from profiler.core.background_call import BackgroundCall
from profiler.core.clock import Clock
from profiler.core.signal_handler import SignalHandler
from profiler.core.threads import WakeEvent
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.instance.instance_loop import InstanceAccess, InstanceLoop
from profiler.monitor.instance.reported_file import ReportedFile
from profiler.readers.docker.docker_api import SOCKET, DockerApi, DockerEvents, connect_docker
from profiler.readers.docker.task_groups import InstanceCgroups
from profiler.readers.ecs.container_stats import parse_device_mapper_majors
from profiler.readers.linux import proc
from profiler.settings import MonitorSettings
from profiler.sinks.report_upload import Connect, connect_logs_client

_STATE_FILE = Path("/var/lib/task-profiler/reported")
_CLIENT_AGE_NS = 600 * NS_PER_SECOND


def run_instance_monitor(settings: MonitorSettings, stop: SignalHandler) -> None:
    """Monitor the tasks of the instance until a stop request."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # ten files of each container are open
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    process = MonitorProcess(settings, stop)
    wake = WakeEvent()
    clock = process.clock
    log = process.log
    reported = ReportedFile(_STATE_FILE, log)
    reported.load()

    def request_tags(batch: str) -> TagRequest:
        return BackgroundCall(
            partial(read_tags, loop.address_of(batch) or "", 4, clock), clock, seconds=0
        )

    collectors = process.make_collectors(
        request_tags if settings.tags else None,
        gpus_of=lambda batch: loop.gpus_of(batch),  # noqa: PLW0108  made later
        mps_of=lambda batch: loop.mps_of(batch),  # noqa: PLW0108  as above
    )
    shared = process.make_shared_parts(collectors, _share_clients(clock), reported)

    def wait(seconds: float) -> None:
        if stop.wait_readable(wake, seconds):
            wake.clear()

    access = InstanceAccess(
        docker=DockerApi(SOCKET, clock, stop),
        events=DockerEvents(partial(connect_docker, SOCKET), wake.set, log, clock),
        groups=InstanceCgroups(
            device_mapper_majors=parse_device_mapper_majors(proc.read_text("/proc/devices"))
        ),
        open_agent=lambda address: metadata_source(
            address, settings.endpoint_version, settings.interval_seconds, clock, stop
        ),
        read_network=_read_no_network if settings.processes == "off" else _read_network,
    )
    loop = InstanceLoop(
        access,
        shared,
        families=settings.families,
        own_address=settings.endpoint_address,
        reported=reported,
        make_task=lambda source: process.make_task(
            process.make_sampler(source, shared), shared, tuple(source.warnings)
        ),
        wait=wait,
    )
    loop.run()
    process.drain_outputs()


def _read_network(pid: int) -> tuple[int, int] | None:
    """The bytes that the network namespace of a process has received and sent."""
    return proc.parse_network(proc.read_or_none(f"/proc/{pid}/net/dev") or b"")


def _read_no_network(_pid: int) -> None:
    """No network: those of the tasks are visible only with the instance's processes."""


def _share_clients(clock: Clock) -> Connect:
    """One client of a region for all uploads, which begin at the same time: a client takes
    megabytes of memory.
    """
    clients: dict[str | None, tuple[AwsClient, int]] = {}
    lock = threading.Lock()

    def shared_client(region: str | None, on_failure: Callable[[str], None]) -> AwsClient:
        with lock:
            client, made_ns = clients.get(region, (None, 0))
            if client is None or clock.monotonic_ns() - made_ns > _CLIENT_AGE_NS:
                client = connect_logs_client(region, on_failure)
                clients[region] = client, clock.monotonic_ns()
            return client

    return shared_client
