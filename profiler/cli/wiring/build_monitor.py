"""``task-profiler monitor``: builds the sidecar."""

import os
from functools import partial

from profiler.cli.wiring.build_collectors import metadata_source, read_tags
from profiler.cli.wiring.monitor_process import MonitorProcess
from profiler.collectors.collector import TagRequest
from profiler.core.background_call import BackgroundCall
from profiler.core.signal_handler import SignalHandler
from profiler.monitor.loop import monitor_task
from profiler.monitor.shared_parts import LiveMetrics, SharedParts
from profiler.monitor.task_sampler import TaskSampler
from profiler.readers.ecs.endpoint_client import check_endpoint_address
from profiler.readers.linux.instance import read_instance
from profiler.settings import MonitorSettings, read_settings


def run_monitor(stop: SignalHandler) -> None:
    """Monitor the task this process runs in.

    Raises UsageError if the process has no metadata endpoint.
    """
    settings = read_settings(os.environ)
    if settings.scope == "instance":
        # The sidecar does without its modules.
        from profiler.cli.wiring.build_instance import run_instance_monitor

        run_instance_monitor(settings, stop)
        return
    address = settings.endpoint_address
    version = settings.endpoint_version
    check_endpoint_address(address)
    process = MonitorProcess(settings, stop)

    request: TagRequest | None = None
    if settings.tags:  # at once: the batch may be over when it is first seen
        request = BackgroundCall(
            partial(read_tags, address, version, process.clock), process.clock, seconds=0
        )
    request_tags = None if request is None else lambda _batch: request
    collectors = process.make_collectors(request_tags, lambda: sampler.is_batch_alone)
    shared = process.make_shared_parts(collectors)
    source = metadata_source(address, version, settings.interval_seconds, process.clock, stop)
    sampler = process.make_sampler(source, shared)
    task = process.make_task(sampler, shared)
    monitor_task(task, shared, _live_metrics_exporter(settings, sampler, shared))
    process.drain_outputs()


def _live_metrics_exporter(
    settings: MonitorSettings, sampler: TaskSampler, shared: SharedParts
) -> LiveMetrics:
    """The exporter of live metrics; if it is off, its modules are not imported."""
    port = settings.prometheus_port
    if port is None:
        return LiveMetrics()
    from profiler.monitor.prometheus.exporter import PrometheusExporter  # only where it is enabled
    from profiler.monitor.prometheus.snapshot import SnapshotBuilder

    builder = SnapshotBuilder(sampler, shared, read_instance, settings.task.batch_job)
    return PrometheusExporter(port, builder, shared.log)
