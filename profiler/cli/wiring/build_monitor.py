"""``task-profiler monitor``: builds the sidecar."""

import os
from typing import TYPE_CHECKING

from profiler.cli.wiring.build_collectors import accelerator_collectors, batch_processes, metadata_source, tag_lookup
from profiler.cli.wiring.monitor_process import drain_outputs, shared_parts
from profiler.collectors.collector import Collector, TagRequest, TaskTags
from profiler.core.clock import SystemClock
from profiler.core.deadline_writer import standard_outputs
from profiler.core.log import JsonLog
from profiler.core.stop_request import SignalHandler
from profiler.core.threads import BackgroundCall
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.loop import MonitoredTask, MonitorLoop
from profiler.monitor.shared_parts import SharedParts
from profiler.monitor.task_sampler import OutputWarning, SwapWarning, TaskSampler
from profiler.readers.ecs.endpoint_client import check_address
from profiler.readers.linux.host import read_host, read_instance, read_swap_counters, with_processor
from profiler.settings import problems_message, read_settings

if TYPE_CHECKING:
    from profiler.monitor.prometheus.exporter import PrometheusExporter


def run_monitor(stop: SignalHandler) -> None:
    """Monitor the task this process runs in. Raises UsageError if the process has no metadata endpoint."""
    settings = read_settings(os.environ)
    if settings.scope == "instance":
        from profiler.cli.wiring.build_instance import run_instance_monitor  # the sidecar does without its modules

        run_instance_monitor(settings, stop)
        return
    check_address(settings.endpoint_address)
    clock = SystemClock()
    interval_ns = round(settings.interval_seconds * NS_PER_SECOND)
    stdout, stderr = standard_outputs()
    log = JsonLog(stderr)
    accelerators = accelerator_collectors(
        settings.accelerators,
        os.environ,
        clock,
        log,
        settings.interval_seconds,
        hour_usd=None if settings.task.prices is None else settings.task.prices.hour_usd,
    )
    collectors: list[Collector] = [
        SwapWarning(read_swap_counters),
        OutputWarning(stdout, stderr),
        batch_processes(settings, clock, interval_ns, accelerators, lambda: sampler.is_batch_alone),
        *accelerators,
    ]
    if settings.stacks != "off":
        from profiler.cli.wiring.build_stacks import task_stacks  # only where it is enabled

        collectors.append(task_stacks(settings.stacks, clock, log))
    if settings.tags:
        read_tags = tag_lookup(settings.endpoint_address, settings.endpoint_version, clock)
        request: TagRequest = BackgroundCall(read_tags, clock, seconds=0)
        collectors.append(TaskTags(lambda _batch: request))
    shared = shared_parts(settings, stop, clock=clock, stdout=stdout, log=log, collectors=collectors)
    source = metadata_source(
        settings.endpoint_address, settings.endpoint_version, settings.interval_seconds, clock, stop
    )
    host, points = with_processor(read_host()), settings.task.series_points
    sampler = TaskSampler(source, clock, log, interval_ns, shared.collectors, series_points=points, host=host)
    warnings = (problems_message(settings.problems),) if settings.problems else ()
    task = MonitoredTask(settings.task, sampler, shared, warnings)
    MonitorLoop((task,), shared, _exporter(settings.prometheus_port, sampler, shared)).run()
    drain_outputs(settings, stop, clock, (stdout, stderr))


def _exporter(port: int | None, sampler: TaskSampler, shared: SharedParts) -> "PrometheusExporter | None":
    """The exporter of live metrics; None if it is off, and then its modules are not imported."""
    if port is None:
        return None
    from profiler.monitor.prometheus.exporter import PrometheusExporter  # only where it is enabled
    from profiler.monitor.prometheus.snapshot import SnapshotBuilder

    return PrometheusExporter(port, SnapshotBuilder(sampler, shared, read_instance), shared.log)
